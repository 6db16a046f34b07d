"""The part of a mailbox's facade that reads whole folders: async iterators, of bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from directsuite.core import outcome
from directsuite.core.listing import Listing, fetched_ahead
from directsuite.core.operation import Operation
from directsuite.errors import DirectSuiteError, InvalidArgumentError, ResponseDecodeError
from directsuite.messaging import operations
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.models import GetMessageResponse, MessageDetail, RawMessage
from directsuite.messaging.reading import Reading
from directsuite.wire import codec
from directsuite.wire.json_stream import ArraySplitter
from directsuite.wire.mismatch import MismatchError

M = TypeVar("M", MessageDetail, RawMessage)

_WINDOW = 20
"""Batches under way ahead of the reader: twice the connections that such providers allow."""


class Listings(Reading):
    """Whole folders, message by message.

    Each listing is an async generator and its own context manager; leaving `async with` early ends its requests at
    once. Messages that vanish meanwhile are passed over. `timeout` holds for each request.
    """

    def iter_messages(
        self, folder: str = INBOX, *, batch_size: int = 50, timeout: float | None = None
    ) -> Listing[MessageDetail]:
        """All messages of `folder`, by ascending uid, fetched in batches ahead of the reader.

        Operations GetUIDs, then GetMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size)

        async def fetch(uids: list[int]) -> list[MessageDetail]:
            """One batch of messages."""
            return await self.get_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, timeout, fetch))

    def iter_raw(
        self, folder: str = INBOX, *, batch_size: int = 50, timeout: float | None = None
    ) -> Listing[RawMessage]:
        """All messages of `folder` as they stand on the server, by ascending uid, in batches ahead of the reader.

        Operations GetUIDs, then GetRawMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size)

        async def fetch(uids: list[int]) -> list[RawMessage]:
            """One batch of raw messages."""
            return await self.get_raw_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, timeout, fetch))

    def iter_metadata(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """The metadata of all messages of `folder`, from one answer read while it comes.

        Operation GetMessageMetaData (specification 4.C).
        """
        _refuse(folder)
        return Listing(self._streamed(operations.GET_MESSAGE_METADATA, folder, timeout))

    def stream_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """All messages of `folder`, from one answer of any size, read while it comes: one message in memory at a time.

        Operation GetMessages (specification 4.C). An answer that breaks off raises where it breaks, after the messages
        before that. Without `timeout` only a pause of `attempt_timeout` seconds ends it.
        """
        _refuse(folder)
        return Listing(self._streamed(operations.GET_MESSAGES, folder, timeout))

    async def _in_batches(
        self,
        folder: str,
        batch_size: int,
        timeout: float | None,
        fetch: Callable[[list[int]], Coroutine[Any, Any, list[M]]],
    ) -> AsyncGenerator[M]:
        uids = await self.get_uids(folder, timeout=timeout)
        batches = [uids[start : start + batch_size] for start in range(0, len(uids), batch_size)]
        answers = fetched_ahead(batches, fetch, window=_WINDOW)
        try:
            for batch in batches:
                for message in _in_order(batch, await anext(answers)):
                    yield message
        finally:
            await answers.aclose()

    async def _streamed(
        self, operation: Operation[GetMessageResponse], folder: str, timeout: float | None
    ) -> AsyncGenerator[MessageDetail]:
        splitter = ArraySplitter("messages")
        pieces = self._transport.stream(operation, folder, body=self._credentials, options=self._timed(timeout))
        number = itertools.count()
        failure: DirectSuiteError | None = None
        try:
            async for piece in pieces:
                for message in _messages(splitter.feed(piece), number):
                    yield message
            failure = _refusal(operation, splitter.finish())
        except MismatchError as mismatch:
            failure = _unreadable(operation, mismatch)
        finally:
            piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered
            await pieces.aclose()
        if failure is not None:
            raise failure


def _refuse(folder: str, batch_size: int = 1) -> None:
    operations.GET_UIDS.check((folder,))
    if batch_size < 1:
        raise InvalidArgumentError("give a number of messages, 1 or more", parameter="batch_size")


def _in_order(uids: list[int], messages: Iterable[M]) -> list[M]:
    """The messages in the order of the uids asked for; what came without a uid stands last."""
    place: dict[int | None, int] = {uid: position for position, uid in enumerate(uids)}
    return sorted(messages, key=lambda message: place.get(message.uid, len(uids)))


def _messages(elements: Iterable[Any], number: Iterator[int]) -> Iterator[MessageDetail]:
    """The messages that these elements are; MismatchError names the one that is none by its number."""
    for element in elements:
        try:
            yield codec.structure(MessageDetail, element)
        except MismatchError as mismatch:
            raise MismatchError(mismatch.expected, f"$.messages[{next(number)}]{mismatch.path[1:]}") from None
        next(number)


def _refusal(operation: Operation[Any], rest: dict[str, Any]) -> DirectSuiteError | None:
    """The error that the answer is, seen from what stands around its messages."""
    refusal = outcome.judge(operation, 200, {}, rest, b"")
    if refusal is None and not operation.refusals.says_yes(rest):
        return _unreadable(operation, MismatchError("true", f"$.{operation.refusals.flag}"))
    if not isinstance(rest.get("messages"), list | None) and rest["messages"] != "null":
        return _unreadable(operation, MismatchError("a list", "$.messages"))
    return refusal


def _unreadable(operation: Operation[Any], mismatch: MismatchError) -> ResponseDecodeError:
    text = f"the answer does not fit the operation: {mismatch}"
    return ResponseDecodeError(text, path=mismatch.path, operation=operation.name, service=operation.service)
