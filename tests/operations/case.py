"""A row of the tables of operations: how an operation is called, what is sent, what comes back, and its effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import directsuite as ds

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

TOKEN: Final = "access-token"
USERNAME: Final = "alice@direct.example.test"
PASSWORD: Final = 'p"ä/ß\\'
LOGIN: Final = ds.Login("reseller", 'r"é')
SESSION: Final = 's/1 %2F+?#"'

Facade = Literal["signing", "fax", "mailbox", "tuser", "registration"]
Accounts = Mapping[Facade, tuple[str, ...]]

ACCOUNTS: Final[Accounts] = {"mailbox": (USERNAME, PASSWORD), "tuser": ("t-user/1", 't"ü', USERNAME)}
"""The credentials for `DirectSuite.mailbox` and `DirectSuite.tuser`."""

NO_BODY: Final = b""
BEARER_JSON: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
BEARER_TEXT: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain"}
JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCase:
    """An operation of the specification, or another request of it with other arguments."""

    name: str
    method: str
    facade: Facade
    function: str
    """The name of the facade's method."""
    arguments: Mapping[str, Any]
    path_texts: tuple[str, ...] = ()
    """The parameters whose text becomes a segment of the path."""
    target: str
    """The request target, byte by byte."""
    headers: Mapping[str, str]
    body: object = NO_BODY
    """Bytes, or a JSON value."""
    response: object
    """A successful response: bytes in base64, or a JSON value."""
    result: object
    """The value that the method returns for this response."""
    required: tuple[str, ...] = ()
    """The members without which the response is an error."""
    exercise: Callable[[Scenario], Awaitable[None]]
    """Call the operation in the sandbox, and check its effect."""

    def __str__(self) -> str:
        return self.name

    def call(
        self, suite: ds.DirectSuite, changed: Mapping[str, object] | None = None, accounts: Accounts = ACCOUNTS
    ) -> Awaitable[object]:
        """Call the method with the arguments of this row, or with the `changed` ones instead."""
        facade = getattr(suite, self.facade)
        if self.facade in accounts:
            facade = facade(*accounts[self.facade])
        result: Awaitable[object] = getattr(facade, self.function)(**{**self.arguments, **(changed or {})})
        return result
