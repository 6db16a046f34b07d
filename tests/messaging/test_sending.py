"""Sending: the fields of a message, and the body, with the contents of files in their places."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from aioresponses import CallbackResult
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.messaging.arguments import make_send_body
from directsuite.wire.codec import Codec
from tests.examples import scale_examples
from tests.fake_services import ALICE, BOB, MESSAGE, SUCCESS, FakeServices

CODEC = Codec()
AUTHENTICATION = types.Authentication(username="alice@direct.example.test", password=ds.Secret('p"ä'))


def _request(*attachments: ds.Attachment, subject: str | None = "s") -> types.SendRequest:
    message = ds.Message(
        subject=subject, recipients=[ds.Recipient("bob@direct.example.test")], attachment_list=list(attachments)
    )
    return types.SendRequest(authentication=AUTHENTICATION, message=message)


@settings(max_examples=scale_examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.tuples(st.booleans(), st.binary(max_size=50)), min_size=1, max_size=4),
    subject=st.text('a"\\é0'),
)
async def test_files_stand_where_their_contents_would(
    tmp_path: Path, contents: list[tuple[bool, bytes]], subject: str
) -> None:
    attachments: list[ds.Attachment] = []
    for number, (from_file, content) in enumerate(contents):
        path = tmp_path / f"{number}.pdf"
        path.write_bytes(content)
        in_memory = ds.Attachment(content=content, content_type="application/pdf", filename=path.name)
        attachments.append(ds.Attachment.from_path(path) if from_file else in_memory)
    body = await make_send_body(CODEC, _request(*attachments, subject=subject))
    text = b"".join([chunk async for chunk in body.stream()])
    assert len(text) == body.size
    entries = json.loads(text)["message"]["attachmentList"]
    assert [base64.b64decode(entry["content"]) for entry in entries] == [content for _, content in contents]
    assert [entry["filename"] for entry in entries] == [f"{number}.pdf" for number in range(len(contents))]


async def test_no_body_shows_what_it_holds() -> None:
    shown = repr(await make_send_body(CODEC, _request(subject="Zaphod")))
    assert "Zaphod" not in shown
    assert 'p"ä' not in shown


CAROL, DAVE = "carol@direct.example.test", "dave@direct.example.test"
TO_BOB, CC_CAROL, BCC_DAVE = (
    {"email": each, "type": kind} for each, kind in ((BOB, "TO"), (CAROL, "CC"), (DAVE, "BCC"))
)

RECIPIENTS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "one address": ({"to": BOB}, [TO_BOB]),
    "a list": ({"to": [BOB, CAROL]}, [TO_BOB, {**CC_CAROL, "type": "TO"}]),
    "all kinds": ({"to": [BOB], "cc": (CAROL,), "bcc": {DAVE}}, [TO_BOB, CC_CAROL, BCC_DAVE]),
    "only Bcc": ({"bcc": DAVE, "to": []}, [BCC_DAVE]),
}
FACADES: dict[str, Callable[[ds.DirectSuite], ds.Mailbox | ds.TUser]] = {
    "Send": lambda suite: suite.mailbox(ALICE, "secret"),
    "SendWithTuser": lambda suite: suite.tuser("t-user", "secret", ALICE),
}


async def send(
    services: FakeServices, suite: ds.DirectSuite, operation: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Send a message with a facade, and return it as the service received it."""
    bodies: list[bytes] = []

    async def respond(_: object, **request: Any) -> CallbackResult:
        data = request["data"]
        bodies.append(data if isinstance(data, bytes) else b"".join([piece async for piece in data]))
        return CallbackResult(payload=SUCCESS | {"smtpId": "<1@x>"})

    services.add_response("PUT", f"{MESSAGE}/{operation}", callback=respond)
    assert (await FACADES[operation](suite).send(*args, **kwargs)).smtp_id == "<1@x>"
    return cast("dict[str, Any]", json.loads(bodies[0])["message"])


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("operation", FACADES)
@pytest.mark.parametrize(("arguments", "expected"), RECIPIENTS.values(), ids=RECIPIENTS)
async def test_send_takes_addresses_as_text(
    operation: str,
    arguments: dict[str, Any],
    expected: list[dict[str, str]],
    services: FakeServices,
    suite: ds.DirectSuite,
) -> None:
    sent = await send(services, suite, operation, **arguments, subject="Report")
    assert sent == {"sender": ALICE, "subject": "Report", "htmlBody": False, "recipients": expected}


