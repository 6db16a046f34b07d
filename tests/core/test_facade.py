"""Views of a facade: other options, raw answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pybase64
import pytest
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.call import NO_MORE, Exchanged

from . import plays
from .opened import ALICE, PASSWORD, PDF, failure_of, opened
from .scripted_server import ScriptedServer

SIGNATURE = ds.Signature(name="alice", widget=ds.Widget(x=1, y=2, width=3, height=4, page=1))


async def test_timeout_of_a_facade_is_that_of_its_calls(server: ScriptedServer) -> None:
    async with opened(server, timeout=6) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert box.time_limit() == 6
        assert box.with_options(timeout=2).time_limit() == 2


async def test_options_are_a_view_s_own(server: ScriptedServer) -> None:
    server.otherwise = plays.reset
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        patient = box.with_options(retry=ds.RetryPolicy(attempts=5, wait=wait_fixed(1)))
        assert type(patient) is type(box)
        assert (await failure_of(patient.get_message_count())).attempts == 5
        assert (await failure_of(patient.with_options(timeout=2.5).get_message_count())).attempts == 3
        assert (await failure_of(box.get_message_count())).attempts == 2


async def test_options_hold_for_looks_that_are_made_within_a_call(server: ScriptedServer) -> None:
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        hurried = box.with_options(timeout=5)
        assert hurried._within_a_call()._options == attrs.evolve(hurried._options, within_a_call=True)


ODD_OPTIONS: list[tuple[str, object]] = [
    *(("timeout", value) for value in (0, -1, "5", True, float("nan"), float("inf"), 10**400, [5])),
    *(("retry", value) for value in (3, "none", ds.RetryPolicy, wait_fixed(1))),
]


@pytest.mark.parametrize(("name", "value"), ODD_OPTIONS)
async def test_option_that_is_none_is_refused_when_the_view_is_made(
    server: ScriptedServer, name: str, value: object
) -> None:
    odd: dict[str, Any] = {name: value}
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        with pytest.raises(ds.InvalidArgumentError, match="give ") as caught:
            box.with_options(**odd)
        assert caught.value.parameter == name
        if name == "timeout":
            for call in (box.get_message_count(**odd), suite.signing.get_doc("doc", **odd)):
                assert type(await failure_of(call)) is ds.InvalidArgumentError
    assert server.requests == []


async def test_raw_response_has_the_value_and_the_answer_it_came_in(server: ScriptedServer) -> None:
    server.plays(plays.reset, plays.slow(2, plays.answer({"success": True, "count": 7}, X_Trace="abc")))
    async with opened(server) as suite:
        raw = await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_message_count()
    assert (raw.value, raw.status, raw.attempts) == (7, 200, 2)
    assert raw.elapsed == pytest.approx(3)
    assert raw.headers["x-trace"] == "abc"


async def test_two_observers_of_a_facade_see_the_same_answers(server: ScriptedServer) -> None:
    server.otherwise = plays.answer({"success": True, "count": 7})
    first, second = list[Exchanged](), list[Exchanged]()
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD).observed(first.append)
        await box.observed(second.append).get_message_count()
        assert first == second
        await box.get_message_count()
    assert (len(first), len(second)) == (2, 1)


@pytest.mark.parametrize("results", [(NO_MORE, None), (None, NO_MORE)])
async def test_one_of_two_observers_may_know_the_answer(server: ScriptedServer, results: tuple[object, object]) -> None:
    server.otherwise = plays.answer({"success": True, "uids": [1]})
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert await box.observed(lambda _: results[0]).observed(lambda _: results[1]).get_uids() == []


async def test_raw_view_keeps_the_options_of_its_facade(server: ScriptedServer) -> None:
    server.otherwise = plays.reset
    async with opened(server) as suite:
        once = suite.signing.with_options(retry=ds.RetryPolicy.none())
        error = await failure_of(once.with_raw_response.get_doc_info("doc"))
    assert error.attempts == 1


async def test_raw_views_do_not_mix_up_answers(server: ScriptedServer) -> None:
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        server.plays(plays.answer({"success": True, "count": 1}, X_Number="1"))
        first = await box.with_raw_response.get_message_count()
        server.plays(plays.answer({"success": True, "count": 2}, X_Number="2"))
        second = await box.with_raw_response.get_message_count()
    assert (first.value, first.headers["x-number"]) == (1, "1")
    assert (second.value, second.headers["x-number"]) == (2, "2")


@pytest.mark.parametrize("method", ["download", "sign_and_pull"])
async def test_raw_response_of_what_goes_to_a_file(server: ScriptedServer, tmp_path: Path, method: str) -> None:
    server.otherwise = plays.answer(pybase64.b64encode(PDF), X_Trace="abc")
    path = tmp_path / "a.pdf"
    async with opened(server) as suite:
        raw_view = suite.signing.with_raw_response
        if method == "download":
            raw = await raw_view.download("doc", path)
        else:
            raw = await raw_view.sign_and_pull("doc", SIGNATURE, destination=path)
    assert (raw.value, raw.status, raw.headers["x-trace"]) == (path, 200, "abc")
    assert path.read_bytes() == PDF


@pytest.mark.parametrize("name", ["iter_messages", "no_such_method", "with_options", "_call"])
async def test_raw_view_has_awaitable_methods_only(server: ScriptedServer, name: str) -> None:
    async with opened(server) as suite:
        with pytest.raises(AttributeError, match=name):
            getattr(suite.mailbox(ALICE, PASSWORD).with_raw_response, name)


async def test_raw_response_of_nothing_sent_is_refused(server: ScriptedServer) -> None:
    async with opened(server) as suite:
        with pytest.raises(ValueError, match="without a request"):
            await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_messages_by_uids("INBOX", [])


async def test_repr_of_a_raw_response_shows_no_header_and_no_value(server: ScriptedServer) -> None:
    server.plays(plays.answer({"success": True, "count": 7}, X_Trace="abc"))
    async with opened(server) as suite:
        raw = await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_message_count()
    assert repr(raw) == "RawResponse(status=200, elapsed=0.000, attempts=1)"
