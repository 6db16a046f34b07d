"""The recording server itself: it must not tidy up what it is there to record."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from .recorder import CannedResponse, RecordedRequest, Recorder

FRAMINGS = {
    "length": b"Content-Length: 5\r\n\r\nab\r\nc",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n3\r\nab\r\r\n2\r\n\nc\r\n0\r\n\r\n",
}


def _ok(_: RecordedRequest) -> CannedResponse:
    return CannedResponse(b"{}")


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
async def test_request_is_recorded_as_it_stood_on_the_wire(framing: bytes) -> None:
    async with Recorder(_ok) as recorder:
        address = urlsplit(recorder.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for _ in range(2):
            writer.write(b"PATCH /a%2fb/../%252F//?x=%20+#f HTTP/1.1\r\nX-Name:  a B \r\n" + framing)
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        await writer.wait_closed()
    assert [(request.method, request.target, request.body) for request in recorder.requests] == [
        ("PATCH", "/a%2fb/../%252F//?x=%20+#f", b"ab\r\nc")
    ] * 2
    assert recorder.requests[0].headers["x-name"] == "a B"
