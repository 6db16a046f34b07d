"""Views of a facade: other options, and raw responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pybase64
import pytest
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.call import SKIP_DECODING, ExchangeInfo

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, PDF, SIGNATURE, catch_error, open_suite


async def test_options_are_a_view_s_own(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.reset
    box = suite.mailbox(ALICE, PASSWORD)
    patient = box.with_options(retry=ds.RetryPolicy(attempts=5, wait=wait_fixed(1)))
    assert type(patient) is type(box)
    assert (await catch_error(patient.get_message_count())).attempts == 5
    assert (await catch_error(patient.with_options(timeout=2.5).get_message_count())).attempts == 3
    assert (await catch_error(box.get_message_count())).attempts == 2


ODD_OPTIONS: list[tuple[str, object]] = [
    *(("timeout", value) for value in (0, -1, "5", True, float("nan"), float("inf"), 10**400, [5])),
    *(("retry", value) for value in (3, "none", ds.RetryPolicy, wait_fixed(1))),
]


@pytest.mark.parametrize(("name", "value"), ODD_OPTIONS)
async def test_option_that_is_none_is_rejected_when_the_view_is_made(
    server: ScriptedServer, suite: ds.DirectSuite, name: str, value: object
) -> None:
    odd: dict[str, Any] = {name: value}
    box = suite.mailbox(ALICE, PASSWORD)
    with pytest.raises(ds.InvalidArgumentError, match="give ") as caught:
        box.with_options(**odd)
    assert caught.value.parameter == name
    if name == "timeout":
        for call in (box.get_message_count(**odd), suite.signing.get_doc("doc", **odd)):
            assert type(await catch_error(call)) is ds.InvalidArgumentError
    assert server.requests == []


async def test_raw_response_has_the_value_and_the_response_it_came_in(server: ScriptedServer) -> None:
    server.enqueue(responses.reset, responses.delay(2, responses.respond({"success": True, "count": 7}, X_Trace="abc")))
    async with open_suite(server) as suite:
        raw = await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_message_count()
    assert (raw.value, raw.status, raw.attempts) == (7, 200, 2)
    assert raw.elapsed == pytest.approx(3)
    assert raw.headers["x-trace"] == "abc"
    assert repr(raw) == "RawResponse(status=200, elapsed=3.000, attempts=2)"


async def test_two_observers_of_a_facade_see_the_same_responses(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    first, second = list[ExchangeInfo](), list[ExchangeInfo]()
    box = suite.mailbox(ALICE, PASSWORD).with_observer(first.append)
    await box.with_observer(second.append).get_message_count()
    assert first == second
    await box.get_message_count()
    assert (len(first), len(second)) == (2, 1)


@pytest.mark.parametrize("results", [(SKIP_DECODING, None), (None, SKIP_DECODING)])
async def test_one_of_two_observers_may_know_the_response(
    server: ScriptedServer, suite: ds.DirectSuite, results: tuple[object, object]
) -> None:
    server.default_responder = responses.respond({"success": True, "uids": [1]})
    box = suite.mailbox(ALICE, PASSWORD)
    assert await box.with_observer(lambda _: results[0]).with_observer(lambda _: results[1]).get_uids() == []


async def test_raw_view_keeps_the_options_of_its_facade(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.reset
    once = suite.signing.with_options(retry=ds.RetryPolicy.none())
    error = await catch_error(once.with_raw_response.get_doc_info("doc"))
    assert error.attempts == 1


@pytest.mark.parametrize("method", ["download", "sign_and_pull"])
async def test_raw_response_of_what_goes_to_a_file(server: ScriptedServer, tmp_path: Path, method: str) -> None:
    server.default_responder = responses.respond(pybase64.b64encode(PDF), X_Trace="abc")
    path = tmp_path / "a.pdf"
    async with open_suite(server) as suite:
        raw_view = suite.signing.with_raw_response
        if method == "download":
            raw = await raw_view.download("doc", path)
        else:
            raw = await raw_view.sign_and_pull("doc", SIGNATURE, destination=path)
    assert (raw.value, raw.status, raw.headers["x-trace"]) == (path, 200, "abc")
    assert path.read_bytes() == PDF


@pytest.mark.parametrize("name", ["iter_messages", "no_such_method", "with_options", "_call"])
async def test_raw_view_has_awaitable_methods_only(suite: ds.DirectSuite, name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(suite.mailbox(ALICE, PASSWORD).with_raw_response, name)


async def test_raw_response_of_nothing_sent_is_rejected(suite: ds.DirectSuite) -> None:
    with pytest.raises(ValueError, match="sent no request"):
        await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_messages_by_uids("INBOX", [])
