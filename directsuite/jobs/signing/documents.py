"""Documents to sign: where they come from, and what they are like.

A source is gone through from its beginning at every run: what is done is passed over by its name, so that a job goes on
where it was broken off. Any async iterable of `Pdf` is a source.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterator
from pathlib import Path

import attrs

from directsuite.errors import InvalidArgumentError

_PIECE = 1 << 20  # bytes read at a time
_SIGNATURE = re.compile(rb"/ByteRange\s{0,8}\[")
_LONGEST = 64  # bytes of what the expression matches, at least
_NAMES = 500  # of files found at a time


@attrs.frozen(repr=False)
class Pdf:
    """A document to sign. name: unique in the job, and its name at the target.

    content: its bytes, its file, or an async function that gives either when its turn has come.
    """

    name: str
    content: bytes | os.PathLike[str] | Callable[[], Awaitable[bytes | os.PathLike[str]]]

    async def read(self) -> bytes | Path:
        """Its bytes, or its file."""
        content = await self.content() if callable(self.content) else self.content
        return content if isinstance(content, bytes) else Path(content)


@attrs.frozen(kw_only=True)
class Examined:
    """What a PDF is like. sha256: of its bytes, in hex. signatures: how many it has, empty fields not counted."""

    sha256: str
    signatures: int


def examined(content: bytes | Path) -> Examined:
    """Read a PDF. Every signature names the bytes that it covers, and does so outside of compressed objects.

    Raises OSError.
    """
    digest, count, end = hashlib.sha256(), 0, b""
    for piece in _pieces(content):
        digest.update(piece)
        window = end + piece
        count += sum(match.end() > len(end) for match in _SIGNATURE.finditer(window))
        end = window[-_LONGEST:]
    return Examined(sha256=digest.hexdigest(), signatures=count)


def _pieces(content: bytes | Path) -> Generator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


class Folder(AsyncIterable[Pdf]):
    """The PDFs of a folder and of those in it, each under its path from there. pattern: of their names.

    Raises InvalidArgumentError where there is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str], pattern: str = "*.pdf") -> None:
        self._path = Path(path)
        self._pattern = pattern
        if not self._path.is_dir():
            raise InvalidArgumentError("there is no such folder: name the one that has the PDFs", parameter="path")

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        found = (file for file in self._path.rglob(self._pattern) if file.is_file())
        while some := await asyncio.to_thread(_next, found):
            for file in some:
                yield Pdf(name=file.relative_to(self._path).as_posix(), content=file)


def _next(found: Iterator[Path]) -> list[Path]:
    return list(itertools.islice(found, _NAMES))
