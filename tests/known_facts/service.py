"""A client, and a server on loopback that answers it from a list."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import directsuite as ds
from tests.contract.recorder import Answer, RecordedRequest, Recorder

ALICE = "alice@direct.example.test"


class HeldClock:
    """A clock on which time passes only by sleeping; `slept` in seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)


class Connections(Recorder):
    """A recording server that counts the connections made to it."""

    made = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        await super()._serve(reader, writer)


@dataclass(slots=True)
class Service:
    """What a test has in hand: the client, its mailbox, its clock, and what came over the wire."""

    suite: ds.DirectSuite
    server: Connections
    clock: HeldClock = field(default_factory=HeldClock)

    @property
    def box(self) -> ds.Mailbox:
        """Alice's mailbox."""
        return self.suite.mailbox(ALICE, "secret")

    @property
    def sent(self) -> object:
        """The last request's body as JSON."""
        return json.loads(self.server.requests[-1].body)


def answer(document: object, *, status: str = "200 OK", media_type: str = "application/json") -> Answer:
    """A JSON answer; texts and bytes stand for themselves."""
    if isinstance(document, str | bytes):
        body = document.encode() if isinstance(document, str) else document
    else:
        body = json.dumps(document).encode()
    return Answer(body, media_type=media_type, status=status)


@contextlib.asynccontextmanager
async def answering(*answers: Answer) -> AsyncGenerator[Service]:
    """A service that gives these answers in turn, the last one for ever; a login is answered beside them."""
    left = list(answers)

    def reply(request: RecordedRequest) -> Answer:
        if request.target.endswith("/login"):
            return answer({"code": "000", "success": True, "sessionId": "s1"})
        return left.pop(0) if len(left) > 1 else left[0]

    clock = HeldClock()
    async with Connections(reply) as server:
        settings = ds.Settings(
            signing_url=server.url,
            fax_url=server.url,
            message_url=f"{server.url}/message-rest/api/message",
            registration_url=f"{server.url}/DirectRegistrationRESTful/rest/Patient",
            timeout=1000.0,
        )
        async with ds.DirectSuite(settings, token="t", login=ds.Login("reseller", "secret"), clock=clock) as suite:
            yield Service(suite, server, clock)
