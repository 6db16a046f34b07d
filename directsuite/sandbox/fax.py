"""The fax service (specification 4.B): status records of faxes, by number and handle, or as pages.

Behavior that the specification leaves open:

    numbers           are compared by their digits: +1 (555) 010-0100 is 15550100100
    order             newest first, by the time of sending, also after a new status
    offset            counts records; a page has ten, and is empty after the end
    invalid number    without a digit: 400
    invalid offset    not digits, or negative: 400
    unknown number    the list is empty; a single message that does not exist: 400 (404 is for unknown endpoints)
    other accounts    a number of another account: 403
    MessageHandle     also in each record, to distinguish the records of a page; "" for the page
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import msgspec
from aiohttp import web

from directsuite.sandbox.clock import format_timestamp
from directsuite.sandbox.credentials import ACCOUNT, DEMO_ACCOUNT
from directsuite.sandbox.rejections import InvalidParameterError, WrongAccountError

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.database import SandboxDatabase

SCHEMA = """
CREATE TABLE IF NOT EXISTS fax_number(digits TEXT PRIMARY KEY, account TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fax(
  id INTEGER PRIMARY KEY, handle TEXT NOT NULL UNIQUE, digits TEXT NOT NULL REFERENCES fax_number,
  fax_number TEXT NOT NULL, status TEXT NOT NULL, updated_at INTEGER NOT NULL, description TEXT NOT NULL,
  recipients BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS fax_newest ON fax(digits, id DESC);
"""

PAGE_ROWS = 10
STATUSES = ("waiting", "complete")


class NumberTakenError(Exception):
    """The fax number belongs to another account."""


class Recipient(
    msgspec.Struct,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"address": "Address", "name": "Name", "page_count": "PageCount"},
):
    """A RecipientObject, of which any member may be absent."""

    address: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    page_count: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET


class NewFax(msgspec.Struct, kw_only=True):
    """A fax to add. Raises ValueError for a number without digits, and an unknown status."""

    fax_number: str
    account: Annotated[str, msgspec.Meta(pattern=r"\S")] | None = None
    """None: the demo account."""
    status: str | None = None
    """One of STATUSES. None: `complete`."""
    description: str | None = None
    recipients: list[Recipient] | None = None
    """None: one recipient with the fax number."""

    def __post_init__(self) -> None:
        if not _extract_digits(self.fax_number):
            raise ValueError("fax_number must have digits")
        if self.status is not None:
            _validate_status(self.status)


def add_fax(connection: sqlite3.Connection, new: NewFax, *, now: int) -> str:
    """Add a fax at `now` (milliseconds since 1970) and return its handle."""
    digits, account, description = _extract_digits(new.fax_number), new.account or DEMO_ACCOUNT, new.description or ""
    owner = _find_owner(connection, digits)
    if owner not in {None, account}:
        raise NumberTakenError(f"the fax number belongs to the account {owner}")
    recipients = new.recipients
    if recipients is None:
        recipients = [Recipient(address=new.fax_number, name="", page_count=1, description=description)]
    connection.execute("INSERT OR IGNORE INTO fax_number(digits, account) VALUES(?, ?)", (digits, account))
    handle = secrets.token_hex(16)
    connection.execute(
        "INSERT INTO fax(handle, digits, fax_number, status, updated_at, description, recipients) "
        "VALUES(?, ?, ?, ?, ?, ?, ?)",
        (handle, digits, new.fax_number, new.status or "complete", now, description, msgspec.json.encode(recipients)),
    )
    return handle


def update_status(connection: sqlite3.Connection, handle: str, status: str, *, now: int) -> bool:
    """Change the status of a fax at `now`. Return False for an unknown handle."""
    _validate_status(status)
    changed = connection.execute(
        "UPDATE fax SET status = ?, updated_at = ? WHERE handle = ?", (status, now, handle)
    ).rowcount
    return changed == 1


def _validate_status(status: str) -> None:
    if status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}")


def _extract_digits(fax_number: str) -> str:
    return "".join(character for character in fax_number if character in "0123456789")


def make_routes(database: SandboxDatabase) -> list[web.RouteDef]:
    """Return a route for each of the two operations, with the operation's name."""

    async def get_single_message_info(request: web.Request) -> web.Response:
        handle = request.match_info["message_handle"]
        rows = await _read_records(database, request, "SELECT * FROM fax WHERE digits = ? AND handle = ?", handle)
        if not rows:
            raise InvalidParameterError("the fax number has no message with this handle")
        return _build_response(request[ACCOUNT], rows, handle)

    async def get_multiple_message_info(request: web.Request) -> web.Response:
        offset = request.match_info["offset"]
        if not (offset.isascii() and offset.isdecimal()):
            raise InvalidParameterError("offset must be an integer of 0 or more")
        # More than 18 digits are after the end, and may exceed SQLite's integers.
        significant = offset.lstrip("0") or "0"
        start = int(significant) if len(significant) <= 18 else 10**18
        query = "SELECT * FROM fax WHERE digits = ? ORDER BY id DESC LIMIT ? OFFSET ?"
        return _build_response(request[ACCOUNT], await _read_records(database, request, query, PAGE_ROWS, start), "")

    operations = (
        ("getMultipleMessageInfo", "getMessageList/{fax_number}/{offset}", get_multiple_message_info),
        ("getSingleMessageInfo", "{fax_number}/{message_handle}", get_single_message_info),
    )
    return [web.get(f"/fax/api/fax/{path}", work, name=name, allow_head=False) for name, path, work in operations]


async def _read_records(
    database: SandboxDatabase, request: web.Request, query: str, *parameters: str | int
) -> list[sqlite3.Row]:
    digits, account = _extract_digits(request.match_info["fax_number"]), request[ACCOUNT]
    if not digits:
        raise InvalidParameterError("the fax number has no digits")

    def read(connection: sqlite3.Connection) -> list[sqlite3.Row]:
        if _find_owner(connection, digits) not in {None, account}:
            raise WrongAccountError("the fax number belongs to another account")
        return connection.execute(query, (digits, *parameters)).fetchall()

    return await database.read(read)


def _find_owner(connection: sqlite3.Connection, digits: str) -> str | None:
    row = connection.execute("SELECT account FROM fax_number WHERE digits = ?", (digits,)).fetchone()
    return None if row is None else str(row["account"])


def _build_response(account: str, rows: list[sqlite3.Row], handle: str) -> web.Response:
    details = [
        {
            "MessageHandle": row["handle"],
            "fax_number": row["fax_number"],
            "status": row["status"],
            "updated_ts": format_timestamp(row["updated_at"]),
            "recipients": msgspec.json.decode(row["recipients"]),
            "description": row["description"],
        }
        for row in rows
    ]
    description = f"{len(rows)} message{'' if len(rows) == 1 else 's'}"
    return web.json_response(
        {"Username": account, "MessageHandle": handle, "MessageDetail": details, "description": description}
    )
