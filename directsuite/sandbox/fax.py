"""The fax service (specification 4.B): status records of fax messages, by number and handle or as pages.

Where the specification is silent:

    numbers           compared by their digits: +1 (555) 010-0100 is 15550100100
    order             the newest first, by when the fax was sent; a change of status does not move it
    offset            counts records; a page has ten; past the end the list is empty
    bad number        without any digit: 400
    bad offset        not digits, or negative: 400
    unknown number    the list is empty; a single message that is not there: 400 (404 means no such endpoint)
    other accounts    a number that belongs to another account: 403
    MessageHandle     stands in each record too, so that the records of a page can be told apart; "" above a page
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web

from directsuite.sandbox.clock import timestamp
from directsuite.sandbox.refusals import refusal

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS fax_number(digits TEXT PRIMARY KEY, account TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fax(
  id INTEGER PRIMARY KEY, handle TEXT NOT NULL UNIQUE, digits TEXT NOT NULL REFERENCES fax_number,
  fax_number TEXT NOT NULL, status TEXT NOT NULL, updated_at INTEGER NOT NULL, description TEXT NOT NULL,
  recipients BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS fax_newest ON fax(digits, id DESC);
"""

PAGE = 10
STATUSES = ("waiting", "complete")


class NumberTakenError(Exception):
    """The fax number belongs to another account."""


class Recipient(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    rename={"address": "Address", "name": "Name", "page_count": "PageCount"},
):
    """A RecipientObject, of which any member may be absent."""

    address: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    page_count: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET


class NewFax(msgspec.Struct, kw_only=True):
    """A fax to add. Without recipients it has one, the number itself. Raises ValueError for bad values."""

    fax_number: str
    account: Annotated[str, msgspec.Meta(pattern=r"\S")] = "demo"
    status: str = "complete"
    description: str = ""
    recipients: list[Recipient] | None = None

    def __post_init__(self) -> None:
        """Require digits, and a status that there is."""
        if not digits_of(self.fax_number):
            raise ValueError("fax_number must have digits")
        _require_status(self.status)


def add_fax(connection: sqlite3.Connection, new: NewFax, *, now: int) -> str:
    """Add a fax at `now` (milliseconds since 1970) and return its handle. Raises NumberTakenError."""
    digits = digits_of(new.fax_number)
    owner = _owner(connection, digits)
    if owner not in {None, new.account}:
        raise NumberTakenError(f"the fax number belongs to the account {owner}")
    recipients = new.recipients
    if recipients is None:
        recipients = [Recipient(address=new.fax_number, name="", page_count=1, description=new.description)]
    connection.execute("INSERT OR IGNORE INTO fax_number(digits, account) VALUES(?, ?)", (digits, new.account))
    handle = secrets.token_hex(16)
    connection.execute(
        "INSERT INTO fax(handle, digits, fax_number, status, updated_at, description, recipients) "
        "VALUES(?, ?, ?, ?, ?, ?, ?)",
        (handle, digits, new.fax_number, new.status, now, new.description, msgspec.json.encode(recipients)),
    )
    return handle


def update_status(connection: sqlite3.Connection, handle: str, status: str, *, now: int) -> bool:
    """Give a fax a new status at `now`; False for an unknown handle. Raises ValueError for an unknown status."""
    _require_status(status)
    changed = connection.execute(
        "UPDATE fax SET status = ?, updated_at = ? WHERE handle = ?", (status, now, handle)
    ).rowcount
    return changed == 1


def _require_status(status: str) -> None:
    if status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}")


def digits_of(fax_number: str) -> str:
    """What fax numbers are compared by: their digits."""
    return "".join(character for character in fax_number if character in "0123456789")


class FaxService:
    """The two operations; the bearer check has put the account's name into `request["account"]`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def routes(self) -> list[web.RouteDef]:
        """Both operations, under /fax/api/fax."""
        return [
            web.get(
                "/fax/api/fax/getMessageList/{fax_number}/{offset}",
                self.get_multiple_message_info,
                name="getMultipleMessageInfo",
                allow_head=False,
            ),
            web.get(
                "/fax/api/fax/{fax_number}/{message_handle}",
                self.get_single_message_info,
                name="getSingleMessageInfo",
                allow_head=False,
            ),
        ]

    async def get_single_message_info(self, request: web.Request) -> web.Response:
        """One message by fax number and handle."""
        digits, handle = digits_of(request.match_info["fax_number"]), request.match_info["message_handle"]
        if not digits:
            return _no_number()
        query = "SELECT * FROM fax WHERE digits = ? AND handle = ?"
        rows = await self._records(digits, request["account"], query, (digits, handle))
        if rows is None:
            return _not_yours()
        if not rows:
            return refusal(HTTPStatus.BAD_REQUEST, "invalid_parameter", "the fax number has no message of this handle")
        return _answer(request["account"], rows, handle)

    async def get_multiple_message_info(self, request: web.Request) -> web.Response:
        """Up to ten messages of a fax number, the newest first, from a record offset on."""
        digits, offset = digits_of(request.match_info["fax_number"]), request.match_info["offset"]
        if not digits:
            return _no_number()
        if not (offset.isascii() and offset.isdecimal()):
            return refusal(HTTPStatus.BAD_REQUEST, "invalid_parameter", "offset must be a number that is not negative")
        # An offset beyond 18 digits would not fit SQLite's integers; it is past every end anyway.
        significant = offset.lstrip("0") or "0"
        start = int(significant) if len(significant) <= 18 else 10**18
        query = "SELECT * FROM fax WHERE digits = ? ORDER BY id DESC LIMIT ? OFFSET ?"
        rows = await self._records(digits, request["account"], query, (digits, PAGE, start))
        return _not_yours() if rows is None else _answer(request["account"], rows, "")

    async def _records(
        self, digits: str, account: str, query: str, parameters: tuple[Any, ...]
    ) -> list[sqlite3.Row] | None:
        """What the query finds, or None where the number is another account's."""

        def read(connection: sqlite3.Connection) -> list[sqlite3.Row] | None:
            if _owner(connection, digits) not in {None, account}:
                return None
            return connection.execute(query, parameters).fetchall()

        return await self._database.read(read)


def _owner(connection: sqlite3.Connection, digits: str) -> str | None:
    row = connection.execute("SELECT account FROM fax_number WHERE digits = ?", (digits,)).fetchone()
    return None if row is None else str(row["account"])


def _answer(account: str, rows: list[sqlite3.Row], handle: str) -> web.Response:
    found = f"{len(rows)} message{'' if len(rows) == 1 else 's'}"
    details = [_message_object(row) for row in rows]
    return web.json_response(
        {"Username": account, "MessageHandle": handle, "MessageDetail": details, "description": found}
    )


def _message_object(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "MessageHandle": row["handle"],
        "fax_number": row["fax_number"],
        "status": row["status"],
        "updated_ts": timestamp(row["updated_at"]),
        "recipients": msgspec.json.decode(row["recipients"]),
        "description": row["description"],
    }


def _no_number() -> web.Response:
    return refusal(HTTPStatus.BAD_REQUEST, "invalid_parameter", "the fax number has no digits")


def _not_yours() -> web.Response:
    return refusal(HTTPStatus.FORBIDDEN, "permission_denied", "the fax number belongs to another account")
