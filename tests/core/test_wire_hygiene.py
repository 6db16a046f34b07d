"""What is sent over the network: nothing from the environment, no cookies, no other host, no old TLS."""

from __future__ import annotations

import io
import ssl
from pathlib import Path

import aiohttp
import pybase64
import pytest

import directsuite as ds
from directsuite._version import __version__

from . import api, responses
from .failing_networks import make_service_urls, tls_server
from .outcome_cases import UPLOAD_CALLS
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import PATIENT, PDF, SUCCESS_BODY, TOKEN, catch_error, expect_error, open_suite, stream_messages

ALWAYS = {
    "user-agent": f"directsuite/{__version__}",
    "accept": "application/json, text/plain",
}
ENCODINGS = {"gzip", "deflate", "br", "zstd"}


@pytest.mark.parametrize("ask", [*api.API_CALLS, api.SAVE_STREAM], ids=str)
async def test_request_carries_these_headers_and_no_others(server: ScriptedServer, ask: api.ApiCall) -> None:
    async with open_suite(server) as suite:
        await ask(suite)
    for request in server.requests:
        headers = dict(request.headers)
        assert set(headers.pop("accept-encoding").replace(",", " ").split()) <= ENCODINGS
        about_the_body = {"content-length", "transfer-encoding", "content-type"}
        expected = ALWAYS | {"host": f"127.0.0.1:{server.port}"}
        if ask.service == "signing":
            expected |= {"authorization": f"Bearer {TOKEN}"}
        assert {name: text for name, text in headers.items() if name not in about_the_body} == expected


async def test_base_url_that_is_not_ascii_is_encoded(server: ScriptedServer) -> None:
    async with open_suite(server, message_url=server.url("Postfächer")) as suite:
        await api.GET_MESSAGE_COUNT(suite)
    assert server.requests[0].target == "/Postf%C3%A4cher/GetMessageCount/INBOX"


@pytest.mark.parametrize("ask", [api.SEND, api.GET_DOC_INFO], ids=str)
async def test_environment_gives_no_proxy_and_no_password(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: api.ApiCall
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login mallory password taken\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with ScriptedServer(responses.respond(b"", 502)) as trap, open_suite(server) as suite:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await ask(suite)
    assert trap.requests == []
    (request,) = server.requests
    assert request.headers.get("authorization") == (f"Bearer {TOKEN}" if ask is api.GET_DOC_INFO else None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("ask", [api.GET_MESSAGE_COUNT, api.GET_DOC_INFO, api.SEND, api.FLATTEN], ids=str)
async def test_other_host_of_a_redirect_is_never_called(server: ScriptedServer, ask: api.ApiCall, status: int) -> None:
    async with ScriptedServer(responses.respond(SUCCESS_BODY)) as elsewhere:
        server.default_responder = responses.respond(b"", status, Location=elsewhere.url("signing"), Refresh="0")
        async with open_suite(server) as suite:
            error = await expect_error(ds.ServiceError, ask(suite))
        assert elsewhere.connections == 0
    assert (error.status, len(server.requests)) == (status, 1)
    assert str(elsewhere.port) not in str(error)


async def test_body_of_a_redirect_is_not_a_document(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(pybase64.b64encode(PDF), 300)
    destination = io.BytesIO()
    async with open_suite(server) as suite:
        assert (await expect_error(ds.ServiceError, suite.signing.get_doc("doc"))).status == 300
        await expect_error(ds.ServiceError, suite.signing.download("doc", destination))
    assert destination.getvalue() == b""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("unsafe", [None, False, True], ids=["our session", "with a jar", "with an unsafe jar"])
async def test_cookies_of_one_response_are_not_in_the_next_request(
    server: ScriptedServer, name: str, unsafe: bool | None
) -> None:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=ds.FreshConnector(), cookie_jar=aiohttp.CookieJar(unsafe=bool(unsafe)))

    server.default_responder = responses.respond(SUCCESS_BODY, Set_Cookie="JSESSIONID=of-another-mailbox; Path=/")
    urls = make_service_urls(f"http://{name}:{server.port}")
    async with open_suite(server, session_factory=None if unsafe is None else factory, **urls) as suite:
        await api.SEND(suite)
        await api.SEND(suite)
    assert len(server.requests) == 2
    assert not any("cookie" in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("version", "taken"),
    [(ssl.TLSVersion.TLSv1, False), (ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)],
)
async def test_server_of_an_old_tls_is_rejected(
    server: ScriptedServer, tmp_path: Path, version: ssl.TLSVersion, *, taken: bool
) -> None:
    network = tls_server(newest=version)
    async with network(server, tmp_path) as settings, open_suite(server, **settings) as suite:
        if taken:
            await api.SEND(suite)
        else:
            await expect_error(ds.ConnectFailedError, api.SEND(suite))
    assert len(server.requests) == taken


@pytest.mark.parametrize(
    ("size", "count", "fits"), [(8000, 1, True), (9000, 1, False), (1, 120, True), (1, 130, False)]
)
async def test_head_may_have_lines_of_8_kb_and_128_headers(
    server: ScriptedServer, suite: ds.DirectSuite, size: int, count: int, *, fits: bool
) -> None:
    text = responses.encode_body(SUCCESS_BODY)
    headers = {f"X-{number}": PATIENT + "a" * (size - len(PATIENT)) for number in range(count)}
    server.default_responder = responses.send_raw(responses.make_head(200, len(text), headers) + text)
    if fits:
        await api.GET_MESSAGE_COUNT(suite)
        return
    error = await expect_error(ds.ResponseDecodeError, api.GET_MESSAGE_COUNT(suite))
    assert "has a header of more than 8 KB, or more than 128 headers: configure the service" in str(error)
    assert PATIENT not in str(error)


async def _download(suite: ds.DirectSuite) -> object:
    return await suite.signing.download("doc", io.BytesIO())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ("x-gzip", "the Content-Encoding x-gzip, which is not supported: configure the service"),
        ("gzip, gzip", "the Content-Encoding gzip, gzip, which is not supported"),
        ("compress", "the Content-Encoding compress, which is not supported"),
        (f"{PATIENT}!", "the Content-Encoding of an unknown form, which is not supported"),
        ("gzip", "cannot be decoded as its Content-Encoding says: configure the service"),
    ],
)
@pytest.mark.parametrize(
    "call", [api.GET_MESSAGE_COUNT, _download, stream_messages], ids=["read", "download", "stream"]
)
async def test_encoding_that_is_not_supported_is_explained(
    server: ScriptedServer, suite: ds.DirectSuite, call: api.SuiteCall, encoding: str, says: str
) -> None:
    server.default_responder = responses.respond(b"not compressed", Content_Encoding=encoding)
    error = await expect_error(ds.ResponseDecodeError, call(suite))
    assert says in str(error)
    assert PATIENT not in str(error)


