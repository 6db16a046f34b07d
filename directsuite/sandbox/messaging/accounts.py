"""Mailbox accounts and T-Users: who may open which mailbox.

All functions take the connection of a read or write that is going on. Addresses are compared case-blind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox.credentials import hash_password, password_matches
from directsuite.sandbox.messaging import folders

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS mailbox_account(
  id INTEGER PRIMARY KEY AUTOINCREMENT, address TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, domain TEXT NOT NULL,
  password BLOB NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS mailbox_account_domain ON mailbox_account(domain);
CREATE TABLE IF NOT EXISTS tuser(username TEXT PRIMARY KEY, password BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tuser_address(
  username TEXT NOT NULL REFERENCES tuser(username) ON DELETE CASCADE, folded TEXT NOT NULL,
  PRIMARY KEY(username, folded)) WITHOUT ROWID;
"""
    + folders.SCHEMA
)


class AccountExists(Exception):  # noqa: N818  a state of the mailbox, not a fault
    """The address has a mailbox already."""


class UnknownAccount(LookupError):  # noqa: N818  a state of the mailbox, not a fault
    """The address has no mailbox here."""


def create_account(connection: sqlite3.Connection, address: str, password: str, *, at_ms: int) -> int:
    """Open a mailbox with its initial folders and return its id. Raises AccountExists, or ValueError for no address."""
    local_part, _, domain = address.partition("@")
    if not local_part or not domain or "@" in domain:
        raise ValueError("a mailbox needs an address of the form local-part@domain")
    row = connection.execute(
        "INSERT INTO mailbox_account(address, folded, domain, password, at) VALUES(?, ?, ?, ?, ?)"
        " ON CONFLICT(folded) DO NOTHING RETURNING id",
        (address, address.casefold(), domain.casefold(), hash_password(password), at_ms),
    ).fetchone()
    if row is None:
        raise AccountExists(f"{address} has a mailbox already")
    account: int = row["id"]
    folders.create_initial(connection, account)
    return account


def set_password(connection: sqlite3.Connection, address: str, password: str) -> bool:
    """Change the password of a mailbox; False if the address has none."""
    changed = connection.execute(
        "UPDATE mailbox_account SET password = ? WHERE folded = ?", (hash_password(password), address.casefold())
    )
    return changed.rowcount > 0


def delete_account(connection: sqlite3.Connection, address: str) -> bool:
    """Remove a mailbox with everything in it; False if the address has none."""
    return connection.execute("DELETE FROM mailbox_account WHERE folded = ?", (address.casefold(),)).rowcount > 0


def account_id(connection: sqlite3.Connection, address: str) -> int | None:
    """The id of the mailbox at this address, if there is one."""
    row = connection.execute("SELECT id FROM mailbox_account WHERE folded = ?", (address.casefold(),)).fetchone()
    return None if row is None else row["id"]


def authenticate(connection: sqlite3.Connection, address: str, password: str) -> int | None:
    """The id of the mailbox that these credentials open, if they do."""
    row = connection.execute(
        "SELECT id, password FROM mailbox_account WHERE folded = ?", (address.casefold(),)
    ).fetchone()
    return row["id"] if row is not None and password_matches(password, row["password"]) else None


def create_tuser(connection: sqlite3.Connection, username: str, password: str, direct_addresses: Iterable[str]) -> None:
    """Register a T-User who may act for these Direct addresses. Raises AccountExists."""
    row = connection.execute(
        "INSERT INTO tuser(username, password) VALUES(?, ?) ON CONFLICT DO NOTHING RETURNING username",
        (username, hash_password(password)),
    ).fetchone()
    if row is None:
        raise AccountExists(f"there is a T-User {username} already")
    connection.executemany(
        "INSERT OR IGNORE INTO tuser_address(username, folded) VALUES(?, ?)",
        [(username, address.casefold()) for address in direct_addresses],
    )


def authenticate_tuser(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Return True if these are the credentials of a T-User."""
    row = connection.execute("SELECT password FROM tuser WHERE username = ?", (username,)).fetchone()
    return row is not None and password_matches(password, row["password"])


def account_of_tuser(connection: sqlite3.Connection, username: str, direct_address: str) -> int | None:
    """The id of the mailbox at this Direct address, if there is one and the T-User may act for it."""
    allowed = connection.execute(
        "SELECT 1 FROM tuser_address WHERE username = ? AND folded = ?", (username, direct_address.casefold())
    ).fetchone()
    return None if allowed is None else account_id(connection, direct_address)


def domains(connection: sqlite3.Connection) -> set[str]:
    """The domains that have a mailbox here, in lower case."""
    return {row["domain"] for row in connection.execute("SELECT DISTINCT domain FROM mailbox_account")}
