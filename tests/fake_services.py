"""Services whose responses come from memory: URLs, credentials, and the requests that were sent."""

from __future__ import annotations

import json
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
"""The members of every successful response of the messaging service."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request. url: quoted as in the mock."""

    method: str
    url: str
    body: bytes

    @property
    def members(self) -> Any:
        return json.loads(self.body)


class FakeServices:
    """The responses and requests of the services."""

    def __init__(self, mocked: Any) -> None:  # aioresponses has no complete types
        self._mocked = mocked

    def add_response(self, method: str, url: str, payload: object = None, **options: Any) -> None:
        """Set the response to the next request. payload: JSON. options: those of aioresponses."""
        self._mocked.add(url, method, payload=payload, **options)

    @property
    def requests_by_url(self) -> list[SentRequest]:
        return [
            SentRequest(method, str(url), call.kwargs.get("data") or b"")
            for (method, url), calls in self._mocked.requests.items()
            for call in calls
        ]
