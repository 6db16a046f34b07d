"""Looks at the messages of one mailbox: when, at which of them, and what comes of the answers.

Ages count by the clock of waits, which nobody sets. Where Unix time goes ahead of it, the machine may have slept, and
all are looked at at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from directsuite.core.clock import STRIDE
from directsuite.errors import (
    DirectSuiteError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
)
from directsuite.jobs.delivery.changes import DeliveryChange, Followed, Seen, changes_of
from directsuite.jobs.delivery.following import Following
from directsuite.jobs.delivery.journal import Journal, JournalError
from directsuite.jobs.delivery.requests import by_message, requests_of
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import AT_ONCE, HOPELESS, bare, next_look, pause_after

_CUTS = 24
"""Requests of a look that may be cut in two for being refused: enough to find two bad Message-IDs among 1,000.

Half as many after each look in which that found nothing good, for then it isn't the Message-IDs.
"""

_AGAIN = 300.0
"""Seconds for which one is looked at that was past its time when the journal was read: a clock may have been wrong."""

_FEWEST_CUTS = 4
_REFUSALS = 5  # in a row, with which a message may be given up: one may be of the moment
_STUBBORN = 3  # failures in a row
_IDLE = 3_600.0  # seconds
_OF_THE_MAILBOX = tuple(kind for kind in HOPELESS if kind is not PermissionDeniedError)  # which may be of one message


class Looks:
    """Makes the requests for one mailbox's messages, as they are due. unix_time: the journal's time."""

    def __init__(
        self, mailbox: Mailbox, journal: Journal, following: Following, unix_time: Callable[[], float]
    ) -> None:
        self._mailbox = mailbox
        self._journal = journal
        self._following = following
        self._unix_time = unix_time
        self._monotonic = mailbox._transport._clock.monotonic
        self._sleep = mailbox._transport._lifecycle.sleep
        self._ahead = self._unix_time() - self._monotonic()
        self._failures = self._fruitless = 0  # in a row; the latter: looks that were cut and found nothing
        self._resume_at = 0.0  # until when the service is left alone

    def begin(self, message: Followed) -> None:
        """Count a message's age from when it was added, which may be long ago."""
        now = self._monotonic()
        age = max(0.0, self._unix_time() - message.added_at)
        if age > message.give_up_after - _AGAIN:
            age, message.give_up_after = 0.0, min(_AGAIN, message.give_up_after)
        message.began = now - age

    def schedule(self, message: Followed) -> None:
        """Have a message looked at next as its age, now that it was sent or looked at, asks for."""
        window = next_look(max(0.0, self._monotonic() - message.began), message.give_up_after)
        message.earliest, message.latest = message.began + window.earliest, message.began + window.latest

    async def look(self) -> None:
        """Wait until a message is due, and ask for it with those that are near; or for another one to be added."""
        messages = self._following.messages
        self._notice_sleep()
        now = self._monotonic()
        due_at = min((each.latest for each in messages.values()), default=now + _IDLE)
        if max(due_at, self._resume_at) - now > AT_ONCE:
            self._following.wakes_at = due_at if messages else math.inf
            try:
                await self._wait(min(max(due_at, self._resume_at) - now, STRIDE if messages else _IDLE))
            finally:
                self._following.wakes_at = -math.inf
            return
        for group in requests_of(messages.values(), now + AT_ONCE):
            if not await self._ask(group):
                return

    def _notice_sleep(self) -> None:
        before, self._ahead = self._ahead, self._unix_time() - self._monotonic()
        if self._ahead - before > STRIDE:
            for message in self._following.messages.values():
                message.earliest = message.latest = 0.0

    async def _ask(self, group: Sequence[Followed]) -> bool:
        """Ask for these messages; whether the look goes on. A request that is refused is cut, to find out why."""
        groups, refused, answered = deque([group]), dict[Followed, DirectSuiteError](), False
        most = cuts = max(_FEWEST_CUTS, _CUTS >> self._fruitless)
        refusal: DirectSuiteError | None = None
        failure: DirectSuiteError | None = None
        while groups and failure is None:
            asked = groups.popleft()
            try:
                report = await self._mailbox.get_message_statuses([message.smtp_id for message in asked])
                await self._note(asked, report.records)
                answered = True
            except (*_OF_THE_MAILBOX, JournalError):
                raise
            except (ServiceError, ResponseDecodeError) as error:
                if self._is_trouble(error, asked):
                    failure = error
                    continue
                refusal = error
                if len(asked) == 1:
                    refused[asked[0]] = error
                elif cuts:
                    middle = len(asked) // 2
                    groups.extendleft((asked[middle:], asked[:middle]))
                    cuts -= 1
                else:
                    failure = error
            except DirectSuiteError as error:
                failure = error
        self._fruitless = 0 if answered else self._fruitless + (cuts < most)
        if not answered and refusal is not None and failure in (None, refusal):
            failure = await self._all_refused(group, refused, refusal)
        elif answered:
            await self._set_apart(refused)
        for message, its_refusal in refused.items():
            await self._note_refused([message], its_refusal)
        if failure is not None:
            return self._failed(failure)
        self._failures = 0
        return True

    async def _all_refused(
        self, group: Sequence[Followed], refused: Container[Followed], refusal: DirectSuiteError
    ) -> DirectSuiteError | None:
        """Why the service is left alone, where all that was asked for is refused. Raises what is the whole mailbox's.

        refused: those that were asked for alone.
        """
        if isinstance(refusal, PermissionDeniedError) and not group[0].apart:
            if len(group) == 1:  # it may be the message's own: then it is told once, and stands in no other's way
                await self._set_apart(group)
            raise refusal
        await self._note_refused([message for message in group if message not in refused], refusal)
        return refusal if len(group) > 1 else None

    async def _set_apart(self, messages: Iterable[Followed]) -> None:
        """So that others are not refused for them, nor the mailbox when they alone are left."""
        new = [message for message in messages if not message.apart]
        if new:
            await self._journal._set_apart(new)
        for message in new:
            message.apart = True

    async def _note_refused(self, asked: Sequence[Followed], error: DirectSuiteError) -> None:
        """Those of which the service has nothing to say: not, or not yet.

        One that is broken for all may know them later; one that is broken for them alone is as one that refuses.
        """
        for message in asked:
            message.refusals += 1
        blamed = (each for each in asked if each.apart or not isinstance(error, ServerError))
        await self._note([each for each in blamed if each.refusals >= _REFUSALS and self._gives_up(each)], ())
        if len(asked) == 1:
            [message] = asked
            self.schedule(message)
            message.latest = max(message.latest, self._monotonic() + pause_after(message.refusals, None))

    def _is_trouble(self, error: ServiceError | ResponseDecodeError, asked: Sequence[Followed]) -> bool:
        """Whether it is the service's own trouble, and not about what was asked for.

        Some services answer 500 to an identifier that they don't like: one that stays is taken for that.
        """
        if isinstance(error, ServerError):
            stays = asked[0].apart or self._failures >= _STUBBORN
            return error.status != HTTPStatus.INTERNAL_SERVER_ERROR or not stays
        return isinstance(error, RateLimitedError)

    async def _note(self, asked: Sequence[Followed], records: Sequence[DirectMessageLog]) -> None:
        found = by_message(asked, records)
        noted = list[tuple[Followed, list[tuple[str, DeliveryChange]]]]()
        for message in asked:
            changes = changes_of(message, found[bare(message.smtp_id)], give_up=self._gives_up(message))
            noted.append((message, changes))
        if any(changes for _, changes in noted):
            await self._journal._note(noted)
        for message, changes in noted:
            if changes and changes[-1][1].ends_message:
                del self._following.messages[bare(message.smtp_id)]
                continue
            message.refusals = 0
            for address, change in changes:
                message.seen[address] = Seen(change.recipient, change.status, change.step, change.is_end)
            self.schedule(message)

    def _gives_up(self, message: Followed) -> bool:
        return self._monotonic() - message.began >= message.give_up_after - AT_ONCE

    def _failed(self, error: DirectSuiteError) -> bool:
        """Leave the service alone for a while; what was due stays due."""
        self._failures += 1
        self._resume_at = self._monotonic() + pause_after(self._failures, error.retry_after)
        return False

    async def _wait(self, seconds: float) -> None:
        """Let time pass, until a message is added. Raises ClosedError where the suite ends."""
        added = self._following.added
        added.clear()
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        waits: list[asyncio.Future[Any]] = [sleeping, asyncio.ensure_future(added.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not sleeping.cancelled():
            sleeping.result()
