"""List the messages of a folder: fetch them in batches of uids, or read them from one response as it is received.

The *window* is the number of batches that are fetched ahead of the reader. The size of a batch is chosen when it is
requested, so that a full window fits in memory. It depends on the average size of earlier messages. Before any is
known, batches are small and each message counts as large. If a response exceeds the maximum size, its batch and all
later ones are requested again in smaller batches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

import attrs

from directsuite.core import outcome
from directsuite.core.call import Exchanged
from directsuite.core.facade import Facade
from directsuite.core.iteration import Prefetch
from directsuite.core.operation import Operation
from directsuite.errors import ResponseDecodeError
from directsuite.messaging.models import GetMessageResponse, MessageDetail, RawMessage
from directsuite.wire.codec import Codec
from directsuite.wire.models import NOTHING, find_unnamed_lists, lacks_uid
from directsuite.wire.parsing import ArraySplitter, MismatchError
from directsuite.wire.values import note

M = TypeVar("M", MessageDetail, RawMessage)
F = TypeVar("F", bound=Facade)

MEMORY = 67_108_864
"""The target size, in bytes, of all responses of a listing that are in progress or not read yet."""
_UNSEEN = 1_048_576
"""The assumed size of a message, in bytes, before any was received."""
_FIRST = 8
"""The maximum number of messages per batch before any was received."""


async def fetched_in_batches(
    uids: list[int],
    fetch: Callable[[list[int]], Awaitable[tuple[list[M] | ResponseDecodeError, int]]],
    *,
    most: int,
    window: int,
    batch_bytes: int | None,
) -> AsyncGenerator[M]:
    """Yield the messages with these uids, in the order of the uids.

    fetch: requests a batch. Returns its messages, in any order, and the size of the response in bytes. If the response
        exceeded the maximum size, returns the error, and the number of bytes received before that.
    most, window, batch_bytes: see `Batches`.
    Raises ResponseDecodeError if a single message exceeds the maximum size of a response.
    """
    batches = Batches(uids, most=most, window=window, batch_bytes=batch_bytes)

    async def fetch_batch(batch: Batch) -> list[M] | ResponseDecodeError:
        """Fetch a batch, and update the expected size of messages."""
        result, batch.size = await fetch(batch.uids)
        if isinstance(result, ResponseDecodeError):
            batch.too_large = True
            return result
        batches.came(batch, len(result))
        return _in_order(batch.uids, result)

    while True:
        async with Prefetch(batches, fetch_batch, window=window, has_room=batches.has_room) as answers:
            async for result in answers:
                if isinstance(result, ResponseDecodeError):
                    break
                for message in result:
                    yield message
                batches.read()
            else:
                return
        if not batches.cut_again():
            uid = batches.oldest.uids[0]
            text = f"the message with uid {uid} alone is too large: raise max_response_bytes"
            result.explanation = text  # the original text recommends smaller batches, which would not help here
            raise result


async def measured(facade: F, get: Callable[[F], Awaitable[list[M]]]) -> tuple[list[M] | ResponseDecodeError, int]:
    """Call `get` with a view of the facade. Return its messages, and the size of the response in bytes.

    If the response exceeded the maximum size, return the error instead of the messages. Other errors are raised.
    """
    exchanges: list[Exchanged] = []
    try:
        result: list[M] | ResponseDecodeError = await get(facade.observed(exchanges.append))
    except ResponseDecodeError as error:
        if not error.too_large:
            raise
        result = error
    return result, exchanges[-1].answer.size


def _in_order(uids: list[int], messages: Iterable[M]) -> list[M]:
    """Return the messages in the order of the uids. Messages without a uid, or with an unexpected one, are last."""
    position: dict[int | None, int] = {uid: number for number, uid in enumerate(uids)}
    return sorted(messages, key=lambda message: position.get(message.uid, len(uids)))


@attrs.define(eq=False)
class Batch:
    """Messages that are fetched with one request."""

    uids: list[int]
    size: int
    """The size of the response in bytes, or the expected size until it is received."""
    too_large: bool = False
    """True if the response was cut off at `size`, because it exceeded the maximum size."""


class Batches(Iterator[Batch]):
    """Divides uids into batches. The size of a batch is chosen when it is requested with `next`.

    most: maximum number of messages per batch. A batch has at least one message.
    window: number of batches that are fetched ahead.
    batch_bytes: target size of a response in bytes. None: choose it so that a full window fits in MEMORY.
    """

    def __init__(self, uids: list[int], *, most: int, window: int, batch_bytes: int | None = None) -> None:
        self._uids = uids
        self._cut = 0
        self._most = most
        self._share = MEMORY // window if batch_bytes is None else batch_bytes
        self._memory = MEMORY if batch_bytes is None else batch_bytes * window
        self._expected: float | None = None
        self._held: deque[Batch] = deque()

    def __next__(self) -> Batch:
        if self._cut >= len(self._uids):
            raise StopIteration
        uids = self._uids[self._cut : self._cut + self._next_length()]
        self._cut += len(uids)
        batch = Batch(uids, int(len(uids) * self._expected_size()))
        self._held.append(batch)
        return batch

    @property
    def held(self) -> int:
        """The total size, in bytes, of the batches that are in progress or not read completely."""
        return sum(batch.size for batch in self._held)

    def has_room(self) -> bool:
        """Return True if another batch may be fetched now, in addition to those not read yet."""
        if any(batch.too_large for batch in self._held):
            return False  # later batches would have to be fetched again
        return self.held + self._next_length() * self._expected_size() <= self._memory

    def came(self, batch: Batch, messages: int) -> None:
        """Update the expected size of a message from a batch that was received.

        Batches shrink immediately and grow gradually, because large messages often occur in groups.

        messages: number of messages that the batch contained.
        """
        if messages:
            size = batch.size / messages
            expected = size if self._expected is None else self._expected
            self._expected = max(1.0, size, (expected + size) / 2)

    def read(self) -> None:
        """Remove the oldest batch, because its messages were read."""
        self._held.popleft()

    @property
    def oldest(self) -> Batch:
        """The batch that is being read."""
        return self._held[0]

    def cut_again(self) -> bool:
        """Return all batches that are not read to the queue, because the oldest one was too large.

        The next batch has a target of at most half its size. Return False, and change nothing, if the oldest batch has
        only one message.
        """
        oldest = self.oldest
        if len(oldest.uids) == 1:
            return False
        self._expected = max(self._expected or 1.0, oldest.size / len(oldest.uids))
        self._share = min(self._share, oldest.size // 2)
        self._cut -= sum(len(batch.uids) for batch in self._held)
        self._held.clear()
        return True

    def _next_length(self) -> int:
        if self._expected is None:
            return min(self._most, _FIRST)
        return max(1, min(self._most, int(self._share / self._expected)))

    def _expected_size(self) -> float:
        return _UNSEEN if self._expected is None else self._expected


class MessageReader:
    """Reads the `messages` of a GetMessageResponse, one at a time. Elements without a uid are skipped."""

    def __init__(self, operation: Operation[Any], codec: Codec) -> None:
        self._operation = operation
        self._codec = codec
        self._splitter = ArraySplitter("messages", shape=codec.shape_of(MessageDetail))
        self._number = 0
        self.skipped = Counter[str]()
        """The number of values that could not be read, by their JSON path."""
        self._place = (self.skipped, ".messages[]")

    @property
    def pending(self) -> int:
        """The number of buffered bytes of a message that is not received completely."""
        return self._splitter.pending

    def feed(self, piece: bytes) -> Iterator[MessageDetail]:
        """Yield the messages received completely. Raises MismatchError if the response is not JSON."""
        for element in self._splitter.feed(piece):
            yield from self._read(element)

    def _read(self, element: Any) -> Iterator[MessageDetail]:
        message, is_too_deep = None, False
        try:
            message = self._codec.structure(MessageDetail, element, self._place)
        except MismatchError:
            pass
        except RecursionError:  # decoding needs a few more stack frames than parsing, which has just succeeded
            is_too_deep = True
        if is_too_deep:
            raise MismatchError("nested less deeply", f"$.messages[{self._number}]")
        self._number += 1
        if message is None or lacks_uid(message):
            note(self._place)
        else:
            yield message

    def finish(self) -> Iterator[MessageDetail]:
        """Yield the messages of lists under unspecified names, after the response is received completely.

        Raises the service's error if the response contains one, and MismatchError if it does not report success.
        """
        rest = self._splitter.finish()
        refusal = outcome.judge(self._operation, 200, {}, rest, b"")
        if refusal is not None:
            raise refusal
        if not self._operation.refusals.says_yes(rest):
            raise MismatchError("true", f"$.{self._operation.refusals.flag}")
        messages = rest.get("messages")
        if not isinstance(messages, list) and messages not in NOTHING:
            note(self._place)
        for name in find_unnamed_lists(GetMessageResponse, rest).values():
            for element in rest[name]:
                yield from self._read(element)
