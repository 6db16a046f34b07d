"""Sources and targets in any storage that fsspec supports, by URL: s3://, gs://, abfs://, sftp://, memory:// and
others.

Exceptions of fsspec are replaced, because their texts name documents. Its calls block, so they run in threads.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import importlib
import os
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from directsuite.core.files import run_in_thread
from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError, InvalidArgumentError
from directsuite.jobs.signing.documents import (
    STAGING_DIR,
    Pdf,
    RemoteFile,
    inspect_pdf,
    take_batch,
    translate_name_errors,
    validate_encodable,
    validate_path,
)

T = TypeVar("T")

_ATOMIC_PUT_PROTOCOLS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Object stores, in which an upload appears complete: S3, Google Cloud Storage, Azure Blob Storage."""
_PASSWORD = re.compile(r"(?<=://)(?P<user>[^/:@]*+):[^/]*@")


class StorageError(OSError):
    """A storage failed.

    kind: the type of the original exception, whose text may name a document. number: its errno, or None.
    """

    def __init__(self, kind: str, number: int | None = None) -> None:
        super().__init__(f"the storage failed ({kind})")
        self.kind = kind
        self.errno = number

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind, self.errno), self.__dict__


@scrub_class
class StorageFolder(AsyncIterable[Pdf]):
    """The PDFs below a URL, each named by its path relative to the URL.

        StorageFolder("s3://bucket/in", endpoint_url="https://storage.example.org")

    Each folder (in an object store: a prefix up to a slash) is listed in memory. Split a million files into folders of
    some thousands, or create the documents from a list of names with `named`.

    pattern: pattern of the file names, case-insensitive.
    options: fsspec's options for this storage.

    Raises ConfigurationError if fsspec or its package for the URL is not installed.
    """

    def __init__(self, url: str, pattern: str = "*.pdf", **options: Any) -> None:
        self._files, self._root = _open_storage(url, options)
        self._pattern = pattern
        self.place = _build_url(self._files, self._root)
        """The folder's URL."""

    def named(self, name: str) -> Pdf:
        """Return the document of this name. It need not exist."""
        return Pdf(name, _StoredFile(self._files, f"{self._root}/{name}"))

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        found = self._walk_names()
        while some := await _call_in_thread(take_batch, found):
            for name in some:
                yield self.named(name)

    def _walk_names(self) -> Generator[str]:
        for folder, _, files in self._files.walk(self._root, on_error="raise"):
            below = str(folder)[len(self._root) :].strip("/")
            for name in files if STAGING_DIR not in below.split("/") else ():
                # The name of an empty object that marks a folder in S3 is empty.
                if name and fnmatch.fnmatch(name.casefold(), self._pattern.casefold()):
                    yield f"{below}/{name}" if below else name


