"""Documents to sign, their sources and targets.

Any async iterable of `Pdf` is a source. Every run reads it from the start, and skips finished documents by name. In a
target, a file appears complete, with its document's name, or not at all.

target/.directsuite/shard.lease_number/7.random.signed  a PDF in progress
"""

from __future__ import annotations

import abc
import contextlib
import errno
import fnmatch
import hashlib
import itertools
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, Self

import attrs

from directsuite.core.files import explain_os_error, move_new, resolve_path, run_in_thread, sync_folder
from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError, InvalidArgumentError, MissingFileError

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
_DOCUMENT_ERRNOS = frozenset({errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})
"""These errnos, and the types above, concern a single file."""

_NAME_ERRNOS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)
_MAX_ATTEMPTS = 100
_NO_PATH = "the name is not a path below the target (the parts .. and .directsuite are not allowed)"
_NO_NORMAL_FORM = "the name is not a normalized path: leave out empty parts and dots, as in a/b.pdf"
_NO_NAME = "the target does not allow a file of this name ({why})"
_STALE_SECONDS = 7 * 24 * 3600.0
"""No job retries that long. A job whose staging folder is removed stops. Run again, it signs nothing twice."""


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
            is_document_specific=kind in _DOCUMENT_ERROR_TYPES
            or error.errno in _DOCUMENT_ERRNOS
            or isinstance(error, MissingFileError),
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
    """The hexadecimal digest."""
    signature_count: int
    """The number of signatures, not counting empty fields."""
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
        while some := await run_in_thread(take_batch, found):
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


class Target(Protocol):
    """Receives signed PDFs."""

    def staging_dir(self, shard: str, lease_number: int = 0) -> AbstractAsyncContextManager[Path]:
        """Return a context manager for an empty local folder for PDFs in progress.

        shard: a folder name, unique to the job and batch.
        lease_number: a later lease of the shard removes the files of earlier ones, so that they cannot be published.
        """
        ...

    def check(self, name: str) -> None:
        """Raise InvalidArgumentError if a name is invalid. Called before signing."""
        ...

    async def has(self, name: str) -> bool:
        """Return True if the name is in use, and its file is not replaced.

        Raises InvalidArgumentError if the name is invalid, and OSError.
        """
        ...

    async def contains(self, name: str, sha256: str) -> bool:
        """Return True if the file of this name has this SHA-256, in hex. Raises OSError."""
        ...

    async def publish(self, name: str, file: Path) -> None:
        """Move a local file to this name, permanently. A file with the same content counts as published.

        Raises FileExistsError if the name has different content, InvalidArgumentError if it is invalid, and OSError.
        """
        ...


@scrub_class
class TargetFolder:
    """A folder for signed PDFs. A job that signs into it creates it, and its subfolders, as needed.

    overwrite: replace existing files.

    Raises ConfigurationError if the parent folder does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self._path = resolve_path(path, "path")
        self._overwrite = overwrite
        self.place = f"file://{self._path.as_posix()}/"
        """The folder's URL."""
        try:
            _require_folder(self._path if os.path.lexists(self._path) else self._path.parent)
        except OSError as error:
            why = explain_os_error(error)
            raise ConfigurationError(f"the target's folder can't be used ({why}): choose another folder") from None

    @contextlib.asynccontextmanager
    async def staging_dir(self, shard: str, lease_number: int = 0) -> AsyncGenerator[Path]:
        """Create the target if necessary, and a folder in it. Those of interrupted jobs are removed after a week."""
        folder = self._path / STAGING_DIR / f"{shard}.{lease_number}"
        self._path.mkdir(mode=0o700, exist_ok=True)
        # Not in threads: after a cancellation, they might remove files when the next run already uses the folder.
        _recreate_dir(folder, time.time())
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: other jobs use it
                folder.parent.rmdir()

    def check(self, name: str) -> None:
        """See `Target.check`."""
        validate_path(name)
        # Some paths are only absolute or denormalized on Windows.
        if os.name == "nt" and (Path(name).is_absolute() or Path(name).as_posix() != name):
            raise InvalidArgumentError(_NO_PATH, parameter="name")
        validate_encodable(name, sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())

    async def has(self, name: str) -> bool:
        """Return True if a file, folder or link has this name and `overwrite` is False. Raises as `Target.has`."""
        try:
            with translate_name_errors():
                (self._path / name).lstat()  # faster than the switch to a thread
        except FileNotFoundError:
            return False
        return not self._overwrite

    async def contains(self, name: str, sha256: str) -> bool:
        """See `Target.contains`."""
        return await run_in_thread(_has_digest, self._path / name, sha256)

    async def publish(self, name: str, file: Path) -> None:
        """Rename the file, which must have been synced to disk, and sync the folders.

        An existing file is replaced if `overwrite` is True. Otherwise, one with the same content counts as published,
        and one created at the same time is not replaced, except on file systems without hard links. Raises the
        exceptions of `Target.publish`.
        """
        self.check(name)
        with translate_name_errors():
            is_there = await run_in_thread(_publish_file, file, self._path, name, self._overwrite)
        if not is_there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def validate_path(name: str) -> None:
    """Raise InvalidArgumentError if a name is not a normalized path below the target."""
    parts = name.split("/")
    is_empty = {"", "."}.issuperset(parts)
    if is_empty or name.startswith("/") or not {"..", STAGING_DIR}.isdisjoint(parts) or "\0" in name:
        raise InvalidArgumentError(_NO_PATH, parameter="name")
    if not {"", "."}.isdisjoint(parts):
        raise InvalidArgumentError(_NO_NORMAL_FORM, parameter="name")


