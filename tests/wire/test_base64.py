"""Base64, complete and cut anywhere."""

from __future__ import annotations

import asyncio
import base64 as standard
from collections.abc import AsyncGenerator, Sequence
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.content import MemoryContent, StreamContent
from directsuite.core.upload import RequestBody
from directsuite.wire.parsing import MismatchError
from directsuite.wire.values import Base64Decoder, decode_base64

from .split_documents import split_at

GARBAGE = [
    b"Q",
    b"QQ",
    b"QQ=",
    b"QQ===",
    b"====",
    b"=",
    b"A===",
    b"QQ==QUJD",
    b"QUI=QUI=",
    b"QQ-_",
    b"QQ==!",
    b"\xff\xff\xff\xff",
]


def _decoded(pieces: Sequence[bytes | memoryview]) -> bytes:
    decoder = Base64Decoder()
    content = b"".join([decoder.feed(piece) for piece in pieces])
    decoder.finish()
    return content


@given(st.binary(max_size=200))
def test_text_is_decoded_to_its_content(content: bytes) -> None:
    text = standard.b64encode(content)
    assert len(text) == RequestBody.from_content(MemoryContent(content)).size
    assert decode_base64(text) == decode_base64(text.decode()) == content


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0)))
def test_encoded_pieces_are_the_encoded_content(content: bytes, cuts: list[int]) -> None:
    async def stream() -> AsyncGenerator[bytes]:
        for piece in split_at(content, cuts):
            yield piece

    async def encode() -> bytes:
        return b"".join([text async for text in RequestBody.from_content(StreamContent(stream(), None)).stream()])

    with mock.patch("directsuite.core.upload._MIN_CHUNK_BYTES", 1):  # small pieces are not combined
        assert asyncio.run(encode()) == standard.b64encode(content)


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0)), st.sampled_from([b"\r\n", b"\n", b" \t\r\n"]))
def test_decoded_pieces_are_the_content(content: bytes, cuts: list[int], end: bytes) -> None:
    text = standard.b64encode(content)
    lines = end.join(text[start : start + 76] for start in range(0, len(text), 76)) + end
    assert _decoded(split_at(lines, cuts)) == decode_base64(lines) == content


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_rejected_whole_and_cut_anywhere(text: bytes) -> None:
    with pytest.raises(MismatchError):
        decode_base64(text)
    for pieces in ([text], [bytes([byte]) for byte in text], [text[:2], text[2:]]):
        with pytest.raises(MismatchError):
            _decoded(pieces)


@given(st.binary(max_size=12), st.lists(st.integers(min_value=0)))
def test_pieces_are_accepted_if_the_complete_text_is(text: bytes, cuts: list[int]) -> None:
    try:
        whole: bytes | None = decode_base64(text)
    except MismatchError:
        whole = None
    try:
        cut: bytes | None = _decoded(split_at(text, cuts))
    except MismatchError:
        cut = None
    assert cut == whole


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("piece", [b" " * 65_536, b"\r\n", b"\n\n\n", b"AAAA" + b"\n" * 1000])
def test_text_that_is_mostly_blank_is_rejected(piece: bytes) -> None:
    with pytest.raises(MismatchError):
        _decoded([b"JVBERi0x", *[piece] * (2**20 // len(piece)), b"AAAA" * 2])


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n" * 10])
def test_text_in_short_lines_is_base64_however_long_it_is(end: bytes) -> None:
    decoder, line = Base64Decoder(), b"A" * 16 + end
    assert sum(len(decoder.feed(line * 1000)) for _ in range(100)) == 12 * 100_000
    decoder.finish()


def test_text_that_is_not_ascii_is_rejected() -> None:
    with pytest.raises(MismatchError):
        decode_base64("QQ=ä")
