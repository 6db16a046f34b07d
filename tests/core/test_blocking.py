"""A thread for what blocks: one, of its own, that nobody has to wait for."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable

import pytest

from directsuite.core.files import RESTING, OwnThread, Worker

from .virtual_time import turns, until


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, Worker) and thread not in RESTING]


def fails() -> None:
    raise OSError("own")


async def test_there_is_one_thread_from_the_first_job_until_the_end() -> None:
    own = OwnThread()
    assert own_threads() == []
    idents = [await own.start(threading.get_ident) for _ in range(3)]
    [thread] = own_threads()
    assert idents == [thread.ident] * 3
    assert thread.daemon
    own.end()
    own.end()
    await until(lambda: not own_threads())


async def test_job_after_an_end_is_done_in_another_thread() -> None:
    own = OwnThread()
    own.end()
    for _ in range(2):
        job = own.start(len, b"abc")
        await until(job.done)
        assert job.result() == 3
        own.end()
        await until(lambda: not own_threads())


async def test_error_comes_back_and_the_thread_goes_on() -> None:
    own = OwnThread()
    with pytest.raises(OSError, match="own"):
        await own.start(fails)
    assert await own.start(len, b"abc") == 3
    own.end()
    await until(lambda: not own_threads())


async def test_thread_that_nobody_ended_ends_with_its_owner() -> None:
    own = OwnThread()
    await own.start(int)
    del own
    await until(lambda: not own_threads())


async def test_idle_thread_keeps_nothing_of_its_last_job() -> None:
    own, given = OwnThread(), threading.Event()
    kept = weakref.ref(given)
    await own.start(repr, given)
    del given
    await until(lambda: kept() is None)
    own.end()
    await until(lambda: not own_threads())


async def test_job_that_was_cancelled_before_it_began_is_not_done() -> None:
    own, released, done = OwnThread(), threading.Event(), list[int]()
    first = own.start(released.wait)
    second = own.start(done.append, 2)
    second.cancel()
    await turns()
    released.set()
    await first
    own.end()
    await until(lambda: not own_threads())
    assert done == []


async def test_job_under_way_at_a_cancellation_is_done_to_its_end() -> None:
    own, begun, released, done = OwnThread(), threading.Event(), threading.Event(), list[bool]()

    def job() -> None:
        begun.set()
        done.append(released.wait(10))

    under_way = own.start(job)
    await until(begun.is_set)
    under_way.cancel()
    own.end()
    released.set()
    await until(lambda: not own_threads())
    assert done == [True]


@pytest.mark.parametrize("job", [int, fails], ids=["result", "error"])
def test_loop_closed_meanwhile_is_no_error_in_the_thread(
    job: Callable[[], object], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    own, released = OwnThread(), threading.Event()

    def late() -> object:
        released.wait(10)
        return job()

    async def begin() -> asyncio.Future[object]:
        return own.start(late)

    loop = asyncio.new_event_loop()
    future = loop.run_until_complete(begin())
    loop.close()
    [thread] = own_threads()
    with caplog.at_level(logging.DEBUG):
        released.set()
        own.end()
        while thread in own_threads():
            thread.join(0.001)  # it rests, for another owner
    assert not future.done()
    assert raised == []
    assert caplog.records == []
