"""Looks at the messages of one mailbox: when, at which of them, and what comes of the answers.

Ages count by the clock of waits, which nobody sets. Where Unix time goes ahead of it, the machine may have slept, and
all are looked at at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from directsuite.core.clock import STRIDE
from directsuite.core.waits import AT_ONCE
from directsuite.errors import (
    DirectSuiteError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
)
from directsuite.jobs.delivery.asking import Asking, Refused
from directsuite.jobs.delivery.changes import DeliveryChange, Followed, Seen, changes_of
from directsuite.jobs.delivery.following import Following
from directsuite.jobs.delivery.journal import Journal, JournalError
from directsuite.jobs.delivery.requests import by_message, requests_of
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import HOPELESS, bare, next_look, pause_after

_AGAIN = 300.0
"""Seconds for which one is looked at that was past its time when the journal was read: a clock may have been wrong."""

_REFUSALS = 5  # in a row, with which a message may be given up: one may be of the moment
_STUBBORN = 3  # failures in a row
_IDLE = 3_600.0  # seconds
_BROKEN = 86_400.0  # seconds past its time, from which on one may be given up though the service is broken for all
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
        self._failures = 0  # in a row
        self._turn = 0
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
        together, apart = requests_of(messages.values(), now + AT_ONCE)
        if together and not await self._ask(together):
            return
        for message in apart:
            if not await self._ask([[message]]):
                return

    def _notice_sleep(self) -> None:
        before, self._ahead = self._ahead, self._unix_time() - self._monotonic()
        if self._ahead - before > STRIDE:
            for message in self._following.messages.values():
                message.earliest = message.latest = 0.0

    async def _ask(self, groups: Sequence[Sequence[Followed]]) -> bool:
        """Ask for these messages, and judge what came of all; whether the look goes on."""
        asking = Asking(self._request)
        failure: DirectSuiteError | None = None
        self._turn += 1
        try:
            await asking.ask(groups, turn=self._turn)
        except (*_OF_THE_MAILBOX, JournalError):
            raise
        except DirectSuiteError as error:
            failure = error
        if asking.answered:
            await self._blame_alone([each for each in asking.refused if len(each.messages) == 1])
        if failure is None and asking.answered:
            self._failures = 0  # what was cut no more is soon asked for again, and fewer are left each time
            failure = next((each.error for each in asking.refused if len(each.messages) > 1), None)
        elif failure is None:
            failure = await self._blame_all(asking.refused)
        if failure is not None:
            return self._failed(failure)
        self._failures = 0
        return True

    async def _request(self, asked: Sequence[Followed]) -> DirectSuiteError | None:
        """Why these are refused; None where they are answered. Raises what isn't about them."""
        try:
            report = await self._mailbox.get_message_statuses([message.smtp_id for message in asked])
        except _OF_THE_MAILBOX:
            raise
        except (ServiceError, ResponseDecodeError) as error:
            if self._is_trouble(error, asked):
                raise
            return error
        await self._set_apart([message for message in asked if message.apart], apart=False)
        await self._note(asked, report.records)
        return None

    async def _blame_alone(self, refused: Sequence[Refused]) -> None:
        """Where others are answered it is the messages: they are asked for apart, and stand in no other's way."""
        new = [each.messages[0] for each in refused if not each.messages[0].apart]
        await self._set_apart(new, apart=True)
        for message in new:
            message.refusals = 0  # those before may have been everybody's
        for each in refused:
            await self._note_refused(each)
            self._postpone(each.messages[0])

    async def _blame_all(self, refused: Sequence[Refused]) -> DirectSuiteError | None:
        """Why the service is left alone, where nothing is answered. Raises what is the whole mailbox's."""
        only = refused[0].messages[0] if len(refused) == len(refused[0].messages) == 1 else None
        if all(isinstance(each.error, PermissionDeniedError) for each in refused) and not (only and only.apart):
            if only is not None:  # it may be the message's own: then it is told once, and stands in no other's way
                await self._set_apart([only], apart=True)
            raise refused[0].error
        for each in refused:
            await self._note_refused(each)
        if only is None:
            return refused[0].error
        self._postpone(only)
        return None

    async def _set_apart(self, messages: Sequence[Followed], *, apart: bool) -> None:
        """Whether each has a request of its own, so that others are not refused for it."""
        if messages:
            await self._journal._set_apart(messages, apart=apart)
        for message in messages:
            message.apart = apart

    async def _note_refused(self, refused: Refused) -> None:
        """Those of which the service has nothing to say: not, or not yet.

        One that is broken for all may know them later, for a day; one that is broken for them alone is as one that
        refuses.
        """
        for message in refused.messages:
            message.refusals += 1
        broken = isinstance(refused.error, ServerError)
        over = [
            message
            for message in refused.messages
            if message.refusals >= _REFUSALS
            and self._gives_up(message, later=_BROKEN if broken and not message.apart else 0.0)
        ]
        await self._note(over, ())

    def _postpone(self, message: Followed) -> None:
        """Have one that was refused alone looked at when it is due, and not before a pause has passed."""
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

    def _gives_up(self, message: Followed, later: float = 0.0) -> bool:
        return self._monotonic() - message.began >= message.give_up_after + later - AT_ONCE

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
