"""What every change of a document goes through: its call, its settling, its answer in memory or in a file."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Generic, TypeVar, cast

import attrs

from directsuite.core import destination as files
from directsuite.core.body import RequestBody
from directsuite.core.call import SETTLE, Options, Proof, Receive
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError, OutcomeUnknownError
from directsuite.signing import operations
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument
from directsuite.signing.settling import Effect, Settling, nothing_to_see, verdict
from directsuite.signing.versions import Change, Versions

R = TypeVar("R")

Document = str | StoredDocument | DocumentUpdate
"""A document's identifier, or an answer that carries it, whose digest lets an unknown outcome be settled."""

Destination = str | PathLike[str]


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
        return attrs.evolve(update, identifier=update.identifier or name)

    async def _pull(
        self,
        operation: Operation[bytes],
        document: Document,
        destination: Destination | None,
        effect: Effect | None,
        timeout: float | None,
        body: RequestBody | None = None,
    ) -> bytes | Path:
        name = identifier_of(document)
        operation.check((name,))
        looking = self._within_a_call()
        if destination is None:

            async def fetched() -> bytes:
                """The PDF, after its answer got lost."""
                return await looking._call(operations.GET_DOC, name)

            return await self._change_and_pull(Pulling(operation, fetched), document, effect, timeout, body)
        with files.Destination(destination) as file:
            destination = None  # the frame may stand in a traceback, and a file's name may be a patient's

            async def to_temporary_file() -> Path:
                """The destination's path, after the answer got lost: its temporary file has the PDF."""
                with files.Destination(file._temporary) as pulled:
                    await looking._call(to_file(operations.GET_DOC), name, receive=pulled.receive)
                return file.path

            def keep() -> None:
                """Give the temporary file the destination's name."""
                file._temporary.replace(file.path)

            pulling = Pulling(to_file(operation), to_temporary_file, keep, file.receive)
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
        return Settling(self._within_a_call(), name, change, effect)


def identifier_of(document: object) -> str:
    """The identifier in what the caller gave for a document; InvalidArgumentError where there is none."""
    name = document.identifier if isinstance(document, StoredDocument | DocumentUpdate) else document
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("give the identifier that save returned", parameter="identifier")
    return name


def to_file(operation: Operation[bytes]) -> Operation[Path]:
    """The operation whose answer a Destination receives: its path stands for the bytes."""
    return cast("Operation[Path]", operation)


def _nothing() -> None:
    """An answer in memory is kept as it is."""


@attrs.frozen(repr=False)
class Pulling(Generic[R]):
    """A change that answers with the PDF. fetch: gives the PDF after that answer got lost; keep: puts it in its place.

    receive: reads the answer, where it isn't kept in memory.
    """

    operation: Operation[R]
    fetch: Callable[[], Awaitable[R]]
    keep: Callable[[], None] = _nothing
    receive: Receive[R] | None = None
