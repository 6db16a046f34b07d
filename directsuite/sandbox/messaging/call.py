"""One call of an operation, after its body was read and its credentials were checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from directsuite.sandbox import ledger
from directsuite.sandbox.messaging import folders
from directsuite.sandbox.messaging.requests import Request

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

R = TypeVar("R", bound=Request)

Answer = dict[str, Any]
"""The members that an answer has beyond success, code and message."""


class Call(NamedTuple, Generic[R]):
    """A call by the owner of a mailbox, or by a T-User who acts for him.

    path: the path's segments, decoded. address: the mailbox's Direct address. csv_above: see MessagingService.
    """

    operation: str
    path: Mapping[str, str]
    request: R
    account: int
    address: str
    at_ms: int
    csv_above: int

    def folder(self, connection: sqlite3.Connection) -> folders.Folder:
        """The folder that the path names. Refuses with code 3 if there is none."""
        return folders.folder(connection, self.account, self.path["folderName"])

    def record(self, connection: sqlite3.Connection, subject: str, **detail: Any) -> None:
        """Write this call's effect into the ledger."""
        detail["account"] = self.address
        ledger.record(connection, operation=self.operation, subject=subject, at=self.at_ms, **detail)
