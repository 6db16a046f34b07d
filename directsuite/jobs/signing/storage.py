"""Sources and targets in a storage that fsspec knows, by URL: s3://, gs://, abfs://, sftp://, memory:// and so on.

What fsspec raises is replaced: its texts name documents. Its calls block, and are made in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fnmatch
import hashlib
import importlib
import itertools
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError, InvalidArgumentError
from directsuite.jobs.signing.documents import STAGING_DIR, Pdf, RemoteFile, inspect_pdf
from directsuite.jobs.signing.targets import translate_name_errors, validate_encodable, validate_path

T = TypeVar("T")

_LISTING_BATCH_NAMES = 500  # of documents found at a time
_ATOMIC_PUT_PROTOCOLS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Object stores, in which what is put appears whole or not at all: S3, Google Cloud Storage, Azure Blob Storage."""


class StorageError(OSError):
    """A storage failed. kind: the type of what the library raised for it, whose text may name a document.

    errno: the system's number for it, where there is one.
    """

    def __init__(self, kind: str, number: int | None = None) -> None:
        super().__init__(f"the storage failed ({kind})")
        self.kind = kind
        self.errno = number

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind, self.errno), self.__dict__


@scrub_class
class StorageFolder(AsyncIterable[Pdf]):
    """The PDFs below a URL, each under its path from there. pattern: of their names, in capital or small
    letters.

        StorageFolder("s3://bucket/in", endpoint_url="https://storage.example.org")

    options: those of fsspec for this kind of storage. fsspec lists a folder (in an object store: what is between two
    slashes) as a whole: a million keys are better in folders of some thousands, or in a list of names of your own, each
    made a document by `named`. Raises ConfigurationError where fsspec, or what it needs for a URL, isn't installed.
    """

    def __init__(self, url: str, pattern: str = "*.pdf", **options: Any) -> None:
        self._files, self._root = _open_storage(url, options)
        self._pattern = pattern
        self.place = _build_url(self._files, self._root)
        """Where it is, as a URL."""

    def named(self, name: str) -> Pdf:
        """The document of this name, which need not be there."""
        return Pdf(name, _StoredFile(self._files, f"{self._root}/{name}"))

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        found = self._walk_names()
        while some := await _call_in_thread(_take_batch, found):
            for name in some:
                yield self.named(name)

    def _walk_names(self) -> Generator[str]:
        for folder, _, files in self._files.walk(self._root, on_error="raise"):
            below = str(folder)[len(self._root) :].strip("/")
            for name in files if STAGING_DIR not in below.split("/") else ():
                if fnmatch.fnmatch(name.casefold(), self._pattern.casefold()):
                    yield f"{below}/{name}" if below else name


