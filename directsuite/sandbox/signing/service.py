"""The signing service: its routes, and the shapes of its answers (specification section 4.A).

Every change holds the document's lock from reading it to storing the result, so that two changes of one document
follow one another; the result and its entry in the ledger are one transaction. A change that leaves the document as
it was (flattening without a form, clearing without an empty signature field) succeeds, keeps the digest, and has no
entry in the ledger. Work on PDFs runs in worker threads, two at a time.

A document expires after 4 hours without activity. That is derived from the clock whenever a document is asked for; the
rows of expired ones are cleared away when the next one is saved.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pybase64
from aiohttp import web

from directsuite.sandbox.clock import timestamp
from directsuite.sandbox.credentials import ACCOUNT
from directsuite.sandbox.database import record_effect
from directsuite.sandbox.refusals import (
    InvalidActionError,
    InvalidParameterError,
    MalformedBodyError,
    NoSuchDocumentError,
    PermissionDeniedError,
    parse_json,
)
from directsuite.sandbox.signing.request import SignatureRequest, read_multi_sign, read_sign

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database
    from directsuite.sandbox.signing.engine import Change, Operation
    from directsuite.sandbox.signing.keys import KeySource

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS signing_document(
  identifier TEXT PRIMARY KEY, account TEXT NOT NULL, created INTEGER NOT NULL, last_activity INTEGER NOT NULL,
  digest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS signing_document_activity ON signing_document(last_activity);
CREATE TABLE IF NOT EXISTS signing_content(
  identifier TEXT PRIMARY KEY REFERENCES signing_document(identifier) ON DELETE CASCADE, content BLOB NOT NULL);
"""

_BASE = "/signing/pdf"
_DOCUMENT_TYPE = "PDF"
LIFETIME_MS = 4 * 60 * 60 * 1000  # specification section 8
_PARALLEL = 2  # documents worked on at once

_CHANGES: dict[Operation, Callable[[object], list[SignatureRequest]] | None] = {
    "Flatten": None,
    "ClearUnsignedFields": None,
    "Sign": read_sign,
    "MultiSign": read_multi_sign,
}
"""The operations that change a document, and what reads their bodies. Each has a second form that pulls the result."""


class SigningService:
    """The twelve operations on stored PDF documents.

    missing_status: the HTTP status for an unknown, deleted or expired identifier. The specification keeps 404 for
    endpoints and has 400 for invalid parameters; some servers answer 404.
    """

    def __init__(self, database: Database, clock: Clock, keys: KeySource, *, missing_status: int = 400) -> None:
        self.missing_status = missing_status
        self._database = database
        self._clock = clock
        self._keys = keys
        self._workers = asyncio.Semaphore(_PARALLEL)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def routes(self) -> list[web.RouteDef]:
        """Return the service's routes, named as the specification names its operations."""
        one = f"{_BASE}/{{identifier}}"
        routes = [
            web.post(_BASE, self._save, name="Save"),
            web.get(one, self._get_document, name="GetDoc"),
            web.get(f"{one}/info", self._get_info, name="GetDocInfo"),
            web.delete(one, self._delete, name="Delete"),
        ]
        for operation in _CHANGES:
            path = f"{one}/{operation[0].lower()}{operation[1:]}"
            routes += [
                web.patch(path, partial(self._change, operation), name=operation),
                web.patch(f"{path}/pull", partial(self._change_and_pull, operation), name=f"{operation}AndPull"),
            ]
        return routes

    async def describe(self, content: bytes) -> dict[str, Any]:
        """Return what GetDocInfo tells of a document's content, as of now. Raises RefusedError."""
        moment = self._clock.now()
        described: dict[str, Any] = await self._work(lambda: _engine().describe(content, self._keys, moment))
        return described

    async def _save(self, request: web.Request) -> web.Response:
        from_body = await request.read()
        content, repaired = await self._work(lambda: _engine().receive(from_body))
        document = StoredDocument(str(uuid.uuid4()), self._clock.milliseconds(), digest_of(content), content)
        await self._write(lambda connection: insert_document(connection, document, request[ACCOUNT]))
        repair = "; its damaged structure was repaired" if repaired else ""
        return web.json_response(_summary(document, f"the document is stored{repair}"))

    async def _get_document(self, request: web.Request) -> web.Response:
        return await _base64_answer((await self._use(request)).content)

    async def _get_info(self, request: web.Request) -> web.Response:
        document = await self._use(request)
        described = await self.describe(document.content)
        return web.json_response({**described, **_summary(document, "the document is stored")})

    async def _delete(self, request: web.Request) -> web.Response:
        identifier, at = request.match_info["identifier"], self._clock.milliseconds()
        async with self._lock(identifier):
            await self._write(lambda connection: delete_document(connection, identifier, request[ACCOUNT], at))
        return web.json_response({"documentDigest": "", "description": "the document is deleted"})

    async def _change(self, operation: Operation, request: web.Request) -> web.Response:
        changed, digest = await self._changed(operation, request)
        return web.json_response({"documentDigest": digest, "description": changed.description})

    async def _change_and_pull(self, operation: Operation, request: web.Request) -> web.Response:
        changed, _ = await self._changed(operation, request)
        return await _base64_answer(changed.content)

    async def _changed(self, operation: Operation, request: web.Request) -> tuple[Change, str]:
        """The change, stored, and the new digest; a function of its own, so that the old content is let go of then."""
        read_body = _CHANGES[operation]
        signatures = [] if read_body is None else read_body(await _json(request))
        async with self._lock(request.match_info["identifier"]):
            before = await self._use(request)
            moment = self._clock.now()
            changed: Change = await self._work(
                lambda: _engine().change(operation, before.content, signatures, self._keys, moment)
            )
            if changed.content == before.content:
                return changed, before.digest
            name, at = str(request.match_info.route.name), self._clock.milliseconds()
            digest = await self._write(lambda connection: replace_document(connection, before, changed, name, at))
            return changed, digest

    async def _use(self, request: web.Request) -> StoredDocument:
        identifier, account, at = request.match_info["identifier"], request[ACCOUNT], self._clock.milliseconds()
        return await self._write(lambda connection: use_document(connection, identifier, account, at))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.write(work)
        except NoSuchDocumentError as missing:
            missing.status = self.missing_status
            raise

    async def _work(self, work: Callable[[], T]) -> T:
        async with self._workers:
            return await asyncio.to_thread(work)

    def _lock(self, identifier: str) -> asyncio.Lock:
        return self._locks.setdefault(identifier, asyncio.Lock())


