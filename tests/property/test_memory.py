"""Memory is bounded: by a multiple of the response's size if it is read completely, by a constant if it is streamed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from directsuite.core.operation import Operation
from directsuite.core.outcome import interpret
from directsuite.core.session import BufferedResponse
from directsuite.messaging import operations as messaging
from directsuite.messaging.listings import MessageReader
from directsuite.registration import operations as registration
from directsuite.signing import operations as signing
from directsuite.wire.codec import Codec
from directsuite.wire.values import Base64Decoder

pytestmark = pytest.mark.wide

MB = 2**20
CODEC = Codec()
SIZE = MB // 16
MOST = 200
"""The maximum bytes of memory per byte of a response.

The worst case is a list of empty objects, each of which is a message.
"""


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        kept = work()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
        return peak
    finally:
        tracemalloc.stop()


def _filled(head: bytes, piece: bytes, end: bytes) -> bytes:
    return head + piece * ((SIZE - len(head) - len(end)) // len(piece)) + end


SHAPES: list[tuple[Operation[Any], bytes]] = [
    (messaging.GET_MESSAGES, _filled(b'{"success":true,"messages":[', b"{},", b"{}]}")),
    (messaging.GET_MESSAGES, _filled(b'{"success":true,"messages":[{"attachments":[', b"{},", b"{}]}]}")),
    (messaging.GET_MESSAGES, _filled(b'{"success":true,"x":[', b"[],", b"[]]}")),
    (messaging.GET_MESSAGES, _filled(b'{"success":true,"x":"', "é".encode(), b'"}')),
    (messaging.GET_MESSAGES, b"[" * SIZE),
    (messaging.GET_MESSAGES, b'{"a":' * (SIZE // 5)),
    (messaging.GET_MESSAGES, bytes(SIZE)),
    (messaging.GET_UIDS, _filled(b'{"success":true,"uids":[', b"1,", b"1]}")),
    (messaging.GET_UIDS, _filled(b'{"success":true,"uids":[', b'"1",', b"1]}")),
    (registration.GET_PATIENT_ADDRESS_BY_META, _filled(b'{"success":true,"patient":[', b"{},", b"{}]}")),
    (signing.GET_DOC_INFO, _filled(b'{"formFields":[', b"{},", b"{}]}")),
    (signing.GET_DOC_INFO, _filled(b'{"metaData":[', b'{"key":""},', b'{"key":""}]}')),
    (signing.GET_DOC, b"A" * SIZE),
    (signing.GET_DOC, (b"A" * 76 + b"\r\n") * (SIZE // 78)),
    (signing.GET_DOC, b"<" * SIZE),
]


@pytest.mark.parametrize(("operation", "body"), SHAPES, ids=range(len(SHAPES)))
def test_memory_of_a_response_is_bounded_by_its_size(operation: Operation[Any], body: bytes) -> None:
    interpret(operation, BufferedResponse(200, {}, b"{}"), SIZE, CODEC)  # its reader is made on first use
    assert _peak(lambda: interpret(operation, BufferedResponse(200, {}, body), SIZE, CODEC)) < MOST * len(body) + MB


def _read_messages(pieces: int) -> None:
    reader = MessageReader(messaging.GET_MESSAGES, CODEC)
    for _ in reader.feed(b'{"success":true,"messages":['):
        pass
    piece = (b'{"uid":1,"body":"' + b"a" * 500 + b'"},') * 50
    for _ in range(pieces):
        for message in reader.feed(piece):
            assert message.uid == 1
    for _ in reader.feed(b"{}]}"):
        pass
    reader.finish()


def _decode(pieces: int) -> None:
    decoder = Base64Decoder()
    for _ in range(pieces):
        decoder.feed(b"A" * 65_537 + b"\n")
    decoder.feed(b"A" * (-pieces % 4))
    decoder.finish()


@pytest.mark.parametrize("read", [_read_messages, _decode])
def test_memory_does_not_grow_with_the_length_of_a_stream(read: Callable[[int], None]) -> None:
    read(1)
    assert _peak(lambda: read(100)) < _peak(lambda: read(10)) + 64 * 1024
