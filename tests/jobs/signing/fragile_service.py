"""A signing service in memory with scripted faults: lost requests and responses, delays, and expired documents."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

import directsuite as ds
from directsuite.core.sinks import PathSink
from tests.waiting import notify_waiters

SIGNATURE_BYTES = b"\n/ByteRange [0 1 2 3]"


class CrashError(BaseException):
    """Simulates the end of the process."""


class Fault(enum.Enum):
    """A fault of a request."""

    REQUEST_LOST = enum.auto()
    RESPONSE_LOST = enum.auto()
    LATE = enum.auto()
    """The request is processed later, after the caller has given up."""
    NOT_SENT = enum.auto()
    EXPIRED = enum.auto()
    """The stored documents have expired."""
    CRASH_BEFORE = enum.auto()
    CRASH_AFTER = enum.auto()


@attrs.define
class FragileService:
    """Has the methods of `suite.signing` that a job needs.

    faults: one per request, None for no fault.
    errors: the error of each request of an operation: "save", "sign", "download", "look" or "delete".
    before: by operation, a function to call before each request, with the PDF or the identifier.
    """

    faults: list[Fault | None] = attrs.field(factory=list[Fault | None])
    errors: dict[str, ds.DirectSuiteError] = attrs.field(factory=dict[str, ds.DirectSuiteError])
    before: dict[str, Callable[[Any], Awaitable[None]]] = attrs.field(factory=dict[str, Any])
    stored: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    request_counts: Counter[str] = attrs.field(factory=Counter[str])
    pending_requests: list[tuple[str, int]] = attrs.field(factory=list[tuple[str, int]])
    documents_created: int = 0
    not_found_error: type[ds.ServiceError] = ds.NotFoundError
    timestamps: int = 0
    """The number of document time stamps that the service adds to each request's signatures."""

    def apply_pending(self) -> None:
        for identifier, signatures in self.pending_requests:
            if identifier in self.stored:
                self.stored[identifier] += SIGNATURE_BYTES * signatures
        self.pending_requests.clear()

    async def _prepare(self, operation: str, subject: bytes | Path | str) -> None:
        if operation in self.errors:
            raise self.errors[operation]
        if operation in self.before:
            await self.before[operation](subject)

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        await self._prepare("save", pdf)
        fault = self._begin()
        self.documents_created += 1
        identifier = f"document-{self.documents_created}"
        self.stored[identifier] = pdf if isinstance(pdf, bytes) else await asyncio.to_thread(pdf.read_bytes)
        self._end(fault, repeatable=True)
        return ds.StoredDocument(identifier=identifier, document_digest=str(self.documents_created))

    def with_job_finds_out(self) -> Self:
        return self

    async def sign_and_pull(
        self, identifier: str, signature: ds.Signature, *, destination: Path | None = None
    ) -> Path | bytes:
        return await self.multi_sign_and_pull(identifier, [signature], destination=destination)

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        await self._prepare("sign", identifier)
        if destination is None:
            return self._sign(identifier, len(signatures))
        async with _open_destination(destination) as sink:  # as in the client: opened before the request is sent
            return await _write_to_sink(sink, self._sign(identifier, len(signatures)))

    def _sign(self, identifier: str, signatures: int) -> bytes:
        fault = self._begin(identifier, changes=True)
        self.request_counts[identifier] += 1
        if fault is Fault.LATE:
            self.pending_requests.append((identifier, signatures))
            raise _make_unknown_error()
        self.stored[identifier] += SIGNATURE_BYTES * (signatures + self.timestamps)
        self._end(fault)
        return self.stored[identifier]

    async def get_doc_info(self, identifier: str) -> ds.DocumentInfo:
        await self._prepare("look", identifier)
        fault = self._begin(identifier)
        self._end(fault, repeatable=True)
        return ds.DocumentInfo(identifier=identifier)

    async def download(self, identifier: str, destination: Path) -> Path:
        await self._prepare("download", identifier)
        async with _open_destination(destination) as sink:
            fault = self._begin(identifier)
            self._end(fault, repeatable=True)
            return await _write_to_sink(sink, self.stored[identifier])

    async def delete(self, identifier: str) -> ds.DocumentUpdate:
        await self._prepare("delete", identifier)
        fault = self._begin(identifier)
        del self.stored[identifier]
        self._end(fault, repeatable=True)
        return ds.DocumentUpdate(identifier=identifier)

    def _begin(self, identifier: str | None = None, *, changes: bool = False) -> Fault | None:
        notify_waiters()
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.CRASH_BEFORE:
            raise CrashError
        if fault is Fault.EXPIRED:
            self.stored.clear()
        if fault is Fault.NOT_SENT:
            raise ds.ConnectFailedError("nothing was sent", operation="Any", outcome=ds.Outcome.NOT_SENT)
        if fault is Fault.REQUEST_LOST:
            if changes and identifier is not None:
                self.request_counts[identifier] += 1
                raise _make_unknown_error()
            raise _make_lost_error()
        if identifier is not None and identifier not in self.stored:
            raise self.not_found_error("there is no such document", operation="Any", status=404)
        return fault

    def _end(self, fault: Fault | None, *, repeatable: bool = False) -> None:
        notify_waiters()
        if fault is Fault.CRASH_AFTER:
            raise CrashError
        if fault in (Fault.RESPONSE_LOST, Fault.LATE):
            raise _make_lost_error() if repeatable else _make_unknown_error()


@contextlib.asynccontextmanager
async def _open_destination(destination: Path) -> AsyncGenerator[PathSink]:
    sink = PathSink(destination)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


async def _write_to_sink(sink: PathSink, content: bytes) -> Path:
    await sink.begin()
    await sink.write(content)
    await sink.finish()
    await sink.publish()
    return sink.result


def compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _make_lost_error() -> ds.TransportError:
    return ds.ConnectionLostError("no answer", operation="Any", outcome=ds.Outcome.UNKNOWN)


def _make_unknown_error() -> ds.OutcomeUnknownError:
    return ds.OutcomeUnknownError("no answer", how_to_find_out="look", operation="Any")
