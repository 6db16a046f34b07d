"""The messages of a folder, one after the other: fetched in batches of uids, or read from one answer while it comes.

Batches are cut meanwhile, so that what they bring fits in memory: how large messages are is only known once some have
come. Batches then hold as many as make a full window of them fit; what is not known yet counts as large. Only where a
batch is more than an answer may hold is it asked for again, and all behind it, in smaller ones.
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
"""Bytes of answers, under way and not yet read, that a listing aims at."""
_UNSEEN = 1_048_576
"""Bytes that a message counts as before any has come."""
_FIRST = 8
"""Messages of a batch before any has come."""


async def fetched_in_batches(
    uids: list[int],
    fetch: Callable[[list[int]], Awaitable[tuple[list[M] | ResponseDecodeError, int]]],
    *,
    most: int,
    window: int,
    batch_bytes: int | None,
) -> AsyncGenerator[M]:
    """The messages with these uids, in their order.

    fetch: gives the messages of one request, in any order, and the bytes of the answer; in place of the messages the
    error of an answer that was broken off at so many bytes. most, window, batch_bytes: see `Batches`.
    """
    batches = Batches(uids, most=most, window=window, batch_bytes=batch_bytes)

    async def fetch_batch(batch: Batch) -> list[M] | ResponseDecodeError:
        """One batch, and what it tells of the size of others."""
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
            result.explanation = text  # to ask for fewer, as it says by itself, is no help
            raise result


async def measured(facade: F, get: Callable[[F], Awaitable[list[M]]]) -> tuple[list[M] | ResponseDecodeError, int]:
    """What `get` gives for a view of the facade, or the error of too large an answer; and the bytes of the answer."""
    exchanges: list[Exchanged] = []
    try:
        result: list[M] | ResponseDecodeError = await get(facade.observed(exchanges.append))
    except ResponseDecodeError as error:
        if not error.too_large:
            raise
        result = error
    return result, exchanges[-1].answer.size


def _in_order(uids: list[int], messages: Iterable[M]) -> list[M]:
    """The messages in the order of the uids; what came without a uid stands last."""
    position: dict[int | None, int] = {uid: number for number, uid in enumerate(uids)}
    return sorted(messages, key=lambda message: position.get(message.uid, len(uids)))


@attrs.define(eq=False)
class Batch:
    """Messages asked for in one request."""

    uids: list[int]
    size: int
    """Bytes of the answer, expected ones until it has come."""
    too_large: bool = False
    """Whether the answer was broken off at this size."""


class Batches(Iterator[Batch]):
    """The batches of `uids`, each cut when it is asked for: at most `most` messages, at least one.

    window: how many of them are fetched ahead. batch_bytes: of one answer, aimed at, and for a full window of them
    together; None for as many as let a full window fit in MEMORY.
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
        """Bytes of the batches under way and of those that are not read to their end."""
        return sum(batch.size for batch in self._held)

    def has_room(self) -> bool:
        """Return True if another batch may be fetched while others are there."""
        if any(batch.too_large for batch in self._held):
            return False  # what is fetched behind it has to be fetched again
        return self.held + self._next_length() * self._expected_size() <= self._memory

    def came(self, batch: Batch, messages: int) -> None:
        """Learn from a batch that has come, and brought so many messages.

        Batches get smaller at once, and larger by and by: large messages come in groups.
        """
        if messages:
            size = batch.size / messages
            expected = size if self._expected is None else self._expected
            self._expected = max(1.0, size, (expected + size) / 2)

    def read(self) -> None:
        """Forget the oldest batch: its messages were read."""
        self._held.popleft()

    @property
    def oldest(self) -> Batch:
        """The batch that the reader is at."""
        return self._held[0]

    def cut_again(self) -> bool:
        """Take back all that is not read. The oldest batch was too large: the next one holds half of it at most.

        Return False, and do nothing, if it has one message only.
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
    """Reads the `messages` of a GetMessageResponse, one at a time. An element without a uid is left out."""

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
        """Bytes that are kept until a message is whole."""
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
        except RecursionError:  # a reader needs a few frames more than the parser, which had just enough
            is_too_deep = True
        if is_too_deep:
            raise MismatchError("nested less deeply", f"$.messages[{self._number}]")
        self._number += 1
        if message is None or lacks_uid(message):
            note(self._place)
        else:
            yield message

    def finish(self) -> Iterator[MessageDetail]:
        """Yield the messages of a list under another name. Raise the error that the response turns out to be."""
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
