"""Files read and written in threads of their own: they may be on another machine, or be pipes.

In the event loop's default executor a few pipes that give nothing, or a file server that doesn't answer, would take all
workers: no name would be resolved any more, and the process could not end.

    read_ahead    a block is read while the one before is sent
    Blocks        a block is written while the next one comes
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import queue
import re
import stat
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, cast

from directsuite.core.failures import explain_os_error
from directsuite.errors import InvalidArgumentError, Outcome, TransportError

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BLOCK_BYTES = 4 * 192 * 1024
"""Bytes that a thread reads or writes at a time: a job in a thread costs about as much as coding a tenth of them."""

PIECE_BYTES = 192 * 1024
"""Bytes read at a time: a multiple of 3, so that their base64 needs no padding before the end."""

Piece = bytes | memoryview

_OPEN_FILES_DIR = re.compile("/proc/.+/fd|/dev/fd")
"""Folders with links to files that a process has open."""

_MAX_IDLE_THREADS = 8
_CLEANUP_TIMEOUT = 1.0
"""Seconds that a call which ends waits for a file to be closed or removed."""


def find_path_problem(path: object) -> str | None:
    """Return the reason why no file can have this path, or None. `path` is a text or an os.PathLike of text."""
    given: Any = path
    try:
        text = cast("object", os.fspath(given))
    except TypeError:
        text = None
    if not isinstance(text, str):
        return "give a path, as a text or an os.PathLike"
    if not text:
        return "it is empty"
    if "\0" in text:
        return "it contains a NUL character, which no path can contain"
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # whose text shows the path
        return "it contains half a surrogate pair, which no path can contain"
    return None


def to_path(path: str | os.PathLike[str], parameter: str) -> Path:
    """Return a path that a caller gave. Raise InvalidArgumentError if no file can have it."""
    problem = find_path_problem(path)
    if problem is not None:
        path = ""  # tracebacks expose local variables
        raise InvalidArgumentError(problem, parameter=parameter)
    return Path(path)


def resolve_path(path: str | os.PathLike[str], parameter: str) -> Path:
    """Return a path that a caller gave, absolute and without symbolic links. Raise InvalidArgumentError if it has none.

    From Python 3.13 on, a loop of symbolic links is not found here: opening the path then raises OSError.
    """
    problem = find_path_problem(path)
    if problem is None:
        try:
            return Path(path).resolve()
        except OSError as error:
            problem = f"it cannot be found ({explain_os_error(error)})"
        except RuntimeError:
            problem = "its symbolic links form a loop: give the path of what they should lead to"
    path = ""  # as above
    raise InvalidArgumentError(problem, parameter=parameter)


class DedicatedThread(Executor):
    """Does one job after the other in a daemon thread, which is there from the first job until `end`.

    A job that never returns is left to the thread: neither the loop nor the process waits for it. An executor, for the
    loop then knows of its jobs, and takes no result after it was closed.
    """

    def __init__(self) -> None:
        self._worker: PooledThread | None = None
        self._finalizer: weakref.finalize[..., DedicatedThread] | None = None
        self._last_job: Future[Any] = Future()

    def start(self, function: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do it in the thread. Cancelling the future forgets a job that has not begun, and lets others go on."""
        return asyncio.get_running_loop().run_in_executor(self, function, *args)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `start`, for the loop."""
        if self._worker is None:
            self._worker = worker = _get_idle_thread()
            self._finalizer = weakref.finalize(self, worker.jobs.put, worker.return_to_pool)
        future: Future[T] = Future()
        self._worker.jobs.put(partial(_run_job, future, fn, args, kwargs))
        self._last_job = future
        return future

    def release(self) -> None:
        """Let go of the thread after the jobs it has got; another job gets another thread."""
        if self._finalizer is None or self._worker is None:
            return
        if self._last_job.done() and self._finalizer.detach() is not None:
            self._worker.return_to_pool()  # at once, for the next owner
        else:
            self._finalizer()
        self._worker = None


async def run_in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """What a function gives that blocks once, from a thread of its own."""
    thread = DedicatedThread()
    try:
        return await thread.start(function, *args)
    finally:
        thread.release()


async def wait_briefly(job: asyncio.Future[Any]) -> None:
    """Wait a second for a job that tidies up, whatever comes of it; it goes on by itself where it takes longer."""
    job.add_done_callback(_retrieve_exception)
    await asyncio.wait([job], timeout=_CLEANUP_TIMEOUT)


def abandon_job(job: asyncio.Future[Any]) -> None:
    """Do without a job: one that has not begun is left out, and what it raises is nobody's."""
    job.cancel()
    job.add_done_callback(_retrieve_exception)


def _retrieve_exception(job: asyncio.Future[Any]) -> None:
    if not job.cancelled():
        job.exception()  # else the event loop complains that nobody asked


