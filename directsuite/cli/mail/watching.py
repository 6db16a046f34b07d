"""`directsuite status --watch`: messages followed side by side, until all are over or the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import attrs

from directsuite.cli.output import progress
from directsuite.core.clock import AT_ONCE, Clock, SystemClock
from directsuite.core.failures import HOPELESS, Scope, scope_of
from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import GIVE_UP_AFTER, Delivery, bare, by_recipient

UNTIL_KNOWN = 900.0
"""Seconds for which a message that the service doesn't know is waited for.

The specification doesn't say how soon after sending a message is known. A service that takes minutes to write it down
is waited for several times over; one that is still unknown then was not sent from this mailbox, or under another id.
"""


@attrs.define(kw_only=True, repr=False, eq=False)
class Watch:
    """Messages that are watched. records: what is known of each, by its SMTP id; nothing before the service knows it.

    given_up: SMTP ids of those that came to no end in time, or were never known. failure: why it isn't known whether
    the records are the last. patience: seconds in which all has to be over.
    """

    box: Mailbox
    records: dict[str, Sequence[DirectMessageLog]]
    given_up: set[str] = attrs.field(factory=set[str], init=False)
    failure: DirectSuiteError | None = attrs.field(default=None, init=False)
    patience: float = GIVE_UP_AFTER
    clock: Clock = attrs.field(factory=SystemClock)

    async def run(self) -> None:
        """Return when all are over or given up, or no look can succeed any more.

        How many recipients a message has is not known here: more may show when those that were known came to an end.
        """
        ends_at = self.clock.monotonic() + self.patience
        counts = {smtp_id: len(by_recipient(records)) for smtp_id, records in self.records.items()}
        while counts:
            await self._follow(counts, ends_at)
            counts = await self._late() if self.failure is None else {}

    async def _follow(self, counts: Mapping[str, int], ends_at: float) -> None:
        """Take in what becomes of these messages. counts: the recipients of each that are known."""

        async def followed(smtp_id: str, count: int) -> None:
            delivery = await self._followed(smtp_id, count, ends_at)
            if delivery is None or delivery.given_up:
                self.given_up.add(smtp_id)
            if delivery is not None:
                self.records[smtp_id] = delivery.records
            bar.advance()

        try:
            async with progress("following", unit="pieces", total=len(counts)) as bar, asyncio.TaskGroup() as group:
                for smtp_id, count in counts.items():
                    group.create_task(followed(smtp_id, count))
        except* DirectSuiteError:  # it ended the others, too, and is the failure
            pass

    async def _followed(self, smtp_id: str, count: int, ends_at: float) -> Delivery | None:
        """What became of a message; None where its looks fail, or are refused, to the end.

        count: its recipients that are known, 0 where the service doesn't know it yet.
        """
        try:
            if not count:
                try:
                    delivery = await self.box.track(smtp_id, give_up_after=min(UNTIL_KNOWN, self.patience))
                except DirectSuiteError as error:
                    if scope_of(error) not in (Scope.SERVICE, Scope.UNCERTAIN):
                        raise
                else:
                    if not (delivery.given_up and delivery.records):
                        return delivery
            left = max(AT_ONCE, ends_at - self.clock.monotonic())  # with no time left it is looked at once
            return await self.box.track(smtp_id, recipients=max(1, count), give_up_after=left)
        except DirectSuiteError as error:
            if not is_refusal(error):
                self.failure = error
            if scope_of(error) in HOPELESS:
                raise
            return None

    async def _late(self) -> dict[str, int]:
        """The recipients of each message of which more are seen now than when it was over: how many."""
        known = [smtp_id for smtp_id, records in self.records.items() if records]
        try:
            latest = (await self.box.get_message_statuses(known)).records
        except DirectSuiteError as error:
            self.failure = error
            return {}
        late = dict[str, int]()
        for smtp_id in known:
            found = list(by_recipient(records_of(smtp_id, latest)).values())
            if len(found) > len(self.records[smtp_id]):
                self.records[smtp_id] = found
                if smtp_id not in self.given_up:  # a service may tell less of one message than of several
                    late[smtp_id] = len(found)
        return late


def is_refusal(error: DirectSuiteError) -> bool:
    """Whether the service says no to what was asked for, as some do where they don't know a message, or not yet."""
    return scope_of(error) is Scope.ITEM


def records_of(smtp_id: str, records: Iterable[DirectMessageLog]) -> list[DirectMessageLog]:
    """The records of one message; ids count without their angle brackets, which some leave out."""
    return [each for each in records if each.message_id is not None and bare(each.message_id) == bare(smtp_id)]
