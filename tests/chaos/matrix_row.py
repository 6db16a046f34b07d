"""A row of the matrix: an operation in one of its variants, and its calls.

prepare ── a new document, message, folder or patient ────────► call     as a user of the client makes it
                                                             └──► plain    the same request, for bare aiohttp
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_LOGIN

DOMAIN = "direct.example.test"
ALICE, BOB = f"alice@{DOMAIN}", f"bob@{DOMAIN}"
PASSWORD = "correct horse"
TUSER = "front-desk"
DRAFTS = "INBOX.Drafts"

Effect = Mapping[str, Any]
"""A row of the sandbox's ledger."""


@attrs.frozen
class MatrixContext:
    """The sandbox, a fresh suite that uses it, its token, and a number that no other run has."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    token: str
    number: int

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, PASSWORD)

    @property
    def tuser(self) -> ds.TUser:
        return self.suite.tuser(TUSER, PASSWORD, ALICE)


@attrs.frozen(kw_only=True)
class PlainRequest:
    """A request for bare aiohttp. base64: True if the response is base64 text instead of JSON."""

    method: str
    url: str
    json: Any = None
    token: str | None = None
    base64: bool = False


@attrs.frozen(kw_only=True)
class MatrixRow:
    """One operation in one variant.

    prepare: create the object that the call changes, and return it. is_consistent: compare the caller's result with the
    ledger.
    """

    operation: str
    variant: str
    prepare: Callable[[MatrixContext], Awaitable[Any]]
    call: Callable[[MatrixContext, Any], Awaitable[Any]]
    plain_request: Callable[[MatrixContext, Any], Awaitable[PlainRequest]]
    is_consistent: Callable[[Any, Effect], bool]

    def __str__(self) -> str:
        return f"{self.operation}, {self.variant}" if self.variant else self.operation


async def populate(sandbox: Sandbox) -> None:
    for address in (ALICE, BOB):
        await sandbox.add_account(address, PASSWORD)
    await sandbox.add_tuser(TUSER, PASSWORD, [ALICE])
    await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
    await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
