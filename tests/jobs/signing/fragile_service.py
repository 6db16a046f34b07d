"""A signing service in memory that loses requests and answers, acts late, and forgets documents, as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import attrs

import directsuite as ds
from directsuite.core.download import PathSink
from tests.waiting import happened

SIGNATURE = b"\n/ByteRange [0 1 2 3]"


class CrashError(BaseException):
    """The program ends here."""


class Fault(enum.Enum):
    """What happens to a request."""

    REQUEST_LOST = enum.auto()
    ANSWER_LOST = enum.auto()
    LATE = enum.auto()
    """It is acted on later, when nobody waits any more."""
    NOT_SENT = enum.auto()
    EXPIRED = enum.auto()
    """What is stored is gone."""
    CRASH_BEFORE = enum.auto()
    CRASH_AFTER = enum.auto()


@attrs.define
class FragileService:
    """Has the methods of `suite.signing` that a job needs. faults: one for each request in turn, None for none."""

    faults: list[Fault | None] = attrs.field(factory=list[Fault | None])
    stored: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    asked: Counter[str] = attrs.field(factory=Counter[str])
    late: list[tuple[str, int]] = attrs.field(factory=list[tuple[str, int]])
    made: int = 0
    missing: type[ds.ServiceError] = ds.NotFoundError
    timestamps: int = 0
    """The document time stamps that the service adds beside the signatures of a request."""

    def act_late(self) -> None:
        """Do what was asked for and put off."""
        for identifier, signatures in self.late:
            if identifier in self.stored:
                self.stored[identifier] += SIGNATURE * signatures
        self.late.clear()

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        fault = self._begin()
        self.made += 1
        identifier = f"document-{self.made}"
        self.stored[identifier] = pdf if isinstance(pdf, bytes) else await asyncio.to_thread(pdf.read_bytes)
        self._end(fault, repeatable=True)
        return ds.StoredDocument(identifier=identifier, document_digest=str(self.made))

    async def sign_and_pull(
        self, identifier: str, signature: ds.Signature, *, destination: Path | None = None
    ) -> Path | bytes:
        """Sign a document once."""
        return await self.multi_sign_and_pull(identifier, [signature], destination=destination)

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        """Sign a document."""
        if destination is None:
            return self._signed(identifier, len(signatures))
        async with _opened(destination) as sink:  # as the client has it: nothing is sent without
            return await _put(sink, self._signed(identifier, len(signatures)))

    def _signed(self, identifier: str, signatures: int) -> bytes:
        fault = self._begin(identifier, changes=True)
        self.asked[identifier] += 1
        if fault is Fault.LATE:
            self.late.append((identifier, signatures))
            raise _unknown()
        self.stored[identifier] += SIGNATURE * (signatures + self.timestamps)
        self._end(fault)
        return self.stored[identifier]

    async def get_doc_info(self, identifier: str) -> ds.DocumentInfo:
        """Tell of a document."""
        fault = self._begin(identifier)
        self._end(fault, repeatable=True)
        return ds.DocumentInfo(identifier=identifier)

    async def download(self, identifier: str, destination: Path) -> Path:
        """Give a document."""
        async with _opened(destination) as sink:
            fault = self._begin(identifier)
            self._end(fault, repeatable=True)
            return await _put(sink, self.stored[identifier])

    async def delete(self, identifier: str) -> ds.DocumentUpdate:
        """Forget a document."""
        fault = self._begin(identifier)
        del self.stored[identifier]
        self._end(fault, repeatable=True)
        return ds.DocumentUpdate(identifier=identifier)

    def _begin(self, identifier: str | None = None, *, changes: bool = False) -> Fault | None:
        happened()
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.CRASH_BEFORE:
            raise CrashError
        if fault is Fault.EXPIRED:
            self.stored.clear()
        if fault is Fault.NOT_SENT:
            raise ds.ConnectFailedError("nothing was sent", operation="Any", outcome=ds.Outcome.NOT_SENT)
        if fault is Fault.REQUEST_LOST:
            if changes and identifier is not None:
                self.asked[identifier] += 1
                raise _unknown()
            raise _lost()
        if identifier is not None and identifier not in self.stored:
            raise self.missing("there is no such document", operation="Any", status=404)
        return fault

    def _end(self, fault: Fault | None, *, repeatable: bool = False) -> None:
        happened()
        if fault is Fault.CRASH_AFTER:
            raise CrashError
        if fault in (Fault.ANSWER_LOST, Fault.LATE):
            raise _lost() if repeatable else _unknown()


@contextlib.asynccontextmanager
async def _opened(destination: Path) -> AsyncGenerator[PathSink]:
    sink = PathSink(destination)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


async def _put(sink: PathSink, content: bytes) -> Path:
    await sink.begin()
    await sink.write(content)
    await sink.finish()
    await sink.keep()
    return sink.result


def digest_of(content: bytes) -> str:
    """As journals have it."""
    return hashlib.sha256(content).hexdigest()


def _lost() -> ds.TransportError:
    return ds.ConnectionLostError("no answer", operation="Any", outcome=ds.Outcome.UNKNOWN)


def _unknown() -> ds.OutcomeUnknownError:
    return ds.OutcomeUnknownError("no answer", how_to_find_out="look", operation="Any")
