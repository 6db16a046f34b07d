"""Stored documents in the sandbox's database: whose they are, when they were last used, and what they hold.

A document expires after 4 hours without activity (specification section 8). That is derived from the clock whenever
a document is asked for; the rows of expired ones are cleared away when the next one is saved. Every function runs
inside a transaction and takes its connection.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from directsuite.sandbox.refusals import InvalidActionError, NoSuchDocumentError, PermissionDeniedError

if TYPE_CHECKING:
    import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS signing_document(
  identifier TEXT PRIMARY KEY, account TEXT NOT NULL, created INTEGER NOT NULL, last_activity INTEGER NOT NULL,
  digest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS signing_document_activity ON signing_document(last_activity);
CREATE TABLE IF NOT EXISTS signing_content(
  identifier TEXT PRIMARY KEY REFERENCES signing_document(identifier) ON DELETE CASCADE, content BLOB NOT NULL);
"""

LIFETIME_MS = 4 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it stands; created in milliseconds since 1970, digest the SHA-256 of its bytes in hex."""

    identifier: str
    created: int
    digest: str
    content: bytes


def digest_of(content: bytes) -> str:
    """Return the documentDigest of a document's bytes: SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def insert(connection: sqlite3.Connection, document: StoredDocument, account: str) -> None:
    """Keep a new document for an account, and clear away what has expired by the time of its making."""
    connection.execute("DELETE FROM signing_document WHERE last_activity <= ?", (document.created - LIFETIME_MS,))
    connection.execute(
        "INSERT INTO signing_document(identifier, account, created, last_activity, digest) VALUES(?, ?, ?, ?, ?)",
        (document.identifier, account, document.created, document.created, document.digest),
    )
    _write_content(connection, document.identifier, document.content)


def use(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> StoredDocument:
    """Return the document, whose 4 hours begin anew at `at`.

    Raises NoSuchDocumentError if it is unknown, deleted or expired, PermissionDeniedError if it is another account's.
    """
    row = connection.execute(
        "SELECT d.*, c.rowid AS place FROM signing_document d JOIN signing_content c USING(identifier)"
        " WHERE identifier = ?",
        (identifier,),
    ).fetchone()
    if row is None or at - row["last_activity"] >= LIFETIME_MS:
        raise NoSuchDocumentError("no document has this identifier: it is unknown, deleted or expired")
    if row["account"] != account:
        raise PermissionDeniedError("the document belongs to another account")
    connection.execute("UPDATE signing_document SET last_activity = ? WHERE identifier = ?", (at, identifier))
    with connection.blobopen("signing_content", "content", row["place"], readonly=True) as blob:
        return StoredDocument(row["identifier"], row["created"], row["digest"], blob.read())


def replace(connection: sqlite3.Connection, before: StoredDocument, content: bytes) -> str:
    """Put new bytes in place of those that were read as `before`. Return the new digest.

    Raises InvalidActionError if the document was changed or deleted since.
    """
    digest = digest_of(content)
    changed = connection.execute(
        "UPDATE signing_document SET digest = ? WHERE identifier = ? AND digest = ?",
        (digest, before.identifier, before.digest),
    )
    if changed.rowcount != 1:
        raise InvalidActionError("the document was changed or deleted by another request meanwhile: try again")
    _write_content(connection, before.identifier, content)
    return digest


def delete(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> None:
    """Remove a document for good. Raises what `use` raises."""
    use(connection, identifier, account, at)
    connection.execute("DELETE FROM signing_document WHERE identifier = ?", (identifier,))


def _write_content(connection: sqlite3.Connection, identifier: str, content: bytes) -> None:
    """Keep the bytes of a document without a copy of them in memory; as a parameter SQLite would make two."""
    statement = "REPLACE INTO signing_content VALUES(?, zeroblob(?)) RETURNING rowid"
    [place] = connection.execute(statement, (identifier, len(content))).fetchone()
    with connection.blobopen("signing_content", "content", place) as blob:
        blob.write(content)
