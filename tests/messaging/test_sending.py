"""The body of a send: JSON with the contents of files in their places, sent as a stream."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.core.upload import RequestBody
from directsuite.messaging.arguments import make_send_body
from directsuite.wire.codec import Codec
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


async def test_message_without_files_is_one_piece() -> None:
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


async def test_body_with_files_can_be_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    path.write_bytes(bytes(range(256)) * 2048)
    body = await make_send_body(CODEC, _request(ds.Attachment.from_path(path)))
    assert body.replayable
    assert await _sent(body) == await _sent(body)


async def test_no_body_shows_what_it_holds() -> None:
    shown = repr(await make_send_body(CODEC, _request(subject="Zaphod")))
    assert "Zaphod" not in shown
    assert 'p"ä' not in shown
