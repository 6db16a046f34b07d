"""With `resend=True`, a message without response is sent again after the settle time."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds

from . import responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite

SENT = {"success": True, "code": 0, "smtpId": "<1@direct.example.test>"}
MARKED = {
    "success": True,
    "messages": [{"uid": 1, "headers": [{"name": "X-Request-ID", "value": "another"}]}],
    "folders": [],  # for GetFolders: only INBOX.Sent
}


def by_operation(sends: list[Responder], looks: Responder) -> Responder:
    """Return handlers in turn for sends, and always the same for searches."""

    async def play(exchange: Exchange) -> None:
        await (sends.pop(0) if "SendWithHeader" in exchange.request.target else looks)(exchange)

    return play


@pytest.mark.parametrize("first", [responses.never_respond, responses.reset])
async def test_silent_send_is_sent_again_when_it_was_searched_long_enough(
    server: ScriptedServer, first: Responder
) -> None:
    server.default_responder = by_operation([first, responses.respond(SENT)], responses.respond(MARKED))
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        answer = await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
    assert answer.smtp_id == SENT["smtpId"]
    assert len(server.find_requests("SendWithHeader")) == 2


@pytest.mark.parametrize("looks", [responses.respond({"success": False, "code": 4}), responses.reset])
async def test_searches_without_evidence_prevent_resend(server: ScriptedServer, looks: Responder) -> None:
    server.default_responder = by_operation([responses.never_respond], looks)
    async with open_suite(server, retry=ds.RetryPolicy.none(), circuit_failures=0) as suite:
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
    assert not caught.value.looked


async def test_last_look_is_at_the_end_of_the_settle_time(server: ScriptedServer) -> None:
    server.default_responder = by_operation([responses.reset], responses.respond(MARKED))
    clock: Any = None
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        clock = suite.runtime.clock
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, settle=30)
    assert caught.value.looked
    assert sum(clock.sleeps) == pytest.approx(30)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shown", [" {} ", "{}\r\n", "", None], ids=["blanks", "line break", "empty", "null"])
@pytest.mark.parametrize("upper", [False, True], ids=["as sent", "in capitals"])
async def test_request_id_in_another_form_counts_as_present(
    server: ScriptedServer, shown: str | None, upper: bool
) -> None:
    async def lost_but_listed(exchange: Exchange) -> None:
        if "SendWithHeader" in exchange.request.target:
            await responses.reset(exchange)
            return
        marks = [sent.document["message"]["headers"][0]["value"] for sent in server.find_requests("SendWithHeader")]
        values = [None if shown is None else shown.format(mark.upper() if upper else mark) for mark in marks]
        headers = [[{"name": "X-Request-ID", "value": value}] for value in values]
        messages = [{"uid": uid, "msgID": f"<{uid}@x>", "headers": each} for uid, each in enumerate(headers, start=1)]
        await responses.respond({"success": True, "messages": messages})(exchange)

    server.default_responder = lost_but_listed
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        sending = suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True)
        if shown:
            assert (await sending).smtp_id == "<1@x>"
        else:
            with pytest.raises(ds.OutcomeUnknownError):
                await sending
    assert len(server.find_requests("SendWithHeader")) == 1
