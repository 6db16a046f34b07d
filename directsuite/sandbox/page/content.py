"""Database queries for the page's views.

Lists with `before` or `after`, which are exclusive ids, have at most PAGE_ROWS rows, and one more if there is a next
page. Rows must contain `text`, which is case-folded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from directsuite.sandbox.messaging import delivery, mailboxes
from directsuite.sandbox.patients import find_user_state
from directsuite.sandbox.signing.service import DOCUMENT_LIFETIME_MS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

T = TypeVar("T")


class PageNotFoundError(Exception):
    """Nothing exists at the requested address."""


def require_found(found: T | None) -> T:
    """Return the value. Raise PageNotFoundError if it is None."""
    if found is None:
        raise PageNotFoundError("There is nothing at this address. It may have been deleted.")
    return found


PAGE_ROWS = 50
MAX_CHARS = 1000
MAX_ROW_ID = 2**62
"""Larger than any uid or row id: `before` of a list's first page."""

Row = dict[str, Any]


def _fetch_rows(
    connection: sqlite3.Connection, query: str, parameters: Mapping[str, Any] | tuple[Any, ...] = ()
) -> list[Row]:
    return [dict(row) for row in connection.execute(query, parameters)]


def list_accounts(connection: sqlite3.Connection, text: str, after: int) -> list[Row]:
    """List mailboxes with ids above `after`, in the order of creation."""
    return _fetch_rows(
        connection,
        "SELECT id, address,"
        " (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id) AS messages,"
        " (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id AND NOT seen) AS unread"
        " FROM mailbox_account a WHERE id > :after AND instr(folded, :text) ORDER BY id LIMIT :page",
        {"text": text, "after": after, "page": PAGE_ROWS + 1},
    )


def count_totals(connection: sqlite3.Connection) -> Row:
    """Return the numbers of mailboxes, documents and so on."""
    return _fetch_rows(
        connection,
        "SELECT (SELECT count(*) FROM mailbox_account) AS mailboxes, (SELECT count(*) FROM sent_message) AS sent,"
        " (SELECT count(*) FROM signing_document) AS documents, (SELECT count(*) FROM fax) AS faxes,"
        " (SELECT count(*) FROM individual) AS people, (SELECT count(*) FROM patient) AS patients,"
        " (SELECT count(*) FROM effect) AS effects",
    )[0]


def list_folders(connection: sqlite3.Connection, account: int) -> list[Row]:
    """List all folders of a mailbox by name, with their numbers of messages and unread ones."""
    return _fetch_rows(
        connection,
        "SELECT f.id, f.name, f.subscribed, count(m.uid) AS messages, total(m.seen = 0) AS unread"
        " FROM folder f LEFT JOIN message m ON m.folder = f.id WHERE f.account = ? GROUP BY f.id ORDER BY f.name",
        (account,),
    )


def list_messages(connection: sqlite3.Connection, folder: int, text: str, before: int) -> list[Row]:
    """List a folder's messages with uids below `before`, newest first. Long texts are truncated."""
    return _fetch_rows(
        connection,
        "SELECT uid, received, seen, deleted, substr(json_extract(members, '$.sender'), 1, :chars) AS sender,"
        " substr(json_extract(members, '$.subject'), 1, :chars) AS subject,"
        " json_array_length(members, '$.attachments') AS attachments,"
        " (SELECT substr(group_concat(json_extract(value, '$.email'), ', '), 1, :chars)"
        "  FROM (SELECT value FROM json_each(members, '$.recipients') LIMIT :page)) AS recipients"
        " FROM (SELECT uid, received, seen, deleted, CAST(metadata AS TEXT) AS members"
        "  FROM message JOIN content ON content.id = content WHERE folder = :folder AND uid < :before"
        "  AND (:text = '' OR instr(subject, :text) OR instr(sender, :text)) ORDER BY uid DESC LIMIT :page)"
        " ORDER BY uid DESC",
        {"folder": folder, "text": text, "before": before, "page": PAGE_ROWS + 1, "chars": MAX_CHARS},
    )


def find_message(connection: sqlite3.Connection, folder: int, uid: int) -> Row | None:
    """Return a message with its bytes or file name, and the uids of the next `older` and `newer` ones, or None."""
    rows = _fetch_rows(
        connection,
        "SELECT uid, received, seen, deleted, message_id, metadata, raw, name,"
        " (SELECT max(uid) FROM message WHERE folder = :folder AND uid < :uid) AS older,"
        " (SELECT min(uid) FROM message WHERE folder = :folder AND uid > :uid) AS newer"
        " FROM message JOIN content ON content.id = content LEFT JOIN content_file USING(content)"
        " WHERE folder = :folder AND uid = :uid",
        {"folder": folder, "uid": uid},
    )
    return {**rows[0], "size": msgspec.json.decode(rows[0]["metadata"])["size"]} if rows else None


def find_mailbox(connection: sqlite3.Connection, address: str) -> Row | None:
    """Return a mailbox's id, and the address as passed, or None if there is no mailbox."""
    account = mailboxes.find_account_id(connection, address)
    return None if account is None else {"id": account, "address": address}


