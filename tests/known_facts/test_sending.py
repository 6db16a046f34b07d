"""What the client sends where the specification is silent, checked on the bytes; and how it behaves by default."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime

import pytest

import directsuite as ds
from directsuite.types import Token
from tests.known_facts.service import ALICE, ServiceHarness, make_response, serve_responses

OK = {"success": True}
CREDENTIALS = {"username": ALICE, "password": "secret"}
BOB = ds.Recipient("bob@direct.example.test")
NOON = datetime(2016, 7, 5, 12, tzinfo=UTC)
SIGNATURE = ds.Signature(
    name="n",
    widget=ds.Widget(x=1, y=2, width=3, height=4, page=1),
    reason="r",
    gs_name="g",
    timezone="UTC",
    gmt_offset=0,
    graphical_signature=b"\x00\x01",
)
SIGNATURE_ON_THE_WIRE = {
    "name": "n",
    "widget": {"x": 1, "y": 2, "width": 3, "height": 4, "page": 1},
    "reason": "r",
    "gsName": "g",
    "timezone": "UTC",
    "GMTOffset": 0,
    "graphicalSignature": "AAE=",
}
INDIVIDUAL = ds.IDProofedIndividual(first_name="A", last_name="B", ssn4="0001", dob=date(1970, 1, 31))

Call = Callable[[ServiceHarness], Awaitable[object]]

BODIES: list[tuple[str, Call, object]] = [
    (
        "attachments go out as attachmentList",
        lambda s: s.box.send(
            ds.Message(
                recipients=[BOB], attachment_list=[ds.Attachment(content=b"\x00", content_type="a/b", filename="f")]
            )
        ),
        {
            "authentication": CREDENTIALS,
            "message": {
                "sender": ALICE,
                "htmlBody": False,
                "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
                "attachmentList": [{"content": "AA==", "contentType": "a/b", "filename": "f"}],
            },
        },
    ),
    ("CreateFolder sends a bare Authentication", lambda s: s.box.create_folder("INBOX.A"), CREDENTIALS),
    ("MoveFolder sends a bare Authentication", lambda s: s.box.move_folder("INBOX.A", "INBOX.B"), CREDENTIALS),
    ("DeleteFolder sends a bare Authentication", lambda s: s.box.delete_folder("INBOX.A"), CREDENTIALS),
    ("GetFolders sends a bare Authentication", lambda s: s.box.get_folders(), CREDENTIALS),
    (
        "dob as year, month, day",
        lambda s: s.suite.registration.get_patient_address_by_meta("direct.example.test", INDIVIDUAL),
        {"firstName": "A", "lastName": "B", "ssn4": "0001", "dob": "1970-01-31"},
    ),
    ("WidgetObject in points from page 1", lambda s: s.suite.signing.sign("d1", SIGNATURE), SIGNATURE_ON_THE_WIRE),
    (
        "SignatureObject in MultiSign is the Sign body",
        lambda s: s.suite.signing.multi_sign("d1", [SIGNATURE]),
        {"Signatures": [SIGNATURE_ON_THE_WIRE]},
    ),
]


@pytest.mark.parametrize(("call", "body"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
async def test_the_client_sends(call: Call, body: object) -> None:
    async with serve_responses(make_response(OK)) as service:
        await call(service)
        assert service.last_request_document == body


TARGETS: list[tuple[str, Call, str]] = [
    ("a folder's name as it was given", lambda s: s.box.get_message_count("Inbox"), "GetMessageCount/Inbox"),
    (
        "an open span in milliseconds",
        lambda s: s.box.get_messages_by_received_date("INBOX", None, None),
        "GetMessagesByReceivedDate/INBOX/0/253402300799000",
    ),
    (
        "an open end in UTC",
        lambda s: s.box.get_messages_by_received_date_utc("INBOX", NOON, None),
        "GetMessagesByReceivedDateUTC/INBOX/20160705120000/99991231235959",
    ),
    (
        "an open beginning in UTC",
        lambda s: s.box.search_messages_metadata_by_received_date_utc("INBOX", None, NOON),
        "SearchMessagesMetadataByReceivedDateUTC/INBOX/19700101000000/20160705120000",
    ),
]


@pytest.mark.parametrize(("call", "target"), [row[1:] for row in TARGETS], ids=[row[0] for row in TARGETS])
async def test_the_client_asks_for(call: Call, target: str) -> None:
    async with serve_responses(make_response(OK | {"count": 1})) as service:
        await call(service)
        assert service.server.requests[-1].target == f"/message-rest/api/message/{target}"


@pytest.mark.parametrize("sender", [None, ALICE.upper()])
async def test_the_sender_is_compared_case_blind(sender: str | None) -> None:
    async with serve_responses(make_response(OK)) as service:
        await service.box.send(ds.Message(sender=sender, recipients=[BOB]))
        assert len(service.server.requests) == 1


@pytest.mark.parametrize("folder", ["inbox.SENT", "Inbox"])
async def test_reserved_folders_are_known_case_blind(folder: str) -> None:
    async with serve_responses(make_response(OK)) as service:
        with pytest.raises(ds.InvalidArgumentError):
            await service.box.delete_folder(folder)
        assert service.server.requests == []


COUNT = make_response(OK | {"count": 1})


async def test_rate_limiting_is_answered_by_waits_from_one_second_doubling() -> None:
    async with serve_responses(*[make_response("", status="429 Too Many Requests")] * 3, COUNT) as service:
        assert await service.box.get_message_count() == 1
        first, second, third = service.clock.sleeps
    assert 1.0 <= first <= 1.5
    assert 2.0 <= second <= 2.5
    assert 4.0 <= third <= 4.5


async def test_an_unavailable_service_is_left_alone_for_half_a_minute_to_a_whole() -> None:
    async with serve_responses(make_response("", status="503 Service Unavailable"), COUNT) as service:
        assert await service.box.get_message_count() == 1
        (wait,) = service.clock.sleeps
    assert 30.0 <= wait <= 60.0


@pytest.mark.parametrize(
    "status",
    ["500 Internal Server Error", "501 Not Implemented", "502 Bad Gateway", "503 Unavailable", "504 Gateway Timeout"],
)
async def test_a_failing_service_is_tried_three_more_times_at_most(status: str) -> None:
    async with serve_responses(make_response("", status=status)) as service:
        with pytest.raises(ds.ServerError) as caught:
            await service.box.get_message_count()
        assert len(service.server.requests) == caught.value.attempts == 4


async def test_a_burst_of_150_goes_at_once_and_then_100_in_a_second() -> None:
    async with serve_responses(COUNT) as service:
        for _ in range(150):
            await service.box.get_message_count()
        assert service.clock.sleeps == []
        for _ in range(3):
            await service.box.get_message_count()
        assert service.clock.sleeps == pytest.approx([0.01] * 3)


async def test_connections_are_kept_alive() -> None:
    async with serve_responses(COUNT) as service:
        for _ in range(5):
            await service.box.get_message_count()
        assert service.server.connection_count == 1


async def test_no_more_than_ten_connections_are_opened() -> None:
    async with serve_responses(COUNT) as service:
        await asyncio.gather(*(service.box.get_message_count() for _ in range(60)))
        assert 1 <= service.server.connection_count <= 10


async def text_token() -> str:
    return "from-a-callable"


async def access_token() -> ds.AccessToken:
    return ds.AccessToken("from-a-callable", expires_in=3600)


class Source:
    """A source of tokens of the user's own."""

    renewable = True

    async def fetch(self) -> ds.AccessToken:
        return ds.AccessToken("from-a-source", 3600)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("a-text", "a-text"),
        (ds.Secret("a-secret"), "a-secret"),
        (text_token, "from-a-callable"),
        (access_token, "from-a-callable"),
        (Source(), "from-a-source"),
    ],
)
async def test_a_token_comes_from_any_source(token: Token, text: str) -> None:
    async with serve_responses(make_response({"identifier": "d1"})) as service:
        settings = ds.Settings(signing_url=service.server.url)
        async with ds.DirectSuite(settings, token=token) as suite:
            await suite.signing.get_doc_info("d1")
        assert service.server.requests[-1].headers["authorization"] == f"Bearer {text}"
