"""A send that nobody answers is sent again, where the caller asks for it, once the settle time has passed."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds

from . import plays
from .opened import ALICE, MESSAGE, PASSWORD, opened
from .scripted_server import Exchange, Play, ScriptedServer

SENT = {"success": True, "code": 0, "smtpId": "<1@direct.example.test>"}
MARKED = {
    "success": True,
    "messages": [{"uid": 1, "headers": [{"name": "X-Request-ID", "value": "another"}]}],
    "folders": [],  # for GetFolders: INBOX.Sent is the only one
}


def by_operation(sends: list[Play], looks: Play) -> Play:
    """Plays in turn for sends, one and the same for looks."""

    async def play(exchange: Exchange) -> None:
        await (sends.pop(0) if "SendWithHeader" in exchange.request.target else looks)(exchange)

    return play


@pytest.mark.parametrize("first", [plays.silence, plays.reset])
async def test_a_silent_send_is_sent_again_when_it_was_looked_for_long_enough(
    server: ScriptedServer, first: Play
) -> None:
    server.otherwise = by_operation([first, plays.answer(SENT)], plays.answer(MARKED))
    async with opened(server, retry=ds.RetryPolicy.none()) as suite:
        answer = await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
    assert answer.smtp_id == SENT["smtpId"]
    assert len(server.to("SendWithHeader")) == 2


@pytest.mark.parametrize("looks", [plays.answer({"success": False, "code": 4}), plays.reset])
async def test_looks_that_saw_nothing_are_no_reason_to_send_again(server: ScriptedServer, looks: Play) -> None:
    server.otherwise = by_operation([plays.silence], looks)
    async with opened(server, retry=ds.RetryPolicy.none(), circuit_failures=0) as suite:
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
    assert not caught.value.looked


async def test_the_last_look_is_at_the_end_of_the_settle_time(server: ScriptedServer) -> None:
    server.otherwise = by_operation([plays.reset], plays.answer(MARKED))
    clock: Any = None
    async with opened(server, retry=ds.RetryPolicy.none()) as suite:
        clock = suite.runtime.clock
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, settle=30)
    assert caught.value.looked
    assert sum(clock.sleeps) == pytest.approx(30)


@pytest.mark.parametrize("shown", [" {} ", "{}\r\n", "", None], ids=["blanks", "line break", "empty", "null"])
@pytest.mark.parametrize("upper", [False, True], ids=["as sent", "in capitals"])
async def test_a_mark_that_a_listing_shows_in_another_form_is_no_absent_one(
    server: ScriptedServer, shown: str | None, upper: bool
) -> None:
    """Sent again, the recipients would have it twice."""

    async def lost_but_listed(exchange: Exchange) -> None:
        if "SendWithHeader" in exchange.request.target:
            await plays.reset(exchange)
            return
        marks = [sent.document["message"]["headers"][0]["value"] for sent in server.to("SendWithHeader")]
        values = [None if shown is None else shown.format(mark.upper() if upper else mark) for mark in marks]
        headers = [[{"name": "X-Request-ID", "value": value}] for value in values]
        messages = [{"uid": uid, "msgID": f"<{uid}@x>", "headers": each} for uid, each in enumerate(headers, start=1)]
        await plays.answer({"success": True, "messages": messages})(exchange)

    server.otherwise = lost_but_listed
    async with opened(server, retry=ds.RetryPolicy.none()) as suite:
        sending = suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
        if shown:
            assert (await sending).smtp_id == "<1@x>"
        else:
            with pytest.raises(ds.OutcomeUnknownError):
                await sending
    assert len(server.to("SendWithHeader")) == 1
