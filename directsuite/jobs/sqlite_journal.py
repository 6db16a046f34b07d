"""A job's journal in an SQLite file of its own: opened and closed, and asked in the file's own thread."""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from directsuite.durable.group_commit import Transactions
from directsuite.durable.sqlite import SqliteFile

T = TypeVar("T")


class SqliteJournal:
    """Keeps a journal in a file, which is made where there is none. One process has it open at a time."""

    def __init__(self, path: str | os.PathLike[str], kind: SqliteFile[Any]) -> None:
        self._kind = kind
        connect = functools.partial(kind.writing, Path(path).resolve())
        self._writer = Transactions(connect, begin="BEGIN IMMEDIATE", explain=kind.explained)

    async def __aenter__(self) -> Self:
        try:
            await self._writer.open()
        except BaseException:
            await self._writer.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._writer.aclose()

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work gives, in a transaction. Raises the error of this kind of file."""
        with self._kind.explaining():
            return await self._writer.do(work)
