"""A call can be interrupted at each of its awaits: it ends immediately and releases everything.

A cancellation is neither swallowed nor replaced by another error, and a caller's timeout remains the caller's.
Connections, slots, tokens and files are released. An event reports a request that may still have an effect.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import types
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.core.events import AttemptFailed, OutcomeLeftUnknown
from tests.core.responses import never_respond
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import CONNECTIONS, assert_no_leaks, open_suite
from tests.core.virtual_time import VirtualTimeLoop, measure_elapsed, yield_to_loop, yield_until

from .interrupt_cases import INTERRUPT_CASES, CallContext, FakeServices, InterruptCase

STUCK_SECONDS = 100_000.0
"""The virtual seconds after which a call counts as hanging."""
_LATE_SECONDS = 5000.0  # virtual seconds, more than any deadline in these tests


class InterruptMode(Enum):
    """A way of interrupting a call, and the time."""

    CANCELLED = "cancelled while it waits"
    CANCELLED_LATE = "cancelled when what it waits for has just come"
    CANCELLED_AGAIN = "cancelled twice at once, and at each wait after that"
    CANCELLED_BEFORE_ITS_DEADLINE = "cancelled, and its deadline passes, in one turn of the loop"
    CANCELLED_AFTER_ITS_DEADLINE = "its deadline passes, and it is cancelled, in one turn of the loop"
    TIMED_OUT = "its caller's time is up"
    TIMED_OUT_AT_ITS_DEADLINE = "its caller's time and its own are up in one turn of the loop"

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def cancels(self) -> bool:
        return self not in (InterruptMode.TIMED_OUT, InterruptMode.TIMED_OUT_AT_ITS_DEADLINE)

    @property
    def passes_deadline(self) -> bool:
        return self in (
            InterruptMode.CANCELLED_BEFORE_ITS_DEADLINE,
            InterruptMode.CANCELLED_AFTER_ITS_DEADLINE,
            InterruptMode.TIMED_OUT_AT_ITS_DEADLINE,
        )


@attrs.frozen(kw_only=True)
class InterruptResult:
    """The result of an interrupted run.

    has_reached_wait: True if there was an n-th await. was_interrupted: True if the task was still running.
    has_expired: True if the caller's timeout expired. cancel_requests: the number of pending cancellation requests.
    """

    has_reached_wait: bool
    was_interrupted: bool
    value: object = None
    error: BaseException | None = None
    has_expired: bool = False
    cancel_requests: int = 0


class Interrupter:
    """Runs a coroutine, and interrupts it at its n-th await."""

    def __init__(self, at: int, way: InterruptMode) -> None:
        self._at = at
        self._way = way
        self._waits = 0
        self._struck = False
        self._outer = asyncio.timeout(None)

    async def run(self, coroutine: Coroutine[Any, Any, object]) -> InterruptResult:
        value, error = None, None
        try:
            async with self._outer:
                value = await self._step_through(coroutine)
        except BaseException as raised:  # noqa: BLE001  it is what is looked for
            error = raised.with_traceback(None)
        return InterruptResult(
            has_reached_wait=self._waits >= self._at,
            was_interrupted=self._struck,
            value=value,
            error=error,
            has_expired=self._outer.expired(),
            cancel_requests=_get_current_task().cancelling(),
        )

    @types.coroutine
    def _step_through(self, coroutine: Coroutine[Any, Any, object]) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = functools.partial(coroutine.send, None)
        while True:
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            self._waits += 1
            if self._waits == self._at or (self._waits > self._at and self._way is InterruptMode.CANCELLED_AGAIN):
                self._interrupt(awaited)
            try:
                sent = yield awaited
            except BaseException as thrown:  # noqa: BLE001  it is the coroutine's to deal with
                step = functools.partial(coroutine.throw, thrown)
            else:
                step = functools.partial(coroutine.send, sent)

    def _interrupt(self, awaited: asyncio.Future[Any] | None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        cancel = functools.partial(self._cancel, _get_current_task())
        self._struck = not self._way.cancels
        if self._way is InterruptMode.TIMED_OUT_AT_ITS_DEADLINE:
            self._outer.reschedule(loop.time() + _LATE_SECONDS)
        elif self._way is InterruptMode.TIMED_OUT:
            self._outer.reschedule(loop.time())
        if self._way.passes_deadline:
            loop._elapse(_LATE_SECONDS)
        if self._way is InterruptMode.CANCELLED_LATE and awaited is not None:
            awaited.add_done_callback(lambda _: cancel())  # before the task's own, which wakes it
        elif self._way is InterruptMode.CANCELLED_AFTER_ITS_DEADLINE:
            loop.call_at(loop.time(), cancel)
        elif self._way.cancels:
            loop.call_soon(cancel)
            if self._way is InterruptMode.CANCELLED_AGAIN:
                loop.call_soon(cancel)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._struck = task.cancel() or self._struck


def _get_current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def run_interrupted(coroutine: Coroutine[Any, Any, object], *, at: int, way: InterruptMode) -> InterruptResult:
    running = asyncio.create_task(Interrupter(at, way).run(coroutine), name="interrupted")
    done, _ = await asyncio.wait([running], timeout=STUCK_SECONDS)
    assert done, f"it hangs after it was {way.value}, at wait {at}"
    return running.result()


MAX_AWAITS = 200


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize("way", InterruptMode, ids=str)
@pytest.mark.parametrize("case", INTERRUPT_CASES, ids=str)
def test_call_may_be_ended_at_every_wait(case: InterruptCase, way: InterruptMode, tmp_path: Path) -> None:
    complaints: list[str] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context['message']}: {context.get('exception')!r}")
        )
        interruptions = runner.run(_at_every_wait(case, way, tmp_path))
        gc.collect()  # unretrieved exceptions are logged by finalizers
    assert complaints == []
    assert interruptions > 1


async def _at_every_wait(case: InterruptCase, way: InterruptMode, folder: Path) -> int:
    interruptions = 0
    for at in itertools.count(1):
        assert at < MAX_AWAITS
        async with ScriptedServer(never_respond) as server:
            server.default_responder = services = FakeServices(server)
            ending = await _run_interrupted_at(case, CallContext(server=server, folder=folder), services, at, way)
        if not ending.has_reached_wait:
            return interruptions
        interruptions += ending.was_interrupted
    raise AssertionError


async def _run_interrupted_at(
    case: InterruptCase, call: CallContext, services: FakeServices, at: int, way: InterruptMode
) -> InterruptResult:
    token = call.token if case.renewable else "token"
    async with open_suite(call.server, token=token, listeners=[call.events.append], **case.settings) as call.suite:
        await case.before(call)
        call.server.enqueue(*case.script(services))
        call.events.clear()
        requests = len(call.server.requests)
        ending = await run_interrupted(case.call(call), at=at, way=way)
        _assert_ended(ending, way)
        if not (call.other_tasks or "login" in call.server.paths):
            _assert_nothing_held(case, call)
        await yield_to_loop()
        if ending.was_interrupted:
            _assert_unknown_is_reported(case, call, requests)
        await _assert_others_go_on(case, call, way)
        _assert_nothing_held(case, call)
        await yield_until(
            lambda: not [entry for entry in call.folder.iterdir() if entry.suffix == ".part"]
        )  # in a thread
        assert "open" not in call.upload_states
        await _assert_next_goes_through(case, call, way)
        assert await measure_elapsed(call.suite.aclose()) == 0
    return ending


def _assert_ended(ending: InterruptResult, way: InterruptMode) -> None:
    if not ending.was_interrupted:
        assert ending.error is None
        assert ending.value is not None
    elif way.cancels:
        assert type(ending.error) is asyncio.CancelledError
        assert ending.cancel_requests > 0
    else:
        assert type(ending.error) is TimeoutError
        assert ending.has_expired
        assert ending.cancel_requests == 0


def _assert_unknown_is_reported(case: InterruptCase, call: CallContext, requests: int) -> None:
    reported = [event for event in call.events if isinstance(event, OutcomeLeftUnknown)]
    assert all(event.cancelled for event in reported)
    if case.effect is None:
        assert reported == []
        return
    operation, target = case.effect
    arrived = [request for request in call.server.requests[requests:] if request.target.endswith(target)]
    refused = [
        event
        for event in call.events
        if isinstance(event, AttemptFailed) and (event.operation, event.outcome) == (operation, ds.Outcome.REJECTED)
    ]
    assert len(reported) == (len(arrived) > len(refused))


async def _assert_others_go_on(case: InterruptCase, call: CallContext, way: InterruptMode) -> None:
    call.server.script.clear()
    if call.other_tasks:
        await asyncio.sleep(100 if way.passes_deadline else 2)  # a token's source that took too long backs off
    for end in await asyncio.gather(*call.other_tasks, return_exceptions=True):
        if not way.passes_deadline:  # their deadlines have also passed
            assert not isinstance(end, BaseException)
    await yield_until(lambda: not call.suite._session.calls)


def _assert_nothing_held(case: InterruptCase, call: CallContext) -> None:
    assert_no_leaks(call.suite, case.settings.get("max_connections", CONNECTIONS))
    assert call.suite._session.calls == 0


async def _assert_next_goes_through(case: InterruptCase, call: CallContext, way: InterruptMode) -> None:
    """Check that the next call of the same suite starts immediately and gets its own response."""
    assert await measure_elapsed(case.call(call)) <= case.pause
    raw: ds.RawResponse[Any] = await call.box.with_raw_response.get_message_count()
    assert raw.value == len(call.server.requests)
    assert raw.attempts == 1
