"""The web backends of the guide `web`, unchanged, on sockets between a browser and the sandbox."""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from aiohttp import ClientPayloadError, ClientSession, FormData, web

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.testing import LeapingClock
from tests.consent_form import build_consent_form
from tests.guides.documents import execute_programs, find_code_blocks
from tests.guides.web_uploads import FRAMEWORKS, MEGABYTE, make_large_pdf, measure_framework, write_example

pytestmark = pytest.mark.exhaustive(limit=1)  # of the frameworks

FORM = build_consent_form(1)
PER_BROWSER = 400_000
"""The bytes that a framework and a connection buffer for a slow browser."""
PER_CONNECTION = 800_000
"""Bytes for each connection of the suite: pieces in transit, plain and in base64."""


class LogRecorder(logging.Handler):
    """Waits for log entries of the suite."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.changed = asyncio.Event()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.changed.set()

    async def until(self, condition: Callable[[str], bool]) -> None:
        while not any(condition(text) for text in self.messages):
            self.changed.clear()
            await self.changed.wait()


@pytest.fixture
def log_recorder() -> Iterator[LogRecorder]:
    handler, logger = LogRecorder(), logging.getLogger("directsuite")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Sandbox]:
    (tmp_path / "directsuite.toml").write_text("max_connections = 1\n")
    async with Sandbox() as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DIRECTSUITE_CONFIG", str(tmp_path / "directsuite.toml"))
        monkeypatch.setattr("directsuite.suite.SystemClock", lambda: LeapingClock(sandbox.clock))
        yield sandbox


@pytest.fixture(params=FRAMEWORKS)
async def url(
    request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    write_example(tmp_path)
    with imported(f"web_{request.param}", tmp_path, monkeypatch) as module:
        async with served(module) as port:
            yield f"http://127.0.0.1:{port}/sign"


@contextmanager
def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    """Import a program of the guide. It and the others in the folder are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    try:
        yield importlib.import_module(name)
    finally:
        for program in folder.glob("*.py"):
            sys.modules.pop(program.stem, None)


@asynccontextmanager
async def served(module: Any) -> AsyncGenerator[int]:
    if hasattr(module, "application"):
        runner = web.AppRunner(module.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
        await runner.cleanup()
        return
    begun = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(uvicorn.Config(module.app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listening]))
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert begun.is_set(), "the server did not start"
        yield listening.getsockname()[1]
        server.should_exit = True
        await serving


async def post(url: str, content: bytes = FORM) -> tuple[int, str | None, bytes]:
    async with ClientSession() as browser, browser.post(url, data=content) as answer:
        return answer.status, answer.headers.get("Retry-After"), await answer.read()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pdfs"]


async def effects(sandbox: Sandbox, operation: str) -> int:
    return len(await sandbox.ledger(operation))


async def test_pdf_comes_back_signed_and_is_kept_nowhere(url: str, sandbox: Sandbox, log_recorder: LogRecorder) -> None:
    status, _, signed = await post(url)
    assert status == 200
    await log_recorder.until(lambda text: text.startswith("Delete: the call ended"))
    assert await effects(sandbox, "Delete") == 1
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        info = await suite.signing.get_doc_info(await suite.signing.save(signed))
    assert "approval" in [signature.name for signature in info.signatures]


FORMS = {"aiohttp": ("web_aiohttp", "sign"), "fastapi": ("web_fastapi_form", "sign-form")}


