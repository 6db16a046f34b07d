"""A client, and a server on loopback that answers it from a list."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import directsuite as ds
from tests.contract.recorder import CannedResponse, RecordedRequest, Recorder

ALICE = "alice@direct.example.test"


class SleepDrivenClock:
    """A clock on which time passes only by sleeping; `slept` in seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)


class CountingRecorder(Recorder):
    """A recording server that counts the connections made to it."""

    connection_count = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        await super()._serve(reader, writer)


@dataclass(slots=True)
class ServiceHarness:
    """What a test has in hand: the client, its mailbox, its clock, and what came over the wire."""

    suite: ds.DirectSuite
    server: CountingRecorder
    clock: SleepDrivenClock = field(default_factory=SleepDrivenClock)

    @property
    def box(self) -> ds.Mailbox:
        """Alice's mailbox."""
        return self.suite.mailbox(ALICE, "secret")

    @property
    def last_request_document(self) -> object:
        """The last request's body as JSON."""
        return json.loads(self.server.requests[-1].body)


def make_response(document: object, *, status: str = "200 OK", media_type: str = "application/json") -> CannedResponse:
    """A JSON answer; texts and bytes stand for themselves."""
    if isinstance(document, str | bytes):
        body = document.encode() if isinstance(document, str) else document
    else:
        body = json.dumps(document).encode()
    return CannedResponse(body, media_type=media_type, status=status)


@contextlib.asynccontextmanager
async def serve_responses(*answers: CannedResponse) -> AsyncGenerator[ServiceHarness]:
    """A service that gives these answers in turn, the last one for ever; a login is answered beside them."""
    left = list(answers)

    def reply(request: RecordedRequest) -> CannedResponse:
        if request.target.endswith("/login"):
            return make_response({"code": "000", "success": True, "sessionId": "s1"})
        return left.pop(0) if len(left) > 1 else left[0]

    clock = SleepDrivenClock()
    async with CountingRecorder(reply) as server:
        settings = ds.Settings(
            signing_url=server.url,
            fax_url=server.url,
            message_url=f"{server.url}/message-rest/api/message",
            registration_url=f"{server.url}/DirectRegistrationRESTful/rest/Patient",
            timeout=1000.0,
        )
        async with ds.DirectSuite(settings, token="t", login=ds.Login("reseller", "secret"), clock=clock) as suite:
            yield ServiceHarness(suite, server, clock)
