"""Bodies in memory that are sent as base64: coded only when they are sent, and a little at a time."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from directsuite.core.upload import MemoryContent, RequestBody
from directsuite.wire import base64 as wire
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import PDF, open_suite

CODED_AT_A_TIME = 72 * 1024
AT_ONCE = 256 * 1024


@given(size=st.integers(0, AT_ONCE))
@example(size=0)
@example(size=CODED_AT_A_TIME - 1)
@example(size=CODED_AT_A_TIME)
@example(size=CODED_AT_A_TIME + 1)
@example(size=AT_ONCE)
def test_joined_texts_are_the_base64_of_the_content(size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    body = RequestBody.from_content(MemoryContent(content))
    texts = list(body.iter_memory_chunks())
    assert b"".join(texts) == base64.b64encode(content)
    assert body.size == sum(map(len, texts))
    assert all(0 < len(text) <= wire.compute_encoded_size(CODED_AT_A_TIME) for text in texts)


def test_body_that_waits_holds_nothing_but_the_content_itself() -> None:
    content = bytes(AT_ONCE)
    assert RequestBody.from_content(MemoryContent(content)).content is content


@pytest.mark.parametrize("size", [0, CODED_AT_A_TIME, 200_000])
async def test_document_in_memory_arrives_complete_at_the_second_attempt_too(server: ScriptedServer, size: int) -> None:
    pdf = PDF + bytes(size)
    server.enqueue(responses.respond(b"", 429), responses.respond({"identifier": "doc"}))
    async with open_suite(server) as suite:
        assert (await suite.signing.save(pdf)).identifier == "doc"
    assert [base64.b64decode(request.body) for request in server.requests] == [pdf, pdf]
    assert {int(request.headers["content-length"]) for request in server.requests} == {
        wire.compute_encoded_size(len(pdf))
    }
