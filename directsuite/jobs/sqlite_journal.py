"""A job's journal in an SQLite file of its own: opened and closed, and asked in the file's own thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from directsuite.durable.database import Statement, Tables, Transaction
from directsuite.durable.sqlite import SqliteDatabase, SqliteFile

T = TypeVar("T")


class SqliteJournal:
    """Keeps a journal in a file, which is made where there is none. One process has it open at a time."""

    def __init__(self, path: str | os.PathLike[str], kind: SqliteFile[Any], tables: Sequence[Statement]) -> None:
        self._database = SqliteDatabase(path, kind)
        self._tables = Tables("journal", tuple(tables))

    async def __aenter__(self) -> Self:
        await self._database.open(self._prepare)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.aclose()

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(self._tables)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work gives, in a transaction. Raises the error of this kind of file."""

        async def do(transaction: Transaction) -> T:
            """In the file's own thread."""
            return work(transaction.connection)

        return await self._database.transaction(do)
