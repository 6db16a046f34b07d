"""The answers' bytes: valid for every client, of any size, and big ones never whole in memory.

Records all have the same length, so that an answer's length is known before it is written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pybase64

from benchmarks.server.scenario import ServerScenario

JSON = b"application/json"
TEXT = b"text/plain"

_BLOCK = random.Random(11).randbytes(196_608)  # a multiple of three: its base64 can be repeated without padding
_ENCODED = pybase64.b64encode(_BLOCK)
_FIRST_UID = 1_000_001  # as many digits as the last one
_MAX_MESSAGES = 8_999_999
_UID = 7_777_777  # stands for the uid in the templates
_CONTENT = "@content@"
_OPENING = b'{"success":true,"code":0,"message":null,"messages":['
_CLOSING = b"]}"


def _make_record(**more: Any) -> dict[str, Any]:
    """A message as the service describes it, with a bit of everything that decoders stumble over."""
    uid = str(_UID)
    return {
        "uid": _UID,
        "msgnum": _UID,
        "msgID": f"<{uid}.1@direct.example.test>",
        "folder": "INBOX",
        "expunged": False,
        "size": 1_400_000,
        "sentDate": "2026-05-01T12:00:00.000+00:00",
        "receivedDate": "2026-05-01T12:00:01.000+00:00",
        "replyTo": None,
        "headers": [
            {"name": "X-Request-ID", "value": f'"{uid}" é [{{'},
            {"name": "Received", "value": f"from mail.example.test by direct.example.test; {uid}"},
        ],
        "sender": "alice@direct.example.test",
        "subject": f"Laboratory result {uid}",
        "htmlBody": False,
        "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
        **more,
    }


def _split_template(text: bytes) -> list[bytes]:
    """What stands between the places of the uid."""
    return text.split(str(_UID).encode())


def _to_json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


_BODY = "Please see the attached report.\r\n" * 8
_NAMES = {"contentType": "application/pdf", "filename": f"report-{_UID}.pdf"}
_METADATA = _split_template(_to_json(_make_record(attachments=[_NAMES])))
_PLAIN = _split_template(_to_json(_make_record(body=_BODY, attachments=[])))
_BEFORE_CONTENT, _AFTER_CONTENT = (
    _split_template(part)
    for part in _to_json(_make_record(body=_BODY, attachments=[{"content": _CONTENT, **_NAMES}])).split(
        _CONTENT.encode()
    )
)


def _fill(template: list[bytes], uid: int) -> bytes:
    return (b"%d" % uid).join(template)


def yield_uids(count: int) -> range:
    """The uids of a folder of so many messages."""
    if not 0 <= count <= _MAX_MESSAGES:
        raise ValueError(f"records keep their length up to {_MAX_MESSAGES} messages")
    return range(_FIRST_UID, _FIRST_UID + count)


def yield_base64(size: int) -> Iterator[bytes]:
    """So many bytes as base64, in blocks."""
    whole, rest = divmod(size, len(_BLOCK))
    for _ in range(whole):
        yield _ENCODED
    if rest:
        yield pybase64.b64encode(_BLOCK[:rest])


def compute_base64_length(size: int) -> int:
    """The length of so many bytes as base64."""
    return 4 * ((size + 2) // 3)


def _yield_message(uid: int, size: int) -> Iterator[bytes]:
    """A message and, where size is not 0, its attachment."""
    if not size:
        yield _fill(_PLAIN, uid)
        return
    yield _fill(_BEFORE_CONTENT, uid)
    yield from yield_base64(size)
    yield _fill(_AFTER_CONTENT, uid)


def _yield_response_body(records: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    yield _OPENING
    for number, record in enumerate(records):
        if number:
            yield b","
        yield from record
    yield _CLOSING


def _compute_body_length(count: int, record: int) -> int:
    return len(_OPENING) + count * record + max(count - 1, 0) + len(_CLOSING)


@lru_cache(maxsize=4)
def make_metadata(count: int) -> bytes:
    """An answer to GetMessageMetaData."""
    return b"".join(_yield_response_body((_fill(_METADATA, uid),) for uid in yield_uids(count)))


def make_messages(count: int, size: int) -> bytes:
    """An answer to GetMessages, whole: each message with an attachment of so many decoded bytes."""
    return b"".join(_yield_response_body(_yield_message(uid, size) for uid in yield_uids(count)))


def yield_messages_response(scenario: ServerScenario) -> Iterator[bytes]:
    """The same answer with its head, piece by piece."""
    count, size = scenario.messages, scenario.attachment
    if size:
        length = (
            len(_fill(_BEFORE_CONTENT, _FIRST_UID))
            + compute_base64_length(size)
            + len(_fill(_AFTER_CONTENT, _FIRST_UID))
        )
    else:
        length = len(_fill(_PLAIN, _FIRST_UID))
    yield make_head(_compute_body_length(count, length))
    yield from _yield_response_body(_yield_message(uid, size) for uid in yield_uids(count))


def make_messages_by_uids(asked: Iterable[int], size: int) -> bytes:
    """An answer to GetMessagesByUIDs."""
    return b"".join(_yield_response_body(_yield_message(uid, size) for uid in asked))


def yield_document_response(size: int) -> Iterator[bytes]:
    """An answer to GetDoc with its head, piece by piece."""
    yield make_head(compute_base64_length(size), TEXT)
    yield from yield_base64(size)


@lru_cache(maxsize=4)
def make_signed_response(size: int) -> bytes:
    """An answer to SignAndPull with its head: a document of so many bytes with what tells that it has a signature."""
    beginning, end = b"%PDF-1.7\n/ByteRange [0 1 2 3]\n", b"\n%%EOF\n"
    coded = pybase64.b64encode(beginning + bytes(max(0, size - len(beginning) - len(end))) + end)
    return make_head(len(coded), TEXT) + coded


def make_head(length: int, media_type: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    """The status line and headers of an answer."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, media_type, length)


def make_response(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A JSON answer with its head."""
    return make_head(len(body), JSON, status) + body


def make_json_response(**members: Any) -> bytes:
    """A small JSON answer with its head."""
    return make_response(json.dumps(members).encode())
