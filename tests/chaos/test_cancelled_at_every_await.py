"""A call may be ended from outside at every one of its waits: it ends, at once, and leaves nothing behind.

A cancellation is never swallowed nor turned into another error, a caller's time-out stays the caller's, connections,
places, tokens and files are given back, and the one who left a message on its way is told so by an event.
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
from tests.core.opened import CONNECTIONS, assert_nothing_held, opened
from tests.core.plays import silence
from tests.core.scripted_server import ScriptedServer
from tests.core.virtual_time import VirtualTimeLoop, elapsed, turns, until

from .interruptible import SCENES, Scene, Services, Stage
from .stepping import Ending, Way, interrupted

MOST_WAITS = 200


@pytest.mark.by_default(8)
@pytest.mark.parametrize("way", Way, ids=str)
@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_call_may_be_ended_at_every_wait(scene: Scene, way: Way, tmp_path: Path) -> None:
    complaints: list[str] = []
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context['message']}: {context.get('exception')!r}")
        )
        struck = runner.run(_at_every_wait(scene, way, tmp_path))
        gc.collect()  # what nobody looked at complains when it goes
    assert complaints == []
    assert struck > 1


async def _at_every_wait(scene: Scene, way: Way, folder: Path) -> int:
    """How often the call was ended before it went through."""
    struck = 0
    for at in itertools.count(1):
        assert at < MOST_WAITS
        async with ScriptedServer(silence) as server:
            server.otherwise = services = Services(server)
            ending = await _on_stage(scene, Stage(server=server, folder=folder), services, at, way)
        if not ending.reached:
            return struck
        struck += ending.struck
    raise AssertionError


async def _on_stage(scene: Scene, stage: Stage, services: Services, at: int, way: Way) -> Ending:
    token = stage.token if scene.renewable else "token"
    async with opened(stage.server, token=token, listeners=[stage.told.append], **scene.settings) as stage.suite:
        await scene.before(stage)
        stage.server.plays(*scene.script(services))
        stage.told.clear()
        requests = len(stage.server.requests)
        ending = await interrupted(scene.call(stage), at=at, way=way)
        _assert_ended(ending, way)
        if not (stage.others or "login" in stage.server.paths):
            _assert_nothing_held(scene, stage)
        await turns()
        if ending.struck:
            _assert_unknown_is_told(scene, stage, requests)
        await _assert_others_go_on(scene, stage, way)
        _assert_nothing_held(scene, stage)
        await until(lambda: not [entry for entry in stage.folder.iterdir() if entry.suffix == ".part"])  # in a thread
        assert "open" not in stage.uploads
        await _assert_next_goes_through(scene, stage, way)
        assert await elapsed(stage.suite.aclose()) == 0
    return ending


def _assert_ended(ending: Ending, way: Way) -> None:
    if not ending.struck:
        assert ending.error is None
        assert ending.value is not None
    elif way.cancels:
        assert type(ending.error) is asyncio.CancelledError
        assert ending.asked > 0
    else:
        assert type(ending.error) is TimeoutError
        assert ending.expired
        assert ending.asked == 0


def _assert_unknown_is_told(scene: Scene, stage: Stage, requests: int) -> None:
    """Exactly where the service has a request that it has not refused."""
    told = [event for event in stage.told if isinstance(event, OutcomeLeftUnknown)]
    assert all(event.cancelled for event in told)
    if scene.effect is None:
        assert told == []
        return
    operation, target = scene.effect
    arrived = [request for request in stage.server.requests[requests:] if request.target.endswith(target)]
    refused = [
        event
        for event in stage.told
        if isinstance(event, AttemptFailed) and (event.operation, event.outcome) == (operation, ds.Outcome.REJECTED)
    ]
    assert len(told) == (len(arrived) > len(refused))


async def _assert_others_go_on(scene: Scene, stage: Stage, way: Way) -> None:
    stage.server.script.clear()
    if stage.others:
        await asyncio.sleep(100 if way.lets_time_pass else 2)  # a token's source that took too long backs off
    for end in await asyncio.gather(*stage.others, return_exceptions=True):
        if not way.lets_time_pass:  # theirs is up then, too
            assert not isinstance(end, BaseException)
    await until(lambda: not stage.suite._session.calls)


def _assert_nothing_held(scene: Scene, stage: Stage) -> None:
    assert_nothing_held(stage.suite, scene.settings.get("max_connections", CONNECTIONS))
    assert stage.suite._session.calls == 0


async def _assert_next_goes_through(scene: Scene, stage: Stage, way: Way) -> None:
    """On the same suite, at once, and with the answer that is meant for it."""
    assert await elapsed(scene.call(stage)) <= scene.pause
    raw: ds.RawResponse[Any] = await stage.box.with_raw_response.get_message_count()
    assert raw.value == len(stage.server.requests)
    assert raw.attempts == 1
