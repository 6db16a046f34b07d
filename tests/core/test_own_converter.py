"""A suite with the program's own cattrs converter, which handles all requests and responses."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import cattrs
import cattrs.preconf.json
import pytest

import directsuite as ds
from directsuite import types

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, open_suite

MESSAGES = {
    "success": True,
    "messages": [{"uid": 1, "receivedDate": 1467740835000, "attachments": [{"content": "AAE="}]}],
}


class Counting(cattrs.Converter):
    """Counts the values that it converts."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Any] = []
        self.written: list[Any] = []

    def structure(self, obj: Any, cl: Any) -> Any:
        self.read.append(cl)
        return super().structure(obj, cl)

    def unstructure(self, obj: Any, unstructure_as: Any = None) -> Any:
        self.written.append(type(obj))
        return super().unstructure(obj, unstructure_as)


async def test_every_response_and_request_goes_through_it(server: ScriptedServer) -> None:
    converter = Counting()
    server.default_responder = responses.respond(MESSAGES)
    async with open_suite(server, converter=converter) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await box.get_messages()
        await box.get_messages_by_uids("INBOX", [1])
        assert [message async for message in box.stream_messages()]
    assert types.GetMessageResponse in converter.read
    assert ds.MessageDetail in converter.read
    assert {types.Authentication, types.UidsRequest} <= set(converter.written)


async def test_its_hooks_hold_inside_responses_and_requests(server: ScriptedServer, tmp_path: Path) -> None:
    converter = cattrs.preconf.json.make_converter()
    ds.register_hooks(converter)
    converter.register_structure_hook(datetime, lambda value, _: f"at {value}")
    converter.register_unstructure_hook(ds.RecipientType, lambda kind: kind.value.lower())
    path = tmp_path / "a.pdf"
    path.write_bytes(b"\x00\x01")
    server.default_responder = responses.respond(MESSAGES)
    async with open_suite(server, converter=converter) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        read = [*await box.get_messages(), *[message async for message in box.stream_messages()]]
        recipients = [ds.Recipient("bob@direct.example.test")]
        in_memory = ds.Attachment(content=b"\x02", content_type="a/b", filename="f")
        attachments = [ds.Attachment.from_path(path), in_memory]
        await box.send(ds.Message(recipients=recipients, attachment_list=attachments))
    assert [message.received_date for message in read] == ["at 1467740835000"] * 2
    assert [message.attachments[0].content for message in read] == [b"\x00\x01"] * 2
    sent = json.loads(server.requests[-1].body)
    assert sent["authentication"] == {"username": ALICE, "password": PASSWORD}
    assert sent["message"]["recipients"] == [{"email": "bob@direct.example.test", "type": "to"}]
    assert [each["content"] for each in sent["message"]["attachmentList"]] == ["AAE=", "Ag=="]


async def test_file_is_rejected_if_hook_writes_bytes_not_as_base64(server: ScriptedServer, tmp_path: Path) -> None:
    converter = ds.make_converter()
    converter.register_unstructure_hook(bytes, bytes.hex)
    path = tmp_path / "a.pdf"
    path.write_bytes(b"\x00\x01")
    async with open_suite(server, converter=converter) as suite:
        message = ds.Message(recipients=[ds.Recipient(ALICE)], attachment_list=[ds.Attachment.from_path(path)])
        with pytest.raises(ds.InvalidArgumentError, match="base64"):
            await suite.mailbox(ALICE, PASSWORD).send(message)
    assert not server.requests


@pytest.mark.parametrize("converter", [object(), cattrs.Converter, "cattrs"])
def test_invalid_converter_is_rejected(converter: Any) -> None:
    with pytest.raises(ds.ConfigurationError, match="make_converter"):
        ds.Settings(converter=converter)