@scrub_class
class StorageTarget:
    """A target for signed PDFs below a URL.

    In an object store, an upload appears complete. Elsewhere, the file is uploaded with a temporary name, then moved.
    Existing files are not replaced, but the check is not atomic: if two jobs publish a name at the same moment, the
    later one wins. It finds nothing if the account may not read the file's metadata. For a local folder, use
    TargetFolder, which has no such limits.

    options: fsspec's options for this storage.

    Raises ConfigurationError if fsspec or its package for the URL is not installed.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._files, self._root = _open_storage(url, options)
        self.place = _build_url(self._files, self._root)
        """The folder's URL."""
        protocol: str = self._files.protocol if isinstance(self._files.protocol, str) else self._files.protocol[0]
        self._is_object_store = protocol in _ATOMIC_PUT_PROTOCOLS

    @contextlib.asynccontextmanager
    async def staging_dir(self, shard: str, lease_number: int = 0) -> AsyncGenerator[Path]:
        """Create a temporary local folder, and remove it afterwards."""
        # Not in a thread: after another cancellation, the process might end before the PDFs are removed.
        with tempfile.TemporaryDirectory(prefix="directsuite-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def check(self, name: str) -> None:
        """See `Target.check`."""
        validate_path(name)
        validate_encodable(name)

    async def has(self, name: str) -> bool:
        """See `Target.has`. Raises StorageError."""
        with translate_name_errors():
            return await _call_in_thread(self._find, name) is not None

    async def contains(self, name: str, sha256: str) -> bool:
        """See `Target.contains`. Raises StorageError."""
        return await _call_in_thread(self._contains, name, sha256)

    async def publish(self, name: str, file: Path) -> None:
        """Upload the file, and verify its size. Raises StorageError, and the exceptions of `Target.publish`."""
        self.check(name)
        with translate_name_errors():
            is_there = await _call_in_thread(self._put, name, file)
        if not is_there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _put(self, name: str, file: Path) -> bool:
        """Upload the file and delete it here. If the name has the same content, only delete it.

        Return False if the name has different content.
        """
        if self._find(name) is None:
            self._upload_new(name, file)
        elif not self._contains(name, inspect_pdf(file).sha256):
            return False
        file.unlink()
        return True

    def _upload_new(self, name: str, file: Path) -> None:
        final = f"{self._root}/{name}"
        if self._is_object_store:
            self._files.put_file(os.fspath(file), final)
        else:
            # It depends on the content, because two jobs may upload the same name at the same time.
            whose = f"{name}\0{inspect_pdf(file).sha256}".encode("utf-8", "surrogatepass")
            made = f"{self._root}/{STAGING_DIR}/{hashlib.sha256(whose).hexdigest()}"
            for each in (made, final):
                self._files.makedirs(each.rpartition("/")[0], exist_ok=True)
            self._files.put_file(os.fspath(file), made)
            self._validate_size(made, file)
            self._files.mv(made, final)
        self._validate_size(final, file)

    def _find(self, name: str) -> dict[str, Any] | None:
        """Return fsspec's information about a name, or None if it is not in use. In an object store, ignore folders."""
        try:
            found: dict[str, Any] = self._files.info(f"{self._root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            if self._is_object_store:
                return None  # S3 returns this for a missing file if the account may not list the bucket
            raise
        return None if self._is_object_store and found["type"] != "file" else found

    def _contains(self, name: str, sha256: str) -> bool:
        found = self._find(name)
        if found is None or found["type"] != "file":
            return False
        with self._files.open(f"{self._root}/{name}", "rb") as there:
            return hashlib.file_digest(there, "sha256").hexdigest() == sha256

    def _validate_size(self, path: str, file: Path) -> None:
        if self._files.info(path)["size"] != file.stat().st_size:
            raise StorageError("the uploaded file has the wrong size")


class _StoredFile(RemoteFile):
    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path

    async def fetch(self, file: Path) -> None:
        await _call_in_thread(self._files.get_file, self._path, os.fspath(file))


def _open_storage(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "fsspec":
            raise
        raise ConfigurationError(
            "the package fsspec is not installed: in a copy of the repository, run pip install '.[storage]'"
        ) from None
    try:
        # Cached listings may be large and become outdated.
        files, root = core.url_to_fs(url, use_listings_cache=False, **options)
    except ImportError as error:
        raise ConfigurationError(f"fsspec needs another package for this kind of URL: {error}") from None
    except ValueError:
        raise ConfigurationError(
            "fsspec does not support this kind of URL: expected something like s3://bucket/folder"
        ) from None
    except Exception as error:  # noqa: BLE001  some connect immediately, and raise custom errors with the address
        kind = type(error).__name__
        raise ConfigurationError(f"the storage can't be reached ({kind}): check its URL and options") from None
    return files, str(root).rstrip("/")


def _build_url(files: Any, root: str) -> str:
    """Return the URL of a folder, which ends with a slash. It contains no password."""
    options = files.storage_options
    host = options.get("host")
    if host and (not root or root.startswith("/")):  # such as SFTP, whose paths do not contain the host
        user, port = quote(options.get("username") or options.get("user") or ""), options.get("port")
        place = f"[{host}]" if ":" in host and not host.startswith("[") else host  # an IPv6 address
        root = f"{user and f'{user}@'}{place}{f':{port}' if port else ''}{root}"
    url: str = files.unstrip_protocol(root or files.root_marker)
    url = _PASSWORD.sub(r"\g<user>@", url)
    return url if url.endswith("/") else f"{url}/"


async def _call_in_thread(call: Callable[..., T], *values: Any) -> T:
    """Run a blocking call. Raise StorageError instead of its exceptions, except InvalidArgumentError."""
    try:
        return await run_in_thread(call, *values)
    except (InvalidArgumentError, StorageError):
        raise
    except Exception as error:  # noqa: BLE001  each storage's library has custom errors
        failure = StorageError(type(error).__name__, error.errno if isinstance(error, OSError) else None)
    raise failure