def list_sent_messages(connection: sqlite3.Connection, text: str, before: int, now: int) -> list[Row]:
    """List sent messages with their deliveries, newest first. The subject is None if no mailbox has a copy."""
    rows = _fetch_rows(
        connection,
        "SELECT id, smtp_id, sender, size, at,"
        " (SELECT substr(json_extract(CAST(metadata AS TEXT), '$.subject'), 1, :chars) FROM content"
        " WHERE message_id = s.smtp_id LIMIT 1) AS subject FROM sent_message s WHERE id < :before AND (:text = ''"
        " OR instr(lower(sender), :text) OR instr(lower(smtp_id), :text) OR EXISTS"
        " (SELECT 1 FROM delivery WHERE message = s.id AND instr(lower(recipient), :text)))"
        " ORDER BY id DESC LIMIT :page",
        {"text": text, "before": before, "page": PAGE_ROWS + 1, "chars": MAX_CHARS},
    )
    return [{**row, "passages": delivery.list_deliveries(connection, row["smtp_id"], now_ms=now)} for row in rows]


def find_sent_message(connection: sqlite3.Connection, smtp_id: str, *, now: int) -> Row | None:
    """Return a sent message with its deliveries, or None."""
    rows = _fetch_rows(
        connection,
        "SELECT id, smtp_id, sender, size, at FROM sent_message WHERE smtp_id = ?",
        (delivery.add_brackets(smtp_id),),
    )
    return {**rows[0], "passages": delivery.list_deliveries(connection, smtp_id, now_ms=now)} if rows else None


def list_documents(connection: sqlite3.Connection, text: str, before: int, now: int) -> list[Row]:
    """List stored PDFs, newest first, including expired ones until the next Save request."""
    return _fetch_rows(
        connection,
        "SELECT d.rowid AS id, identifier, account, created, last_activity, digest, size,"
        " :now - last_activity >= :lifetime AS expired, last_activity + :lifetime AS expires"
        " FROM signing_document d JOIN signing_file USING(identifier)"
        " WHERE d.rowid < :before AND (:text = '' OR instr(identifier, :text) OR instr(lower(account), :text))"
        " ORDER BY d.rowid DESC LIMIT :page",
        {"text": text, "before": before, "page": PAGE_ROWS + 1, "now": now, "lifetime": DOCUMENT_LIFETIME_MS},
    )


def find_document(connection: sqlite3.Connection, identifier: str) -> Row | None:
    """Return a stored PDF, even if expired, with its file name, or None. Its lifetime is not extended."""
    rows = _fetch_rows(
        connection,
        "SELECT identifier, account, created, last_activity, digest, name, size, last_activity + :lifetime AS expires"
        " FROM signing_document JOIN signing_file USING(identifier) WHERE identifier = :identifier",
        {"identifier": identifier, "lifetime": DOCUMENT_LIFETIME_MS},
    )
    return rows[0] if rows else None


def list_faxes(connection: sqlite3.Connection, text: str, before: int, now: int) -> list[Row]:
    """List faxes, newest first."""
    rows = _fetch_rows(
        connection,
        "SELECT id, handle, fax_number, status, updated_at, description, recipients, account"
        " FROM fax JOIN fax_number USING(digits) WHERE id < :before AND (:text = '' OR instr(digits, :text)"
        " OR instr(lower(description), :text) OR instr(handle, :text)) ORDER BY id DESC LIMIT :page",
        {"text": text, "before": before, "page": PAGE_ROWS + 1},
    )
    return [{**row, "recipients": msgspec.json.decode(row["recipients"])} for row in rows]


def list_individuals(connection: sqlite3.Connection, text: str, after: int, *, now: int) -> list[Row]:
    """List identity-proofed individuals with their Direct addresses and states."""
    rows = _fetch_rows(
        connection,
        "SELECT id, first_name, last_name, dob, contact FROM individual WHERE id > :after AND instr(name_key, :text)"
        " ORDER BY id LIMIT :page",
        {"text": text, "after": after, "page": PAGE_ROWS + 1},
    )
    for row in rows:
        row["contact"] = json.loads(row["contact"])
        row["addresses"] = _fetch_rows(
            connection,
            "SELECT username || '@' || domain AS address, expires_on, state AS forced FROM patient"
            " WHERE individual = ?",
            (row["id"],),
        )
        for each in row["addresses"]:
            each["state"] = find_user_state(connection, each["address"], now)
    return rows


def list_sessions(connection: sqlite3.Connection, *, now: int) -> list[Row]:
    """List up to PAGE_ROWS registration sessions that have not expired, without their ids."""
    return _fetch_rows(
        connection,
        "SELECT username, expires_at FROM registration_session WHERE expires_at > ? ORDER BY expires_at DESC LIMIT ?",
        (now, PAGE_ROWS),
    )


def list_logins(connection: sqlite3.Connection) -> Row:
    """Return up to PAGE_ROWS each of `tusers`, `resellers` and OAuth `clients`."""
    return {
        name: _fetch_rows(connection, f"{query} ORDER BY 1 LIMIT ?", (PAGE_ROWS,))
        for name, query in (
            ("tusers", "SELECT username FROM tuser"),
            ("resellers", "SELECT username FROM reseller"),
            ("clients", "SELECT client_id, account FROM oauth_client"),
        )
    }


def list_effects(connection: sqlite3.Connection, text: str, before: int, now: int) -> list[Row]:
    """List the ledger's effects, newest first."""
    return _fetch_rows(
        connection,
        "SELECT id, operation, substr(subject, 1, :chars) AS subject, substr(detail, 1, :chars) AS detail, at"
        " FROM effect WHERE id < :before AND (:text = ''"
        " OR instr(lower(operation), :text) OR instr(lower(subject), :text)) ORDER BY id DESC LIMIT :page",
        {"text": text, "before": before, "page": PAGE_ROWS + 1, "chars": MAX_CHARS},
    )
