"""The body of a send: JSON with the contents of files in their places, sent as a stream."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.core.upload import RequestBody
from directsuite.messaging import arguments
from directsuite.messaging.arguments import make_send_body
from directsuite.wire.codec import Codec
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite
from tests.examples import scale_examples

CODEC = Codec()
AUTHENTICATION = types.Authentication(username="alice@direct.example.test", password=ds.Secret('p"ä'))


def _request(*attachments: ds.Attachment, subject: str | None = "s") -> types.SendRequest:
    message = ds.Message(
        subject=subject, recipients=[ds.Recipient("bob@direct.example.test")], attachment_list=list(attachments)
    )
    return types.SendRequest(authentication=AUTHENTICATION, message=message)


async def _sent(body: RequestBody) -> bytes:
    return b"".join([chunk async for chunk in body.stream()])


async def test_a_message_without_files_is_one_piece() -> None:
    body = await make_send_body(CODEC, _request(ds.Attachment(content=b"\x00\x01", content_type="a/b", filename="f")))
    assert body.chunks is None
    assert json.loads(await _sent(body)) == {
        "authentication": {"username": "alice@direct.example.test", "password": 'p"ä'},
        "message": {
            "subject": "s",
            "htmlBody": False,
            "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
            "attachmentList": [{"content": "AAE=", "contentType": "a/b", "filename": "f"}],
        },
    }


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
    text = await _sent(body)
    assert len(text) == body.size
    entries = json.loads(text)["message"]["attachmentList"]
    assert [base64.b64decode(entry["content"]) for entry in entries] == [content for _, content in contents]
    assert [entry["filename"] for entry in entries] == [f"{number}.pdf" for number in range(len(contents))]


async def test_a_body_with_files_can_be_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    path.write_bytes(bytes(range(256)) * 2048)
    body = await make_send_body(CODEC, _request(ds.Attachment.from_path(path)))
    assert body.replayable
    assert await _sent(body) == await _sent(body)


async def test_a_file_that_is_not_there_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="attachment_list\\[0\\]: the file does not exist"):
        await make_send_body(CODEC, _request(ds.Attachment.from_path(tmp_path / "none.pdf")))


async def test_no_body_shows_what_it_holds() -> None:
    shown = repr(await make_send_body(CODEC, _request(subject="Zaphod")))
    assert "Zaphod" not in shown
    assert 'p"ä' not in shown


SENDS: dict[str, Callable[[ds.DirectSuite, ds.Message], Awaitable[Any]]] = {
    "send": lambda suite, message: suite.mailbox(ALICE, PASSWORD).send(message, timeout=5),
    "send_once": lambda suite, message: suite.mailbox(ALICE, PASSWORD).send_once(message, timeout=5),
    "T-User": lambda suite, message: suite.tuser("desk", PASSWORD, ALICE).send(message, timeout=5),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
async def test_the_timeout_covers_opening_attachments(
    server: ScriptedServer,
    send: Callable[[ds.DirectSuite, ds.Message], Awaitable[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(arguments, "inspect_source", hang)  # as on a file server that does not respond
    message = ds.Message(recipients=MESSAGE.recipients, attachment_list=[ds.Attachment.from_path(tmp_path / "a.txt")])
    async with open_suite(server) as suite:
        with pytest.raises(ds.DeadlineExceededError) as caught:
            await send(suite, message)
    assert caught.value.outcome is ds.Outcome.NOT_SENT
    assert server.requests == []
