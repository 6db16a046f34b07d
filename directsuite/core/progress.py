"""How far a stream has come, as a callback of the caller's is told."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from directsuite.errors import InvalidArgumentError

Progress = Callable[[int, int | None], None]
"""Called with the bytes of the document that are done, and all there are, or None where that isn't known.

A plain function. It is told 0 when an attempt begins, then of each piece, which is 256 KB at most; a second attempt
begins at 0 again. What it raises ends the call, and comes out as it is or, of a change that has happened, as the cause.
"""


class Meter:
    """Counts the bytes of one attempt after the other. total: bytes there will be, None where that isn't known."""

    def __init__(self, progress: Progress | None, total: int | None = None) -> None:
        refuse_progress(progress)
        self._progress = progress
        self.total = total
        self._done = 0

    def begin(self) -> None:
        """An attempt begins."""
        self._done = 0
        self.tell()

    def advance(self, count: int) -> None:
        """So many more bytes are done."""
        self._done += count
        if count:
            self.tell()

    def end(self) -> None:
        """All are done; a total that was estimated is corrected."""
        if self.total not in (None, self._done):
            self.total = self._done
            self.tell()

    def tell(self) -> None:
        """Call the callback, where there is one."""
        if self._progress is not None:
            self._progress(self._done, self.total)


def refuse_progress(progress: Progress | None) -> None:
    """Raise InvalidArgumentError for a callback that nobody would await."""
    if inspect.iscoroutinefunction(progress):
        raise InvalidArgumentError("give a plain function, not an async one", parameter="progress")
