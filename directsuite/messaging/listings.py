"""The part of a mailbox's facade that reads whole folders: async iterators, of bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

from directsuite.core.listing import FetchedAhead, Listing
from directsuite.core.operation import Operation, Service
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.messaging import operations
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.batches import Batch, Batches
from directsuite.messaging.message_reader import MessageReader
from directsuite.messaging.models import GetMessageResponse, MessageDetail, RawMessage
from directsuite.messaging.reading import Reading

M = TypeVar("M", MessageDetail, RawMessage)


class Listings(Reading):
    """Whole folders, message by message.

    Each listing is an async generator and its own context manager; leaving `async with` early ends its requests at
    once. Messages that vanish meanwhile are passed over. `timeout` holds for each request.

    batch_size: the most messages that one request asks for. batch_bytes: what an answer is to hold, about: requests ask
    for fewer messages where those before turned out to be large, and at most as many answers are fetched ahead of the
    reader as twice the service's connections. None: all that is fetched ahead about 64 MB together. An answer that goes
    past max_response_bytes is asked for again in smaller ones; only a message that does so alone is an error.
    """

    def iter_messages(
        self,
        folder: str = INBOX,
        *,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[MessageDetail]:
        """All messages of `folder`, by ascending uid, fetched in batches ahead of the reader.

        Operations GetUIDs, then GetMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size, batch_bytes)

        def fetch(box: Self, uids: list[int]) -> Coroutine[Any, Any, list[MessageDetail]]:
            """One batch of messages."""
            return box.get_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, batch_bytes, timeout, fetch))

    def iter_raw(
        self,
        folder: str = INBOX,
        *,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[RawMessage]:
        """All messages of `folder` as they stand on the server, by ascending uid, in batches ahead of the reader.

        Operations GetUIDs, then GetRawMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size, batch_bytes)

        def fetch(box: Self, uids: list[int]) -> Coroutine[Any, Any, list[RawMessage]]:
            """One batch of raw messages."""
            return box.get_raw_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, batch_bytes, timeout, fetch))

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
        batch_bytes: int | None,
        timeout: float | None,
        fetch: Callable[[Self, list[int]], Coroutine[Any, Any, list[M]]],
    ) -> AsyncGenerator[M]:
        uids = await self.get_uids(folder, timeout=timeout)
        window = self._transport.window(Service.MESSAGING)
        batches = Batches(uids, most=batch_size, window=window, batch_bytes=batch_bytes)

        async def fetch_batch(batch: Batch) -> list[M]:
            """The messages of a batch, in order, and what they tell of the size of others."""
            messages = await fetch(self._observed(batch.weigh), batch.uids)
            batches.came(batch, len(messages))
            return _in_order(batch.uids, messages)

        while True:
            try:
                async with FetchedAhead(batches, fetch_batch, window=window, has_room=batches.has_room) as answers:
                    async for messages in answers:
                        for message in messages:
                            yield message
                        batches.read()
                return
            except ResponseDecodeError as error:
                batch = batches.broken_off()
                if batch is None:
                    raise
                if len(batch.uids) == 1:
                    text = f"the message with uid {batch.uids[0]} alone is too large: raise max_response_bytes"
                    error.explanation = text  # to ask for fewer, as it says by itself, is no help
                    raise
                batches.cut_again()

    def _streamed(
        self, operation: Operation[GetMessageResponse], folder: str, timeout: float | None
    ) -> AsyncGenerator[MessageDetail]:
        options, reader = self._timed(timeout), MessageReader(operation, self._transport.codec)
        return self._transport.stream(operation, folder, body=self._credentials, options=options, reader=reader)


def _refuse(folder: str, batch_size: int = 1, batch_bytes: int | None = None) -> None:
    operations.GET_UIDS.check((folder,))
    if type(batch_size) is not int or batch_size < 1:
        raise InvalidArgumentError("give a number of messages, 1 or more", parameter="batch_size")
    if batch_bytes is not None and (type(batch_bytes) is not int or batch_bytes < 1):
        raise InvalidArgumentError("give a number of bytes, 1 or more, or None", parameter="batch_bytes")


def _in_order(uids: list[int], messages: Iterable[M]) -> list[M]:
    """The messages in the order of the uids asked for; what came without a uid stands last."""
    place: dict[int | None, int] = {uid: position for position, uid in enumerate(uids)}
    return sorted(messages, key=lambda message: place.get(message.uid, len(uids)))
