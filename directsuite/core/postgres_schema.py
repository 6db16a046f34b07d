"""The schema `directsuite` in a PostgreSQL database: made where there is none, in parts with a version each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

from directsuite.core.postgres_connections import Connection
from directsuite.errors import DirectSuiteError

_LOCK = 0x64732D736368656D
"""Of those who make tables, of whom there may be many at the start of a fleet."""

_VERSIONS = "CREATE TABLE IF NOT EXISTS directsuite.version (part text PRIMARY KEY, version integer NOT NULL)"


async def ensure_part(
    connection: Connection,
    part: str,
    version: int,
    statements: Sequence[LiteralString | bytes],
    *,
    error: type[DirectSuiteError],
) -> bool:
    """Make the tables of a part where there are none, in a transaction. Return True if it made them.

    Raises `error` where they are newer.
    """
    await lock_schema(connection)
    cursor = await connection.execute("SELECT to_regnamespace('directsuite') IS NULL")
    if await cursor.fetchone() == (True,):  # IF NOT EXISTS would ask for the right to make it even where it exists
        await connection.execute("CREATE SCHEMA directsuite")
    await connection.execute(_VERSIONS)
    cursor = await connection.execute("SELECT version FROM directsuite.version WHERE part = %s", (part,))
    found = await cursor.fetchone()
    if found is None:
        for statement in statements:
            await connection.execute(statement)
        await connection.execute("INSERT INTO directsuite.version VALUES (%s, %s)", (part, version))
        return True
    if found[0] > version:
        raise error("The tables in PostgreSQL were made by a newer directsuite: upgrade directsuite to use them.")
    return False


async def lock_schema(connection: Connection) -> None:
    """Keep others from changing the schema until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
