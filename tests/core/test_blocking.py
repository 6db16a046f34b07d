"""A dedicated thread for blocking calls, which nothing has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections.abc import Callable

import pytest

from directsuite.core.files import IDLE_THREADS, DedicatedThread, PooledThread, run_in_thread

from .virtual_time import yield_to_loop, yield_until


def list_worker_threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if isinstance(thread, PooledThread) and thread not in IDLE_THREADS
    ]


def fails() -> None:
    raise OSError("own")


async def test_thread_that_nobody_ended_ends_with_its_owner() -> None:
    own = DedicatedThread()
    await own.start(int)
    del own
    await yield_until(lambda: not list_worker_threads())


async def test_idle_thread_keeps_nothing_of_its_last_job() -> None:
    own, given = DedicatedThread(), threading.Event()
    kept = weakref.ref(given)
    await own.start(repr, given)
    del given
    await yield_until(lambda: kept() is None)
    own.release()
    await yield_until(lambda: not list_worker_threads())


async def test_job_that_was_cancelled_before_it_began_is_not_done() -> None:
    own, released, done = DedicatedThread(), threading.Event(), list[int]()
    first = own.start(released.wait)
    second = own.start(done.append, 2)
    second.cancel()
    await yield_to_loop()
    released.set()
    await first
    own.release()
    await yield_until(lambda: not list_worker_threads())
    assert done == []


async def test_thread_is_not_released_to_others_while_a_job_runs() -> None:
    own, released = DedicatedThread(), threading.Event()
    first = own.start(released.wait)
    own.start(int).cancel()
    await yield_to_loop()
    own.release()
    assert len(list_worker_threads()) == 1
    released.set()
    await first
    await yield_until(lambda: not list_worker_threads())


@pytest.mark.parametrize("job", [int, fails], ids=["result", "error"])
def test_closed_loop_is_not_an_error_in_the_thread(
    job: Callable[[], object], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    own, released = DedicatedThread(), threading.Event()

    def late() -> object:
        released.wait(10)
        return job()

    async def begin() -> asyncio.Future[object]:
        return own.start(late)

    loop = asyncio.new_event_loop()
    future = loop.run_until_complete(begin())
    loop.close()
    [thread] = list_worker_threads()
    with caplog.at_level(logging.DEBUG):
        released.set()
        own.release()
        while thread in list_worker_threads():
            thread.join(0.001)  # it is idle, and can be used again
    assert not future.done()
    assert raised == []
    assert caplog.records == []


async def test_function_in_a_thread_sees_the_context_variables_of_its_caller() -> None:
    span = contextvars.ContextVar[str]("span")
    span.set("of the caller")
    assert await run_in_thread(span.get) == "of the caller"


async def test_cancelled_caller_leaves_its_thread_to_the_function_until_it_ends() -> None:
    began, released = threading.Event(), threading.Event()

    def fail_late() -> None:
        began.set()
        released.wait()
        fails()

    call = asyncio.create_task(run_in_thread(fail_late))
    await yield_until(began.is_set)
    call.cancel()
    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
    assert len(list_worker_threads()) == 1
    released.set()
    await yield_until(lambda: not list_worker_threads())
