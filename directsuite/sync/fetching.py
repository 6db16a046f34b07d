"""Messages by uid, in order, in batches of so many bytes; what can't be fetched is singled out.

A batch that fails is halved until the message is alone that makes it fail; that one is then asked for three times.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Sequence

import attrs

from directsuite.core.iteration import Prefetch
from directsuite.errors import (
    AuthenticationError,
    CircuitOpenError,
    ClosedError,
    ConfigurationError,
    ConnectFailedError,
    DirectSuiteError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
)
from directsuite.messaging.batches import Batch, Batches
from directsuite.messaging.models import MessageDetail
from directsuite.sync.remote import Remote

MOST = 200
"""Messages of a batch."""
_BYTES = 4 * 1024 * 1024  # of an answer, aimed at
_WINDOW = 2  # batches under way or not read yet
_STRIKES = 3

NOBODYS_FAULT = (
    AuthenticationError,
    CircuitOpenError,
    ClosedError,
    ConfigurationError,
    ConnectFailedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
)
"""Failures that say nothing of the messages asked for."""


@attrs.frozen(kw_only=True, repr=False)
class Fetched:
    """The answer for some uids. failure: of the one that was asked for in vain."""

    uids: Sequence[int]
    messages: Sequence[MessageDetail] = ()
    failure: DirectSuiteError | None = None


async def fetched(remote: Remote, folder: str, uids: list[int], *, batches: int) -> AsyncGenerator[Fetched]:
    """So many batches of these messages, by ascending uid. Raises what is no fault of theirs."""
    cut = Batches(uids, most=MOST, window=_WINDOW, batch_bytes=_BYTES)

    async def fetch(batch: Batch) -> Fetched:
        """One batch, or its failure."""
        try:
            messages, batch.size = await remote.measured_messages(folder, batch.uids)
        except NOBODYS_FAULT:
            raise
        except DirectSuiteError as failure:
            return Fetched(uids=batch.uids, failure=failure)
        if isinstance(messages, ResponseDecodeError):
            cut.came(batch, len(batch.uids))
            return Fetched(uids=batch.uids, failure=messages)
        cut.came(batch, len(messages))
        return Fetched(uids=batch.uids, messages=messages)

    keys = itertools.islice(cut, batches)
    async with Prefetch(keys, fetch, window=_WINDOW, has_room=cut.has_room) as answers:
        async for answer in answers:
            if answer.failure is None:
                yield answer
            else:
                async with contextlib.aclosing(_singled_out(remote, folder, answer.uids)) as parts:
                    async for part in parts:
                        yield part
            cut.read()


async def whole(remote: Remote, folder: str, uid: int) -> MessageDetail | None:
    """One message, asked for once; None where it isn't there, or can't be fetched. Raises what is no fault of it."""
    answer = await _asked(remote, folder, [uid], 1)
    return next((each for each in answer.messages if each.uid == uid), None)


async def _singled_out(remote: Remote, folder: str, uids: Sequence[int]) -> AsyncGenerator[Fetched]:
    """The messages of a batch that failed, in as many answers as it takes."""
    parts = _halves(uids)
    while parts:
        part = parts.pop()
        answer = await _asked(remote, folder, part, 1 if len(part) > 1 else _STRIKES)
        if answer.failure is None or len(part) == 1:
            yield answer
        else:
            parts += _halves(part)


def _halves(uids: Sequence[int]) -> list[Sequence[int]]:
    """The second half, and the first."""
    half = len(uids) // 2
    return [uids[half:], uids[:half]] if half else [uids]


async def _asked(remote: Remote, folder: str, uids: Sequence[int], times: int) -> Fetched:
    answer = Fetched(uids=uids)
    for _ in range(times):
        try:
            return Fetched(uids=uids, messages=await remote.messages(folder, uids))
        except NOBODYS_FAULT:
            raise
        except DirectSuiteError as failure:
            answer = Fetched(uids=uids, failure=failure)
    return answer
