"""Any bytes as a response on a socket: the call ends in time with a typed error, and releases everything."""

from __future__ import annotations

import asyncio
import json
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

import directsuite as ds
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite
from tests.core.virtual_time import VirtualTimeLoop

from .oracles import check_error_is_printable
from .run_lengths import check_property, parametrize_examples
from .sample_responses import MARKER

TIMEOUT = 30.0

ReadingCall = Callable[[ds.DirectSuite], Awaitable[object]]


async def _get_message_count(suite: ds.DirectSuite) -> object:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


async def _send(suite: ds.DirectSuite) -> object:
    return await suite.mailbox(ALICE, PASSWORD).send(MESSAGE)


async def _get_doc(suite: ds.DirectSuite) -> object:
    return await suite.signing.get_doc("doc")


async def _login(suite: ds.DirectSuite) -> object:
    return await suite.registration.login()


async def _stream_messages(suite: ds.DirectSuite) -> object:
    return [message async for message in suite.mailbox(ALICE, PASSWORD).stream_messages(timeout=TIMEOUT)]


async def _download(suite: ds.DirectSuite) -> object:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return await suite.signing.download("doc", Path(folder) / "doc.pdf", timeout=TIMEOUT)
        finally:
            assert [path.name for path in Path(folder).iterdir()] in ([], ["doc.pdf"])  # noqa: ASYNC240  a moment


CALLS: list[ReadingCall] = [_get_message_count, _send, _get_doc, _login, _stream_messages, _download]
"""The ways of reading a response."""