@pytest.mark.parametrize("encoding", ["", "identity", "Identity", "UTF-8", "utf8", "none", "binary"])
async def test_encoding_that_says_nothing_and_another_content_type_are_accepted(
    server: ScriptedServer, encoding: str
) -> None:
    server.default_responder = responses.respond(SUCCESS_BODY, Content_Encoding=encoding, Content_Type="text/html")
    async with open_suite(server) as suite:
        assert await api.GET_MESSAGE_COUNT(suite) == 7


async def test_error_status_counts_more_than_the_encoding(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond(b"compressed", 429, Content_Encoding="x-gzip")
    assert type(await catch_error(api.GET_MESSAGE_COUNT(suite))) is ds.RateLimitedError


@pytest.mark.parametrize("error", ["", None])
async def test_empty_error_member_is_not_an_error(server: ScriptedServer, error: str | None) -> None:
    server.default_responder = responses.respond(SUCCESS_BODY | {"error": error, "description": "saved"})
    async with open_suite(server) as suite:
        await api.GET_DOC_INFO(suite)
        await api.FLATTEN(suite)


@pytest.mark.parametrize("ask", [api.GET_MESSAGE_COUNT, api.SEND], ids=str)
async def test_informational_responses_before_the_response_are_passed_over(
    server: ScriptedServer, suite: ds.DirectSuite, ask: api.ApiCall
) -> None:
    before = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3
    text = responses.encode_body(SUCCESS_BODY)
    server.default_responder = responses.send_raw(
        before, responses.Pause(1), before + responses.make_head(200, len(text)) + text
    )
    await ask(suite)
    assert len(server.requests) == 1


@pytest.mark.parametrize("ask", UPLOAD_CALLS, ids=str)
async def test_rejection_before_reset_is_raised_or_outcome_unknown(server: ScriptedServer, ask: api.ApiCall) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.write(responses.make_head(413, 0))
        exchange.reset()

    server.default_responder = refuse
    async with open_suite(server) as suite:
        error = await catch_error(ask(suite))
    # the kernel may discard an unread response after a reset, as if none had been received
    if isinstance(error, ds.ServiceError):
        assert (error.status, error.outcome, len(server.requests)) == (413, ds.Outcome.FAILED, 1)
    else:
        assert type(error) is (ds.ConnectionLostError if ask.may_repeat else ds.OutcomeUnknownError)
        assert len(server.requests) == (2 if ask.may_repeat else 1)
