"""Statements that tests execute."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from directsuite.durable.database import Statement, _to_postgres


def sql(text: str) -> Statement:
    """Return a statement with this text in both dialects. SQLite has no schema."""
    return Statement(_to_postgres(text), text.replace("directsuite.", ""))


def query_file(path: Path | str, text: str) -> list[Any]:
    """Execute a statement in an SQLite file. Return the rows."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()
