"""The part of a mailbox's facade that reads whole folders: async iterators, of bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from directsuite.core.listing import Listing, fetched_ahead
from directsuite.core.operation import Operation, Service
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import operations
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.message_reader import MessageReader
from directsuite.messaging.models import GetMessageResponse, MessageDetail, RawMessage
from directsuite.messaging.reading import Reading

M = TypeVar("M", MessageDetail, RawMessage)


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
        before that. Without `timeout` only a pause of `attempt_timeout` seconds ends it. It holds one of the service's
        connections until its end: a call made for each message needs another, so let `max_connections` leave one.
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
        answers = fetched_ahead(batches, fetch, window=self._transport.window(Service.MESSAGING))
        try:
            for batch in batches:
                for message in _in_order(batch, await anext(answers)):
                    yield message
        finally:
            await answers.aclose()

    def _streamed(
        self, operation: Operation[GetMessageResponse], folder: str, timeout: float | None
    ) -> AsyncGenerator[MessageDetail]:
        options, reader = self._timed(timeout), MessageReader(operation)
        return self._transport.stream(operation, folder, body=self._credentials, options=options, reader=reader)


def _refuse(folder: str, batch_size: int = 1) -> None:
    operations.GET_UIDS.check((folder,))
    if type(batch_size) is not int or batch_size < 1:
        raise InvalidArgumentError("give a number of messages, 1 or more", parameter="batch_size")


def _in_order(uids: list[int], messages: Iterable[M]) -> list[M]:
    """The messages in the order of the uids asked for; what came without a uid stands last."""
    place: dict[int | None, int] = {uid: position for position, uid in enumerate(uids)}
    return sorted(messages, key=lambda message: place.get(message.uid, len(uids)))
