"""Documents to sign: where they come from, and what they are like.

A source is gone through from its beginning at every run: what is done is passed over by its name, so that a job goes on
where it was broken off. Any async iterable of `Pdf` is a source.
"""

from __future__ import annotations

import abc
import asyncio
import errno
import fnmatch
import hashlib
import itertools
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Self

import attrs

from directsuite.core.failures import explain_os_error
from directsuite.core.files import resolve_path
from directsuite.core.privacy import scrub_class
from directsuite.errors import InvalidArgumentError

STAGING_DIR = ".directsuite"
"""A folder in a target for what is in the making, which is no document."""

MAX_IN_MEMORY_BYTES = 1 << 20
"""Bytes of a document that is sent and received in memory: streams cost more than they save."""
_PIECE_BYTES = 1 << 20  # bytes read at a time
_SIGNATURE = re.compile(rb"/ByteRange\s{0,8}\[")
_MAX_SIGNATURE_MATCH_BYTES = 64  # bytes of what the expression matches, at least
PDF_MARKER_BYTES = 1024
"""Bytes at the end of a file, in which a PDF says that it ends, and at its beginning, where it says that it is one."""
CUT_OFF_PROBLEM = "has no end of a PDF (%%EOF), and may be cut off: get a whole copy"
"""What is wrong with a PDF that doesn't say where it ends."""
_LISTING_BATCH_FILES = 500  # of files found at a time


_DOCUMENT_ERROR_TYPES = frozenset({"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError"})
_DOCUMENT_ERRNOS = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})
"""With those, what a system or a storage says of one file, and not of a disk, a network, or this process."""


class SourceError(OSError):
    """A document can't be read. kind: why, without its name. is_its_own: whether that says nothing of others."""

    def __init__(self, kind: str, *, is_document_specific: bool = False) -> None:
        super().__init__(f"a document can't be read ({kind})")
        self.kind = kind
        self.is_document_specific = is_document_specific

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind,), self.__dict__

    @classmethod
    def from_os_error(cls, error: OSError) -> Self:
        """In place of an error that names the document."""
        kind: str = getattr(error, "kind", type(error).__name__)
        return cls(
            explain_os_error(error),
            is_document_specific=kind in _DOCUMENT_ERROR_TYPES or error.errno in _DOCUMENT_ERRNOS,
        )


class RemoteFile(abc.ABC):
    """The bytes of a document that has to be fetched when its turn has come."""

    @abc.abstractmethod
    async def fetch(self, file: Path) -> None:
        """Put them into this file, which isn't there yet. Raises OSError."""


@scrub_class
@attrs.frozen(repr=False)
class Pdf:
    """A document to sign. name: unique in the job, and its path at the target, in normal form: b/c.pdf.

    content: its bytes, its file, or where they are fetched from when its turn has come: an async function that gives
    either, or a RemoteFile.
    """

    name: str
    content: bytes | os.PathLike[str] | Callable[[], Awaitable[bytes | os.PathLike[str]]] | RemoteFile

    async def read(self, fetched: Path) -> bytes | Path:
        """Its bytes, or its file. fetched: the path of one for what has to be fetched, which the caller removes."""
        if isinstance(self.content, RemoteFile):
            await self.content.fetch(fetched)
            return fetched
        content = await self.content() if callable(self.content) else self.content
        return content if isinstance(content, bytes) else Path(content)


@attrs.frozen(kw_only=True)
class PdfInfo:
    """What a PDF is like."""

    sha256: str
    """Of its bytes, in hex."""
    signature_count: int
    """How many it has, empty fields not counted."""
    is_cut_off: bool = False
    """Whether its end is missing, though its beginning is there. Services may repair it, and sign what is left."""


def inspect_pdf(content: bytes | Path) -> PdfInfo:
    """Read a PDF. Every signature names the bytes that it covers, and does so outside of compressed objects.

    Raises OSError.
    """
    digest, count, first, end = hashlib.sha256(), 0, b"", b""
    for piece in _read_pieces(content):
        digest.update(piece)
        first = first or piece[:PDF_MARKER_BYTES]
        window = end + piece
        count += sum(match.end() > len(end) for match in _SIGNATURE.finditer(window))
        end = window[-PDF_MARKER_BYTES:]
    return PdfInfo(
        sha256=digest.hexdigest(), signature_count=count, is_cut_off=b"%PDF-" in first and b"%%EOF" not in end
    )


def load_pdf(content: bytes | Path) -> tuple[bytes | Path, PdfInfo]:
    """Read a PDF once: a small one's bytes, or the file of a larger one, and what it is like. Raises OSError."""
    if isinstance(content, Path) and content.stat().st_size <= MAX_IN_MEMORY_BYTES:
        content = content.read_bytes()
    return content, inspect_pdf(content)


def read_stamp(pdf: Pdf) -> str | None:
    """The size of a document's file and when it was last changed: while they stay, it need not be read again.

    None for a document that is no file, or can't be asked.
    """
    file = _get_file(pdf)
    try:
        known = None if file is None else file.stat()
    except (OSError, ValueError):
        return None
    return None if known is None else f"{known.st_size} {known.st_mtime_ns}"


def has_changed(pdf: Pdf, stamp: str | None, sha256: str | None) -> bool:
    """Return True if the file of a document has changed since it had this stamp and SHA-256.

    What is no file, or has gone, has not changed.
    """
    file, now = _get_file(pdf), read_stamp(pdf)
    if file is None or now is None or stamp in (None, now):
        return False
    try:
        return inspect_pdf(file).sha256 != sha256
    except OSError:
        return False


def _get_file(pdf: Pdf) -> Path | None:
    content = pdf.content
    return None if isinstance(content, bytes | RemoteFile) or callable(content) else Path(content)


def _read_pieces(content: bytes | Path) -> Generator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


@scrub_class
class Folder(AsyncIterable[Pdf]):
    """The PDFs of a folder and of those in it, each under its path from there. pattern: of their names, in
    capital or small letters.

    Links to folders aren't followed. Raises InvalidArgumentError where there is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str], pattern: str = "*.pdf") -> None:
        self._path = resolve_path(path, "path")
        self._pattern = pattern
        try:
            is_folder, problem = self._path.is_dir(), "there is no such folder"
        except OSError as error:
            is_folder, problem = False, f"the folder cannot be found ({explain_os_error(error)})"
        if not is_folder:
            raise InvalidArgumentError(f"{problem}: name the one that has the PDFs", parameter="path")
        self.place = f"file://{self._path.as_posix()}/"
        """Where it is, as a URL."""

    def named(self, name: str) -> Pdf:
        """The document of this name, which need not be there."""
        return Pdf(name, self._path / name)

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        found = _walk_files(self._path, self._pattern)
        while some := await asyncio.to_thread(_take_batch, found):
            for file in some:
                yield self.named(Path(file).relative_to(self._path).as_posix())


def _walk_files(folder: Path, pattern: str) -> Generator[str]:
    """As the system lists them: Path.rglob has all entries of a folder in memory."""
    below = [os.fspath(folder)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != STAGING_DIR:
                        below.append(entry.path)
                elif fnmatch.fnmatch(entry.name.casefold(), pattern.casefold()) and _may_be_file(entry):
                    yield entry.path


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Return True also if the entry cannot be examined, as with a link to itself: the document then fails alone."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _take_batch(found: Iterator[str]) -> list[str]:
    return list(itertools.islice(found, _LISTING_BATCH_FILES))
