"""No error exposes a secret or patient data, in its texts or in the locals of the package's frames."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import (
    ALICE,
    API_CALLS,
    INDIVIDUAL,
    LOGIN,
    LOGIN_RESPONSE,
    PASSWORD,
    PATIENT,
    SECRETS,
    SESSION,
    TOKEN,
    ApiCall,
    catch_error,
    open_suite,
)

PACKAGE = str(Path(ds.__file__).parent)
SENTINELS = (*SECRETS, PATIENT)


def iterate_error_chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [link.__cause__, link.__context__]


def collect_error_texts(error: BaseException) -> Iterator[tuple[str, str]]:
    """Return all texts that a log, a debugger or an error tracker may show for an error."""
    for link in iterate_error_chain(error):
        name = type(link).__name__
        yield f"str of {name}", str(link)
        yield f"repr of {name}", repr(link)
        yield f"args of {name}", repr(link.args)
        yield f"attributes of {name}", repr(vars(link))
        yield f"format of {name}", "".join(traceback.format_exception(link))
        yield from _collect_locals(link.__traceback__)


def _collect_locals(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename.startswith(PACKAGE):
            for name, value in frame.f_locals.items():
                yield f"{name} in {frame.f_code.co_qualname}", repr(value)
        trace = trace.tb_next


def find_leaks(error: BaseException, forbidden: tuple[str, ...] = SENTINELS) -> list[str]:
    return [place for place, text in collect_error_texts(error) if any(sentinel in text for sentinel in forbidden)]


FAILURES: dict[str, Responder] = {
    "reset": responses.reset,
    "closed": responses.hang_up,
    "not HTTP": responses.send_non_http,
    "refused": responses.respond({"success": False, "code": 3, "message": PATIENT, "error": PATIENT}, 400),
    "401": responses.respond(PATIENT.encode(), 401),
    "500": responses.respond(PATIENT.encode(), 500),
    "malformed": responses.respond(b'{"success": ' + PATIENT.encode()),
    "misfit": responses.respond({"success": True, "count": PATIENT, "messages": PATIENT, "identifier": [PATIENT]}),
    "truncated": responses.truncate({"success": True, "message": PATIENT * 9}),
    "too large": responses.respond(PATIENT.encode() * 200),
    "silence": responses.never_respond,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("ask", API_CALLS, ids=str)
async def test_failed_call_shows_nothing(server: ScriptedServer, ask: ApiCall, failure: str) -> None:
    play = FAILURES[failure]

    async def otherwise(exchange: Any) -> None:
        await (responses.respond(LOGIN_RESPONSE) if exchange.request.target.endswith("/login") else play)(exchange)

    server.default_responder = otherwise
    async with open_suite(server, max_response_bytes=2000) as suite:
        try:
            error: ds.DirectSuiteError | None = await catch_error(ask.call(suite))
        except AssertionError:
            error = None
    if error is None:
        assert failure == "misfit"  # a response with an invalid field that this operation does not read
        return
    # a frame may contain the parameters of the path, as the caller's frame does, but no secret
    assert find_leaks(error, SECRETS) == []
    assert [place for place in find_leaks(error) if " in " not in place] == []


@pytest.mark.parametrize("failure", FAILURES)
async def test_failed_login_shows_nothing(server: ScriptedServer, failure: str) -> None:
    server.default_responder = FAILURES[failure]
    async with open_suite(server, max_response_bytes=2000, leaky=True) as suite:
        errors = [
            await catch_error(suite.registration.login()),
            await catch_error(suite.registration.get_patient_address_by_meta("direct.example.test", INDIVIDUAL)),
        ]
    for error in errors:
        assert find_leaks(error) == []


async def test_rejected_connection_shows_nothing(server: ScriptedServer) -> None:
    async with open_suite(server) as suite:
        await server.stop()
        for ask in API_CALLS:
            assert find_leaks(await catch_error(ask.call(suite)), SECRETS) == []


@pytest.mark.parametrize(
    "body",
    [
        responses.respond_in_chunks(b'{"messages": [{"uid": 1, "subject": "%b"}, ' % PATIENT.encode(), length=9999),
        responses.respond_in_chunks(
            b'{"messages": [{"uid": 1, "subject": "%b"}, {"uid": "%b"}]}' % ((PATIENT.encode(),) * 2)
        ),
        responses.respond_in_chunks(
            b'{"messages": [{"uid": 1, "subject": "%b"}, {"subject": %b' % ((PATIENT.encode(),) * 2)
        ),
        responses.respond_in_chunks(
            b'{"messages": [{"uid": 1, "subject": "%b"}], "success": false, "code": 3}' % PATIENT.encode()
        ),
    ],
    ids=["broken off", "misfit", "malformed", "refused at its end"],
)
async def test_failed_stream_shows_nothing(server: ScriptedServer, body: Responder) -> None:
    server.default_responder = body

    async def read(suite: ds.DirectSuite) -> None:
        async with suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
            async for _ in messages:
                pass

    async with open_suite(server) as suite:
        error = await catch_error(read(suite))
    assert find_leaks(error) == []


ENVIRON = {
    "DIRECTSUITE_TOKEN": TOKEN,
    "DIRECTSUITE_LOGIN_USERNAME": "reseller",
    "DIRECTSUITE_LOGIN_PASSWORD": PASSWORD,
    "DIRECTSUITE_FAX_URL": "ftp://fax.example.test",
}


async def _unsafe_url(suite: ds.DirectSuite) -> object:
    return ds.DirectSuite.from_env(ENVIRON)


async def _unpaired_login(suite: ds.DirectSuite) -> object:
    return ds.DirectSuite.from_env({"DIRECTSUITE_LOGIN_PASSWORD": PASSWORD})


async def _no_address(suite: ds.DirectSuite) -> object:
    return suite.mailbox("alice", PASSWORD)


async def _no_tuser_address(suite: ds.DirectSuite) -> object:
    return suite.tuser("tuser", PASSWORD, "alice")


async def _no_passwords(suite: ds.DirectSuite) -> object:
    await suite.registration.set_patients_passwords(".", [ds.UserPassword("ada", PASSWORD)])
    return None


async def _no_uids(suite: ds.DirectSuite) -> object:
    return await suite.mailbox(ALICE, PASSWORD).forward("INBOX", [])


INVALID_CALLS: list[Callable[[ds.DirectSuite], Awaitable[object]]] = [
    _unsafe_url,
    _unpaired_login,
    _no_address,
    _no_tuser_address,
    _no_passwords,
    _no_uids,
]


@pytest.mark.parametrize("refused", INVALID_CALLS, ids=lambda call: call.__name__)
async def test_rejected_argument_shows_nothing(
    server: ScriptedServer, refused: Callable[[ds.DirectSuite], Awaitable[object]]
) -> None:
    async with open_suite(server) as suite:
        error = await catch_error(refused(suite))
    assert find_leaks(error, SECRETS) == []


async def test_open_suite_and_its_parts_show_nothing(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(LOGIN_RESPONSE))
    async with open_suite(server) as suite:
        await suite.registration.login()
        box = suite.mailbox(ALICE, PASSWORD)
        for part in (suite, vars(suite), box, vars(box), LOGIN, vars(suite.registration), vars(suite._caches[1])):
            assert not any(sentinel in repr(part) for sentinel in SECRETS)


async def test_walk_finds_a_secret_that_is_there() -> None:
    def fail() -> None:
        raise ValueError(f"http://fax.example.test/{SESSION}")

    with pytest.raises(ValueError, match="fax") as caught:
        fail()
    assert len(find_leaks(caught.value)) == 4