def respond_raw(content: bytes, *, closes: bool) -> Responder:
    """Return a responder that writes these bytes, then closes the connection or waits."""

    async def responder(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(content)
        if closes:
            exchange.close()
        else:
            await exchange.wait_for_disconnect()

    return responder


def check_call_survives(call: ReadingCall, content: bytes, *, closes: bool) -> None:
    """Check that a call ends in time with a value or a typed error, and releases everything."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_check_call(call, content, closes=closes))


async def _check_call(call: ReadingCall, content: bytes, *, closes: bool) -> None:
    loop, complaints = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with ScriptedServer(respond_raw(content, closes=closes)) as server:
        began = loop.time()
        async with open_suite(server, timeout=TIMEOUT, max_response_bytes=100_000) as suite:
            try:
                await call(suite)
            except ds.DirectSuiteError as error:
                check_error_is_printable(error)
            assert loop.time() - began <= TIMEOUT + 0.01
    assert complaints == []


pytestmark = pytest.mark.wide

_GOOD = json.dumps({"success": True, "code": "000", "count": 7, "sessionId": "s", "messages": [{"uid": 1}]}).encode()
_NO = json.dumps({"success": False, "code": 3, "error": MARKER, "message": MARKER}).encode()

STATUS_LINES = [
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 200",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 100 Continue",
    b"HTTP/1.1 101 Switching Protocols",
    b"HTTP/1.1 103 Early Hints",
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 206 Partial",
    b"HTTP/1.1 304 Not Modified",
    b"HTTP/1.1 302 Found",
    b"HTTP/1.1 401 No",
    b"HTTP/1.1 407 No",
    b"HTTP/1.1 429 Later",
    b"HTTP/1.1 503 Later",
    b"HTTP/1.1 999 ?",
    b"HTTP/1.1 000 ?",
    b"HTTP/1.1 99 ?",
    b"HTTP/1.1 1000 ?",
    b"HTTP/1.1 -20 ?",
    b"HTTP/1.1 200 \xff\xfe",
    b"HTTP/2 200 OK",
    b"HTTP/9.9 200 OK",
    b"ICY 200 OK",
    b"",
    b"\x16\x03\x01\x02\x00",
]
FIELDS = [
    b"Content-Length: %d" % len(_GOOD),
    b"Content-Length: 0",
    b"Content-Length: 1",
    b"Content-Length: 999999",
    b"Content-Length: 99999999999999999999999",
    b"Content-Length: -1",
    b"Content-Length: +5",
    b"Content-Length: 0x10",
    b"Content-Length: 5, 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: xchunked",
    b"Content-Encoding: gzip",
    b"Content-Encoding: deflate",
    b"Content-Encoding: br",
    b"Content-Encoding: zstd",
    b"Content-Encoding: gzip, gzip",
    b"Content-Type: \xff\xfe;\x01",
    b"Content-Type: application/json; charset=utf-7",
    b"Retry-After: 1",
    b"Retry-After: 99999999999999999999",
    b"Retry-After: \xc2\xb2",
    b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Connection: \xff",
    b"Location: http://[::1",
    b'Set-Cookie: a="\xff; Expires=Mon, 99 Foo 99999 99:99:99 GMT; Max-Age=9e9',
    b"WWW-Authenticate: Digest \x00",
    b"Link: <",
    b"no colon",
    b": no name",
    b" folded",
    b"A" * 9000 + b": 1",
    b"X: " + b"A" * 9000,
    b"X: 1\r\n" * 200 + b"Y: 2",
    b"X: \x00",
    b"X\x00: 1",
    b"X: \r",
]
_GZIP = zlib.compress(_GOOD, wbits=31)
BODIES = [
    b"",
    _GOOD,
    _NO,
    b"<html>" + MARKER.encode(),
    _GZIP,
    _GZIP[:20],
    _GZIP[:-4] + b"\0\0\0\0",
    _GZIP + _GZIP,
    zlib.compress(_GOOD),
    b"%x\r\n%s\r\n0\r\n\r\n" % (len(_GOOD), _GOOD),
    b"%x\r\n%s\r\n" % (len(_GOOD), _GOOD),
    b"5\r\nabc\r\n0\r\n\r\n",
    b"-5\r\nabcde\r\n0\r\n\r\n",
    b"fffffffffffffffffffff\r\n" + MARKER.encode(),
    b"5;" + b"x" * 70_000 + b"\r\nabcde\r\n0\r\n\r\n",
    b"0\r\nTrailer: " + b"x" * 70_000 + b"\r\n\r\n",
    b"0\r\n\xff: \x00\r\n\r\n",
    b"YQ==",
    b"A" * 200_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
]


def _written(line: bytes, fields: list[bytes], ending: bytes, body: bytes) -> bytes:
    return line + b"\r\n" + b"".join(field + b"\r\n" for field in fields) + ending + body


HEAD_AND_BODY = st.builds(
    _written,
    st.sampled_from(STATUS_LINES[:1]) | st.sampled_from(STATUS_LINES),
    st.lists(st.sampled_from(FIELDS), max_size=3),
    st.sampled_from([b"\r\n", b"\r\n", b"\n", b""]),
    st.sampled_from(BODIES),
)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    content = draw(HEAD_AND_BODY)
    start = draw(st.integers(0, len(content)))
    return content[:start] + draw(st.binary(max_size=6)) + content[draw(st.integers(start, len(content))) :]


def _survived(call: ReadingCall, content: bytes, closes: bool) -> None:
    check_call_survives(call, content, closes=closes)


@parametrize_examples
def test_any_bytes_as_a_response_are_survived(examples: int) -> None:
    wire = HEAD_AND_BODY | _damaged() | st.binary(max_size=100)
    check_property(examples // 2, _survived, st.sampled_from(CALLS), wire, st.booleans())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_every_odd_status_line_is_survived(call: ReadingCall) -> None:
    for line in STATUS_LINES:
        check_call_survives(call, _written(line, [FIELDS[0]], b"\r\n", _GOOD), closes=True)


@pytest.mark.exhaustive(limit=13)
@pytest.mark.parametrize("field", FIELDS, ids=range(len(FIELDS)))
def test_every_odd_field_is_survived(field: bytes) -> None:
    for call in CALLS[:1] + CALLS[-2:]:
        check_call_survives(call, _written(STATUS_LINES[0], [field], b"\r\n", _GOOD), closes=True)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("field", [b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"X: 1"])
def test_every_odd_body_is_survived(field: bytes, body: bytes) -> None:
    for call in (CALLS[0], CALLS[-2]):
        check_call_survives(call, _written(STATUS_LINES[0], [field], b"\r\n", body), closes=True)
