"""Durable state: databases (SQLite and PostgreSQL), files, and the workers of a fleet."""