def _engine() -> Any:
    """The PDF engine, imported with its libraries when it is first needed, in a worker thread."""
    from directsuite.sandbox.signing import engine

    return engine


def _summary(document: StoredDocument, description: str) -> dict[str, str]:
    return {
        "documentType": _DOCUMENT_TYPE,
        "createdTime": timestamp(document.created),
        "identifier": document.identifier,
        "documentDigest": document.digest,
        "description": description,
    }


async def _base64_answer(content: bytes) -> web.Response:
    # A file is sent in pieces; bytes would be copied whole.
    text = await asyncio.to_thread(lambda: io.BytesIO(pybase64.b64encode(content)))
    return web.Response(body=text, content_type="text/plain", charset="us-ascii")


async def _json(request: web.Request) -> object:
    try:
        return parse_json(await request.read())
    except MalformedBodyError as error:
        raise InvalidParameterError(str(error)) from None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it stands."""

    identifier: str
    created: int
    """Milliseconds since 1970."""
    digest: str
    """SHA-256 of the content, in hex."""
    content: bytes


def digest_of(content: bytes) -> str:
    """Return the documentDigest of a document's bytes: SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def insert_document(connection: sqlite3.Connection, document: StoredDocument, account: str) -> None:
    """Keep a new document for an account, and clear away what has expired by the time of its making."""
    connection.execute("DELETE FROM signing_document WHERE last_activity <= ?", (document.created - LIFETIME_MS,))
    connection.execute(
        "INSERT INTO signing_document(identifier, account, created, last_activity, digest) VALUES(?, ?, ?, ?, ?)",
        (document.identifier, account, document.created, document.created, document.digest),
    )
    _write_content(connection, document.identifier, document.content)
    _record(connection, "Save", document.identifier, document.created, digest=document.digest)


def use_document(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> StoredDocument:
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


def replace_document(
    connection: sqlite3.Connection, before: StoredDocument, change: Change, operation: str, at: int
) -> str:
    """Put the bytes that `operation` has made in place of those that were read as `before`. Return the new digest.

    Raises InvalidActionError if the document was changed or deleted since.
    """
    digest = digest_of(change.content)
    changed = connection.execute(
        "UPDATE signing_document SET digest = ? WHERE identifier = ? AND digest = ?",
        (digest, before.identifier, before.digest),
    )
    if changed.rowcount != 1:
        raise InvalidActionError("the document was changed or deleted by another request meanwhile: try again")
    _write_content(connection, before.identifier, change.content)
    _record(connection, operation, before.identifier, at, digest=digest, before=before.digest, names=change.names)
    return digest


def delete_document(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> None:
    """Remove a document for good. Raises what `use_document` raises."""
    use_document(connection, identifier, account, at)
    connection.execute("DELETE FROM signing_document WHERE identifier = ?", (identifier,))
    _record(connection, "Delete", identifier, at, digest="")


def _record(connection: sqlite3.Connection, operation: str, identifier: str, at: int, **detail: Any) -> None:
    record_effect(connection, operation=operation, subject=identifier, at=at, **detail)


def _write_content(connection: sqlite3.Connection, identifier: str, content: bytes) -> None:
    """Keep the bytes of a document without a copy of them in memory; as a parameter SQLite would make two."""
    statement = "REPLACE INTO signing_content VALUES(?, zeroblob(?)) RETURNING rowid"
    [place] = connection.execute(statement, (identifier, len(content))).fetchone()
    with connection.blobopen("signing_content", "content", place) as blob:
        blob.write(content)
