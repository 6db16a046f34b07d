"""Many messages of one mailbox, followed together.

add ─► journal ─► looked at when it is due; one request asks for all whose time has come, or is near
                     └─ what is new ─► journal ─► the loop's body ─► asks for the next: done

Requests go out while the loop waits for a change, and only then: a slow body slows them down, and leaving the loop ends
them. Whatever has happened meanwhile, to the program too, the next loop goes on with.
"""

# pyright: reportPrivateUsage=false
# Used: the journal's methods for the tracker.

from __future__ import annotations

import hashlib
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from directsuite.core.clock import unix_time
from directsuite.core.iteration import Listing
from directsuite.errors import InvalidArgumentError
from directsuite.jobs.delivery.changes import DeliveryChange, TrackedMessage, TrackingState
from directsuite.jobs.delivery.journal import Journal
from directsuite.jobs.delivery.polling import StatusPoller
from directsuite.messaging.models import Recipient
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import GIVE_UP_AFTER, checked_patience, checked_recipients, checked_smtp_id

_PAGE = 200  # changes read at a time


class DeliveryTracker:
    """Follows messages of one mailbox until each recipient has come to an end, or they are given up.

        async with ds.DirectSuite(settings) as suite, Journal("delivery.db") as journal:
            tracker = DeliveryTracker(suite.mailbox(address, password), journal=journal)
            for message in messages:
                sent = await tracker.mailbox.send_once(message)
                await tracker.add(sent.smtp_id, recipients=message.recipients)
            async for change in tracker.changes():
                ...

    A tracker is of one mailbox, since a request is made in the name of one and is told of that one's messages; those of
    several mailboxes may share a journal, and so may those of one mailbox, which then share what is followed, too:
    one adds, another loops. A T-User has none: its messages are followed one by one, with `tuser.track`. Ends are
    Delivered, Locally Failed, Remotely Failed and NO MDN Received: what the service says of a recipient after one of
    these is not looked at.

    journal: an opened one. give_up_after: seconds from adding a message on, by whichever tracker loops, after which it
    is told to be given up, where the service still answers with anything else or doesn't know it; while the service
    doesn't answer, nothing is given up, but where it answers 500 to everything a day later still. A program that begins
    later than that looks for five minutes first, since a clock may have been wrong: one that always ends sooner gives
    none of these up. A pause that the service asks for (Retry-After) is kept, up to an hour: then it is
    asked again. The suite's clock is the tracker's, too. now: another Unix time, for tests. Raises
    InvalidArgumentError.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        journal: Journal,
        give_up_after: float = GIVE_UP_AFTER,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.mailbox = _checked(mailbox)
        self._journal = _checked_journal(journal)
        self._give_up_after = checked_patience(give_up_after)
        self._now = now or unix_time(mailbox.runtime.clock)
        self._name = hashlib.sha256(f"directsuite\0{mailbox._username.casefold()}".encode()).hexdigest()
        self._poller = StatusPoller(mailbox, journal, self._state, self._now)

    async def add(self, smtp_id: str, *, recipients: int | Iterable[Recipient | str] = 1) -> None:
        """Follow a message from now on; when this returns, the journal has it. Does nothing for one that it knows.

        smtp_id: what sending it gave. recipients: who they are, of whom one that is named twice is one, or how many, at
        the least; until so many are seen it isn't over. Raises InvalidArgumentError, JournalError, and ClosedError
        where the journal isn't open. Where it is cancelled, the message may be followed.
        """
        smtp_id, count = checked_smtp_id(smtp_id), checked_recipients(recipients)
        try:
            message = await self._journal._add(
                self._name, smtp_id, at=self._now(), recipients=count, give_up_after=self._give_up_after
            )
        except BaseException:  # cancelled or not, it may be the journal's all the same
            self._state.doubt()
            raise
        if message is not None:
            self._poller.begin(message)
            self._poller.schedule(message)
            self._state.add(message)

    async def followed(self) -> Sequence[str]:
        """The smtp_ids of messages that are not over, as they were added. Raises JournalError."""
        return [message.smtp_id for message in await self._journal._load(self._name)]

    def changes(self, *, endless: bool = False) -> Listing[DeliveryChange]:
        """Every recipient's changes, until all messages are over; with endless, messages to come are waited for.

        A change is done when the loop asks for the next one. Leaving the loop, by `break`, an exception or a crash,
        leaves the change in its hands undone, unless `acknowledge` was called: the next loop begins with it, under the
        same key. Requests that fail are made again later. Raises what asking again would only repeat, such as
        AuthenticationError, ClosedError where the suite ends before the messages do, and JournalError; a later loop
        goes on from there. PermissionDeniedError may be of some messages alone: it is raised where none of a look is
        answered, and the others are followed on where some are.

        One loop at a time, of all trackers of the mailbox on this journal: another raises AnotherLoopError until that
        one has ended or was left, by `async with`, `aclose` or with nobody who has it.
        """
        return _Changes(self._changes, endless)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """A change is done, though its loop may ask for no more. Raises JournalError."""
        await self._journal._acknowledge(change.key)

    async def _changes(self, endless: bool, reader: weakref.ref[object]) -> AsyncGenerator[DeliveryChange]:
        state = self._state
        state.begin(reader)
        try:
            state.is_loaded = False  # the journal may be ahead of a loop that was cancelled
            while True:
                if not state.is_loaded:
                    await state.load(self._read)
                pending = await self._journal._pending(self._name, _PAGE)
                for change in pending:
                    yield change
                    await self._journal._acknowledge(change.key)
                if not pending and state.is_loaded:
                    if not state.messages and not endless:
                        return
                    await self._poller.poll()
        finally:
            state.end(reader)

    async def _read(self) -> Sequence[TrackedMessage]:
        """The messages that are not over, each with an age."""
        messages = await self._journal._load(self._name)
        for message in messages:
            self._poller.begin(message)
        return messages

    @property
    def _state(self) -> TrackingState:
        return self._journal._state_of(self._name)


def _checked(mailbox: object) -> Mailbox:
    if not isinstance(mailbox, Mailbox):
        raise InvalidArgumentError(
            "give a Mailbox: a T-User's messages are followed one by one, with `tuser.track`", parameter="mailbox"
        )
    return mailbox


def _checked_journal(journal: object) -> Journal:
    if not isinstance(journal, Journal):
        raise InvalidArgumentError(
            'give a Journal that is open, as by `async with Journal("delivery.db") as journal`', parameter="journal"
        )
    return journal


class _Changes(Listing[DeliveryChange]):
    """The changes, for one loop: others may not read them while somebody has this."""

    def __init__(
        self, changes: Callable[[bool, weakref.ref[object]], AsyncGenerator[DeliveryChange]], endless: bool
    ) -> None:
        super().__init__(changes(endless, weakref.ref(self)))