@scrub_class
class StorageTarget:
    """Signed PDFs below a URL. options: those of fsspec for this kind of storage.

    An object store has a whole PDF under its name as soon as it has it; elsewhere it is put under another name, and
    moved. Either way its size is compared. It replaces nothing that is there a moment before; of two jobs that put one
    name in the same moment the later one wins, and an account that may not look finds nothing there. For a folder of
    this machine, TargetFolder has no such moment, and has a PDF on the disk before it counts. Raises ConfigurationError
    where fsspec, or what a URL needs, isn't installed.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._files, self._root = _open_storage(url, options)
        self.place = _build_url(self._files, self._root)
        """Where it is, as a URL."""

    @contextlib.asynccontextmanager
    async def staging_dir(self, shard: str, lease_number: int = 0) -> AsyncGenerator[Path]:
        """A temporary folder of this machine, of this lease alone."""
        folder = await asyncio.to_thread(
            tempfile.TemporaryDirectory[str], prefix="directsuite-", ignore_cleanup_errors=True
        )
        try:
            yield Path(folder.name)
        finally:
            await asyncio.to_thread(folder.cleanup)

    def check(self, name: str) -> None:
        """Refuse a name that leads out of the folder, or isn't in its normal form. Raises InvalidArgumentError."""
        validate_path(name)
        validate_encodable(name)

    async def has(self, name: str) -> bool:
        """Whether there is something of this name. Raises InvalidArgumentError and StorageError."""
        with translate_name_errors():
            return await _call_in_thread(self._find, name) is not None

    async def contains(self, name: str, sha256: str) -> bool:
        """Whether the file of this name is the one of this SHA-256, in hex. Raises StorageError."""
        return await _call_in_thread(self._contains, name, sha256)

    async def publish(self, name: str, file: Path) -> None:
        """Put the file under its name, and see that the storage has all of it.

        Raises FileExistsError where another has the name, InvalidArgumentError and StorageError.
        """
        self.check(name)
        with translate_name_errors():
            is_there = await _call_in_thread(self._put, name, file)
        if not is_there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _put(self, name: str, file: Path) -> bool:
        """Whether it is there by now. Otherwise another is."""
        final = f"{self._root}/{name}"
        found = self._find(name)
        if found is None:
            self._upload_new(name, file)
        elif found["type"] != "file" or self._compute_digest(final) != inspect_pdf(file).sha256:
            return False
        file.unlink()
        return True

    def _upload_new(self, name: str, file: Path) -> None:
        final = f"{self._root}/{name}"
        if _get_protocol(self._files) in _ATOMIC_PUT_PROTOCOLS:
            self._files.put_file(os.fspath(file), final)
        else:
            # Another for each document of a name: two jobs may put one at a time.
            whose = f"{name}\0{inspect_pdf(file).sha256}".encode("utf-8", "surrogatepass")
            made = f"{self._root}/{STAGING_DIR}/{hashlib.sha256(whose).hexdigest()}"
            for each in (made, final):
                self._files.makedirs(each.rpartition("/")[0], exist_ok=True)
            self._files.put_file(os.fspath(file), made)
            self._validate_size(made, file)
            self._files.mv(made, final)
        self._validate_size(final, file)

    def _find(self, name: str) -> dict[str, Any] | None:
        """What there is of this name; in an object store, where folders are but names, a file only."""
        is_object_store = _get_protocol(self._files) in _ATOMIC_PUT_PROTOCOLS
        try:
            found: dict[str, Any] = self._files.info(f"{self._root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            if is_object_store:
                return None  # so S3 says that nothing is there to who may get what is there, and may list nothing
            raise
        return None if is_object_store and found["type"] != "file" else found

    def _contains(self, name: str, sha256: str) -> bool:
        found = self._find(name)
        return found is not None and found["type"] == "file" and self._compute_digest(f"{self._root}/{name}") == sha256

    def _compute_digest(self, path: str) -> str:
        with self._files.open(path, "rb") as there:
            return hashlib.file_digest(there, "sha256").hexdigest()

    def _validate_size(self, path: str, file: Path) -> None:
        if self._files.info(path)["size"] != file.stat().st_size:
            raise StorageError("another size")


class _StoredFile(RemoteFile):
    """The bytes of a document in a storage."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path

    async def fetch(self, file: Path) -> None:
        """Put them into a file of this machine."""
        await _call_in_thread(self._files.get_file, self._path, os.fspath(file))


def _open_storage(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """A file system of fsspec, and the URL's path there."""
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "fsspec":
            raise
        raise ConfigurationError("a storage needs the package fsspec: pip install 'directsuite[storage]'") from None
    try:
        # Listings are not kept: they are as long as the storage is large, and grow old.
        files, root = core.url_to_fs(url, use_listings_cache=False, **options)
    except ImportError as error:
        raise ConfigurationError(f"fsspec lacks a package for this kind of URL: {error}") from None
    except ValueError:
        raise ConfigurationError("fsspec knows no such kind of URL: give one as s3://bucket/folder") from None
    except Exception as error:  # noqa: BLE001  some connect at once, and have errors of their own, which tell where
        kind = type(error).__name__
        raise ConfigurationError(f"the storage can't be reached ({kind}): see to its URL and options") from None
    return files, str(root).rstrip("/")


def _get_protocol(files: Any) -> str:
    return files.protocol if isinstance(files.protocol, str) else str(files.protocol[0])


def _build_url(files: Any, root: str) -> str:
    return f"{files.unstrip_protocol(root).rstrip('/')}/"


async def _call_in_thread(call: Callable[..., T], *values: Any) -> T:
    """What a call gives. Raises StorageError in place of what it raised, and InvalidArgumentError."""
    try:
        return await asyncio.to_thread(call, *values)
    except (InvalidArgumentError, StorageError):
        raise
    except Exception as error:  # noqa: BLE001  each storage's library has errors of its own
        failure = StorageError(type(error).__name__, error.errno if isinstance(error, OSError) else None)
    raise failure


def _take_batch(found: Iterator[str]) -> list[str]:
    return list(itertools.islice(found, _LISTING_BATCH_NAMES))
