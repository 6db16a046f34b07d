"""Statements that tests execute."""

from __future__ import annotations

from directsuite.durable.database import Statement, _to_postgres


def sql(text: str) -> Statement:
    """Return a statement with this text in both dialects. SQLite has no schema."""
    return Statement(_to_postgres(text), text.replace("directsuite.", ""))
