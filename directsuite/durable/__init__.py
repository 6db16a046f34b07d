"""Durable state: databases (SQLite and PostgreSQL), and the workers of a fleet."""
