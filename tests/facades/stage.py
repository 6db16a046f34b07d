"""The services as the facades' tests see them: URLs, credentials, and what was sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import directsuite as ds

ALICE = "alice@direct.example.test"
BOB = "bob@direct.example.test"
DOMAIN = "direct.example.test"

SIGNING = "http://signing.example.test"
FAX = "http://fax.example.test"
MESSAGE = "http://mail.example.test/message-rest/api/message"
REGISTRATION = "http://registration.example.test/DirectRegistrationRESTful/rest/Patient"

SETTINGS = ds.Settings(
    signing_url=SIGNING,
    fax_url=FAX,
    message_url=MESSAGE,
    registration_url=REGISTRATION,
    allow_insecure_http=True,
    retry=ds.RetryPolicy.none(),
)

SUCCESS: dict[str, Any] = {"success": True, "code": 0, "message": None}
"""The members of every good answer of the messaging service."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was made; url: quoted as the mock keeps it."""

    method: str
    url: str
    body: bytes

    @property
    def members(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Stage:
    """What the services answer, and what they were sent."""

    def __init__(self, mocked: Any) -> None:  # aioresponses has no complete types
        self._mocked = mocked

    def answer(self, method: str, url: str, payload: object = None, **options: Any) -> None:
        """The answer to the next request of this method and URL; payload: JSON. options: those of aioresponses."""
        self._mocked.add(url, method, payload=payload, **options)

    @property
    def sent(self) -> list[Sent]:
        """All requests by URL, those to the same URL in their order."""
        return [
            Sent(method, str(url), call.kwargs.get("data") or b"")
            for (method, url), calls in self._mocked.requests.items()
            for call in calls
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """A call of a facade, the request that it makes, an answer to it, and what the method gives for that.

    answer: bytes are a body as it stands, anything else is JSON.
    """

    operation: str
    method: str
    url: str
    answer: object
    call: Callable[[ds.DirectSuite], Awaitable[object]]
    gives: object

    async def check(self, stage: Stage, suite: ds.DirectSuite) -> None:
        """Make the call and compare."""
        if isinstance(self.answer, bytes):
            stage.answer(self.method, self.url, body=self.answer, content_type="text/plain")
        else:
            stage.answer(self.method, self.url, self.answer)
        given = await self.call(suite)
        assert given == self.gives
        assert type(given) is type(self.gives)
