"""The documents that come in: each is looked up in the journal, and handed out once if it has not come to its end.

source ─► read ahead, a few ─► looked up together ─► next: whichever worker is free
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from directsuite.jobs.signing.documents import Pdf, SourceError
from directsuite.jobs.signing.entry import Entry

_LOGGER = logging.getLogger("directsuite")

Lookup = Callable[[Sequence[Pdf]], Awaitable[Sequence[Entry | None]]]
"""The entries of documents; None for one that isn't wanted."""


class Intake:
    """Hands out documents of a source. ahead: how many are read before anybody asks for them. gate: none is handed out
    while it isn't set.

    passed_over: those that had come to their end before, or aren't wanted, and those whose name came before.
    """

    def __init__(self, source: AsyncIterable[Pdf], look_up: Lookup, *, ahead: int, gate: asyncio.Event) -> None:
        self.passed_over = 0
        self._source = source
        self._look_up = look_up
        self._ahead = ahead
        self._gate = gate
        self._read = list[Pdf]()
        self._arrived = asyncio.Event()  # something was read, or nothing more will be
        self._wanted = asyncio.Event()  # there is room for more
        self._reader: asyncio.Task[None] | None = None
        self._found = deque[tuple[Entry, Pdf]]()
        self._turn = asyncio.Lock()
        self._taken = set[int]()
        self._ended = set[int]()  # since the last lookup began: entries found by it may be older
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read_ahead())
        self._reader.add_done_callback(lambda _: self._arrived.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            if not self._reader.cancelled():
                self._reader.exception()  # `next` has told of it

    @property
    def under_way(self) -> int:
        """Documents that are handed out."""
        return len(self._taken)

    async def next(self) -> tuple[Entry, Pdf] | None:
        """Another document, which is the caller's until it is put back; None where none comes any more.

        Raises what the source raised, and JournalError; None comes after that.
        """
        async with self._turn:
            while not self._is_over:
                if not self._found:
                    await self._find_some()
                    continue
                if not self._gate.is_set():
                    await self._gate.wait()
                    continue
                entry, pdf = self._found.popleft()
                if entry.number not in self._taken and entry.number not in self._ended:
                    self._taken.add(entry.number)
                    return entry, pdf
                self.passed_over += 1
                _LOGGER.warning(
                    "signing: the source gave number %d of the journal again: a name is one PDF's", entry.number
                )
            return None

    def put_back(self, entry: Entry) -> None:
        """A document has come to its end, or its worker goes."""
        self._taken.discard(entry.number)
        self._ended.add(entry.number)

    def stop(self) -> None:
        """Hand out no more, whatever comes: those who wait get None."""
        self._is_over = True
        self._arrived.set()

    async def _find_some(self) -> None:
        """Look up what was read. At the source's end there is no more to hand out."""
        reader = self._reader
        while reader is not None and not (self._read or reader.done() or self._is_over):
            self._arrived.clear()
            await self._arrived.wait()
        if not self._read or self._is_over:
            self._is_over = True
            if reader is not None and reader.done():
                if reader.cancelled():  # not by `__aexit__`: something was that the source waited for
                    raise SourceError("it was cancelled")
                reader.result()
            return
        some = list(self._read)
        self._read.clear()
        self._wanted.set()
        self._ended.clear()
        for entry, pdf in zip(await self._look_up(some), some, strict=True):
            if entry is None:
                self.passed_over += 1
            else:
                self._found.append((entry, pdf))

    async def _read_ahead(self) -> None:
        coming = aiter(self._source)
        try:
            async for pdf in coming:
                self._read.append(pdf)
                self._arrived.set()
                if len(self._read) >= self._ahead:
                    self._wanted.clear()
                    await self._wanted.wait()
        finally:
            if isinstance(coming, AsyncGenerator):
                await coming.aclose()
