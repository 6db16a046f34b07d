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
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from directsuite.errors import InvalidArgumentError
from directsuite.wire import base64

if TYPE_CHECKING:
    from directsuite.core.answer import Incoming


T = TypeVar("T")


class DestinationError(Exception):
    """The local file could not be written; `reason` is why. Kept apart from failures of the network."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(type(reason).__name__)
        self.reason = reason


def checked(destination: str | PathLike[str]) -> Path:
    """The destination as a path; InvalidArgumentError where its folder is missing or it is a folder itself."""
    path = Path(destination)
    if not path.parent.is_dir():
        raise InvalidArgumentError("its folder does not exist: create it first", parameter="destination")
    if path.is_dir():
        raise InvalidArgumentError("it is a folder: name a file in it", parameter="destination")
    return path


async def decode_to(path: Path, incoming: Incoming, alive: Callable[[], None]) -> Path:
    """Write the bytes behind an answer's base64 text to `path`, piece by piece, and return it."""
    decoder = base64.Decoder()
    file, temporary = _local(lambda: _temporary(path))
    try:
        try:
            async for piece in incoming.chunks():
                alive()
                _local(functools.partial(file.write, decoder.feed(piece)))
                await asyncio.sleep(0)
            decoder.finish()
            _local(file.flush)
            await _local_async(lambda: os.fsync(file.fileno()))
        finally:
            _local(file.close)  # it flushes, and a full disk fails here a second time
        _local(lambda: temporary.replace(path))
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path


def _temporary(path: Path) -> tuple[BinaryIO, Path]:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    return os.fdopen(descriptor, "wb"), Path(name)


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
