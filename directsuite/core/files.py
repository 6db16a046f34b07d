"""Reading and writing files in separate daemon threads, and atomic creation and replacement of files.

In the event loop's default executor, a few blocked jobs would occupy all workers: host names could not be resolved, and
the process could not exit.

    read_file      reads a block in a thread, unless it is in the system's cache
    replace_file   replaces a file by a temporary one; sync_folder makes that survive a power failure
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import io
import os
import queue
import re
import socket
import ssl
import stat
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar, TypeVarTuple, cast

from directsuite.errors import InvalidArgumentError, Outcome, TransportError

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PIECE_BYTES = 252 * 1024
"""Bytes read and sent at a time: a multiple of 3, so that only the end of their base64 has padding."""

BLOCK_BYTES = 4 * PIECE_BYTES
"""Bytes that a thread reads at a time."""

Piece = bytes | memoryview

_OPEN_FILES_DIR = re.compile("/proc/.+/fd|/dev/fd")
"""Folders with links to the open files of a process."""

DEVICE = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)")
"""Names that are devices in Windows, with any text after the first dot."""

_NO_HARD_LINK_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)

_MAX_IDLE_THREADS = 8
_CLEANUP_TIMEOUT = 1.0
"""Seconds to wait at the end of a call for a file to be closed or removed."""


def explain_os_error(error: OSError) -> str:
    """Return the operating system's message for an OSError, without file names.

    If it has no errno of the system, return the `kind` attribute that a storage may set, or the name of the class.
    """
    number: object = error.errno  # TLS and DNS have errors with their own numbers, and programs may set any value
    if type(number) is int and number in errno.errorcode and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(number)
    kind: str = getattr(error, "kind", type(error).__name__)
    return kind


def find_path_problem(path: object) -> str | None:
    """Return the reason why no file can have this path, or None."""
    given: Any = path
    try:
        text = cast("object", os.fspath(given))
    except TypeError:
        text = None
    if not isinstance(text, str):
        return "give a path, as a str or an os.PathLike of str"
    if not text:
        return "the path is empty"
    if "\0" in text:
        return "the path contains a NUL character, which is not allowed"
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # not chained, because its text contains the path
        return "the path contains half of a surrogate pair, which is not allowed"
    return None


def to_path(path: str | os.PathLike[str], parameter: str) -> Path:
    """Return the Path for a caller's argument. Raises InvalidArgumentError if no file can have it."""
    problem = find_path_problem(path)
    if problem is not None:
        path = ""  # tracebacks expose local variables
        raise InvalidArgumentError(problem, parameter=parameter)
    return Path(path)


def resolve_path(path: str | os.PathLike[str], parameter: str) -> Path:
    """Return the absolute path without symbolic links. Raises InvalidArgumentError if that is impossible.

    From Python 3.13 on, a loop of symbolic links is found only when the path is opened, which raises OSError.
    """
    problem = find_path_problem(path)
    if problem is None:
        try:
            return Path(path).resolve()
        except OSError as error:
            problem = f"the path cannot be resolved ({explain_os_error(error)})"
        except RuntimeError:
            problem = "its symbolic links form a loop: give the path of the file itself"
    path = ""  # as above
    raise InvalidArgumentError(problem, parameter=parameter)


