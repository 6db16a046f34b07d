"""What every change of a document goes through: its call, its settling, its answer in memory or in a file."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from os import PathLike
from typing import Any, Generic, TypeVar, cast

import attrs

from directsuite.core.body import RequestBody
from directsuite.core.call import SETTLE, Options, Proof, Receive
from directsuite.core.destination import Destination, refuse_max_bytes
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.progress import Progress, refuse_progress
from directsuite.core.sinks import BinaryWriter, PartlyPassedOnError, PieceWriter, sink_of
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError, OutcomeUnknownError
from directsuite.signing import operations
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument
from directsuite.signing.settling import Effect, Settling, nothing_to_see, verdict
from directsuite.signing.versions import Change, Versions

R = TypeVar("R")
D = TypeVar("D", DocumentInfo, DocumentUpdate)

Document = str | StoredDocument | DocumentUpdate
"""A document's identifier, or an answer that carries it, whose digest lets an unknown outcome be settled."""

PdfDestination = str | PathLike[str] | BinaryWriter | PieceWriter
"""Where a PDF is streamed to.

A path gets a file that appears whole or not at all, for its owner's eyes only (mode 0600); the method returns the path.
A file object opened for writing bytes is returned; it is not closed, and keeps what came before a failure. One that can
seek is written from where it stands, and cut off behind the document. An async function is given each piece; the method
returns the number of bytes. What a file that can't seek or a function has got can't be taken back, and so is not asked
for a second time. Neither may take longer than `attempt_timeout` for one piece. Files, save an io.BytesIO, are written
in a thread, and may still get their last piece after the call was cancelled; a function gets none.
"""


class Changing(Facade):
    """What the methods that change a document have in common."""

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        super().__init__(transport, options)
        self._versions = Versions()  # all views of the facade share it

    async def _update(
        self,
        operation: Operation[DocumentUpdate],
        document: Document,
        effect: Effect | None,
        timeout: float | None,
        body: RequestBody | None = None,
    ) -> DocumentUpdate:
        name = identifier_of(document)
        with self._change(document) as change:
            settling = self._settling(name, change, effect)
            proof = None if settling is None else Proof(look=settling.update, seconds=SETTLE)
            update = await self._call(operation, name, body=body, timeout=timeout, proof=proof)
            change.became(update.document_digest, looked=settling is not None and settling.digest is not None)
        return identified(update, name)

    async def _pull(
        self,
        operation: Operation[bytes],
        document: Document,
        destination: PdfDestination | None,
        effect: Effect | None,
        timeout: float | None,
        max_bytes: int | None,
        progress: Progress | None,
        body: RequestBody | None = None,
    ) -> Any:
        name = identifier_of(document)
        operation.check((name,))
        refuse_max_bytes(max_bytes)
        refuse_progress(progress)
        looking = self._within_a_call()
        if destination is None:
            if max_bytes is not None:
                raise InvalidArgumentError("it bounds a stream: give a destination too", parameter="max_bytes")
            if progress is not None:
                raise InvalidArgumentError("it is told of a stream: give a destination too", parameter="progress")

            async def fetched() -> bytes:
                """The PDF, after its answer got lost."""
                return await looking._call(operations.GET_DOC, name)

            return await self._change_and_pull(Pulling(operation, fetched), document, effect, timeout, body)
        async with Destination[Any](sink_of(destination), max_bytes=max_bytes, progress=progress) as receiving:
            destination = None  # the frame may stand in a traceback, and a file's name may be a patient's
            sink = receiving.sink

            async def streamed() -> Any:
                """What the caller gets, after the answer got lost: the sink has the PDF, which isn't kept yet."""
                if receiving.failure is not None:
                    raise receiving.failure
                if sink.spent:
                    raise PartlyPassedOnError("the answer broke off")
                return await looking._call(streaming(operations.GET_DOC), name, receive=receiving.apart())

            pulling = Pulling(streaming(operation), streamed, sink.keep, receiving)
            return await self._change_and_pull(pulling, document, effect, timeout, body)

    async def _change_and_pull(
        self,
        pulling: Pulling[R],
        document: Document,
        effect: Effect | None,
        timeout: float | None,
        body: RequestBody | None,
    ) -> R:
        name = identifier_of(document)
        with self._change(document) as change:
            settling = self._settling(name, change, effect)
            proof: Proof[R] = Proof(look=nothing_to_see, reserve=0.0, verdict=verdict)
            if settling is not None:
                look = functools.partial(settling.pdf, pulling.fetch, pulling.keep)
                proof = Proof(look=look, seconds=SETTLE, verdict=settling.verdict)
            try:
                pdf = await self._call(
                    pulling.operation, name, body=body, timeout=timeout, receive=pulling.receive, proof=proof
                )
            except OutcomeUnknownError as error:
                if error.happened:
                    change.became(None)
                raise
            change.became(None if settling is None else settling.digest, looked=True)
        return pdf

    def _change(self, document: Document) -> AbstractContextManager[Change]:
        digest = None if isinstance(document, str) else document.document_digest
        return self._versions.change(identifier_of(document), digest, looked=isinstance(document, DocumentInfo))

    def _settling(self, name: str, change: Change, effect: Effect | None) -> Settling | None:
        """None where nothing could prove the change, so that the call has all its time for the answer."""
        if effect is None or not change.traceable:
            return None
        return Settling(self, name, change, effect)


def identified(answer: D, identifier: str) -> D:
    """The answer about a document with the identifier that was asked for, where it names none itself."""
    return answer if answer.identifier else attrs.evolve(answer, identifier=identifier)


def identifier_of(document: object) -> str:
    """The identifier in what the caller gave for a document; InvalidArgumentError where there is none."""
    name = document.identifier if isinstance(document, StoredDocument | DocumentUpdate) else document
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("give the identifier that save returned", parameter="identifier")
    return name


def streaming(operation: Operation[bytes]) -> Operation[Any]:
    """The operation whose answer a Destination receives, and says what stands for the bytes."""
    return cast("Operation[Any]", operation)


async def _nothing() -> None:
    """An answer in memory is kept as it is."""


@attrs.frozen(repr=False)
class Pulling(Generic[R]):
    """A change that answers with the PDF. fetch: gives the PDF after that answer got lost; keep: puts it in its place.

    receive: reads the answer, where it isn't kept in memory.
    """

    operation: Operation[R]
    fetch: Callable[[], Awaitable[R]]
    keep: Callable[[], Awaitable[None]] = _nothing
    receive: Receive[R] | None = None
