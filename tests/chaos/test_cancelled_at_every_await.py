"""A call can be interrupted at each of its awaits: it ends immediately and releases everything.

A cancellation is neither swallowed nor replaced by another error, and a caller's timeout remains the caller's.
Connections, slots, tokens and files are released. An event reports a request that may still have an effect.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.core.events import AttemptFailed, OutcomeLeftUnknown
from tests.core.responses import never_respond
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import CONNECTIONS, assert_no_leaks, open_suite
from tests.core.virtual_time import VirtualTimeLoop, measure_elapsed, yield_to_loop, yield_until

from .interrupt_cases import INTERRUPT_CASES, CallContext, FakeServices, InterruptCase
from .interrupter import InterruptMode, InterruptResult, run_interrupted

MOST_WAITS = 200


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize("way", InterruptMode, ids=str)
@pytest.mark.parametrize("scene", INTERRUPT_CASES, ids=str)
def test_call_may_be_ended_at_every_wait(scene: InterruptCase, way: InterruptMode, tmp_path: Path) -> None:
    complaints: list[str] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context['message']}: {context.get('exception')!r}")
        )
        struck = runner.run(_at_every_wait(scene, way, tmp_path))
        gc.collect()  # unretrieved exceptions are logged by finalizers
    assert complaints == []
    assert struck > 1


async def _at_every_wait(scene: InterruptCase, way: InterruptMode, folder: Path) -> int:
    struck = 0
    for at in itertools.count(1):
        assert at < MOST_WAITS
        async with ScriptedServer(never_respond) as server:
            server.default_responder = services = FakeServices(server)
            ending = await _on_stage(scene, CallContext(server=server, folder=folder), services, at, way)
        if not ending.has_reached_wait:
            return struck
        struck += ending.was_interrupted
    raise AssertionError


async def _on_stage(
    scene: InterruptCase, stage: CallContext, services: FakeServices, at: int, way: InterruptMode
) -> InterruptResult:
    token = stage.token if scene.renewable else "token"
    async with open_suite(stage.server, token=token, listeners=[stage.events.append], **scene.settings) as stage.suite:
        await scene.before(stage)
        stage.server.enqueue(*scene.script(services))
        stage.events.clear()
        requests = len(stage.server.requests)
        ending = await run_interrupted(scene.call(stage), at=at, way=way)
        _assert_ended(ending, way)
        if not (stage.other_tasks or "login" in stage.server.paths):
            _assert_nothing_held(scene, stage)
        await yield_to_loop()
        if ending.was_interrupted:
            _assert_unknown_is_told(scene, stage, requests)
        await _assert_others_go_on(scene, stage, way)
        _assert_nothing_held(scene, stage)
        await yield_until(
            lambda: not [entry for entry in stage.folder.iterdir() if entry.suffix == ".part"]
        )  # in a thread
        assert "open" not in stage.upload_states
        await _assert_next_goes_through(scene, stage, way)
        assert await measure_elapsed(stage.suite.aclose()) == 0
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


def _assert_unknown_is_told(scene: InterruptCase, stage: CallContext, requests: int) -> None:
    told = [event for event in stage.events if isinstance(event, OutcomeLeftUnknown)]
    assert all(event.cancelled for event in told)
    if scene.effect is None:
        assert told == []
        return
    operation, target = scene.effect
    arrived = [request for request in stage.server.requests[requests:] if request.target.endswith(target)]
    refused = [
        event
        for event in stage.events
        if isinstance(event, AttemptFailed) and (event.operation, event.outcome) == (operation, ds.Outcome.REJECTED)
    ]
    assert len(told) == (len(arrived) > len(refused))


async def _assert_others_go_on(scene: InterruptCase, stage: CallContext, way: InterruptMode) -> None:
    stage.server.script.clear()
    if stage.other_tasks:
        await asyncio.sleep(100 if way.passes_deadline else 2)  # a token's source that took too long backs off
    for end in await asyncio.gather(*stage.other_tasks, return_exceptions=True):
        if not way.passes_deadline:  # theirs is up then, too
            assert not isinstance(end, BaseException)
    await yield_until(lambda: not stage.suite._session.calls)


def _assert_nothing_held(scene: InterruptCase, stage: CallContext) -> None:
    assert_no_leaks(stage.suite, scene.settings.get("max_connections", CONNECTIONS))
    assert stage.suite._session.calls == 0


async def _assert_next_goes_through(scene: InterruptCase, stage: CallContext, way: InterruptMode) -> None:
    """On the same suite, at once, and with the answer that is meant for it."""
    assert await measure_elapsed(scene.call(stage)) <= scene.pause
    raw: ds.RawResponse[Any] = await stage.box.with_raw_response.get_message_count()
    assert raw.value == len(stage.server.requests)
    assert raw.attempts == 1