@pytest.mark.parametrize("framework", FORMS)
async def test_pdf_in_a_form_comes_back_signed(
    framework: str, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_example(tmp_path)
    if framework == "aiohttp":
        program = tmp_path / "web_aiohttp.py"
        text = program.read_text("utf-8").replace(
            "request.content.iter_any()", "read_file(request)"
        )  # as the text says
        program.write_text(f"from web_aiohttp_form import read_file\n{text}", "utf-8")
    form = FormData({"comment": "urgent"})
    form.add_field("pdf", io.BytesIO(make_large_pdf(3 * MEGABYTE)), filename="consent.pdf")
    name, path = FORMS[framework]
    with imported(name, tmp_path, monkeypatch) as module:
        async with (
            served(module) as port,
            ClientSession() as browser,
            browser.post(f"http://127.0.0.1:{port}/{path}", data=form, raise_for_status=True) as answer,
        ):
            signed = await answer.read()
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        info = await suite.signing.get_doc_info(await suite.signing.save(signed))
    assert "approval" in [signature.name for signature in info.signatures]


async def test_one_suite_serves_all_requests(url: str, sandbox: Sandbox, log_recorder: LogRecorder) -> None:
    answers = await asyncio.gather(*(post(url) for _ in range(5)))
    assert [status for status, *_ in answers] == [200] * 5
    assert await effects(sandbox, "Sign") == 5
    assert len([text for text in log_recorder.messages if "a new token" in text]) == 1


async def test_browser_may_try_again_after_an_unknown_outcome(
    url: str, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.inject_fault("Sign", "reset_before")
    status, _, text = await post(url)
    assert (status, text) == (503, b"The signing service is not available: try again later.")
    [line] = logged(caplog)
    assert line.startswith("OutcomeUnknownError: Sign: ")
    assert await effects(sandbox, "Sign") == 0
    assert await effects(sandbox, "Delete") == 1


async def test_signature_whose_response_is_lost_is_found(url: str, sandbox: Sandbox) -> None:
    sandbox.inject_fault("Sign", "reset_after")
    status, *_ = await post(url)
    assert status == 200
    assert await effects(sandbox, "Sign") == 1


async def test_overload_says_when_to_come_back(url: str, sandbox: Sandbox) -> None:
    sandbox.inject_fault("Save", "status", status=503, retry_after=120)
    status, retry_after, text = await post(url)
    assert (status, retry_after, text) == (503, "120", b"The signing service is not available: try again later.")


ANSWERS: list[tuple[ds.DirectSuiteError, int, dict[str, str]]] = [
    (ds.ConnectFailedError("it is down"), 503, {}),
    (ds.ServerError("it fails", status=503, retry_after=1.5), 503, {"Retry-After": "2"}),
    (ds.BadRequestError("no", status=400), 422, {}),
    (ds.ServiceError("too large", status=413), 413, {}),
    (ds.OutcomeUnknownError("lost", how_to_find_out="look"), 503, {}),
    (ds.AuthenticationError("no", status=401), 502, {}),
]


@pytest.mark.parametrize(("error", "status", "headers"), ANSWERS, ids=lambda value: type(value).__name__)
def test_each_failure_has_its_status(error: ds.DirectSuiteError, status: int, headers: dict[str, str]) -> None:
    make_response = execute_programs(find_code_blocks("web")[0])["make_response"]
    assert make_response(error)[:2] == (status, headers)


async def test_document_that_cannot_be_deleted_spoils_no_response(
    url: str, sandbox: Sandbox, log_recorder: LogRecorder
) -> None:
    sandbox.inject_fault("Delete", "status", status=500, times=None)
    status, _, signed = await post(url)
    assert (status, signed[:5]) == (200, b"%PDF-")
    assert await effects(sandbox, "Sign") == 1
    await log_recorder.until(lambda text: text.startswith("Delete: the call ended") and "ServerError" in text)
    assert await effects(sandbox, "Delete") == 0


@pytest.mark.parametrize("lost", ["status", "truncate"])
async def test_signed_document_that_cannot_be_fetched_is_deleted(
    url: str, sandbox: Sandbox, log_recorder: LogRecorder, lost: str
) -> None:
    sandbox.inject_fault("GetDoc", lost, times=None, **({"status": 500} if lost == "status" else {}))
    if lost == "status":
        status, _, text = await post(url)
        assert (status, text) == (503, b"The signing service is not available: try again later.")
    else:
        with pytest.raises(ClientPayloadError):
            await post(url, make_large_pdf(MEGABYTE))
    await log_recorder.until(lambda text: text.startswith("Delete: the call ended"))
    assert await effects(sandbox, "Delete") == 1


async def test_backend_without_a_token_does_not_start(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIRECTSUITE_TOKEN")
    shared, program, *_ = find_code_blocks("web")
    monkeypatch.setitem(sys.modules, "pdfs", SimpleNamespace(**execute_programs(shared, __name__="pdfs")))
    runner = web.AppRunner(execute_programs(program, __name__="web_aiohttp")["application"]())
    with pytest.raises(ds.ConfigurationError, match="DIRECTSUITE_TOKEN"):
        await runner.setup()


async def test_browser_that_leaves_its_upload_stores_nothing(
    url: str, sandbox: Sandbox, log_recorder: LogRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(url.split(":")[2].split("/")[0])
    _, browser = await asyncio.open_connection("127.0.0.1", port)
    browser.write(b"POST /sign HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n" + FORM[:4000])
    await browser.drain()
    await log_recorder.until(lambda text: text.startswith("Save: a request is about to be sent"))
    browser.transport.abort()
    await log_recorder.until(lambda text: text.startswith("Save: the call ended"))
    assert (await post(url))[0] == 200  # over the only connection
    assert await effects(sandbox, "Save") == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.wide
async def test_aborted_download_releases_connection_and_deletes_document(
    url: str, sandbox: Sandbox, log_recorder: LogRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(url.split(":")[2].split("/")[0])
    large = make_large_pdf(12 * MEGABYTE)  # more than the sockets between the service and the browser hold
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, browser = await asyncio.open_connection(sock=connection, limit=1024)
    browser.write(b"POST /sign HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(large) + large)
    assert b"200" in await reader.readuntil(b"\r\n")
    browser.transport.abort()
    await log_recorder.until(lambda text: text.startswith("Delete: the call ended"))
    assert await effects(sandbox, "Delete") == 1
    log_recorder.messages.clear()
    assert (await post(url))[0] == 200
    await log_recorder.until(lambda text: text.startswith("Delete: the call ended"))
    assert await effects(sandbox, "Delete") == 2
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_memory_does_not_grow_with_the_documents(framework: str) -> None:
    assert measure_framework(framework, 12, 4 * MEGABYTE) < 12 * PER_BROWSER + 10 * PER_CONNECTION
