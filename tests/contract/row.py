"""What a row of the contract says: a call of the public face, and the request that it must become."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import directsuite as ds

from .recorder import CannedResponse

TOKEN: Final = "access-token"
USERNAME: Final = "alice@direct.example.test"
PASSWORD: Final = 'p"ä/ß\\'
LOGIN: Final = ds.Login("reseller", 'r"é')
SESSION: Final = 's/1 %2F+?#"'

Call: TypeAlias = Callable[[ds.DirectSuite], Awaitable[object]]
NO_BODY: Final = b""

BEARER_JSON: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
BEARER_TEXT: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain"}
JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One operation's request.

    target is the request target byte by byte. body: bytes stand for themselves, anything else is a JSON value, which
    is compared as such. absent_headers must not be sent. logs_in: a login goes ahead of the request.
    """

    operation: str
    call: Call
    method: str
    target: str
    headers: Mapping[str, str]
    response: CannedResponse
    body: object = NO_BODY
    absent_headers: tuple[str, ...] = field(default=("cookie",))
    logs_in: bool = False


def make_json_response(**members: object) -> CannedResponse:
    """A JSON object as an answer."""
    return CannedResponse(json.dumps(members).encode())


def make_settings(root: str) -> ds.Settings:
    """Settings for a server at `root`, each service below a base path of its own."""
    return ds.Settings(
        signing_url=f"{root}/base/signing",
        fax_url=f"{root}/base/fax",
        message_url=f"{root}/message-rest/api/message",
        registration_url=f"{root}/DirectRegistrationRESTful/rest/Patient",
    )
