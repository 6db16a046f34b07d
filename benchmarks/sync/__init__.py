"""Measurements of synchronisation."""