@contextlib.contextmanager
def translate_name_errors() -> Generator[None]:
    """Raise InvalidArgumentError instead of an OSError that is caused by a name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NAME_ERRNOS:
            raise
        raise InvalidArgumentError(_NO_NAME.format(why=explain_os_error(error)), parameter="name") from None


def validate_encodable(name: str, encoding: str = "utf-8", errors: str = "strict") -> None:
    """Raise InvalidArgumentError if a name cannot be encoded."""
    try:
        name.encode(encoding, errors)
    except UnicodeEncodeError:  # not chained, because it contains the name
        pass
    else:
        return
    raise InvalidArgumentError(_NO_NAME.format(why="it is not valid text"), parameter="name")


def _require_folder(path: Path) -> None:
    if not stat.S_ISDIR(path.stat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _recreate_dir(folder: Path, now: float) -> None:
    """Create an empty folder. Remove its shard's folders of this and earlier leases, and any unchanged for a week."""
    for other in folder.parent.glob("*.*"):
        with contextlib.suppress(OSError, ValueError):  # just removed, or not a staging folder
            if other.stem == folder.stem:
                is_obsolete = int(other.suffix[1:]) <= int(folder.suffix[1:])
            else:
                changed_at = max(each.lstat().st_mtime for each in (other, *other.iterdir()))
                is_obsolete = abs(now - changed_at) > _STALE_SECONDS
            if is_obsolete:
                shutil.rmtree(other, ignore_errors=True)
    for _ in range(_MAX_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the empty parent folder
            return folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _publish_file(file: Path, root: Path, name: str, overwrite: bool) -> bool:
    """Move the file. Return False if the name has different content."""
    place, made = root.joinpath(name), list[Path]()
    try:
        is_there = _move_into_place(file, place, overwrite=overwrite)
    except FileNotFoundError:
        made = [each for each in place.parents if each.is_relative_to(root) and not each.exists()]
        for folder in reversed(made):
            folder.mkdir(mode=0o700, exist_ok=True)
        is_there = _move_into_place(file, place, overwrite=overwrite)
    for folder in [place.parent, *(each.parent for each in made)] if is_there else ():
        sync_folder(folder)
    return is_there


def _move_into_place(file: Path, place: Path, *, overwrite: bool) -> bool:
    if overwrite:
        file.replace(place)
    elif not move_new(file, place):
        if not _has_digest(place, inspect_pdf(file).sha256):
            return False
        file.unlink()
    return True


def _has_digest(place: Path, sha256: str) -> bool:
    try:
        return place.is_file() and inspect_pdf(place).sha256 == sha256
    except PermissionError:  # not readable, so not written by this user
        return False
