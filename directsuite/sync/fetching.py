"""Messages by uid, in order, in batches of so many bytes; what can't be fetched is singled out.

A batch that fails is halved until the message is alone that makes it fail; that one is asked for three times.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence

import attrs

from directsuite.core.listing import FetchedAhead
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
)
from directsuite.messaging.batches import Batch, Batches
from directsuite.messaging.models import MessageDetail
from directsuite.sync.remote import Remote

_MOST = 200  # messages of a batch
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
    cut = Batches(uids, most=_MOST, window=_WINDOW, batch_bytes=_BYTES)

    async def fetch(batch: Batch) -> Fetched:
        """One batch, or its failure."""
        try:
            messages = await remote.messages(folder, batch.uids, batch.weigh)
        except NOBODYS_FAULT:
            raise
        except DirectSuiteError as failure:
            if batch.too_large:
                cut.came(batch, len(batch.uids))
            return Fetched(uids=batch.uids, failure=failure)
        cut.came(batch, len(messages))
        return Fetched(uids=batch.uids, messages=messages)

    keys = itertools.islice(cut, batches)
    async with FetchedAhead(keys, fetch, window=_WINDOW, has_room=cut.has_room) as answers:
        async for answer in answers:
            if answer.failure is None:
                yield answer
            else:
                for part in await _singled_out(remote, folder, answer.uids):
                    yield part
            cut.read()


async def _singled_out(remote: Remote, folder: str, uids: Sequence[int], *, times: int = _STRIKES - 1) -> list[Fetched]:
    """The messages of a batch that failed, in as many answers as it takes. times: how often one alone is asked for."""
    if len(uids) == 1:
        return [await _asked(remote, folder, uids, times)]
    half = len(uids) // 2
    answers: list[Fetched] = []
    for part in (uids[:half], uids[half:]):
        answer = await _asked(remote, folder, part, 1)
        answers += [answer] if answer.failure is None else await _singled_out(remote, folder, part)
    return answers


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
