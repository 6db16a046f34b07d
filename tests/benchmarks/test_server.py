"""The server of prepared responses."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from itertools import pairwise
from pathlib import Path

import jsonschema_rs
import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.server import ServerScenario, responses
from benchmarks.server.__main__ import Connection
from directsuite.sandbox.server import load_openapi_document

ROOT = Path(__file__).resolve().parents[2]
MESSAGE = "/message-rest/api/message"
COUNT = f"{MESSAGE}/GetMessageCount/INBOX"
BLOCK = 196_608


class Written(asyncio.Transport):
    """Keeps the written data. slow: pauses the writer after each piece."""

    def __init__(self, connection: Connection, *, slow: bool = False) -> None:
        super().__init__()
        self.content = b""
        self.closed = False
        self._connection = connection
        self._slow = slow

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.content += data
        if self._slow:
            self._connection.pause_writing()

    def close(self) -> None:
        self.closed = True


def opened(*, slow: bool = False) -> tuple[Connection, Written]:
    connection = Connection()
    transport = Written(connection, slow=slow)
    connection.connection_made(transport)
    return connection, transport


def request(method: str, path: str, body: bytes = b"", scenario: ServerScenario | None = None) -> bytes:
    segment = (scenario or ServerScenario()).to_segment()
    return f"{method} /{segment}{path} HTTP/1.1\r\nHost: x\r\nContent-length: {len(body)}\r\n\r\n".encode() + body


def bodies(content: bytes) -> list[bytes]:
    """Split consecutive responses by their lengths, and return the bodies."""
    found: list[bytes] = []
    while content:
        head, _, content = content.partition(b"\r\n\r\n")
        length = int(head.rpartition(b"Content-Length: ")[2])
        found.append(content[:length])
        assert len(found[-1]) == length
        content = content[length:]
    return found


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**12), st.floats(0, 10))
def test_path_contains_the_scenario(messages: int, attachment: int, document: int, latency: float) -> None:
    scenario = ServerScenario(messages=messages, attachment=attachment, document=document, latency=latency)
    assert ServerScenario.from_segment(scenario.to_segment()) == scenario


@given(st.sampled_from([0, BLOCK, 2 * BLOCK]), st.integers(0, 7))
def test_base64_in_blocks_has_the_requested_size(blocks: int, rest: int) -> None:
    text = b"".join(responses.yield_base64(blocks + rest))
    assert len(text) == responses.compute_base64_length(blocks + rest)
    assert len(pybase64.b64decode(text, validate=True)) == blocks + rest


def test_attachments_have_the_requested_size() -> None:
    for message in json.loads(responses.make_messages(2, BLOCK + 1))["messages"]:
        assert len(pybase64.b64decode(message["attachments"][0]["content"], validate=True)) == BLOCK + 1


@pytest.mark.parametrize("size", [0, 1000])
def test_streamed_response_equals_the_complete_one(size: int) -> None:
    scenario = ServerScenario(messages=20, attachment=size)
    assert bodies(b"".join(responses.yield_messages_response(scenario))) == [responses.make_messages(20, size)]


def test_too_many_messages_are_rejected() -> None:
    with pytest.raises(ValueError, match="8999999"):
        responses.make_metadata(9_000_000)


@given(st.lists(st.integers(1, 120), max_size=12))
def test_request_may_arrive_in_pieces(cuts: list[int]) -> None:
    connection, transport = opened()
    arriving = request("POST", COUNT, b"{}")
    for cut in (*cuts, len(arriving)):
        piece, arriving = arriving[:cut], arriving[cut:]
        if piece:
            connection.data_received(piece)
    assert [json.loads(body)["count"] for body in bodies(transport.content)] == [50]


def test_slow_reader_receives_piece_by_piece() -> None:
    connection, transport = opened(slow=True)
    size = 3 * BLOCK + 1
    connection.data_received(request("GET", "/signing/pdf/x", scenario=ServerScenario(document=size)))
    taken: list[int] = []
    while not taken or len(transport.content) > taken[-1]:
        taken.append(len(transport.content))
        connection.resume_writing()
    assert len(taken) > 4  # the head, three blocks, the rest
    assert max(later - before for before, later in pairwise(taken)) == responses.compute_base64_length(BLOCK)
    assert [len(body) for body in bodies(transport.content)] == [responses.compute_base64_length(size)]


@pytest.mark.parametrize(
    ("arriving", "status"),
    [
        *((request(method, path), 404) for method, path in (("POST", "/"), ("GET", "/signing"), ("DELETE", COUNT))),
        (request("PATCH", "/signing/pdf/x/flatten"), 404),
        (f"POST {COUNT} HTTP/1.1\r\n\r\n".encode(), 404),  # without a scenario
        (b"POST /messages=1/signing/pdf HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    ],
)
def test_other_requests_are_rejected(arriving: bytes, status: int) -> None:
    connection, transport = opened()
    connection.data_received(arriving)
    assert transport.content.startswith(b"HTTP/1.1 %d " % status)
    assert transport.closed is (status == 411)


@pytest.mark.parametrize(
    ("method", "path", "schema"),
    [
        ("POST", COUNT, "GetCountResponse"),
        ("POST", f"{MESSAGE}/GetUIDs/INBOX.3", "GetUIDResponseType"),
        *(
            ("POST", f"{MESSAGE}/{name}/INBOX", "GetMessageResponse")
            for name in ("GetMessagesByUIDs", "GetMessageMetaData", "GetMessages")
        ),
        ("PUT", f"{MESSAGE}/Send", "SendMessageResponseType"),
        ("POST", "/signing/pdf", "StoredDocument"),
        ("PATCH", "/signing/pdf/x/sign", "DocumentUpdate"),
    ],
)
@pytest.mark.parametrize("attachment", [0, 1000])
def test_response_matches_the_document(method: str, path: str, schema: str, attachment: int) -> None:
    connection, transport = opened()
    body, scenario = b'{"auth":{},"uids": [1000005, 1000002]}', ServerScenario(messages=50, attachment=attachment)
    connection.data_received(request(method, path, body, scenario))
    [document] = map(json.loads, bodies(transport.content))
    components = load_openapi_document()["components"]
    reference = {"$ref": f"#/components/schemas/{schema}", "components": components}
    jsonschema_rs.validator_for(reference).validate(document)
    if "ByUIDs" in path:
        assert [message["uid"] for message in document["messages"]] == [1000005, 1000002]
    elif schema == "GetMessageResponse":
        assert len({message["uid"] for message in document["messages"]}) == 50


@pytest.mark.process
async def test_server_ends_with_the_program_that_started_it() -> None:
    program = (
        "import os, sys; from benchmarks.server import run_server\n"
        "with run_server() as url:\n"
        "    print(url, flush=True); sys.stdin.read(); os._exit(1)"
    )
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert starter.stdin is not None
    assert starter.stdout is not None
    port = int((await starter.stdout.readline()).rsplit(b":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    starter.stdin.close()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await starter.wait()
