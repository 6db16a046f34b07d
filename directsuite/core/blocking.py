"""A thread of one's own for calls that block, such as reads from a pipe.

In the event loop's default executor a few pipes that give nothing would take all workers: no name would be resolved any
more, and the process could not end.
"""

from __future__ import annotations

import asyncio
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

THREAD_NAME = "directsuite-pipe"

_Jobs = queue.SimpleQueue[Callable[[], None] | None]


class OwnThread(Executor):
    """Does one job after the other in a daemon thread, which is there from the first job until `end`.

    A job that never returns is left to the thread: neither the loop nor the process waits for it. An executor, for the
    loop then knows of its jobs, and takes no result after it was closed.
    """

    def __init__(self) -> None:
        self._jobs: _Jobs | None = None
        self._end: Callable[[], object] = _nothing

    def start(self, function: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do it in the thread. Cancelling the future forgets a job that has not begun, and lets others go on."""
        return asyncio.get_running_loop().run_in_executor(self, function, *args)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `start`, for the loop."""
        if self._jobs is None:
            jobs: _Jobs = queue.SimpleQueue()
            # An exiting interpreter closes its standard input, and aborts if a thread is reading that: kept, it stays.
            kept = (sys.stdin, sys.__stdin__)
            threading.Thread(target=_work, args=(jobs, kept), name=THREAD_NAME, daemon=True).start()
            self._jobs, self._end = jobs, weakref.finalize(self, jobs.put, None)
        future: Future[T] = Future()
        self._jobs.put(partial(_do, future, fn, args, kwargs))
        return future

    def end(self) -> None:
        """Have the thread end after the jobs it has got; another job gets another thread."""
        self._end()
        self._jobs = None


def _nothing() -> None:
    return None


def _work(jobs: _Jobs, _kept: Any) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # with what it was given


def _do(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        try:
            result = function(*args, **kwargs)
        finally:
            del args, kwargs  # the frame may stand in a traceback, and holds nothing of what was written
    except BaseException as error:  # noqa: BLE001  it is raised where the future is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        del future  # has the error, whose traceback has this frame
