"""Answers that go to a file: whole or not at all.

The bytes go to a temporary file beside the destination; only when all have come and are on the disk does it take the
destination's name. A failure leaves the destination as it was and no temporary file behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from directsuite.errors import InvalidArgumentError
from directsuite.wire import base64
from directsuite.wire.mismatch import MismatchError

if TYPE_CHECKING:
    from directsuite.core.answer import Incoming


T = TypeVar("T")


class DestinationError(Exception):
    """The local file could not be written; `reason` is why. Kept apart from failures of the network."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(type(reason).__name__)
        self.reason = reason


class Destination:
    """A file to be written. Its temporary file is there from the beginning: what can't be written is refused at once.

    `with Destination(path) as destination:` leaves no temporary file behind. Raises InvalidArgumentError for a folder
    that is missing or can't be written.
    """

    def __init__(self, destination: str | PathLike[str]) -> None:
        self.path = Path(destination)
        if not self.path.parent.is_dir():
            raise InvalidArgumentError("its folder does not exist: create it first", parameter="destination")
        if self.path.is_dir():
            raise InvalidArgumentError("it is a folder: name a file in it", parameter="destination")
        try:
            descriptor, name = tempfile.mkstemp(prefix=".directsuite-", suffix=".part", dir=self.path.parent)
        except OSError as error:
            reason = type(error).__name__
        else:
            os.close(descriptor)
            self._temporary = Path(name)
            return
        raise InvalidArgumentError(f"no file can be made in its folder ({reason})", parameter="destination")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    async def receive(self, incoming: Incoming, alive: Callable[[], None]) -> Path:
        """Write the bytes behind an answer's base64 text, piece by piece, and give the path."""
        decoder = base64.Decoder()
        written = 0
        file = _local(lambda: self._temporary.open("wb"))
        try:
            async for piece in incoming.chunks():
                alive()
                content = decoder.feed(piece)
                written += _local(functools.partial(file.write, content))
                await asyncio.sleep(0)
            decoder.finish()
            if not written:
                raise MismatchError("base64 text")
            _local(file.flush)
            await _local_async(lambda: os.fsync(file.fileno()))
        finally:
            content = piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered
            _local(file.close)  # it flushes, and a full disk fails here a second time
        _local(lambda: self._temporary.replace(self.path))
        return self.path


def _local(action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:
        raise DestinationError(error) from None


async def _local_async(action: Callable[[], None]) -> None:
    try:
        await asyncio.to_thread(action)
    except OSError as error:
        raise DestinationError(error) from None
