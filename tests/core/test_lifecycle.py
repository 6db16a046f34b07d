"""The conditions for using a suite: it is open, in its own loop and process, and has the settings that a call needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import FreshConnector

from . import api
from .scripted_server import ScriptedServer
from .scripted_suite import LOGIN, TOKEN, catch_error, expect_error, make_settings, open_suite, stream_messages

CALLS: list[api.SuiteCall] = [
    api.GET_MESSAGE_COUNT,
    api.GET_DOC_INFO,
    api.GET_PATIENT_ADDRESS,
    api.SEND,
    stream_messages,
    lambda suite: suite.registration.login(),
]


@pytest.mark.parametrize("call", CALLS)
async def test_suite_that_is_not_open_rejects_calls(
    server: ScriptedServer, suite: ds.DirectSuite, call: api.SuiteCall
) -> None:
    error = await expect_error(ds.ClosedError, call(ds.DirectSuite(make_settings(server), token=TOKEN, login=LOGIN)))
    assert "async with" in str(error)
    await suite.aclose()
    assert type(await catch_error(call(suite))) is ds.ClosedError
    assert server.requests == []


async def test_suite_is_built_without_an_event_loop() -> None:
    built: list[ds.DirectSuite] = []
    thread = threading.Thread(target=lambda: built.append(ds.DirectSuite(token=TOKEN, login=LOGIN)))
    thread.start()
    thread.join()
    async with built[0]:
        pass


async def test_entering_twice_is_rejected(suite: ds.DirectSuite) -> None:
    with pytest.raises(ds.ConfigurationError, match="already open"):
        async with suite:
            pass
    await api.GET_MESSAGE_COUNT(suite)


async def test_closing_twice_and_closing_unopened_are_harmless(server: ScriptedServer) -> None:
    suite = ds.DirectSuite(make_settings(server))
    async with suite:
        await suite.aclose()
        await suite.aclose()
    with pytest.raises(ds.ClosedError, match="new DirectSuite"):
        await suite.__aenter__()
    unopened = ds.DirectSuite(make_settings(server))
    await unopened.aclose()
    await expect_error(ds.ClosedError, unopened.__aenter__())


async def test_other_event_loop_is_rejected(suite: ds.DirectSuite) -> None:
    errors: list[BaseException] = []

    def elsewhere() -> None:
        async def call() -> None:
            errors.append(await catch_error(api.GET_MESSAGE_COUNT(suite)))
            errors.append(await catch_error(suite.aclose()))

        asyncio.run(call())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [ds.ConfigurationError] * 2
    assert all("another event loop" in str(error) for error in errors)
    await api.GET_MESSAGE_COUNT(suite)


FORKS = textwrap.dedent(
    """
    import asyncio, os, warnings
    import directsuite as ds
    warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of threads at a fork, which is the point here

    async def main():
        settings = ds.Settings(message_url="http://127.0.0.1:9/message")
        async with ds.DirectSuite(settings) as suite:
            reading, writing = os.pipe()
            if os.fork() == 0:
                try:
                    await suite.mailbox("alice@direct.example.test", "p").get_message_count()
                except Exception as error:
                    os.write(writing, f"{type(error).__name__}: {error}".encode())
                os._exit(0)
            os.wait()
            print(os.read(reading, 4096).decode())

    asyncio.run(main())
    """
)


FORKS_WITH_THE_LOOP = textwrap.dedent(
    """
    import asyncio, os, warnings
    import directsuite as ds
    from directsuite.core.files import run_in_thread
    warnings.simplefilter("ignore", DeprecationWarning)

    loop = asyncio.new_event_loop()
    suite = ds.DirectSuite(ds.Settings(message_url="http://127.0.0.1:9/message"))
    loop.run_until_complete(suite.__aenter__())
    loop.run_until_complete(run_in_thread(os.getpid))
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            assert loop.run_until_complete(run_in_thread(os.getpid)) == os.getpid()
            loop.run_until_complete(suite.mailbox("alice@direct.example.test", "p").get_message_count())
        except Exception as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.wait()
    print(os.read(reading, 4096).decode())
    loop.run_until_complete(suite.aclose())
    """
)


@pytest.mark.process
@pytest.mark.parametrize("program", [FORKS, FORKS_WITH_THE_LOOP], ids=["within the loop", "with the loop"])
def test_call_in_a_forked_process_raises_and_explains(program: str) -> None:
    script = [sys.executable, "-c", program]
    text = subprocess.run(script, capture_output=True, text=True, timeout=30, check=True).stdout
    assert text.startswith("ConfigurationError: ")
    assert "fork" in text
    assert "each worker process" in text


async def test_session_factory_of_the_user_s_is_used_and_closed(server: ScriptedServer) -> None:
    made: list[aiohttp.ClientSession] = []

    def factory() -> aiohttp.ClientSession:
        made.append(aiohttp.ClientSession(connector=FreshConnector(), headers={"X-Mine": "yes"}))
        return made[0]

    async with open_suite(server, session_factory=factory) as suite:
        await api.GET_MESSAGE_COUNT(suite)
    assert made[0].closed
    assert server.requests[0].headers["x-mine"] == "yes"


MISSING: list[tuple[api.SuiteCall, str, list[str]]] = [
    (api.GET_MESSAGE_COUNT, "message_url", ["message_url", "DIRECTSUITE_MESSAGE_URL"]),
    (api.GET_DOC_INFO, "signing_url", ["DIRECTSUITE_SIGNING_URL"]),
    (api.GET_PATIENT_ADDRESS, "registration_url", ["registration_url in Settings"]),
    (api.GET_DOC_INFO, "token", ["DIRECTSUITE_TOKEN"]),
    (api.GET_PATIENT_ADDRESS, "login", ["DIRECTSUITE_LOGIN_USERNAME"]),
    (lambda suite: suite.registration.login(), "login", ["Login("]),
]


@pytest.mark.parametrize(("call", "without", "words"), MISSING)
async def test_missing_setting_is_named_with_what_to_do(
    server: ScriptedServer, call: api.SuiteCall, without: str, words: list[str]
) -> None:
    missing: dict[str, Any] = {without: None}
    async with open_suite(server, **missing) as suite:
        error = await expect_error(ds.ConfigurationError, call(suite))
    assert all(word in str(error) for word in words)
    assert server.requests == []
