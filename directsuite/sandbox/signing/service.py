"""The signing service: its routes, and the storage of its documents (specification section 4.A).

A lock for each document ensures that its changes do not overlap. A result and its ledger entry are stored in one
transaction. A change without effect (flattening without a form, clearing without an empty signature field) succeeds,
keeps the digest, and adds no ledger entry. PDFs are processed in worker threads, from file to file, and bodies are
streamed, so that large documents need little memory.

A document expires after 4 hours without activity. Expired documents are deleted when the next one is saved.
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from directsuite.sandbox.clock import format_timestamp
from directsuite.sandbox.credentials import ACCOUNT
from directsuite.sandbox.database import P, T, Work, record_effect
from directsuite.sandbox.files import FileRange, StoredFiles, compute_digest, make_abandoned_schema, receive_body
from directsuite.sandbox.rejections import (
    InvalidActionError,
    InvalidParameterError,
    MalformedBodyError,
    NoSuchDocumentError,
    WrongAccountError,
    parse_json,
)
from directsuite.sandbox.signing.request import Base64Writer, SignatureRequest, read_multi_sign, read_sign

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase
    from directsuite.sandbox.quirks import ResponseOptions
    from directsuite.sandbox.signing import KeySource
    from directsuite.sandbox.signing.engine import ChangeOperation

_SCHEMA = """
CREATE TABLE IF NOT EXISTS signing_document(
  identifier TEXT PRIMARY KEY, account TEXT NOT NULL, created INTEGER NOT NULL, last_activity INTEGER NOT NULL,
  digest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS signing_document_activity ON signing_document(last_activity);
DROP TABLE IF EXISTS signing_content;
CREATE TABLE IF NOT EXISTS signing_file(
  identifier TEXT PRIMARY KEY REFERENCES signing_document(identifier) ON DELETE CASCADE,
  name TEXT NOT NULL, size INTEGER NOT NULL);
"""
SCHEMA = _SCHEMA + make_abandoned_schema("signing_file")

_BASE = "/signing/pdf"
DOCUMENT_LIFETIME_MS = 4 * 60 * 60 * 1000  # specification section 8
_MAX_SAVE_BYTES = 3 * 2**29  # 1 GiB in base64, with its line breaks
_MAX_WORKERS = 2  # documents processed at the same time

_CHANGES: dict[ChangeOperation, tuple[Callable[[object], list[SignatureRequest]] | None, str]] = {
    "Flatten": (None, "{number} form field(s) flattened"),
    "ClearUnsignedFields": (None, "{number} unsigned signature field(s) removed"),
    "Sign": (read_sign, "signed: {names}"),
    "MultiSign": (read_multi_sign, "signed: {names}"),
}
"""The operations that change a document, with the parser of their body (None: it is ignored) and their description."""


class SigningService:
    """The twelve operations on stored PDF documents.

    folder: the folder of the documents. None: a temporary one.
    max_body: the maximum size of Save's body in bytes. None: 1 GiB in base64.
    """

    def __init__(
        self,
        database: SandboxDatabase,
        clock: Clock,
        options: ResponseOptions,
        get_keys: Callable[[], KeySource],
        folder: Path | None = None,
        max_body: int | None = None,
    ) -> None:
        self._options = options
        self.files = StoredFiles(folder, "signing_file")
        """The files of the documents."""
        self._max_body = max_body
        self._database = database
        self._clock = clock
        self.get_keys = get_keys
        self._workers = asyncio.Semaphore(_MAX_WORKERS)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def make_routes(self) -> list[web.RouteDef]:
        """Return a route for each operation, named after it."""
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

    async def describe(self, name: str) -> dict[str, Any]:
        """Return the members of GetDocInfo's response that describe a document's file."""
        moment = self._clock.now()
        with self.files.hold_file(name) as file:
            described: dict[str, Any] = await self._run_in_worker(
                lambda: _import_engine().describe(file, self.get_keys(), moment)
            )
        return described

    async def _save(self, request: web.Request) -> web.Response:
        with self.files.create_file() as repaired_file:
            with self.files.create_file() as uploaded:
                with uploaded.open("wb") as output:
                    decoder = Base64Writer(output)
                    await receive_body(request, self._max_body or _MAX_SAVE_BYTES, decoder.write)
                    await asyncio.to_thread(decoder.write, b"", last=True)
                repaired: bool = await self._run_in_worker(
                    lambda: _import_engine().repair_upload(uploaded, repaired_file)
                )
            stored, unused = (repaired_file, uploaded) if repaired else (uploaded, repaired_file)
            self.files.abandon([unused.name])
            digest, size = await asyncio.to_thread(compute_digest, stored)
            document = _StoredPdf(str(uuid.uuid4()), self._clock.milliseconds(), digest, stored.name, size)
            await self._write(_insert_document, document, request[ACCOUNT])
        repair = "; its damaged structure was repaired" if repaired else ""
        return web.json_response(_build_summary(document, f"the document is stored{repair}"))

    async def _get_document(self, request: web.Request) -> web.Response:
        return self._build_base64_response((await self._use_document(request)).file)

    async def _get_info(self, request: web.Request) -> web.Response:
        document = await self._use_document(request)
        described = await self.describe(document.file)
        return web.json_response({**described, **_build_summary(document, "the document is stored")})

    async def _delete(self, request: web.Request) -> web.Response:
        identifier, at = request.match_info["identifier"], self._clock.milliseconds()
        async with self._get_lock(identifier):
            await self._write(_delete_document, identifier, request[ACCOUNT], at)
        return web.json_response({"documentDigest": "", "description": "the document is deleted"})

    async def _change(self, operation: ChangeOperation, request: web.Request) -> web.Response:
        names, document = await self._apply_change(operation, request)
        description = _CHANGES[operation][1].format(number=len(names), names=", ".join(names))
        return web.json_response({"documentDigest": document.digest, "description": description})

    async def _change_and_pull(self, operation: ChangeOperation, request: web.Request) -> web.Response:
        _, document = await self._apply_change(operation, request)
        return self._build_base64_response(document.file)

    async def _apply_change(self, operation: ChangeOperation, request: web.Request) -> tuple[list[str], _StoredPdf]:
        read_body, _ = _CHANGES[operation]
        try:
            signatures = [] if read_body is None else read_body(parse_json(await request.read()))
        except MalformedBodyError as error:
            raise InvalidParameterError(str(error)) from None
        async with self._get_lock(request.match_info["identifier"]):
            before = await self._use_document(request)
            moment = self._clock.now()
            with self.files.hold_file(before.file) as source, self.files.create_file() as target:
                names: list[str] = await self._run_in_worker(
                    lambda: _import_engine().change(operation, source, target, signatures, self.get_keys(), moment)
                )
                if not names:
                    self.files.abandon([target.name])
                    return [], before
                digest, size = await asyncio.to_thread(compute_digest, target)
                after = _StoredPdf(before.identifier, before.created, digest, target.name, size)
                route, at = str(request.match_info.route.name), self._clock.milliseconds()
                await self._write(_replace_document, before, after, names, route, at)
            return names, after

    async def _use_document(self, request: web.Request) -> _StoredPdf:
        identifier, account, at = request.match_info["identifier"], request[ACCOUNT], self._clock.milliseconds()
        return await self._write(_use_document, identifier, account, at)

    def _build_base64_response(self, name: str) -> web.Response:
        payload = self.files.make_payload([FileRange.from_file(self.files[name])])
        return web.Response(body=payload, content_type="text/plain", charset="us-ascii")

    async def _write(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            return await self.files.write(self._database, lambda connection: work(connection, *arguments, **options))
        except NoSuchDocumentError as missing:
            missing.status = self._options.missing_status
            raise

    async def _run_in_worker(self, work: Callable[[], T]) -> T:
        async with self._workers:
            return await asyncio.to_thread(work)

    def _get_lock(self, identifier: str) -> asyncio.Lock:
        return self._locks.setdefault(identifier, asyncio.Lock())


def _import_engine() -> Any:
    from directsuite.sandbox.signing import engine

    return engine


def _build_summary(document: _StoredPdf, description: str) -> dict[str, str]:
    return {
        "documentType": "PDF",
        "createdTime": format_timestamp(document.created),
        "identifier": document.identifier,
        "documentDigest": document.digest,
        "description": description,
    }


@dataclass(frozen=True, slots=True)
class _StoredPdf:
    identifier: str
    created: int
    digest: str
    file: str
    """The name of the file."""
    size: int


def _insert_document(connection: sqlite3.Connection, document: _StoredPdf, account: str) -> None:
    connection.execute(  # the expired documents of all accounts
        "DELETE FROM signing_document WHERE last_activity <= ?", (document.created - DOCUMENT_LIFETIME_MS,)
    )
    connection.execute(
        "INSERT INTO signing_document(identifier, account, created, last_activity, digest) VALUES(?, ?, ?, ?, ?)",
        (document.identifier, account, document.created, document.created, document.digest),
    )
    connection.execute(
        "INSERT INTO signing_file(identifier, name, size) VALUES(?, ?, ?)",
        (document.identifier, document.file, document.size),
    )
    at, digest = document.created, document.digest
    record_effect(connection, operation="Save", subject=document.identifier, at=at, digest=digest)


def _use_document(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> _StoredPdf:
    """Return the document and restart its lifetime at `at`, in milliseconds since 1970."""
    row = connection.execute(
        "SELECT * FROM signing_document JOIN signing_file USING(identifier) WHERE identifier = ?", (identifier,)
    ).fetchone()
    if row is None or at - row["last_activity"] >= DOCUMENT_LIFETIME_MS:
        raise NoSuchDocumentError("there is no document with this identifier: it is unknown, deleted or expired")
    if row["account"] != account:
        raise WrongAccountError("the document belongs to another account")
    connection.execute("UPDATE signing_document SET last_activity = ? WHERE identifier = ?", (at, identifier))
    return _StoredPdf(identifier, row["created"], row["digest"], row["name"], row["size"])


def _replace_document(
    connection: sqlite3.Connection,
    before: _StoredPdf,
    after: _StoredPdf,
    names: list[str],
    operation: str,
    at: int,
) -> None:
    changed = connection.execute(
        "UPDATE signing_document SET digest = ? WHERE identifier = ? AND digest = ?",
        (after.digest, before.identifier, before.digest),
    )
    if changed.rowcount != 1:
        raise InvalidActionError("another request has changed or deleted the document: try again")
    connection.execute(
        "UPDATE signing_file SET name = ?, size = ? WHERE identifier = ?", (after.file, after.size, before.identifier)
    )
    detail = {"digest": after.digest, "before": before.digest, "names": names}
    record_effect(connection, operation=operation, subject=before.identifier, at=at, **detail)


def _delete_document(connection: sqlite3.Connection, identifier: str, account: str, at: int) -> None:
    _use_document(connection, identifier, account, at)
    connection.execute("DELETE FROM signing_document WHERE identifier = ?", (identifier,))
    record_effect(connection, operation="Delete", subject=identifier, at=at, digest="")
