"""Methods that make several requests: one deadline for all, a search before a message is sent again, and progress."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import directsuite as ds
from directsuite.messaging.send_once import make_request_id
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite
from tests.core.virtual_time import LoopClock, measure_elapsed
from tests.streams.samples import ProgressRecorder

NOW = datetime.now(UTC)
FIRST_MOMENTS = [datetime.min, datetime.min + timedelta(minutes=5)]  # noqa: DTZ901  tests add the zones
SENT = {"success": True, "code": 0, "smtpId": "<2@direct.example.test>"}
METADATA = {"success": True, "messages": [{"uid": 1, "msgID": "<1@direct.example.test>"}]}
UIDS = {"success": True, "uids": [1, 2, 3]}
ANOTHERS: list[Any] = [{"uid": 1, "msgID": "<1@x>", "headers": [{"name": "X-Request-ID", "value": "another"}]}]
ANOTHERS_MARK = {"success": True, "folders": [], "messages": ANOTHERS}
RAW = ds.RawMessage(data=b"Message-ID: <1@direct.example.test>\r\n\r\nHello")


def _box(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(ALICE, PASSWORD)


def _sends(server: ScriptedServer) -> int:
    return len(server.find_requests("SendWithHeader"))


async def _looks_answer(exchange: Exchange) -> None:
    is_send = exchange.request.method == "PUT"
    await responses.respond(SENT if is_send else ANOTHERS_MARK)(exchange)


OnBox = Callable[[ds.Mailbox], Awaitable[Any]]
SLOW_FIRST_STEPS: dict[str, tuple[OnBox, list[Any]]] = {
    "send_once": (
        lambda box: box.send_once(MESSAGE, key="k", since=NOW, settle=0.0, timeout=0.5),
        [ANOTHERS_MARK, ANOTHERS_MARK, ANOTHERS_MARK, SENT],  # INBOX.Sent, the folders, INBOX
    ),
    "copy": (
        lambda box: box.copy_messages_by_uids("INBOX", "INBOX.B", [1], verify=True, timeout=0.5),
        [METADATA, UIDS, SENT],
    ),
    "save": (lambda box: box.save_raw_messages("INBOX.B", [RAW], verify=True, timeout=0.5), [UIDS, SENT]),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(("call", "answers"), SLOW_FIRST_STEPS.values(), ids=SLOW_FIRST_STEPS)
@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.5])
async def test_one_deadline_holds_over_every_step(
    server: ScriptedServer, call: OnBox, answers: list[Any], seconds: float
) -> None:
    server.enqueue(*(responses.delay(seconds, responses.respond(document)) for document in answers))
    in_time = seconds * len(answers) < 0.5

    async def attempt(box: ds.Mailbox) -> None:
        with contextlib.nullcontext() if in_time else pytest.raises(ds.TransportError):
            await call(box)

    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        assert await measure_elapsed(attempt(_box(suite))) <= 0.5 + 1e-6


NO_LOOKS: dict[str, tuple[list[Responder], Responder, float | None]] = {
    "no time to look": ([responses.never_respond], _looks_answer, 1.0),
    "look interrupted by the deadline": ([responses.reset], _looks_answer, 2.0),
    "failed looks": ([responses.never_respond], responses.reset, None),
    "rejected looks": ([responses.never_respond], responses.respond({"success": False, "code": 4}), None),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(("script", "looks", "timeout"), NO_LOOKS.values(), ids=NO_LOOKS)
async def test_send_without_a_response_is_not_sent_again_without_a_look(
    server: ScriptedServer, script: list[Responder], looks: Responder, timeout: float | None
) -> None:
    server.enqueue(*script)
    server.default_responder = looks
    async with open_suite(server, retry=ds.RetryPolicy.none(), circuit_failures=0) as suite:
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await _box(suite).send_once(MESSAGE, key="k", resend=True, settle=30.0, timeout=timeout)
    assert timeout is not None or not caught.value.looked
    assert _sends(server) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))], ids=str)
@pytest.mark.parametrize("moment", FIRST_MOMENTS, ids=str)
async def test_since_at_the_beginning_of_the_calendar_is_accepted(
    server: ScriptedServer, zone: timezone, moment: datetime
) -> None:
    async with open_suite(server) as suite:
        await _box(suite).send_once(MESSAGE, key="k", since=moment.replace(tzinfo=zone), settle=0.0)
    methods = [request.method for request in server.requests]
    assert methods == ["POST", "POST", "POST", "PUT"]  # INBOX.Sent, the folders, INBOX


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))], ids=str)
async def test_since_at_the_end_of_the_calendar_sends_nothing(server: ScriptedServer, zone: timezone) -> None:
    moment = datetime.max.replace(tzinfo=zone)
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError, match="in the future"):
            await _box(suite).send_once(MESSAGE, key="k", since=moment, settle=0.0)
    assert _sends(server) == 0


async def test_last_look_is_at_the_end_of_the_settle_time(server: ScriptedServer) -> None:
    server.enqueue(responses.reset)
    server.default_responder = _looks_answer
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=ds.RetryPolicy.none()) as suite:
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await _box(suite).send_once(MESSAGE, settle=30)
    assert caught.value.looked
    assert sum(clock.sleeps) == pytest.approx(30)


@pytest.mark.exhaustive(limit=2)
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
        with contextlib.nullcontext() if shown else pytest.raises(ds.OutcomeUnknownError):
            assert (await _box(suite).send_once(MESSAGE, resend=True)).smtp_id == "<1@x>"
    assert _sends(server) == 1


async def test_message_found_in_a_folder_is_enough_if_a_later_folder_cannot_be_searched(server: ScriptedServer) -> None:
    headers = [{"name": "X-Request-ID", "value": make_request_id(ALICE, "k")}]
    messages = {"INBOX.Filed": [{"uid": 1, "msgID": "<1@x>", "headers": headers}]}

    async def respond(exchange: Exchange) -> None:
        folder = exchange.request.target.split("/")[-3]
        if folder == "INBOX.Last":
            await responses.reset(exchange)
            return
        folders = ["INBOX.Sent", "INBOX.Filed", "INBOX.Last"]
        await responses.respond({"success": True, "folders": folders, "messages": messages.get(folder, [])})(exchange)

    server.default_responder = respond
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        sent = await _box(suite).send_once(MESSAGE, key="k", since=NOW, settle=0.0)
    assert sent.smtp_id == "<1@x>"
    assert (_sends(server), len(server.find_requests("INBOX.Sent"))) == (0, 1)


REJECTED = responses.respond({"success": False, "code": 3, "message": "no such messages"})
TAKES_AWAY: dict[str, OnBox] = {
    "move": lambda box: box.move_messages_by_uids("INBOX", "INBOX.B", iter([1, 2])),
    "delete": lambda box: box.delete_messages_by_uids("INBOX", iter([1, 2])),
    "delete for ever": lambda box: box.delete_messages_by_uids("INBOX", iter([1, 2]), forever=True),
}


REPEATS: dict[str, tuple[list[Responder], bool]] = {
    "repeat, and messages are gone": ([responses.reset, REJECTED, responses.respond(UIDS | {"uids": [3]})], False),
    "repeat, and a message is there": ([responses.reset, REJECTED, responses.respond(UIDS | {"uids": [2, 3]})], True),
    "first request": ([REJECTED], True),
}


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("call", TAKES_AWAY.values(), ids=TAKES_AWAY)
@pytest.mark.parametrize(("script", "is_error"), REPEATS.values(), ids=REPEATS)
async def test_rejection_is_an_error_unless_it_is_of_a_repeat_and_the_messages_are_gone(
    server: ScriptedServer, call: OnBox, script: list[Responder], is_error: bool
) -> None:
    server.enqueue(*script)
    async with open_suite(server) as suite:
        with pytest.raises(ds.ServiceError) if is_error else contextlib.nullcontext():
            await call(_box(suite))
    assert len(server.requests) == len(script)


async def test_malformed_message_id_is_not_an_obstacle_to_saving(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(UIDS))
    async with open_suite(server) as suite:
        await _box(suite).save_raw_messages("INBOX.B", [ds.RawMessage(data=b"Message-ID: <\r\n\r\nHello")], verify=True)
    assert len(server.find_requests("SaveRawMessages")) == 1


@pytest.mark.parametrize(
    ("message_id", "is_proven"), [("", False), (" ", False), ("null", False), (" <1@direct.example.test>", True)]
)
async def test_only_a_message_with_the_same_message_id_proves_a_copy(
    message_id: str, is_proven: bool, server: ScriptedServer
) -> None:
    metadata = {"success": True, "messages": [{"uid": uid, "msgID": message_id} for uid in (1, 9)]}

    async def respond(exchange: Exchange) -> None:
        if "/Copy" in exchange.request.target:
            await responses.reset(exchange)
        else:
            await responses.respond(metadata | {"uids": [7]})(exchange)

    server.default_responder = respond
    async with open_suite(server) as suite:
        with contextlib.nullcontext() if is_proven else pytest.raises(ds.OutcomeUnknownError):
            await _box(suite).copy_messages_by_uids("INBOX", "INBOX.B", [1], verify=True, settle=0.0)


@pytest.mark.slow
async def test_verified_copy_time_does_not_grow_with_folder_size(server: ScriptedServer) -> None:
    metadata = {"success": True, "messages": [{"uid": uid, "msgID": f"<{uid}@x>"} for uid in range(20_000)]}

    async def responder(exchange: Exchange) -> None:
        is_look = "MetaData" in exchange.request.target
        await responses.respond(metadata if is_look else {"success": True, "uids": []})(exchange)

    server.default_responder = responder
    async with open_suite(server) as suite:
        seconds = list[float]()
        for count in (1, 5_000):
            began = time.process_time()
            await _box(suite).copy_messages_by_uids("INBOX", "INBOX.Kept", range(count), verify=True)
            seconds.append(time.process_time() - began)
    assert seconds[1] < 3 * seconds[0] + 0.2


UNREADABLE_LOOKS: dict[str, dict[str, Any]] = {
    "messages that are not a list": {"success": True, "messages": "x"},
    "a message that is not an object": {"success": True, "messages": [5]},
    "a message without a uid": {"success": True, "messages": [{"msgID": "<1@x>"}]},
    "headers that are not a list": {"success": True, "messages": [*ANOTHERS, {"uid": 2, "headers": "x"}]},
    "a header that is not an object": {"success": True, "messages": [*ANOTHERS, {"uid": 2, "headers": [5]}]},
    "a header's value that is not a text": {
        "success": True,
        "messages": [*ANOTHERS, {"uid": 2, "headers": [{"name": "X-Request-ID", "value": []}]}],
    },
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("look", UNREADABLE_LOOKS.values(), ids=UNREADABLE_LOOKS)
async def test_partial_search_prevents_resend(look: dict[str, Any], server: ScriptedServer) -> None:
    server.enqueue(responses.reset)
    server.default_responder = responses.respond(look | {"folders": []})
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError):
            await _box(suite).send_once(MESSAGE, key="k", resend=True, settle=3.0)
        with pytest.raises(ds.ResponseDecodeError):
            await _box(suite).send_once(MESSAGE, key="k", since=NOW, settle=3.0)
    assert _sends(server) == 1


async def test_look_reads_dates_leniently(server: ScriptedServer) -> None:
    server.enqueue(responses.reset)
    look = ANOTHERS_MARK | {"messages": [ANOTHERS[0] | {"sentDate": "", "size": "x"}]}

    async def responder(exchange: Exchange) -> None:
        await responses.respond(SENT if exchange.request.method == "PUT" else look)(exchange)

    server.default_responder = responder
    async with open_suite(server) as suite:
        await _box(suite).send_once(MESSAGE, key="k", resend=True, settle=3.0)
    assert _sends(server) == 2


@pytest.mark.parametrize(("listed", "is_proof"), [(["INBOX.other"], True), (["INBOX.other", None], False)])
async def test_unreadable_folder_name_proves_no_deletion(
    listed: list[str | None], is_proof: bool, server: ScriptedServer
) -> None:
    server.enqueue(responses.reset)
    server.default_responder = responses.respond({"success": True, "folders": listed})
    async with open_suite(server) as suite:
        with contextlib.nullcontext() if is_proof else pytest.raises(ds.OutcomeUnknownError):
            await _box(suite).delete_folder("INBOX.Cases")
    assert len(server.find_requests("DeleteFolder")) == 1


CONTENT = bytes(range(256)) * 4_000


def _make_message_with_file() -> ds.Message:
    return ds.Message(
        recipients=[ds.Recipient("bob@direct.example.test")],
        attachment_list=[ds.Attachment.from_file(io.BytesIO(CONTENT), filename="scan.pdf")],
    )


@pytest.mark.parametrize("since", [None, NOW], ids=["first attempt", "after a crash"])
async def test_progress_of_send_once_rises_to_the_total(server: ScriptedServer, since: datetime | None) -> None:
    reported = ProgressRecorder()
    server.default_responder = _looks_answer
    async with open_suite(server) as suite:
        box = _box(suite)
        await box.send_once(_make_message_with_file(), key="k", since=since, progress=reported)
    done = [done for done, _ in reported]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, len(CONTENT))
    assert {total for _, total in reported} == {len(CONTENT)}


async def test_progress_begins_again_with_a_second_send(server: ScriptedServer) -> None:
    reported = ProgressRecorder()
    server.enqueue(responses.reset)
    server.default_responder = _looks_answer
    async with open_suite(server) as suite:
        await _box(suite).send_once(_make_message_with_file(), resend=True, settle=3.0, progress=reported)
    assert _sends(server) == 2
    assert [done for done, _ in reported].count(0) == 2
    assert reported[-1] == (len(CONTENT), len(CONTENT))


async def test_async_progress_callback_is_rejected_before_any_request(server: ScriptedServer) -> None:
    async def callback(_done: int, _total: int | None) -> None: ...

    never: Any = callback  # type checkers reject it
    async with open_suite(server) as suite:
        with pytest.raises(ds.InvalidArgumentError, match="plain function"):
            await _box(suite).send_once(_make_message_with_file(), key="k", since=NOW, progress=never)
    assert server.requests == []


async def test_error_of_a_progress_callback_ends_send_once(server: ScriptedServer) -> None:
    def full(done: int, _total: int | None) -> None:
        if done:
            raise LookupError("nobody is told any more")

    server.default_responder = _looks_answer
    async with open_suite(server) as suite:
        with pytest.raises(LookupError, match="nobody is told"):
            await _box(suite).send_once(_make_message_with_file(), progress=full)
    assert len(server.requests) <= 1
