"""Nothing that was planted turns up: not in logs, events, spans, metrics, errors, frames or reprs, whatever happens.

Frames are looked at with their locals, as tools print them that report errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

import directsuite as ds
from directsuite.types import Token
from tests.core import plays
from tests.core.opened import TWICE
from tests.core.scripted_server import Play, ScriptedServer
from tests.core.virtual_time import LoopClock, VirtualTimeLoop, turns, until
from tests.specification import METHODS

from . import echoes, planted
from .overheard import Overheard, Shown, leaks, locals_of, parts_of, pickled_of, words_of

SECRETS = planted.forms(planted.SECRETS)
EVERYTHING = planted.forms(planted.EVERYTHING)
BUT_IDENTIFIERS = planted.forms({*planted.EVERYTHING} - {planted.DOCUMENT, str(planted.UID)})
"""What reprs of responses and frames may not show; by which number or identifier a thing is asked for, they may."""
LOOKS = {"GetDocInfo", "GetDoc", "GetPatientAddressByMeta"}
DEBUG = pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "debug"])


def in_virtual_time(scene: Callable[[], Awaitable[None]], *, debug: bool = False) -> None:
    """Run it to its end in no time. debug: in asyncio's debug mode, which logs more."""

    async def run() -> None:
        await scene()

    with asyncio.Runner(loop_factory=VirtualTimeLoop, debug=debug) as runner:
        runner.run(run())


def suite_of(server: ScriptedServer, token: Token = planted.TOKEN, **others: Any) -> ds.DirectSuite:
    """A suite of the scripted server; its circuits stay closed."""
    values: dict[str, Any] = {
        "signing_url": server.url("signing"),
        "fax_url": server.url("fax"),
        "message_url": server.url("message"),
        "registration_url": server.url("registration"),
        "retry": TWICE,
        "circuit_failures": 0,
        "max_response_bytes": 100_000,
    }
    return ds.DirectSuite(ds.Settings(**(values | others)), token=token, login=planted.LOGIN, clock=LoopClock())


async def outcome(call: planted.Call, suite: ds.DirectSuite) -> object:
    """What a call gives, or the error that it raises."""
    try:
        return await call(suite)
    except Exception as error:  # noqa: BLE001  whatever it is, it is looked at
        return error


def told_by(found: object) -> list[Shown]:
    """What stands where it may not: in an error, or in the repr of a response."""
    if isinstance(found, BaseException):
        return [
            *leaks(words_of(found), EVERYTHING),
            *leaks(locals_of(found), BUT_IDENTIFIERS),
            *leaks(pickled_of(found), EVERYTHING),
        ]
    return leaks([("repr of the response", repr(found))], BUT_IDENTIFIERS) if isinstance(found, ds.Model) else []


async def told_by_cancelling(call: asyncio.Future[object]) -> list[Shown]:
    """What stands where it may not, in the cancellation of a call."""
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    return [*leaks(words_of(caught.value), EVERYTHING), *leaks(locals_of(caught.value), BUT_IDENTIFIERS)]


async def shown_by(
    calls: Mapping[str, planted.Call], play: Play, overheard: Overheard, **others: Any
) -> dict[str, list[Shown]]:
    """What the calls showed that they may not, by name, where every request ends like this."""
    found: dict[str, list[Shown]] = {}
    async with ScriptedServer(play) as server, suite_of(server, **others) as suite:
        overheard.listen(suite)
        for name, call in calls.items():
            found[name] = told_by(await outcome(call, suite))
        found["suite"] = leaks(parts_of(suite, planted.box(suite), planted.tuser(suite)), SECRETS)
    return {name: places for name, places in found.items() if places}


def test_every_operation_is_planted() -> None:
    assert set(planted.CALLS) == set(METHODS)


@pytest.mark.by_default(5)
@DEBUG
@pytest.mark.parametrize("failure", echoes.FAILURES)
def test_failed_calls_show_nothing(failure: str, *, debug: bool) -> None:
    async def scene() -> None:
        play = echoes.after_login(echoes.FAILURES[failure])
        retry = TWICE if debug else ds.RetryPolicy.none()
        assert await shown_by(planted.CALLS | planted.OTHER_WAYS, play, overheard, retry=retry) == {}

    with Overheard(thorough=debug) as overheard:
        in_virtual_time(scene, debug=debug)
    assert leaks(overheard.shown(), EVERYTHING) == []
    assert overheard.operations >= set(METHODS)


def test_failed_login_shows_nothing() -> None:
    calls = {name: planted.CALLS[name] for name in ("login", "GetPatientAddressByMeta", "ProvisionIDProofedPatient")}

    async def scene() -> None:
        found = {name: await shown_by(calls, play, overheard) for name, play in echoes.FAILURES.items()}
        assert {name: places for name, places in found.items() if places} == {}

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []
    assert overheard.operations == {*calls}


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
def test_calls_that_go_well_show_nothing(*, debug: bool) -> None:
    results: list[object] = []

    async def scene() -> None:
        async with ScriptedServer(echoes.good) as server, suite_of(server) as suite:
            overheard.listen(suite)
            results.extend([await outcome(call, suite) for call in planted.CALLS.values()])
            assert leaks(parts_of(suite, planted.box(suite), planted.tuser(suite)), SECRETS) == []

    with Overheard() as overheard:
        in_virtual_time(scene, debug=debug)
    assert [result for result in results if isinstance(result, Exception)] == []
    assert [told_by(result) for result in results if told_by(result)] == []
    assert leaks(overheard.shown(), EVERYTHING) == []
    assert overheard.operations == set(METHODS)