async def test_send_takes_texts_and_attachments(services: FakeServices, suite: ds.DirectSuite, tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"%PDF-")
    memory = ds.Attachment(content=b"<a/>", content_type="text/xml", filename="a.xml")
    sent = await send(
        services, suite, "Send", to=BOB, body="<p>Hi</p>", html_body=True, attachments=[path, str(path), memory]
    )
    assert (sent["body"], sent["htmlBody"]) == ("<p>Hi</p>", True)
    pdf = {"content": base64.b64encode(b"%PDF-").decode(), "contentType": "application/pdf", "filename": "report.pdf"}
    xml = {"content": base64.b64encode(b"<a/>").decode(), "contentType": "text/xml", "filename": "a.xml"}
    assert sent["attachmentList"] == [pdf, pdf, xml]


async def test_message_takes_addresses_and_paths(services: FakeServices, suite: ds.DirectSuite, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"text")
    message = ds.Message(recipients=[BOB, ds.Recipient(CAROL, "cc"), ds.Recipient(DAVE, "Bcc")], attachment_list=[path])
    assert [type(each) for each in message.recipients] == [ds.Recipient] * 3
    sent = await send(services, suite, "Send", message)
    assert sent["recipients"] == [TO_BOB, CC_CAROL, BCC_DAVE]
    assert [each["filename"] for each in sent["attachmentList"]] == ["a.txt"]


INVALID: dict[str, tuple[str, dict[str, Any]]] = {
    "no recipient": ("to", {"subject": "Report"}),
    "empty address": ("to", {"to": "", "subject": "Report"}),
    "no address": ("to", {"to": "bob"}),
    "no address in a list": ("cc[1]", {"to": BOB, "cc": [CAROL, "bob"]}),
    "Recipient instead of a text": ("to", {"to": [ds.Recipient(BOB)]}),
    "number": ("bcc", {"to": BOB, "bcc": 5}),
    "nothing": ("message", {}),
    "message and address": ("message", {"message": ds.Message(recipients=[BOB]), "to": CAROL}),
    "message and text": ("message", {"message": ds.Message(recipients=[BOB]), "body": "text"}),
    "one path": ("attachments", {"to": BOB, "attachments": "report.pdf"}),
    "bytes": ("attachments", {"to": BOB, "attachments": [b"%PDF-"]}),
    "missing file": ("attachments[1]", {"to": BOB, "attachments": [Path(__file__), Path(__file__) / "a.pdf"]}),
    "missing file of a Message": (
        "attachment_list[0]",
        {"message": ds.Message(recipients=[BOB], attachment_list=[Path(__file__) / "a.pdf"])},
    ),
    "attachment without a name": ("attachments", {"to": BOB, "attachments": [ds.Attachment(content=b"x")]}),
    "unknown type": ("recipients[0]", {"message": ds.Message(recipients=[ds.Recipient(BOB, ds.RecipientType("X"))])}),
}


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize(("parameter", "arguments"), INVALID.values(), ids=INVALID)
async def test_send_rejects(parameter: str, arguments: dict[str, Any], services: FakeServices, box: ds.Mailbox) -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        await box.send(**arguments)
    assert caught.value.parameter == parameter
    assert services.requests_by_url == []


async def test_received_type_in_lower_case_can_be_sent(services: FakeServices, suite: ds.DirectSuite) -> None:
    received = CODEC.decode(ds.Recipient, b'{"email": "bob@direct.example.test", "type": "to"}')
    assert received.type == "to"
    sent = await send(services, suite, "Send", ds.Message(recipients=[received]))
    assert sent["recipients"] == [{"email": BOB, "type": "to"}]
