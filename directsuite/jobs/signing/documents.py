"""Documents to sign, and their sources.

Any async iterable of `Pdf` is a source. Every run reads it from the start, and skips finished documents by name.
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

from directsuite.core.files import explain_os_error, resolve_path
from directsuite.core.privacy import scrub_class
from directsuite.errors import InvalidArgumentError

STAGING_DIR = ".directsuite"
"""Folder in a target for PDFs in progress. Sources ignore it."""

MAX_IN_MEMORY_BYTES = 1 << 20
"""Documents up to this size are sent and received in memory, which is faster."""
_PIECE_BYTES = 1 << 20
_SIGNATURE = re.compile(rb"/ByteRange\s{0,8}\[")
PDF_MARKER_BYTES = 1024
"""The header must be in the first bytes of a PDF, and the end marker in the last."""
_LISTING_BATCH_FILES = 500

_DOCUMENT_ERROR_TYPES = frozenset({"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError"})
_DOCUMENT_ERRNOS = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})
"""These errnos, and the types above, concern a single file."""


class SourceError(OSError):
    """A document cannot be read.

    kind: the reason, without the document's name.
    is_document_specific: True if other documents are not affected.
    """

    def __init__(self, kind: str, *, is_document_specific: bool = False) -> None:
        super().__init__(f"a document can't be read ({kind})")
        self.kind = kind
        self.is_document_specific = is_document_specific

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind,), self.__dict__

    @classmethod
    def from_os_error(cls, error: OSError) -> Self:
        """Return a SourceError with the reason of an OSError, without the document's name."""
        kind: str = getattr(error, "kind", type(error).__name__)
        return cls(
            explain_os_error(error),
            is_document_specific=kind in _DOCUMENT_ERROR_TYPES or error.errno in _DOCUMENT_ERRNOS,
        )


class RemoteFile(abc.ABC):
    """Content that is fetched when it is the document's turn."""

    @abc.abstractmethod
    async def fetch(self, file: Path) -> None:
        """Write the content to this new file. Raises OSError."""


@scrub_class
@attrs.frozen(repr=False)
class Pdf:
    """A document to sign.

    name: normalized path at the target, such as b/c.pdf. Must be unique in the job.
    content: the bytes, a file, a RemoteFile, or an async function, called at the document's turn, that returns the
        bytes or a file.
    """

    name: str
    content: bytes | os.PathLike[str] | Callable[[], Awaitable[bytes | os.PathLike[str]]] | RemoteFile

    async def read(self, fetched: Path) -> bytes | Path:
        """Return the bytes or file. fetched: path for a RemoteFile's content. The caller removes it."""
        if isinstance(self.content, RemoteFile):
            await self.content.fetch(fetched)
            return fetched
        content = await self.content() if callable(self.content) else self.content
        return content if isinstance(content, bytes) else Path(content)


@attrs.frozen(kw_only=True)
class PdfInfo:
    """Properties of a PDF."""

    sha256: str
    """In hex."""
    signature_count: int
    """Without empty fields."""
    is_cut_off: bool = False
    """True if the end marker is missing. Services may repair and sign it."""


def inspect_pdf(content: bytes | Path) -> PdfInfo:
    """Return the properties of a PDF. Signatures have a /ByteRange, never compressed. Raises OSError."""
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
    """Return the bytes if the PDF is small, else its file; and its properties. Raises OSError."""
    if isinstance(content, Path) and content.stat().st_size <= MAX_IN_MEMORY_BYTES:
        content = content.read_bytes()
    return content, inspect_pdf(content)


def read_stamp(pdf: Pdf) -> str | None:
    """Return a file's size and modification time, or None if the content is not an accessible file."""
    file = _get_file(pdf)
    try:
        known = None if file is None else file.stat()
    except (OSError, ValueError):
        return None
    return None if known is None else f"{known.st_size} {known.st_mtime_ns}"


def has_changed(pdf: Pdf, stamp: str | None, sha256: str | None) -> bool:
    """Return True if the document's file differs from this stamp, and from this SHA-256.

    Return False if there is no stamp, or no readable file.
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
    """The PDFs of a folder and its subfolders, each named by its relative path. Links to folders are not followed.

    pattern: pattern of the file names, case-insensitive.

    Raises InvalidArgumentError if the folder does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], pattern: str = "*.pdf") -> None:
        self._path = resolve_path(path, "path")
        self._pattern = pattern
        try:
            is_folder, problem = self._path.is_dir(), "the folder does not exist"
        except OSError as error:
            is_folder, problem = False, f"the folder is not accessible ({explain_os_error(error)})"
        if not is_folder:
            raise InvalidArgumentError(f"{problem}: pass the folder that has the PDFs", parameter="path")
        self.place = f"file://{self._path.as_posix()}/"
        """The folder's URL."""

    def named(self, name: str) -> Pdf:
        """Return the document of this name. It need not exist."""
        return Pdf(name, self._path / name)

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        found = _walk_files(self._path, self._pattern)
        while some := await asyncio.to_thread(take_batch, found):
            for file in some:
                yield self.named(Path(file).relative_to(self._path).as_posix())


def _walk_files(folder: Path, pattern: str) -> Generator[str]:
    """Yield the paths of files, without a complete listing in memory as in Path.rglob."""
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
    """Return True also for inaccessible entries: only that document then fails."""
    try:
        return entry.is_file()
    except OSError:
        return True


def take_batch(found: Iterator[str]) -> list[str]:
    """Return the next files of a listing, an empty list at the end."""
    return list(itertools.islice(found, _LISTING_BATCH_FILES))