def test_refused_arguments_show_nothing() -> None:
    async def scene() -> None:
        async with ScriptedServer(echoes.good) as server, suite_of(server) as suite:
            for name, call in planted.REFUSED.items():
                with pytest.raises(ds.DirectSuiteError) as caught:
                    await call(suite)
                assert (name, told_by(caught.value)) == (name, [])
            assert server.requests == []

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []


@pytest.mark.parametrize("failures", [0, 3], ids=["tried", "left alone"])
def test_service_that_is_down_shows_nothing(failures: int) -> None:
    async def scene() -> None:
        async with ScriptedServer(echoes.good) as server, suite_of(server, circuit_failures=failures) as suite:
            overheard.listen(suite)
            await suite.registration.login()
            await server.stop()
            for name, call in planted.CALLS.items():
                error = await outcome(call, suite)
                assert isinstance(error, ds.ConnectFailedError)
                assert (name, told_by(error)) == (name, [])

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []


def _in_the_midst(server: ScriptedServer, operation: str) -> bool:
    """Whether the operation's own request is with the server, and its answer on the way."""
    return server.busy > 0 and (operation == "login" or not server.requests[-1].target.endswith("/login"))


@pytest.mark.parametrize(
    "play",
    [
        plays.silence,
        echoes.half,
    ],
    ids=["silence", "half an answer"],
)
def test_cancelled_calls_show_nothing(play: Play) -> None:
    async def scene() -> None:
        async with ScriptedServer(play) as server, suite_of(server) as suite:
            overheard.listen(suite)
            for name, call in planted.CALLS.items():
                server.otherwise = play if name == "login" else echoes.after_login(play)
                task = asyncio.ensure_future(outcome(call, suite))
                await until(functools.partial(_in_the_midst, server, name))
                await turns()
                assert (name, await told_by_cancelling(task)) == (name, [])

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []
    assert overheard.operations == set(METHODS)


@pytest.mark.by_default(8)
@pytest.mark.parametrize("failure", echoes.FAILURES)
def test_calls_that_turn_out_to_have_happened_show_nothing(failure: str) -> None:
    async def scene() -> None:
        play = echoes.looks(echoes.good, echoes.FAILURES[failure])
        assert await shown_by(planted.SETTLED, play, overheard, retry=ds.RetryPolicy.none()) == {}

    with Overheard(thorough=False) as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []
    # A provisioned patient needs no field of the response, so a misfit response of that call is no failure.
    looks = LOOKS - {"GetPatientAddressByMeta"} if failure == "misfit" else LOOKS
    assert overheard.operations >= looks or failure not in ("500", "truncated", "misfit", "reset", "silence")


@pytest.mark.parametrize(("name", "call"), planted.SETTLED.items(), ids=planted.SETTLED)
def test_cancelled_looks_show_nothing(name: str, call: planted.Call) -> None:
    async def scene() -> None:
        async with ScriptedServer(echoes.looks(plays.silence, plays.hang_up)) as server, suite_of(server) as suite:
            overheard.listen(suite)
            task = asyncio.ensure_future(outcome(call, suite))
            await until(lambda: any(echoes.is_look(request.target) for request in server.requests))
            await turns()
            assert (name, await told_by_cancelling(task)) == (name, [])

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []


def test_stream_that_is_left_early_shows_nothing() -> None:
    async def scene() -> None:
        async with ScriptedServer(echoes.good) as server, suite_of(server) as suite:
            overheard.listen(suite)
            async with contextlib.aclosing(planted.box(suite).stream_messages(planted.FOLDER)) as messages:
                assert (await anext(messages)).subject == planted.SUBJECT

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []


GRANTS: dict[str, Callable[[str], Token]] = {
    "client credentials": lambda url: ds.ClientCredentials(url, "planted-client", planted.CLIENT_SECRET),
    "in the body": lambda url: ds.ClientCredentials(url, "planted-client", planted.CLIENT_SECRET, client_auth="body"),
    "refresh token": lambda url: ds.RefreshToken(url, "planted-client", planted.CLIENT_SECRET, planted.REFRESH_TOKEN),
    "authorization code": lambda url: ds.AuthorizationCode(
        url, "planted-client", planted.CLIENT_SECRET, planted.CODE, "https://app.example.test/", planted.VERIFIER
    ),
}


@pytest.mark.by_default(1)
@pytest.mark.parametrize("grant", GRANTS)
def test_token_requests_show_nothing(grant: str) -> None:
    async def scene() -> None:
        for name, play in (echoes.FAILURES | {"good": echoes.good}).items():
            async with ScriptedServer(play) as server:
                token = GRANTS[grant](server.url("token"))
                async with suite_of(server, token) as suite:
                    overheard.listen(suite)
                    assert (name, told_by(await outcome(planted.CALLS["GetDocInfo"], suite))) == (name, [])
                    assert (name, leaks(parts_of(suite, token), SECRETS)) == (name, [])

    with Overheard() as overheard:
        in_virtual_time(scene)
    assert leaks(overheard.shown(), EVERYTHING) == []
    assert len(overheard.operations) == 2