class PooledThread(threading.Thread):
    """A daemon thread that does jobs, for one owner at a time."""

    def __init__(self) -> None:
        super().__init__(name="directsuite-file", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # An exiting interpreter closes its standard input, and aborts if a thread is reading that: kept, it stays.
        self._stdin_references = (sys.stdin, sys.__stdin__)
        self.start()

    def run(self) -> None:
        """Do the jobs, up to a None."""
        while (job := self.jobs.get()) is not None:
            job()
            del job  # with what it was given

    def return_to_pool(self) -> None:
        """Be there for another owner, or end where enough are: to make a thread takes as long as several jobs."""
        if len(IDLE_THREADS) < _MAX_IDLE_THREADS:
            IDLE_THREADS.append(self)
        else:
            self.jobs.put(None)


IDLE_THREADS: list[PooledThread] = []
"""Workers without an owner."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=IDLE_THREADS.clear)  # the threads themselves stay behind


def _get_idle_thread() -> PooledThread:
    with contextlib.suppress(IndexError):
        return IDLE_THREADS.pop()
    return PooledThread()


def _run_job(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        try:
            result = function(*args, **kwargs)
        finally:
            del args, kwargs  # the frame may stand in a traceback, and holds nothing of what was written
    except StopIteration as error:  # no future takes it: who awaits would wait for ever
        future.set_exception(RuntimeError(f"{type(error).__name__} from what was called"))
    except BaseException as error:  # noqa: BLE001  it is raised where the future is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        del future  # has the error, whose traceback has this frame


class PathReader:
    """Reads a file by its path into two buffers in turn, so that one block may be sent while the next is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._position = 0
        self._buffers: list[bytearray] = []

    def read(self, count: int) -> Piece:
        """The next bytes: so many, or fewer where the file ends. Good until the call after the next."""
        if self._file is None:
            self._file = self._path.open("rb", buffering=0)
        self._file.seek(self._position)
        view, size = self._get_buffer(count), 0
        while size < count and (some := self._file.readinto(view[size:])):
            size += some
        self._position += size
        return view[:size]

    def read_cached(self, count: int) -> Piece | None:
        """As `read`, of so many bytes that the system has in memory: this never waits. None where it has not."""
        if self._file is None or not hasattr(os, "RWF_NOWAIT"):
            return None
        piece = self._get_buffer(count)
        try:
            size = os.preadv(self._file.fileno(), [piece], self._position, os.RWF_NOWAIT)
        except OSError:  # it would have to wait, or the file system can't tell
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
        if len(self._buffers) < 2 or len(self._buffers[0]) < count:
            self._buffers = [*self._buffers[-1:], bytearray(count)]
        else:
            self._buffers.reverse()
        return memoryview(self._buffers[-1])[:count]


class FileReader:
    """Reads a file object on from where it stood."""

    def __init__(self, read: Callable[[int, int], bytes], position: int) -> None:
        self._read = read
        self._position = position

    def read(self, count: int) -> Piece:
        """At most so many bytes, the next ones."""
        piece = self._read(self._position, count)
        self._position += len(piece)
        return piece

    def read_cached(self, count: int) -> None:
        """None: reading from another's file object may wait."""

    def close(self) -> None:
        """Nothing: the file is the caller's."""


async def read_ahead(reader: PathReader | FileReader, size: int | None) -> AsyncGenerator[Piece]:
    """So many bytes, or all to the end. What the system has in memory is read here, up to the first that it has not.

    From there on a thread reads a block while the one before is sent. Who breaks off doesn't wait for that.
    """
    left = sys.maxsize if size is None else size
    thread, block, piece = DedicatedThread(), cast("Piece", b""), cast("Piece | None", b"")
    reading: asyncio.Future[Piece] | None = None
    try:
        if left > 0:
            piece = await thread.start(reader.read, min(PIECE_BYTES, left))
        while piece:
            left -= len(piece)
            yield piece
            piece = reader.read_cached(min(PIECE_BYTES, left)) if left > 0 else None
        while left > 0:
            block = await (reading or thread.start(reader.read, min(BLOCK_BYTES, left)))
            left -= len(block)
            if not block and size is None:
                break
            if not block:
                raise make_size_error("the file became shorter while it was sent")
            reading = thread.start(reader.read, min(BLOCK_BYTES, left)) if left > 0 else None
            for piece in split_pieces(block):
                yield piece
    finally:
        block = piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent
        if reading is not None:
            abandon_job(reading)
        thread.submit(reader.close)  # after the block that may be on its way
        thread.release()


async def read_in_memory(reader: FileReader, left: int) -> AsyncGenerator[Piece]:
    """So many bytes of a file that is in memory."""
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


class BlockWriter:
    """Gathers pieces into blocks, each of which is written in a thread while the next one comes."""

    def __init__(self, thread: DedicatedThread, write: Callable[[list[bytes]], None]) -> None:
        self._thread = thread
        self._write = write
        self._writing: asyncio.Future[None] | None = None
        self._size = 0
        self.pieces: list[bytes] = []

    async def add(self, piece: bytes) -> None:
        """Take a piece. Raises what writing the block before has raised."""
        self.pieces.append(piece)
        self._size += len(piece)
        piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered
        if self._size >= BLOCK_BYTES:
            await self.wait_until_written()
            self._writing, self.pieces, self._size = self._thread.start(self._write, self.pieces), [], 0

    async def wait_until_written(self) -> None:
        """Return when all blocks are written. The pieces after them are left to the caller, who writes them."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def drop(self) -> list[bytes]:
        """Forget everything; the pieces that were not written."""
        if self._writing is not None:
            abandon_job(self._writing)
        pieces, self.pieces, self._writing, self._size = self.pieces, [], None, 0
        return pieces


def find_file(path: Path) -> Path | None:
    """Return the regular file that a path names or would create, so that it can be replaced: links are followed.

    Return None for what must be written to and not replaced: a FIFO, a device, or an open file such as /dev/stdout.
    Raises OSError if the path cannot be followed, as a link to itself.
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


def split_pieces(content: Piece) -> Iterator[Piece]:
    """The content in slices of PIECE bytes, not copied."""
    if 0 < len(content) <= PIECE_BYTES:
        yield content
        return
    view = memoryview(content)
    for start in range(0, len(content), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def make_size_error(explanation: str) -> TransportError:
    """The request stays incomplete: no server can act upon it."""
    return TransportError(explanation, outcome=Outcome.FAILED)
