"""List the messages of a folder: fetch them in batches of uids, or read them from one response as it is received.

The *window* is the number of batches that are fetched ahead of the reader. A batch is *unread* until the reader has
received all its messages. Its size is chosen when it is requested, by the average size of earlier messages, so that a
full window fits in memory. If a response exceeds the maximum size, all unread batches are requested again, in smaller
ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

import attrs

from directsuite.core import outcome
from directsuite.core.call import ExchangeInfo, validate_timeout
from directsuite.core.facade import Facade
from directsuite.core.iteration import Prefetch
from directsuite.core.operation import Operation
from directsuite.core.privacy import scrub_class
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.messaging import operations
from directsuite.messaging.models import MessageDetail, RawMessage
from directsuite.wire.codec import Codec
from directsuite.wire.models import NULL_VALUES, Model, has_no_uid
from directsuite.wire.parsing import ArraySplitter, MismatchError
from directsuite.wire.values import count_unreadable

M = TypeVar("M", MessageDetail, RawMessage)
T = TypeVar("T", bound=Model)
F = TypeVar("F", bound=Facade)

TARGET_MEMORY_BYTES = 67_108_864
"""The target size, in bytes, of all unread batches of a listing."""
_ASSUMED_MESSAGE_BYTES = 1_048_576
"""The assumed size of a message before any was received."""
_FIRST_BATCH_MESSAGES = 8
"""The maximum number of messages per batch before any was received."""


@scrub_class
class MessageList(list[T]):
    """The messages that were requested by uid: a list with the attribute `missing_uids`."""

    def __init__(self, messages: Iterable[T] = (), missing_uids: Iterable[int] = ()) -> None:
        super().__init__(messages)
        self.missing_uids = list(missing_uids)
        """The requested uids without a message, in the order of the request: the service left the messages out, for
        example because they were deleted or moved, or they cannot be read."""


def find_missing_uids(messages: Iterable[T], uids: Iterable[int]) -> MessageList[T]:
    """Return the messages of a response with the missing ones of the requested uids. Duplicate uids are ignored."""
    listed = list(messages)
    found = {getattr(message, "uid", None) for message in listed}
    return MessageList(listed, [uid for uid in dict.fromkeys(uids) if uid not in found])


async def fetch_batches(
    batches: Batches, fetch: Callable[[list[int]], Awaitable[tuple[list[M] | ResponseDecodeError, int]]]
) -> AsyncGenerator[M]:
    """Yield the messages of the batches, in the order of the uids.

    fetch: requests the messages with some uids. Returns the same as `fetch_and_measure`.
    Raises ResponseDecodeError if a single message exceeds the maximum size of a response.
    """

    async def fetch_batch(batch: Batch) -> list[M] | ResponseDecodeError:
        result, batch.size = await fetch(batch.uids)
        if isinstance(result, ResponseDecodeError):
            batch.too_large = True
            return result
        batches.record_received(batch, len(result))
        position: dict[int | None, int] = {uid: number for number, uid in enumerate(batch.uids)}
        each_once = {message.uid: message for message in result}.values()
        return sorted(each_once, key=lambda message: position.get(message.uid, len(position)))

    while True:
        async with Prefetch(batches, fetch_batch, window=batches.window, has_room=batches.has_room) as results:
            async for result in results:
                if isinstance(result, ResponseDecodeError):
                    break
                for message in result:
                    yield message
                batches.unread.popleft()
            else:
                return
        if not batches.split_oversized():
            uid = batches.unread[0].uids[0]
            text = f"the message with uid {uid} is too large: raise max_response_bytes"
            result.explanation = text  # instead of the advice to request smaller batches
            raise result


async def fetch_and_measure(
    facade: F, get: Callable[[F], Awaitable[list[M]]]
) -> tuple[list[M] | ResponseDecodeError, int]:
    """Call `get` with a copy of the facade that records response sizes.

    Return the messages and the size of the response in bytes. If the response exceeded the maximum size, return the
    error and the number of bytes received. Raise other errors.
    """
    exchanges: list[ExchangeInfo] = []
    try:
        result: list[M] | ResponseDecodeError = await get(facade.with_observer(exchanges.append))
    except ResponseDecodeError as error:
        if not error.too_large:
            raise
        result = error
    return result, exchanges[-1].response.size


@attrs.define(eq=False)
class Batch:
    """Messages that are fetched with one request."""

    uids: list[int]
    size: int
    """The size of the response in bytes: the expected size until it is received."""
    too_large: bool = False
    """True if the response exceeded the maximum size, and was cut off at `size`."""


class Batches(Iterator[Batch]):
    """Divides uids into batches. `next` returns the next one.

    batch_size: maximum number of messages per batch.
    window: number of batches that are fetched ahead.
    batch_bytes: target size of a response in bytes. None: chosen so that a window fits in TARGET_MEMORY_BYTES.
    """

    def __init__(self, uids: list[int], *, batch_size: int, window: int, batch_bytes: int | None = None) -> None:
        self.window = window
        self.unread: deque[Batch] = deque()
        """The unread batches, oldest first. The reader removes a batch whose messages it has received."""
        self._uids = uids
        self._next_index = 0
        self._batch_size = batch_size
        self._target_bytes = TARGET_MEMORY_BYTES // window if batch_bytes is None else batch_bytes
        self._memory_bytes = TARGET_MEMORY_BYTES if batch_bytes is None else batch_bytes * window
        self._expected_message_bytes: float | None = None

    def __next__(self) -> Batch:
        if self._next_index >= len(self._uids):
            raise StopIteration
        uids = self._uids[self._next_index : self._next_index + self._compute_next_size()]
        self._next_index += len(uids)
        batch = Batch(uids, int(len(uids) * self._estimate_message_bytes()))
        self.unread.append(batch)
        return batch

    @property
    def unread_bytes(self) -> int:
        """The total size, in bytes, of the unread batches."""
        return sum(batch.size for batch in self.unread)

    def has_room(self) -> bool:
        """Return True if another batch fits in memory, and no response was too large."""
        if any(batch.too_large for batch in self.unread):
            return False  # it would be fetched again
        return self.unread_bytes + self._compute_next_size() * self._estimate_message_bytes() <= self._memory_bytes

    def record_received(self, batch: Batch, message_count: int) -> None:
        """Update the expected size of a message. Batches shrink immediately and grow gradually.

        message_count: number of messages in the response.
        """
        if message_count:
            size = batch.size / message_count
            expected = size if self._expected_message_bytes is None else self._expected_message_bytes
            self._expected_message_bytes = max(1.0, size, (expected + size) / 2)

    def split_oversized(self) -> bool:
        """Discard all unread batches, so that their messages are requested again, in batches of half the size.

        Return False, and change nothing, if the oldest batch has only one message.
        """
        oldest = self.unread[0]
        if len(oldest.uids) == 1:
            return False
        self._expected_message_bytes = max(self._expected_message_bytes or 1.0, oldest.size / len(oldest.uids))
        self._target_bytes = min(self._target_bytes, oldest.size // 2)
        self._next_index -= sum(len(batch.uids) for batch in self.unread)
        self.unread.clear()
        return True

    def _compute_next_size(self) -> int:
        if self._expected_message_bytes is None:
            return min(self._batch_size, _FIRST_BATCH_MESSAGES)
        return max(1, min(self._batch_size, int(self._target_bytes / self._expected_message_bytes)))

    def _estimate_message_bytes(self) -> float:
        return _ASSUMED_MESSAGE_BYTES if self._expected_message_bytes is None else self._expected_message_bytes


class MessageReader:
    """Reads the `messages` of a GetMessageResponse, one at a time.

    Elements that are unreadable or have no uid are counted in `skipped`.
    """

    def __init__(self, operation: Operation[Any], codec: Codec) -> None:
        self._operation = operation
        self._codec = codec
        # A user's converter may read bytes in another way.
        member = None if codec.has_user_converter else ("attachments", "content")
        self._splitter = ArraySplitter("messages", base64_member=member)
        self._number = 0
        self.skipped = Counter[str]()
        """The number of unreadable values, by JSON path."""
        self._place = (self.skipped, ".messages[]")

    @property
    def pending(self) -> int:
        """The number of buffered bytes of an incomplete message."""
        return self._splitter.pending

    def feed(self, piece: bytes) -> Iterator[MessageDetail]:
        """Yield the messages that are complete after this piece.

        Raises MismatchError if the response is not JSON, or nested too deeply.
        """
        for element in self._splitter.feed(piece):
            yield from self._read_element(element)

    def _read_element(self, element: Any) -> Iterator[MessageDetail]:
        message: MessageDetail | None = None
        try:
            message = self._codec.structure(MessageDetail, element, self._place)
        except MismatchError:
            pass
        except RecursionError:  # decoding needs more stack frames than parsing
            raise MismatchError("nested less deeply", f"$.messages[{self._number}]") from None
        self._number += 1
        if message is None or has_no_uid(message):
            count_unreadable(self._place)
        else:
            yield message

    def finish(self) -> Iterator[MessageDetail]:
        """Yield the message of a complete response whose `messages` is a single object instead of a list.

        Raises the service's error if the response contains one, and MismatchError if it does not report success.
        """
        rest = self._splitter.finish()
        rejection = outcome.find_service_error(self._operation, 200, {}, rest, b"")
        if rejection is not None:
            raise rejection
        if not self._operation.fault_format.is_success(rest):
            raise MismatchError("true", f"$.{self._operation.fault_format.success_key}")
        messages = rest.get("messages")
        if isinstance(messages, dict):
            yield from self._read_element(messages)
        elif not isinstance(messages, list) and messages not in NULL_VALUES:
            count_unreadable(self._place)


def validate_listing(
    folder: str, timeout: float | None, batch_size: int = 1, batch_bytes: int | None = None, limit: int | None = None
) -> None:
    """Raise InvalidArgumentError if an argument of a listing is invalid."""
    operations.GET_UIDS.validate_segments((folder,))
    validate_timeout(timeout)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgumentError("must be a number of messages, 1 or more, or None", parameter="limit")
    if type(batch_size) is not int or batch_size < 1:
        raise InvalidArgumentError("must be a number of messages, 1 or more", parameter="batch_size")
    if batch_bytes is not None and (type(batch_bytes) is not int or batch_bytes < 1):
        raise InvalidArgumentError("must be a number of bytes, 1 or more, or None", parameter="batch_bytes")
