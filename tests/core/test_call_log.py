"""Log lines about calls, requests and responses, and their configuration."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import directsuite as ds
from directsuite.core.call_log import CALLS

from . import api, responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, PATIENT, SECRETS, catch_error, open_suite

LOGGER = logging.getLogger("directsuite")


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """Remove the handlers of other tests. Restore the levels and handlers after each test."""
    before = LOGGER.level, CALLS.level, [*LOGGER.handlers]
    LOGGER.handlers[:] = [each for each in before[2] if isinstance(each, logging.NullHandler)]
    yield
    LOGGER.setLevel(before[0])
    CALLS.setLevel(before[1])
    LOGGER.handlers[:] = before[2]


def read_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.name == CALLS.name]
    return [re.sub(r"(?<=call )\d+|\d+(?= ms)", "?", line) for line in lines]


async def test_each_call_is_one_line_at_info(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    ds.configure_logging()
    server.enqueue(responses.respond({}, 500), responses.respond({"success": True, "count": 7}))
    server.enqueue(responses.respond({"success": False, "code": 2, "message": PATIENT}), responses.reset)
    server.enqueue(responses.respond({"success": False, "code": PATIENT}))
    async with open_suite(server, retry=ds.RetryPolicy(attempts=2, wait=lambda _: 0.0)) as suite:
        await api.GET_MESSAGE_COUNT(suite)
        for _ in range(3):
            await catch_error(api.SEND(suite))
    assert read_lines(caplog) == [
        "GetMessageCount: succeeded (call ?, HTTP 200, 2 attempts, ? ms)",
        "Send: failed, AddressError (call ?, HTTP 200, code 2, 1 attempt, ? ms)",
        "Send: failed, OutcomeUnknownError (call ?, no response, 1 attempt, ? ms)",
        "Send: failed, ServiceError (call ?, HTTP 200, 1 attempt, ? ms)",
    ]


async def test_lines_of_concurrent_calls_name_their_call_and_attempt(
    server: ScriptedServer, suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    ds.configure_logging("debug")
    server.enqueue(responses.respond({}, 500), responses.reset)
    await asyncio.gather(*[api.GET_MESSAGE_COUNT(suite) for _ in range(2)])
    lines: dict[str, list[str]] = {}
    for record in caplog.records:
        [number] = re.findall(r"\bcall (\d+)", record.getMessage())
        assert vars(record)["directsuite"]["call"] == int(number)
        if record.name == CALLS.name:
            words = re.sub(rf"call {number}", "call ?", record.getMessage())
            lines.setdefault(number, []).append(re.split(r"(?<=\)), |, \d+ ms", words)[0])
    request = "GetMessageCount: request POST GetMessageCount/{folder} (call ?, attempt %d)"
    response: list[str] = []
    assert len(lines) == 2
    for each in lines.values():
        response.append(each.pop(1))
        assert each == [
            request % 1,
            request % 2,
            "GetMessageCount: response HTTP 200 (call ?, attempt 2)",
            "GetMessageCount: succeeded (call ?, HTTP 200, 2 attempts",
        ]
    assert sorted(response) == [
        "GetMessageCount: no response (call ?, attempt 1)",
        "GetMessageCount: response HTTP 500 (call ?, attempt 1)",
    ]


async def test_attempt_that_sent_no_request_does_not_show_the_status_of_the_one_before(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    ds.configure_logging("debug")
    server.enqueue(responses.respond({}, 401))
    tokens = ["first"]

    async def fetch_token() -> str:
        if not tokens:
            raise ds.ClosedError("there is no second token")
        return tokens.pop()

    async with open_suite(server, token=fetch_token) as suite:
        await catch_error(suite.signing.get_doc_info("doc"))
    lines = [line for line in read_lines(caplog) if "not sent" in line]
    assert lines == ["GetDocInfo: not sent (call ?), ClosedError: there is no second token"]


async def test_records_of_calls_have_the_fields_of_events(
    server: ScriptedServer, suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    ds.configure_logging("debug")
    server.enqueue(responses.respond({"success": False, "code": 3, "message": PATIENT}))
    error = await catch_error(api.GET_MESSAGE_COUNT(suite))
    call = {
        "call": error.call,
        "group": error.call,
        "operation": "GetMessageCount",
        "service": "messaging",
        "method": "POST",
    }
    call |= {"path": "GetMessageCount/{folder}", "host": "127.0.0.1", "port": server.port}
    failure = {"error": "ServiceError", "status": 200, "outcome": "failed", "elapsed": pytest.approx(0)}
    assert [vars(record)["directsuite"] for record in caplog.records if record.name == CALLS.name] == [
        {"event": "AttemptStarted", "attempt": 1, **call},
        {"event": "AttemptFailed", "attempt": 1, **call, **failure},
        {"event": "CallFinished", "attempts": 1, "code": 3, "cancelled": False, "verified": False, **call, **failure},
    ]


async def test_debug_adds_requests_and_responses_with_masked_values(
    server: ScriptedServer, suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    ds.configure_logging("debug")
    await api.GET_MESSAGE_COUNT(suite)
    await api.GET_PATIENT_ADDRESS(suite)
    server.enqueue(responses.respond({"message": PATIENT}, 400))
    await catch_error(api.SEND(suite))
    lines = read_lines(caplog)
    request = "GetMessageCount: request POST GetMessageCount/{folder} (call ?, attempt 1), "
    request += f"{{username: <{len(ALICE)} chars>, password: ***}}"
    assert lines[0] == request
    assert re.fullmatch(r"GetMessageCount: response HTTP 200 \(call \?, attempt 1\), GetCountResponse\(.*\)", lines[1])
    assert "Send: response HTTP 400 (call ?, attempt 1), BadRequestError: " in "\n".join(lines)
    assert not [text for text in (*SECRETS, PASSWORD, ALICE, PATIENT) if text in caplog.text]


async def test_failed_read_is_not_logged_as_an_unknown_outcome(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "directsuite")
    server.default_responder = responses.reset
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        await catch_error(api.GET_MESSAGE_COUNT(suite))
        assert "unknown" not in caplog.text
        await catch_error(api.SEND(suite))
        assert "outcome unknown" in caplog.text


@pytest.mark.parametrize("value", ["info", "DEBUG"])
async def test_variable_configures_logging(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    monkeypatch.setenv("DIRECTSUITE_LOG", value)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for _ in range(2):  # a second suite adds no second handler
        async with open_suite(server) as suite:
            await api.GET_MESSAGE_COUNT(suite)
    assert len(re.findall("INFO GetMessageCount: ", capsys.readouterr().err)) == 2
    monkeypatch.setattr(sys, "stderr", None)
    async with open_suite(server) as suite:
        await api.GET_MESSAGE_COUNT(suite)


def test_unknown_level_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    level: Any = "Zaphod"
    with pytest.raises(ds.ConfigurationError, match=r"^level must be info or debug$"):
        ds.configure_logging(level)
    monkeypatch.setenv("DIRECTSUITE_LOG", "Zaphod")
    with pytest.raises(ds.ConfigurationError, match=r"^DIRECTSUITE_LOG must be info or debug$"):
        ds.DirectSuite()


def test_lines_go_to_a_handler_of_the_program_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds.configure_logging()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger("directsuite").addHandler(handler)
    try:
        CALLS.info("one line")
    finally:
        logging.getLogger("directsuite").removeHandler(handler)
    written = capsys.readouterr()
    assert (written.out, written.err) == ("one line\n", "")


def test_variable_does_not_change_what_the_program_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.configure_logging("debug")
    monkeypatch.setenv("DIRECTSUITE_LOG", "info")
    ds.DirectSuite()
    assert CALLS.level == logging.DEBUG
