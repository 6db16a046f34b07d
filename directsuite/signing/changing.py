"""What every change of a document goes through: its call, its settling, its answer in memory or in a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import TypeVar, cast

import attrs

from directsuite.core import destination as files
from directsuite.core.body import RequestBody
from directsuite.core.call import Options, Proof, Receive
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError, OutcomeUnknownError
from directsuite.signing import operations
from directsuite.signing.models import DocumentUpdate, StoredDocument
from directsuite.signing.settling import SETTLE, Effect, Settling
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
        with self._versions.change(name, _digest(document)) as change:
            settling = self._settling(name, change, effect)
            proof = None if settling is None else Proof(look=settling.update, seconds=SETTLE)
            update = await self._call(operation, name, body=body, timeout=timeout, proof=proof)
            change.became(update.document_digest)
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

            async def change_and_pull(proof: Proof[bytes] | None) -> bytes:
                """The PDF that the answer holds."""
                return await self._call(operation, name, body=body, timeout=timeout, proof=proof)

            async def pulled() -> bytes:
                """The PDF, after its answer got lost."""
                return await looking._call(operations.GET_DOC, name)

            return await self._changed_and_pulled(change_and_pull, pulled, _nothing, (document, effect))
        with files.Destination(destination) as file:

            async def change_to_file(proof: Proof[bytes] | None) -> bytes:
                """The path of the PDF that the answer held, in place of its bytes."""
                receive = cast("Receive[bytes]", file.receive)
                return await self._call(operation, name, body=body, timeout=timeout, receive=receive, proof=proof)

            async def to_temporary_file() -> bytes:
                """The destination's path, after the answer got lost: its temporary file has the PDF."""
                with files.Destination(file._temporary) as pulled:
                    receive = cast("Receive[bytes]", pulled.receive)
                    await looking._call(operations.GET_DOC, name, receive=receive)
                return cast("bytes", file.path)

            def keep() -> None:
                """Give the temporary file the destination's name."""
                file._temporary.replace(file.path)

            written = await self._changed_and_pulled(change_to_file, to_temporary_file, keep, (document, effect))
        return cast("Path", written)

    async def _changed_and_pulled(
        self,
        call: Callable[[Proof[R] | None], Awaitable[R]],
        fetch: Callable[[], Awaitable[R]],
        keep: Callable[[], None],
        changed: tuple[Document, Effect | None],
    ) -> R:
        document, effect = changed
        name = identifier_of(document)
        with self._versions.change(name, _digest(document)) as change:
            settling = self._settling(name, change, effect)
            if settling is None:
                pdf = await call(None)
                change.became(None)
                return pdf
            try:
                pdf = await call(Proof(look=lambda: settling.pdf(fetch, keep), seconds=SETTLE))
            except OutcomeUnknownError as error:
                verdict = settling.verdict(error)
            else:
                change.became(settling.digest)
                return pdf
            if settling.digest is not None:
                change.became(None)
            raise verdict.with_traceback(None)

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


def _digest(document: Document) -> str | None:
    return None if isinstance(document, str) else document.document_digest


def _nothing() -> None:
    """An answer in memory is kept as it is."""
