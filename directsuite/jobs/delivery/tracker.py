"""Many messages of one mailbox, followed together.

add ─► journal ─► looked at when it is due; one request asks for all whose time has come, or is near
                     └─ what is new ─► journal ─► the loop's body ─► asks for the next: done

Requests go out while the loop waits for a change, and only then: a slow body slows them down, and leaving the loop ends
them. Whatever has happened meanwhile, to the program too, the next loop goes on with.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import Any

from directsuite.core.clock import STRIDE, unix_time
from directsuite.core.listing import Listing
from directsuite.errors import (
    DirectSuiteError,
    InvalidArgumentError,
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
from directsuite.messaging.tracking import (
    AT_ONCE,
    GIVE_UP_AFTER,
    HOPELESS,
    bare,
    checked_patience,
    checked_recipients,
    next_look,
    pause,
    pause_after,
)

_CUTS = 24
"""Requests of a look that may be cut in two for being refused: enough to find two bad Message-IDs among 1,000.

Half as many after each look in which that found nothing good, for then it isn't the Message-IDs.
"""

_FEWEST_CUTS = 4
_REFUSALS = 5  # in a row, with which a message may be given up: one may be of the moment
_STUBBORN = 3  # failures in a row
_TOLD = 200  # changes read at a time
_IDLE = 3_600.0  # seconds
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which SQLite can't hold


class DeliveryTracker:
    """Follows messages of one mailbox until each recipient has come to an end, or they are given up.

        async with ds.DirectSuite(settings) as suite, Journal("delivery.db") as journal:
            tracker = DeliveryTracker(suite.mailbox(address, password), journal=journal)
            for message in messages:
                sent = await tracker.mailbox.send_once(message)
                await tracker.add(sent.smtp_id, recipients=len(message.recipients))
            async for change in tracker.changes():
                ...

    A tracker is of one mailbox, since a request is made in the name of one and is told of that one's messages; those of
    several mailboxes may share a journal, and so may those of one mailbox, which then share what is followed, too:
    one adds, another loops. Ends are Delivered, Locally Failed, Remotely Failed and NO MDN Received: what
    the service says of a recipient after one of these is not looked at.

    journal: an opened one. give_up_after: seconds from adding a message on after which it is told to be given up, where
    the service still answers with anything else or doesn't know it; while the service doesn't answer, nothing is given
    up. A pause that it asks for (Retry-After) is kept, up to an hour: then it is asked again. The suite's clock is the
    tracker's, too. now: another Unix time, for tests. Raises InvalidArgumentError.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        journal: Journal,
        give_up_after: float = GIVE_UP_AFTER,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.mailbox = mailbox
        self._journal = journal
        self._give_up_after = checked_patience(give_up_after)
        self._now = now or unix_time(mailbox._transport._clock)
        self._name = hashlib.sha256(f"directsuite\0{mailbox._username.casefold()}".encode()).hexdigest()
        self._failures = self._fruitless = 0  # in a row; the latter: looks that were cut and found nothing
        self._resume_at = 0.0  # Unix time until which the service is left alone

    async def add(self, smtp_id: str | None, *, recipients: int = 1) -> None:
        """Follow a message from now on; when this returns, the journal has it. Does nothing for one that it knows.

        smtp_id: what sending it gave. recipients: how many it has at the least; until so many are seen it isn't over.
        Raises InvalidArgumentError, JournalError. Where it is cancelled, the message may be followed.
        """
        if not isinstance(smtp_id, str) or not bare(smtp_id) or _HALF.search(smtp_id):
            raise InvalidArgumentError("give the smtp_id that sending gave", parameter="smtp_id")
        checked_recipients(recipients)
        following = self._following
        try:
            message = await self._journal.add(self._name, smtp_id, at=self._now(), recipients=recipients)
        except BaseException:  # cancelled or not, it may be the journal's all the same
            following.is_loaded = False
            following.added.set()
            raise
        if message is not None:
            self._schedule(message, message.added_at)
            following.messages[bare(smtp_id)] = message
            following.added.set()

    async def followed(self) -> Sequence[str]:
        """The smtp_ids of messages that are not over, as they were added. Raises JournalError."""
        return [message.smtp_id for message in await self._journal.followed(self._name)]

    def changes(self, *, endless: bool = False) -> Listing[DeliveryChange]:
        """Every recipient's changes, until all messages are over; with endless, messages to come are waited for.

        A change is done when the loop asks for the next one. Leaving the loop, by `break`, an exception or a crash,
        leaves the change in its hands undone, unless `acknowledge` was called: the next loop begins with it, under the
        same key. One loop at a time: a new one ends the one before. Requests that fail are made again later. Raises
        what asking again would only repeat, such as AuthenticationError, ClosedError where the suite ends before the
        messages do, and JournalError; a later loop goes on from there.
        """
        return Listing(self._changes(endless))

    async def acknowledge(self, change: DeliveryChange) -> None:
        """A change is done, though its loop may ask for no more. Raises JournalError."""
        await self._journal.done(change.key)

    async def _changes(self, endless: bool) -> AsyncGenerator[DeliveryChange]:
        following = self._following
        if following.is_looking:
            raise RuntimeError("another loop reads these changes: there can be one at a time")
        mark = following.loop = object()
        following.is_loaded = False  # the journal may be ahead of a loop that was cancelled
        while True:
            if not following.is_loaded:
                await following.load(lambda: self._journal.followed(self._name))
            untold = await self._journal.untold(self._name, _TOLD)
            if following.loop is not mark:
                return
            for change in untold:
                yield change
                await self._journal.done(change.key)
                if following.loop is not mark:
                    return
            if not untold and following.is_loaded:
                if not following.messages and not endless:
                    return
                following.is_looking = True
                try:
                    await self._look()
                finally:
                    following.is_looking = False

    @property
    def _following(self) -> Following:
        return self._journal.following(self._name)

    async def _look(self) -> None:
        """Wait until a message is due, and ask for it with those that are near; or for another one to be added."""
        messages = self._following.messages
        if not messages:
            await self._wait(_IDLE)
            return
        now = self._now()
        due_at = max(min(each.latest for each in messages.values()), self._resume_at)
        if due_at - now > AT_ONCE:
            await self._wait(min(due_at - now, STRIDE))  # by then Unix time may be another: the machine may have slept
            return
        for group in requests_of(messages.values(), now + AT_ONCE):
            if not await self._ask(group, now):
                return

    async def _ask(self, group: Sequence[Followed], now: float) -> bool:
        """Ask for these messages; whether the service answered. A request that is refused is cut, to find out why."""
        groups, refused = deque([group]), list[Followed]()
        most = cuts = max(_FEWEST_CUTS, _CUTS >> self._fruitless)
        answered = False
        try:
            while groups:
                asked = groups.popleft()
                try:
                    report = await self.mailbox.get_message_statuses([message.smtp_id for message in asked])
                    await self._note(asked, report.records, now)
                    answered = True
                except (*HOPELESS, JournalError):
                    raise
                except (ServiceError, ResponseDecodeError) as error:
                    if self._is_trouble(error):
                        return self._failed(error)
                    if len(asked) > 1 and cuts:
                        middle = len(asked) // 2
                        groups.extendleft((asked[middle:], asked[:middle]))
                        cuts -= 1
                        continue
                    if not answered and (len(asked) > 1 or (len(group) > 1 and not groups)):
                        await self._note_refused(group, error, now)  # all of them, for none was answered
                        return self._failed(error)
                    if len(asked) > 1:
                        return self._failed(error)
                    await self._note_refused(asked, error, now)
                    refused += asked
                except DirectSuiteError as error:
                    return self._failed(error)
        finally:
            for message in refused:
                message.apart |= answered  # so that the others are not refused for it
            self._fruitless = 0 if answered else self._fruitless + (cuts < most)
        self._failures = 0
        return True

    async def _note_refused(self, asked: Sequence[Followed], error: DirectSuiteError, now: float) -> None:
        """Those of which the service has nothing to say: not, or not yet. One that is broken may know them later."""
        for message in asked:
            message.refusals += 1
        if not isinstance(error, ServerError):
            given_up = [each for each in asked if each.refusals >= _REFUSALS and self._gives_up(each, now)]
            await self._note(given_up, (), now)
        if len(asked) == 1:
            [message] = asked
            self._schedule(message, now)
            message.latest = max(message.latest, now + pause_after(message.refusals, None))

    def _is_trouble(self, error: ServiceError | ResponseDecodeError) -> bool:
        """Whether it is the service's own trouble, and not about what was asked for.

        Some services answer 500 to an identifier that they don't like: one that stays is taken for that.
        """
        if isinstance(error, ServerError):
            return error.status != HTTPStatus.INTERNAL_SERVER_ERROR or self._failures < _STUBBORN
        return isinstance(error, RateLimitedError)

    async def _note(self, asked: Sequence[Followed], records: Sequence[DirectMessageLog], now: float) -> None:
        found = by_message(asked, records)
        noted = list[tuple[Followed, list[tuple[str, DeliveryChange]]]]()
        for message in asked:
            changes = changes_of(message, found[bare(message.smtp_id)], give_up=self._gives_up(message, now))
            noted.append((message, changes))
        if any(changes for _, changes in noted):
            await self._journal.note(noted)
        for message, changes in noted:
            if changes and changes[-1][1].ends_message:
                del self._following.messages[bare(message.smtp_id)]
                continue
            message.refusals = 0
            for address, change in changes:
                message.seen[address] = Seen(change.recipient, change.status, change.step, change.is_end)
            self._schedule(message, now)

    def _gives_up(self, message: Followed, now: float) -> bool:
        return now - message.added_at >= self._give_up_after - AT_ONCE

    def _schedule(self, message: Followed, now: float) -> None:
        window = next_look(max(0.0, now - message.added_at), self._give_up_after)
        message.earliest, message.latest = message.added_at + window.earliest, message.added_at + window.latest

    def _failed(self, error: DirectSuiteError) -> bool:
        """Leave the service alone for a while; what was due stays due."""
        self._failures += 1
        self._resume_at = self._now() + pause_after(self._failures, error.retry_after)
        return False

    async def _wait(self, seconds: float) -> None:
        """Let time pass, until a message is added. Raises ClosedError where the suite ends."""
        added = self._following.added
        added.clear()
        sleeping = asyncio.ensure_future(pause(self.mailbox, seconds))
        waits: list[asyncio.Future[Any]] = [sleeping, asyncio.ensure_future(added.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not sleeping.cancelled():
            sleeping.result()
