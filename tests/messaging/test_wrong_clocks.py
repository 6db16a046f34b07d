"""Sending once, even if a clock is or was wrong, or the mailbox has unusual folders and dates."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import attrs
import pytest

import directsuite as ds
from directsuite.messaging import send_once
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite

KEY = "result-17"
MARK = send_once.make_request_id(ALICE, KEY)
HOUR, YEARS = timedelta(hours=1), timedelta(days=730)


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@attrs.define(eq=False)
class MailServer:
    """A mailbox on the scripted server, with a clock that may be wrong."""

    offset: timedelta = timedelta()
    """The time by which its clock is ahead."""
    folders: dict[str, list[dict[str, Any]]] = attrs.field(factory=lambda: {"INBOX": [], "INBOX.Sent": []})
    unreadable: list[Any] = attrs.field(factory=list[Any])
    """Invalid elements of the list of folders."""
    sends: int = 0
    loses_responses: bool = False
    hides_sent_headers: bool = False

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def add(self, mark: str, received: datetime | int | str | None = None, folder: str = "INBOX.Sent") -> None:
        """Add a message with this X-Request-ID, received at this moment: now if it is None."""
        date = milliseconds(received or self.now) if received is None or isinstance(received, datetime) else received
        headers = [{"name": "X-Request-ID", "value": mark}]
        uid = 1 + sum(map(len, self.folders.values()))
        message = {"uid": uid, "msgID": f"<{uid}@direct.example.test>", "receivedDate": date, "headers": headers}
        self.folders.setdefault(folder, []).append(message)

    async def __call__(self, exchange: Exchange) -> None:
        operation, *segments = exchange.request.target.rpartition("/message/")[2].split("/")
        date = format_datetime(self.now, usegmt=True)
        document: dict[str, Any] = {"success": True, "code": 0}
        if operation == "SendWithHeader":
            await exchange.read()
            self.sends += 1
            [header] = json.loads(exchange.request.body)["message"]["headers"]
            self.add(header["value"])
            if self.hides_sent_headers:
                self.folders["INBOX.Sent"][-1]["headers"] = None
            if self.loses_responses:
                return await responses.reset(exchange)
            document["smtpId"] = self.folders["INBOX.Sent"][-1]["msgID"]
        elif operation == "GetFolders":
            document["folders"] = [name for name in self.folders if name != "INBOX"] + self.unreadable
        else:
            begin, end = int(segments[1]), int(segments[2])
            document["messages"] = [
                message
                for message in self.folders[unquote(segments[0])]
                if not isinstance(message["receivedDate"], int) or begin <= message["receivedDate"] <= end
            ]
        return await responses.respond(document, Date=date)(exchange)


@pytest.fixture
def mail(server: ScriptedServer) -> MailServer:
    mail = MailServer()
    server.default_responder = mail
    return mail


def since(moment: datetime) -> dict[str, Any]:
    return {"key": KEY, "since": moment, "settle": 0.0}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("ahead", [-2 * HOUR, timedelta(minutes=20), HOUR, YEARS, None], ids=str)
async def test_since_in_the_future_finds_what_was_sent(
    mail: MailServer, server: ScriptedServer, ahead: timedelta | None
) -> None:
    mail.add(MARK, mail.now - 3 * HOUR)
    moment = datetime.max.replace(tzinfo=UTC) if ahead is None else mail.now + ahead
    async with open_suite(server) as suite:
        sent = await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(moment))
    assert sent.smtp_id == "<1@direct.example.test>"
    assert mail.sends == 0


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("ahead", [timedelta(seconds=30), HOUR, YEARS], ids=str)
@pytest.mark.parametrize("others", [0, 1])
async def test_since_in_the_future_never_sends(
    mail: MailServer, server: ScriptedServer, ahead: timedelta, others: int
) -> None:
    for _ in range(others):
        mail.add("another")
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError, match="in the future") as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now + ahead))
    assert caught.value.looked
    assert mail.sends == 0


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("offset", [HOUR, -HOUR, YEARS, -YEARS], ids=str)
async def test_lost_response_is_found_however_wrong_our_clock_is(
    mail: MailServer, server: ScriptedServer, offset: timedelta
) -> None:
    mail.add("another", mail.now + offset)
    mail.offset, mail.loses_responses = offset, True
    async with open_suite(server) as suite:
        assert (await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, key=KEY, resend=True, settle=0.0)).smtp_id
    assert mail.sends == 1


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("offset", [HOUR, -HOUR, YEARS, -YEARS], ids=str)
@pytest.mark.parametrize("folder", ["INBOX.Sent", "INBOX.Filed"])
async def test_earlier_attempt_is_found_however_wrong_our_clock_is(
    mail: MailServer, server: ScriptedServer, offset: timedelta, folder: str
) -> None:
    mail.offset = offset
    mail.add("another")
    mail.add(MARK, mail.now - timedelta(minutes=1), folder)
    async with open_suite(server) as suite:
        began = datetime.now(UTC) - timedelta(minutes=1)
        assert (await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(began))).smtp_id
    assert mail.sends == 0


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("name", [".", "..", ""], ids=repr)
async def test_listed_folder_that_no_request_can_name_is_left_out(
    mail: MailServer, server: ScriptedServer, name: str
) -> None:
    mail.folders[name] = []
    async with open_suite(server) as suite:
        assert (await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now - HOUR))).smtp_id
    assert mail.sends == 1


@pytest.mark.parametrize("name", [None, {"name": "INBOX.Filed"}], ids=repr)
async def test_folder_whose_name_is_unreadable_may_have_the_message(
    mail: MailServer, server: ScriptedServer, name: Any
) -> None:
    mail.unreadable = [name]
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError, match="cannot be searched"):
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now - HOUR))
    assert mail.sends == 0


async def test_raw_response_of_a_found_message_is_that_of_the_search(mail: MailServer, server: ScriptedServer) -> None:
    mail.add(MARK)
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        raw = await box.with_raw_response.send_once(MESSAGE, **since(mail.now - HOUR))
    assert (raw.value.smtp_id, raw.status) == ("<1@direct.example.test>", 200)
    assert mail.sends == 0


@pytest.mark.parametrize("sender", [ALICE, f"Alice <{ALICE.upper()}>", None])
async def test_copy_moved_to_a_folder_whose_request_ids_are_hidden_is_not_sent_again(
    mail: MailServer, server: ScriptedServer, sender: str | None
) -> None:
    mail.add(MARK, folder="INBOX.Filed")
    mail.folders["INBOX.Filed"][0] |= {"headers": None, "sender": sender}
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError, match="X-Request-ID of no message") as caught:
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now - HOUR))
    assert caught.value.looked
    assert mail.sends == 0


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("folder", "sender"),
    [
        ("INBOX.Read", "bob@direct.example.test"),
        ("INBOX.Read", f"m{ALICE}"),
        ("INBOX.Read", f'"{ALICE}" <bob@direct.example.test>'),
        ("INBOX.Read", None),
        ("INBOX", ALICE),
    ],
)
async def test_request_ids_of_received_messages_do_not_prove_that_those_of_copies_are_shown(
    mail: MailServer, server: ScriptedServer, folder: str, sender: str | None
) -> None:
    mail.add("another", folder=folder)
    mail.folders[folder][0]["sender"] = sender
    mail.add(MARK, folder="INBOX.Filed")
    mail.folders["INBOX.Filed"][0] |= {"headers": None, "sender": ALICE}
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError, match="X-Request-ID of no message"):
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now - HOUR))
    assert mail.sends == 0


async def test_lost_response_is_not_sent_again_if_only_received_messages_have_shown_request_ids(
    mail: MailServer, server: ScriptedServer
) -> None:
    mail.add("another", folder="INBOX")
    mail.folders["INBOX"][0]["sender"] = "bob@direct.example.test"
    mail.loses_responses = mail.hides_sent_headers = True
    async with open_suite(server) as suite:
        with pytest.raises(ds.OutcomeUnknownError):
            await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, resend=True, **since(mail.now - HOUR))
    assert mail.sends == 1


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("shown", ["in INBOX.Sent", "in another folder", "received from others"])
async def test_message_is_sent_if_those_in_other_folders_cannot_be_its_copy(
    mail: MailServer, server: ScriptedServer, shown: str
) -> None:
    mail.add("", folder="INBOX")
    mail.folders["INBOX"][0] |= {"headers": None, "sender": ALICE}
    if shown == "received from others":
        mail.folders["INBOX"][0]["sender"] = "bob@direct.example.test"
    else:
        folder = "INBOX.Sent" if shown == "in INBOX.Sent" else "INBOX.Filed"
        mail.add("another", folder=folder)
        mail.folders[folder][0]["sender"] = ALICE
    async with open_suite(server) as suite:
        assert (await suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, **since(mail.now - HOUR))).smtp_id
    assert mail.sends == 1
