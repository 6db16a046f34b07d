"""Who may register patients, and their sessions: ten minutes from issue, however much they are used.

A login is a reseller, kept here, or a T-User of the messaging service. Either may work in every domain that has an
organization: a domain that the messaging service serves, or one that was added with a reseller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox.credentials import digest, hash_password, new_secret, password_matches
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.registration.answers import Code, RefusedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

SCHEMA = """
CREATE TABLE IF NOT EXISTS reseller(username TEXT PRIMARY KEY, password BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS organization(domain TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS registration_session(
  digest BLOB PRIMARY KEY, username TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
"""

LIFETIME_MS = 600_000


def add_reseller(connection: sqlite3.Connection, username: str, password: str, domains: Iterable[str] = ()) -> None:
    """Add a reseller, or change the password of one; `domains` become domains with an organization."""
    connection.execute(
        "INSERT OR REPLACE INTO reseller(username, password) VALUES(?, ?)", (username, hash_password(password))
    )
    rows = [(normal_domain(domain),) for domain in domains]
    connection.executemany("INSERT OR IGNORE INTO organization(domain) VALUES(?)", rows)


def authenticate(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Whether these are the user name and password of a reseller or of a T-User."""
    row = connection.execute("SELECT password FROM reseller WHERE username = ?", (username,)).fetchone()
    if row is not None and password_matches(password, row["password"]):
        return True
    return accounts.authenticate_tuser(connection, username, password)


def log_in(connection: sqlite3.Connection, username: str, password: str, *, now: int) -> str:
    """A new session. Raises RefusedError (011) for a wrong user name or password."""
    if not authenticate(connection, username, password):
        raise RefusedError(Code.AUTHENTICATION_FAILED, "the user name or password is wrong")
    session_id = new_secret()
    connection.execute(
        "INSERT INTO registration_session(digest, username, expires_at) VALUES(?, ?, ?)",
        (digest(session_id), username, now + LIFETIME_MS),
    )
    return session_id


def require_session(connection: sqlite3.Connection, session_id: str, *, now: int) -> None:
    """Raise RefusedError (011) unless the session is known and has not expired."""
    row = connection.execute(
        "SELECT 1 FROM registration_session WHERE digest = ? AND expires_at > ?", (digest(session_id), now)
    ).fetchone()
    if row is None:
        raise RefusedError(Code.AUTHENTICATION_FAILED, "the session is unknown or has expired")


def require_domain(connection: sqlite3.Connection, domain: str) -> str:
    """The domain in its normal form. Raises RefusedError (208) unless it has an organization."""
    name = normal_domain(domain)
    registered = connection.execute("SELECT 1 FROM organization WHERE domain = ?", (name,)).fetchone()
    if registered is None and name not in accounts.domains(connection):
        raise RefusedError(Code.NO_ORGANIZATION, "there is no organization for the Direct domain")
    return name


def expire(connection: sqlite3.Connection, *, username: str | None = None, session_id: str | None = None) -> int:
    """End one session, those of one login, or all; returns how many there were."""
    return connection.execute(
        "UPDATE registration_session SET expires_at = 0 "
        "WHERE (?1 IS NULL OR username = ?1) AND (?2 IS NULL OR digest = ?2)",
        (username, None if session_id is None else digest(session_id)),
    ).rowcount


def normal_domain(domain: str) -> str:
    """A domain as it is compared: in lower case, without the root's dot."""
    return domain.strip().rstrip(".").casefold()
