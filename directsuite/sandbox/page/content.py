"""Database queries for the page's views.

A list begins after `place`, an exclusive id, and has at most PAGE_ROWS rows, and one more if there is a next page. Its
rows contain `text`, which is case-folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from directsuite.sandbox.messaging import delivery
from directsuite.sandbox.patients import find_user_state
from directsuite.sandbox.signing.service import DOCUMENT_LIFETIME_MS

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


class PageNotFoundError(Exception):
    """Nothing exists at the requested address."""


def require_found(found: T | None) -> T:
    """Return the value. Raise PageNotFoundError if it is None."""
    if found is None:
        raise PageNotFoundError("There is nothing at this address. It may have been deleted.")
    return found


PAGE_ROWS = 50
MAX_ROW_ID = 2**62
"""Larger than any uid or row id: `place` of the first page of a list with the newest rows first."""

_CONSTANTS = {"page": PAGE_ROWS + 1, "chars": 1000, "lifetime": DOCUMENT_LIFETIME_MS}

Row = dict[str, Any]

_MESSAGE_COLUMNS = """
        SELECT folder, uid, received, seen, substr(json_extract(members, '$.sender'), 1, :chars) AS sender,
          substr(json_extract(members, '$.subject'), 1, :chars) AS subject,
          json_array_length(members, '$.attachments') AS attachments,
          (SELECT substr(group_concat(json_extract(value, '$.email'), ', '), 1, :chars)
           FROM (SELECT value FROM json_each(members, '$.recipients') LIMIT :page)) AS recipients"""
_MESSAGE_MATCHES = "(:text = '' OR instr(subject, :text) OR instr(sender, :text))"

_QUERIES = {
    # by id
    "mailboxes": """
        SELECT id, address,
          (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id) AS messages,
          (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id AND NOT seen) AS unread
        FROM mailbox_account a WHERE id > :place AND instr(folded, :text) ORDER BY id LIMIT :page""",
    "people": """
        SELECT id, first_name, last_name, dob FROM individual
        WHERE id > :place AND instr(name_key, :text) ORDER BY id LIMIT :page""",
    # newest first
    "messages": f"""{_MESSAGE_COLUMNS}
        FROM (SELECT folder, uid, received, seen, CAST(metadata AS TEXT) AS members
              FROM message JOIN content ON content.id = content WHERE folder = :folder AND uid < :place
              AND {_MESSAGE_MATCHES} ORDER BY uid DESC LIMIT :page)
        ORDER BY uid DESC""",  # noqa: S608  constants
    # In all folders of the mailbox of a folder. No id orders these messages, so the place is their rank.
    "messages of all folders": f"""{_MESSAGE_COLUMNS}, folder_name, place
        FROM (SELECT folder, uid, received, seen, CAST(metadata AS TEXT) AS members, folder_name, place
              FROM (SELECT folder, uid, f.name AS folder_name,
                      row_number() OVER (ORDER BY received DESC, folder, uid DESC) AS place
                    FROM folder f JOIN message ON folder = f.id JOIN content ON content.id = content
                    WHERE f.account = (SELECT account FROM folder WHERE id = :folder) AND {_MESSAGE_MATCHES})
              JOIN message USING(folder, uid) JOIN content ON content.id = content
              WHERE place > :place ORDER BY place LIMIT :page)
        ORDER BY place""",  # noqa: S608  constants
    # The subject is NULL if no mailbox has a copy.
    "sent": """
        SELECT id, smtp_id, sender, size, at,
          (SELECT substr(json_extract(CAST(metadata AS TEXT), '$.subject'), 1, :chars) FROM content
           WHERE message_id = s.smtp_id LIMIT 1) AS subject
        FROM sent_message s WHERE id < :place
        AND (:text = '' OR instr(lower(sender), :text) OR instr(lower(smtp_id), :text)
             OR EXISTS (SELECT 1 FROM delivery WHERE message = s.id AND instr(lower(recipient), :text)))
        ORDER BY id DESC LIMIT :page""",
    # Expired documents are included until the next Save request.
    "documents": """
        SELECT d.rowid AS id, identifier, account, created, last_activity, digest, size, name,
          :now - last_activity >= :lifetime AS expired, last_activity + :lifetime AS expires
        FROM signing_document d JOIN signing_file USING(identifier) WHERE d.rowid < :place
        AND (:text = '' OR instr(identifier, :text) OR instr(lower(account), :text))
        ORDER BY d.rowid DESC LIMIT :page""",
    "faxes": """
        SELECT id, handle, fax_number, status, updated_at, description, recipients, account
        FROM fax JOIN fax_number USING(digits) WHERE id < :place
        AND (:text = '' OR instr(digits, :text) OR instr(lower(description), :text) OR instr(handle, :text))
        ORDER BY id DESC LIMIT :page""",
    "effects": """
        SELECT id, operation, substr(subject, 1, :chars) AS subject, substr(detail, 1, :chars) AS detail, at
        FROM effect WHERE id < :place
        AND (:text = '' OR instr(lower(operation), :text) OR instr(lower(subject), :text))
        ORDER BY id DESC LIMIT :page""",
    # complete lists, and single rows
    "folders": """
        SELECT f.id, f.name, f.subscribed, count(m.uid) AS messages, total(m.seen = 0) AS unread
        FROM folder f LEFT JOIN message m ON m.folder = f.id WHERE f.account = :account
        GROUP BY f.id ORDER BY f.name""",
    "patients": """
        SELECT username || '@' || domain AS address, expires_on, state AS forced FROM patient
        WHERE individual = :individual""",
    "message": """
        SELECT uid, received, seen, message_id, json_extract(CAST(metadata AS TEXT), '$.size') AS size, raw,
          name, (SELECT max(uid) FROM message WHERE folder = :folder AND uid < :uid) AS older,
          (SELECT min(uid) FROM message WHERE folder = :folder AND uid > :uid) AS newer
        FROM message JOIN content ON content.id = content LEFT JOIN content_file USING(content)
        WHERE folder = :folder AND uid = :uid""",
    "sent message": "SELECT id, smtp_id, sender, size, at FROM sent_message WHERE smtp_id = :smtp_id",
    "document": """
        SELECT identifier, account, created, last_activity, digest, name, size, last_activity + :lifetime AS expires
        FROM signing_document JOIN signing_file USING(identifier) WHERE identifier = :identifier""",
    "totals": """
        SELECT (SELECT count(*) FROM mailbox_account) AS mailboxes, (SELECT count(*) FROM sent_message) AS sent,
          (SELECT count(*) FROM signing_document) AS documents, (SELECT count(*) FROM fax) AS faxes,
          (SELECT count(*) FROM individual) AS people, (SELECT count(*) FROM patient) AS patients,
          (SELECT count(*) FROM effect) AS effects""",
    # logins: the first ones
    "sessions": """
        SELECT account AS username, expires_at FROM secret WHERE kind = 'session' AND expires_at > :now
        ORDER BY expires_at DESC LIMIT :page""",
    "tusers": "SELECT username FROM tuser ORDER BY 1 LIMIT :page",
    "resellers": "SELECT username FROM reseller ORDER BY 1 LIMIT :page",
    "clients": "SELECT client_id, account FROM oauth_client ORDER BY 1 LIMIT :page",
}


def list_rows(connection: sqlite3.Connection, name: str, **parameters: Any) -> list[Row]:
    """Return the rows of the query with this name."""
    rows = [dict(row) for row in connection.execute(_QUERIES[name], {**_CONSTANTS, **parameters})]
    for row in rows:
        match name:
            case "people":
                row["addresses"] = list_rows(connection, "patients", individual=row["id"], **parameters)
            case "patients":
                row["state"] = find_user_state(connection, row["address"], parameters["now"])
            case "sent" | "sent message":
                row["passages"] = delivery.list_deliveries(connection, [row["smtp_id"]], now_ms=parameters["now"])
            case "faxes":
                row["recipients"] = msgspec.json.decode(row["recipients"])
            case _:
                break
    return rows


def find_row(connection: sqlite3.Connection, name: str, **parameters: Any) -> Row | None:
    """Return the first row of the query with this name, or None if there is none."""
    return next(iter(list_rows(connection, name, **parameters)), None)
