"""A thread of one's own for calls that block: reads and writes of files, which may be on another machine, and of pipes.

In the event loop's default executor a few pipes that give nothing, or a file server that doesn't answer, would take all
workers: no name would be resolved any more, and the process could not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BLOCK = 4 * 192 * 1024
"""Bytes that a thread reads or writes at a time: a job in a thread costs about as much as coding a tenth of them."""

_MOST_RESTING = 8
_PATIENCE = 1.0
"""Seconds that a call which ends waits for a file to be closed or removed."""


class OwnThread(Executor):
    """Does one job after the other in a daemon thread, which is there from the first job until `end`.

    A job that never returns is left to the thread: neither the loop nor the process waits for it. An executor, for the
    loop then knows of its jobs, and takes no result after it was closed.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._end: weakref.finalize[..., OwnThread] | None = None
        self._last: Future[Any] = Future()

    def start(self, function: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do it in the thread. Cancelling the future forgets a job that has not begun, and lets others go on."""
        return asyncio.get_running_loop().run_in_executor(self, function, *args)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `start`, for the loop."""
        if self._worker is None:
            self._worker = worker = _idle_worker()
            self._end = weakref.finalize(self, worker.jobs.put, worker.rest)
        future: Future[T] = Future()
        self._worker.jobs.put(partial(_do, future, fn, args, kwargs))
        self._last = future
        return future

    def end(self) -> None:
        """Let go of the thread after the jobs it has got; another job gets another thread."""
        if self._end is None or self._worker is None:
            return
        if self._last.done() and self._end.detach() is not None:
            self._worker.rest()  # at once, for the next owner
        else:
            self._end()
        self._worker = None


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """What a function gives that blocks once, from a thread of its own."""
    thread = OwnThread()
    try:
        return await thread.start(function, *args)
    finally:
        thread.end()


async def patiently(job: asyncio.Future[Any]) -> None:
    """Wait a second for a job that tidies up, whatever comes of it; it goes on by itself where it takes longer."""
    job.add_done_callback(_seen)
    await asyncio.wait([job], timeout=_PATIENCE)


def forget(job: asyncio.Future[Any]) -> None:
    """Do without a job: not begun, it is left out, and what it raises is nobody's."""
    job.cancel()
    job.add_done_callback(_seen)


def _seen(job: asyncio.Future[Any]) -> None:
    if not job.cancelled():
        job.exception()  # else the event loop complains that nobody asked


class Worker(threading.Thread):
    """A daemon thread that does jobs, for one owner at a time."""

    def __init__(self) -> None:
        super().__init__(name="directsuite-file", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # An exiting interpreter closes its standard input, and aborts if a thread is reading that: kept, it stays.
        self._kept = (sys.stdin, sys.__stdin__)
        self.start()

    def run(self) -> None:
        """Do the jobs, up to a None."""
        while (job := self.jobs.get()) is not None:
            job()
            del job  # with what it was given

    def rest(self) -> None:
        """Be there for another owner, or end where enough are: to make a thread takes as long as several jobs."""
        if len(RESTING) < _MOST_RESTING:
            RESTING.append(self)
        else:
            self.jobs.put(None)


RESTING: list[Worker] = []
"""Workers without an owner."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RESTING.clear)  # the threads themselves stay behind


def _idle_worker() -> Worker:
    with contextlib.suppress(IndexError):
        return RESTING.pop()
    return Worker()


def _do(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
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
