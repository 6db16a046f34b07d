"""Starting over: all tables emptied at once, or what belongs to one account."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

from directsuite.sandbox.messaging import accounts


def empty_all_tables(connection: sqlite3.Connection) -> None:
    """Delete every row, inside the caller's transaction, and start automatic numbers again at one."""
    connection.execute("PRAGMA defer_foreign_keys=ON")
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
    ).fetchall()
    for row in names:
        connection.execute(f'DELETE FROM "{row["name"]}"')  # noqa: S608  a name out of the schema itself


def empty_account(connection: sqlite3.Connection, account: str, *, now: int) -> bool:
    """Delete the documents and faxes of an account, or empty a mailbox, which keeps its password; False if unknown.

    An account is known by what it has, or by a token or an OAuth 2.0 client that speaks for it.
    """
    documents = connection.execute("DELETE FROM signing_document WHERE account = ?", (account,)).rowcount
    connection.execute("DELETE FROM fax WHERE digits IN (SELECT digits FROM fax_number WHERE account = ?)", (account,))
    numbers = connection.execute("DELETE FROM fax_number WHERE account = ?", (account,)).rowcount
    mailbox = connection.execute(
        "SELECT address, password FROM mailbox_account WHERE folded = ?", (account.casefold(),)
    ).fetchone()
    if mailbox is not None:
        accounts.delete_account(connection, account)
        new = accounts.create_account(connection, mailbox["address"], "", at_ms=now)
        connection.execute("UPDATE mailbox_account SET password = ? WHERE id = ?", (mailbox["password"], new))
    return bool(documents or numbers or mailbox is not None or _is_spoken_for(connection, account))


def _is_spoken_for(connection: sqlite3.Connection, account: str) -> bool:
    query = "SELECT 1 FROM access_token WHERE account = ?1 UNION ALL SELECT 1 FROM oauth_client WHERE account = ?1"
    return connection.execute(query, (account,)).fetchone() is not None
