"""No error shows a secret or patient data: not in its texts, not in the locals of the package's frames."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import directsuite as ds

from . import plays
from .opened import (
    ALICE,
    ASKS,
    INDIVIDUAL,
    LOGGED_IN,
    LOGIN,
    PASSWORD,
    PATIENT,
    SECRETS,
    SESSION,
    TOKEN,
    Ask,
    failure_of,
    opened,
)
from .scripted_server import Play, ScriptedServer

PACKAGE = str(Path(ds.__file__).parent)
SENTINELS = (*SECRETS, PATIENT)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error with its causes and contexts, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [link.__cause__, link.__context__]


def shown(error: BaseException) -> Iterator[tuple[str, str]]:
    """Every text that a log, a debugger or an error tracker may show of this failure."""
    for link in chain(error):
        name = type(link).__name__
        yield f"str of {name}", str(link)
        yield f"repr of {name}", repr(link)
        yield f"args of {name}", repr(link.args)
        yield f"attributes of {name}", repr(vars(link))
        yield f"format of {name}", "".join(traceback.format_exception(link))
        yield from _locals(link.__traceback__)


def _locals(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename.startswith(PACKAGE):
            for name, value in frame.f_locals.items():
                yield f"{name} in {frame.f_code.co_qualname}", repr(value)
        trace = trace.tb_next


def leaks(error: BaseException, forbidden: tuple[str, ...] = SENTINELS) -> list[str]:
    return [place for place, text in shown(error) if any(sentinel in text for sentinel in forbidden)]


FAILURES: dict[str, Play] = {
    "reset": plays.reset,
    "closed": plays.hang_up,
    "not HTTP": plays.not_http,
    "refused": plays.answer({"success": False, "code": 3, "message": PATIENT, "error": PATIENT}, 400),
    "401": plays.answer(PATIENT.encode(), 401),
    "500": plays.answer(PATIENT.encode(), 500),
    "malformed": plays.answer(b'{"success": ' + PATIENT.encode()),
    "misfit": plays.answer({"success": True, "count": PATIENT, "messages": PATIENT, "identifier": [PATIENT]}),
    "truncated": plays.truncated({"success": True, "message": PATIENT * 9}),
    "too large": plays.answer(PATIENT.encode() * 200),
    "silence": plays.silence,
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("ask", ASKS, ids=str)
async def test_failed_call_shows_nothing(server: ScriptedServer, ask: Ask, failure: str) -> None:
    play = FAILURES[failure]

    async def otherwise(exchange: Any) -> None:
        await (plays.answer(LOGGED_IN) if exchange.request.target.endswith("/login") else play)(exchange)

    server.otherwise = otherwise
    async with opened(server, max_response_bytes=2000) as suite:
        try:
            error: ds.DirectSuiteError | None = await failure_of(ask.call(suite))
        except AssertionError:
            error = None
    if error is None:
        assert failure == "misfit"  # an answer whose ill-fitting member this operation doesn't read
        return
    # A path's parameters may stand in a frame, as the caller's own frame has them; no secret may.
    assert leaks(error, SECRETS) == []
    assert [place for place in leaks(error) if " in " not in place] == []


@pytest.mark.parametrize("failure", FAILURES)
async def test_failed_login_shows_nothing(server: ScriptedServer, failure: str) -> None:
    server.otherwise = FAILURES[failure]
    async with opened(server, max_response_bytes=2000, leaky=True) as suite:
        errors = [
            await failure_of(suite.registration.login()),
            await failure_of(suite.registration.get_patient_address_by_meta("direct.example.test", INDIVIDUAL)),
        ]
    for error in errors:
        assert leaks(error) == []


async def test_refused_connection_shows_nothing(server: ScriptedServer) -> None:
    async with opened(server) as suite:
        await server.stop()
        for ask in ASKS:
            assert leaks(await failure_of(ask.call(suite)), SECRETS) == []


@pytest.mark.parametrize(
    "body",
    [
        plays.pieces(b'{"messages": [{"uid": 1, "subject": "%b"}, ' % PATIENT.encode(), length=9999),
        plays.pieces(b'{"messages": [{"uid": 1, "subject": "%b"}, {"uid": "%b"}]}' % ((PATIENT.encode(),) * 2)),
        plays.pieces(b'{"messages": [{"uid": 1, "subject": "%b"}, {"subject": %b' % ((PATIENT.encode(),) * 2)),
        plays.pieces(b'{"messages": [{"uid": 1, "subject": "%b"}], "success": false, "code": 3}' % PATIENT.encode()),
    ],
    ids=["broken off", "misfit", "malformed", "refused at its end"],
)
async def test_failed_stream_shows_nothing(server: ScriptedServer, body: Play) -> None:
    server.otherwise = body

    async def read(suite: ds.DirectSuite) -> None:
        async with suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
            async for _ in messages:
                pass

    async with opened(server) as suite:
        error = await failure_of(read(suite))
    assert leaks(error) == []


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


REFUSED: list[Callable[[ds.DirectSuite], Awaitable[object]]] = [
    _unsafe_url,
    _unpaired_login,
    _no_address,
    _no_tuser_address,
    _no_passwords,
    _no_uids,
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda call: call.__name__)
async def test_refused_argument_shows_nothing(
    server: ScriptedServer, refused: Callable[[ds.DirectSuite], Awaitable[object]]
) -> None:
    async with opened(server) as suite:
        error = await failure_of(refused(suite))
    assert leaks(error, SECRETS) == []


async def test_open_suite_and_its_parts_show_nothing(server: ScriptedServer) -> None:
    server.plays(plays.answer(LOGGED_IN))
    async with opened(server) as suite:
        await suite.registration.login()
        box = suite.mailbox(ALICE, PASSWORD)
        for part in (suite, vars(suite), box, vars(box), LOGIN, vars(suite.registration), vars(suite._caches[1])):
            assert not any(sentinel in repr(part) for sentinel in SECRETS)


async def test_walk_finds_a_secret_that_is_there() -> None:
    def fail() -> None:
        raise ValueError(f"http://fax.example.test/{SESSION}")

    with pytest.raises(ValueError, match="fax") as caught:
        fail()
    assert len(leaks(caught.value)) == 4