class DedicatedThread(Executor):
    """Runs jobs one at a time in a daemon thread, from the first job until `release`.

    Neither the loop nor the process waits for a job that never returns. As an Executor, it does not deliver results
    after the loop was closed.
    """

    def __init__(self) -> None:
        self._worker: PooledThread | None = None
        self._finalizer: weakref.finalize[..., DedicatedThread] | None = None
        self._last_job: Future[Any] = Future()

    def start(self, function: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run a function in the thread. Cancelling the future drops the job if it has not started."""
        return asyncio.get_running_loop().run_in_executor(self, function, *args)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in the thread, as Executor requires."""
        if self._worker is None:
            self._worker = worker = _get_idle_thread()
            self._finalizer = weakref.finalize(self, worker.jobs.put, worker.return_to_pool)
        future: Future[T] = Future()
        self._worker.jobs.put(partial(_run_job, future, fn, args, kwargs))
        self._last_job = future
        return future

    def release(self) -> None:
        """Release the thread after its current jobs. A later job gets another thread."""
        if self._finalizer is None or self._worker is None:
            return
        # After a job that was cancelled, an earlier one may still be running.
        is_idle = self._last_job.done() and not self._last_job.cancelled()
        if is_idle and self._finalizer.detach() is not None:
            self._worker.return_to_pool()  # available immediately for the next owner
        else:
            self._finalizer()
        self._worker = None


async def run_in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a blocking function in a separate thread. Return its result, or raise its exception.

    The function sees the caller's context variables, such as the current span of OpenTelemetry. If the caller is
    cancelled, a function that has started continues.
    """
    thread = DedicatedThread()
    try:
        run: Any = contextvars.copy_context().run  # type checkers cannot combine its parameters with those of `start`
        return cast("T", await thread.start(run, function, *args))
    finally:
        thread.release()


async def wait_briefly(job: asyncio.Future[Any]) -> None:
    """Wait at most a second for a cleanup job, which may continue longer. Ignore its exceptions."""
    job.add_done_callback(_retrieve_exception)
    await asyncio.wait([job], timeout=_CLEANUP_TIMEOUT)


def _retrieve_exception(job: asyncio.Future[Any]) -> None:
    if not job.cancelled():
        job.exception()  # prevents the event loop's warning "exception was never retrieved"


class PooledThread(threading.Thread):
    """A daemon thread that runs jobs for one owner at a time."""

    def __init__(self) -> None:
        super().__init__(name="directsuite-file", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Keeps standard input open: closing it at exit aborts the interpreter if a thread is reading from it.
        self._stdin_references = (sys.stdin, sys.__stdin__)
        self.start()

    def run(self) -> None:
        """Run jobs until None is received."""
        while (job := self.jobs.get()) is not None:
            job()
            del job  # releases its arguments

    def return_to_pool(self) -> None:
        """Make the thread available to a new owner, or end it if enough threads are idle."""
        if len(IDLE_THREADS) < _MAX_IDLE_THREADS:
            IDLE_THREADS.append(self)
        else:
            self.jobs.put(None)


IDLE_THREADS: list[PooledThread] = []
"""Threads without an owner."""


def _get_idle_thread() -> PooledThread:
    with contextlib.suppress(IndexError):
        while True:
            thread = IDLE_THREADS.pop()
            if thread.is_alive():  # threads do not survive a fork
                return thread
    return PooledThread()


def _run_job(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        try:
            result = function(*args, **kwargs)
        finally:
            del args, kwargs  # tracebacks expose local variables
    except StopIteration as error:  # futures reject it, and the caller would wait forever
        future.set_exception(RuntimeError(f"The function raised {type(error).__name__}."))
    except BaseException as error:  # noqa: BLE001  raised to the caller that awaits the future
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        del future  # breaks the reference cycle of the error and this frame


class PathReader:
    """Reads a file by its path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._position = 0
        self._buffer = bytearray()

    def read(self, count: int) -> Piece:
        """Return the next `count` bytes, or fewer at the end. They are valid until the next call."""
        if self._file is None:
            self._file = self._path.open("rb", buffering=0)
        self._file.seek(self._position)
        view, size = self._get_buffer(count), 0
        while size < count and (some := self._file.readinto(view[size:])):
            size += some
        self._position += size
        return view[:size]

    def read_cached(self, count: int) -> Piece | None:
        """Return the next `count` bytes without blocking.

        Return None if they are not in the system's cache, fewer are left, or `read` was not called before.
        """
        if self._file is None or not hasattr(os, "RWF_NOWAIT"):
            return None
        piece = self._get_buffer(count)
        try:
            size = os.preadv(self._file.fileno(), [piece], self._position, os.RWF_NOWAIT)
        except OSError:  # it would block, or the file system does not support this
            return None
        if size < count:
            return None
        self._position += size
        return piece

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _get_buffer(self, count: int) -> memoryview:
        if len(self._buffer) < count:
            self._buffer = bytearray(count)
        return memoryview(self._buffer)[:count]


class FileReader:
    """Reads a file object from a position on."""

    def __init__(self, read: Callable[[int, int], bytes], position: int) -> None:
        self._read = read
        self._position = position

    def read(self, count: int) -> Piece:
        """Return at most `count` of the next bytes, or b"" at the end."""
        piece = self._read(self._position, count)
        self._position += len(piece)
        return piece

    def read_cached(self, count: int) -> None:
        """Return None: reading a caller's file object may block."""

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""


async def read_file(reader: PathReader | FileReader, size: int | None) -> AsyncGenerator[Piece]:
    """Yield `size` bytes, or all if it is None. Each piece is valid until the next one.

    Bytes that are not in the system's cache are read in a thread, a block at a time. Closing the generator does not
    wait for the thread. Raises TransportError if the file has fewer than `size` bytes, and exceptions of reading.
    """
    left, count = sys.maxsize if size is None else size, PIECE_BYTES  # small: the next bytes may be in the cache
    thread, block, piece = DedicatedThread(), cast("Piece | None", b""), cast("Piece", b"")
    try:
        while left > 0:
            block = reader.read_cached(min(PIECE_BYTES, left))
            if block is None:
                block = await thread.start(reader.read, min(count, left))
            left, count = left - len(block), BLOCK_BYTES
            if not block and size is None:
                break
            if not block:
                raise make_size_error("the file became shorter while it was sent")
            for piece in split_pieces(block):
                yield piece
    finally:
        block = piece = b""  # tracebacks expose local variables
        thread.submit(reader.close)  # after a block that is still being read
        thread.release()


async def read_in_memory(reader: FileReader, left: int) -> AsyncGenerator[Piece]:
    """Yield the next `left` bytes of a file in memory. Raises TransportError if there are fewer."""
    piece: Piece = b""
    try:
        while left > 0:
            piece = reader.read(min(PIECE_BYTES, left))
            left -= len(piece)
            if not piece:
                raise make_size_error("the file became shorter while it was sent")
            yield piece
    finally:
        piece = b""  # as above


def find_file(path: Path) -> Path | None:
    """Return the regular file that a path names or would create, after following links.

    Return None for anything else, such as a FIFO, a device, or /dev/stdout, which must be written directly. Raises
    OSError for a loop of links.
    """
    place = path
    while place.is_symlink():
        if _OPEN_FILES_DIR.fullmatch(os.path.realpath(place.parent)):
            return None
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # raises OSError for a loop of links
        place = place.parent / place.readlink()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(place.stat().st_mode):
            return None
    return place


def create_file(path: Path) -> BinaryIO:
    """Create a file for writing, readable by its owner only. Raises FileExistsError if the path exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


@contextlib.contextmanager
def replace_file(path: Path, *, temporary: Path, synced: bool) -> Generator[BinaryIO]:
    """Yield a temporary file that replaces `path` at the end of the block, unless the block raises.

    If `path` is a link, its target is replaced. A FIFO or device is written directly.

    synced: True to flush the content to disk before the rename. `sync_folder` flushes the rename.
    """
    place = find_file(path)
    if place is None:
        with path.open("wb") as file:
            yield file
        return
    if place != path:
        path, temporary = place, place.with_name(temporary.name)
    try:
        with create_file(temporary) as file:
            yield file
            if synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def move_new(file: Path, place: Path) -> bool:
    """Rename a file within its file system. Return True, or False if the new name exists and nothing was done.

    Without hard links, a file that is created at the same time may be replaced.
    """
    try:
        if os.name == "nt":
            file.rename(place)  # does not replace files in Windows
            return True
        place.hardlink_to(file)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        if os.path.lexists(place):
            return False
        file.replace(place)
        return True
    file.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, except on Windows."""
    if os.name == "nt":  # cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def split_pieces(content: Piece) -> Iterator[Piece]:
    """Yield slices of at most PIECE_BYTES without copying, or nothing if the content is empty."""
    if 0 < len(content) <= PIECE_BYTES:
        yield content
        return
    view = memoryview(content)
    for start in range(0, len(content), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def make_size_error(explanation: str) -> TransportError:
    """Return an error with Outcome.FAILED, for a request whose body was not sent completely."""
    return TransportError(explanation, outcome=Outcome.FAILED)
