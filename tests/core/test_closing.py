"""Opening and closing a suite while other tasks open, close, call or wait for a token."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core.call import Call

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, GET_PATIENT_ADDRESS, LOGIN_RESPONSE, PASSWORD, catch_error, open_suite
from .virtual_time import measure_elapsed, yield_to_loop, yield_until

OK: dict[str, object] = {"success": True, "code": "000", "patient": []}
SECURE = ds.Settings(signing_url="https://127.0.0.1:1")


async def _look(suite: ds.DirectSuite) -> object:
    return await GET_PATIENT_ADDRESS.call(suite)


async def _get_doc(suite: ds.DirectSuite, _: Path) -> object:
    return await suite.signing.get_doc("doc")


async def _download(suite: ds.DirectSuite, folder: Path) -> object:
    return await suite.signing.download("doc", folder / "doc.pdf")


async def _sign(suite: ds.DirectSuite, folder: Path) -> object:
    return await suite.signing.sign_and_pull("doc", ds.Signature(name="a"), destination=folder / "doc.pdf")


async def _stream(suite: ds.DirectSuite, _: Path) -> object:
    return [message async for message in suite.mailbox(ALICE, PASSWORD).stream_messages()]


def _left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.exhaustive
@pytest.mark.parametrize("grace", [0.0, 5.0])
@pytest.mark.parametrize(
    ("read", "told"),
    [
        (_get_doc, ds.ClosedError | ds.ConnectionLostError),
        (_download, ds.ClosedError | ds.ConnectionLostError),
        (_sign, ds.OutcomeUnknownError),
        (_stream, ds.ClosedError | ds.ConnectionLostError),
    ],
)
async def test_closing_ends_who_waits_for_the_rest_of_an_response(
    server: ScriptedServer,
    tmp_path: Path,
    read: Callable[[ds.DirectSuite, Path], Awaitable[object]],
    told: type[ds.DirectSuiteError],
    grace: float,
) -> None:
    beginning = b'{"success": true, "message": [' if read is _stream else b"JVBERi0x"
    server.default_responder = responses.respond_in_chunks(beginning, responses.Pause(500))
    never = ds.RetryPolicy.none()
    async with open_suite(server, leaky=True, attempt_timeout=1000, timeout=1000, retry=never) as suite:
        reader = asyncio.ensure_future(catch_error(read(suite, tmp_path)))
        await yield_until(lambda: bool(suite._session.open_responses))
        await yield_to_loop()
        assert await measure_elapsed(suite.aclose(grace=grace)) == pytest.approx(grace)
        assert await measure_elapsed(reader) == 0
    assert isinstance(reader.result(), told)
    assert not suite._session.open_responses
    assert _left_in(tmp_path) == []


async def test_call_ended_by_closing_is_garbage_collected(server: ScriptedServer) -> None:
    before = _calls_alive()
    for _ in range(3):
        server.enqueue(responses.respond_in_chunks(b'{"success": true, ', responses.Pause(30), b'"count": 1}'))
        await _close_on_an_answer(server)
    await yield_to_loop()
    assert _calls_alive() == before


async def _close_on_an_answer(server: ScriptedServer) -> None:
    async with open_suite(server, leaky=True) as suite:
        asking = asyncio.ensure_future(suite.mailbox(ALICE, PASSWORD).get_message_count())
        await yield_until(lambda: bool(suite._session.open_responses))
        await suite.aclose(grace=0)
        await catch_error(asking)


def _calls_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Call) for each in gc.get_objects())


async def test_suite_is_closed_from_the_beginning_of_its_closing(server: ScriptedServer) -> None:
    server.default_responder = responses.delay(3, server.default_responder)
    async with open_suite(server) as suite:
        call = asyncio.create_task(suite.mailbox(ALICE, PASSWORD).get_message_count())
        await yield_until(lambda: server.busy == 1)
        before = suite._session.closed
        closing = asyncio.create_task(suite.aclose(grace=5))
        await yield_to_loop()
        assert (before, suite._session.closed) == (False, True)
        await asyncio.gather(call, closing)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_second_closer_waits_for_the_first_and_disturbs_nobody(server: ScriptedServer, cancelled: bool) -> None:
    server.enqueue(responses.delay(3, responses.respond(LOGIN_RESPONSE)), responses.respond(OK))
    async with open_suite(server) as suite:
        call = asyncio.create_task(_look(suite))  # it waits for the login
        await yield_until(lambda: server.busy == 1)
        first = asyncio.create_task(suite.aclose(grace=5))
        await yield_to_loop()
        second = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        if cancelled:
            second.cancel()
            await yield_to_loop()
            assert second.cancelled()
        else:
            assert not second.done()
            assert await measure_elapsed(second) == pytest.approx(3)
        await first
        await call


async def test_second_closer_in_another_loop_is_rejected(server: ScriptedServer) -> None:
    server.default_responder = responses.delay(3, server.default_responder)
    async with open_suite(server) as suite:
        call = asyncio.create_task(suite.mailbox(ALICE, PASSWORD).get_message_count())
        await yield_until(lambda: server.busy == 1)
        closing = asyncio.create_task(suite.aclose(grace=5))
        await yield_to_loop()
        error = await asyncio.to_thread(lambda: asyncio.run(catch_error(suite.aclose())))
        await asyncio.gather(call, closing)
    assert type(error) is ds.ConfigurationError


async def test_concurrent_second_open_is_rejected() -> None:
    suite = ds.DirectSuite(SECURE)
    results = await asyncio.gather(suite.__aenter__(), suite.__aenter__(), return_exceptions=True)
    await suite.aclose()
    assert [type(result) for result in results] == [ds.DirectSuite, ds.ConfigurationError]


async def test_closing_while_opening_leaves_no_session_open() -> None:
    suite = ds.DirectSuite(SECURE)
    opening = asyncio.ensure_future(catch_error(suite.__aenter__()))
    await asyncio.sleep(0)
    await suite.aclose()
    assert type(await opening) is ds.ClosedError
    assert suite._session._http is None


async def test_opening_that_was_cancelled_may_be_begun_again() -> None:
    suite = ds.DirectSuite(SECURE)
    opening = asyncio.ensure_future(suite.__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with suite:
        pass
