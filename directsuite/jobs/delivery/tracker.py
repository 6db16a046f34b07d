"""Many messages of one mailbox, followed together.

add ─► journal ─► asked for when it is due; one request asks for all whose time has come, or is near
                     └─ what is new ─► journal ─► the loop's body ─► asks for the next: done

all that are due or nearly so, up to 1,000 a request
  └─ rejected ─► a few of them alone ─► rejected too: it isn't the Message-IDs, the service is left alone for a while
       └─ one is answered ─► batches of 50 ─► what is rejected still is asked for one by one, and isolated

Requests go out while the loop waits for a change, and only then: a slow body slows them down, and leaving the loop ends
them. Whatever has happened meanwhile, to the program too, the next loop goes on with.

Ages count by the clock of waits, which nobody sets. Where Unix time goes ahead of it, the machine may have slept, and
all messages are due at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import random
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import attrs

from directsuite.core.call import SETTLE_TIMEOUT
from directsuite.core.clock import MAX_SLEEP, WAIT_TOLERANCE, make_unix_time, sleep_or_event
from directsuite.core.failures import NOT_RETRYABLE, find_error_scope
from directsuite.core.iteration import Listing
from directsuite.core.privacy import scrub_class
from directsuite.errors import (
    DirectSuiteError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
)
from directsuite.jobs.delivery.changes import (
    DeliveryChange,
    RecipientStatus,
    TrackedMessage,
    TrackingState,
    find_changes,
)
from directsuite.jobs.delivery.journal import DeliveryJournal, DeliveryJournalError, Records, SendRecord
from directsuite.messaging import arguments, operations, send_once
from directsuite.messaging.models import DirectMessageLog, Message, Recipient, SendMessageResponse
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import (
    BACKOFF,
    DEFAULT_GIVE_UP_AFTER,
    can_be_followed,
    compute_next_poll,
    group_by_message,
    normalize_smtp_id,
    validate_give_up_after,
    validate_recipient_count,
    validate_smtp_id,
)

_MAX_BATCH_MESSAGES = 1_000
"""Messages of a request: with Message-IDs of the longest form (998 octets, RFC 5322) it stays below 1 MB."""
_SPLIT_BATCH_MESSAGES = 50  # messages of a request in place of a larger one that was rejected
_MAX_PROBES = 3  # messages that are asked for alone where nothing is answered

_EXTENSION_SECONDS = 300.0
"""Seconds for which a message is followed that was past its time when the journal was read: a clock may be wrong."""
_REJECTIONS_TO_GIVE_UP = 5  # in a row, with which a message may be given up: one may be of the moment
_FAILURES_TO_REJECT = 3  # failures in a row
_MAX_IDLE_SECONDS = 3_600.0  # seconds
_BROKEN_SERVICE_SECONDS = (
    86_400.0  # seconds past its time, from which on one may be given up though the service is broken for all
)

_PAGE_CHANGES = 200  # changes read at a time

_HINT_CALL_AGAIN = (
    "call send again later, with the same key: it looks for the message first. If this error comes back, it "
    "will again: look in INBOX.Sent and other folders, and send a message that isn't there under another key."
)
_HINT_RECORD_AGAIN = (
    "make the journal writable again (is the disk full?), then call send again with the same key: it finds the message "
    "and follows it. Do not send it under another key."
)


@scrub_class
class DeliveryTracker:
    """Sends messages of one mailbox once, and follows each until all recipients have come to an end or it is given up.

        async with ds.DirectSuite(settings) as suite, Journal("delivery.db") as journal:
            tracker = DeliveryTracker(suite.mailbox(address, password), journal=journal)
            for key, message in messages.items():
                await tracker.send(message, key=key)
            async for change in tracker.changes():
                ...

    A tracker is of one mailbox, since a request is made in the name of one and is told of that one's messages; those of
    several mailboxes may share a journal, and so may those of one mailbox, which then share what is followed, too:
    one adds, another loops. A T-User has none: its messages are followed one by one, with `tuser.track`. Ends are
    Delivered, Locally Failed, Remotely Failed and NO MDN Received: what the service says of a recipient after one of
    these is not polled.

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
        journal: DeliveryJournal,
        give_up_after: float = DEFAULT_GIVE_UP_AFTER,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.mailbox = _validate_mailbox(mailbox)
        self._records = _validate_journal(journal).records
        self._give_up_after = validate_give_up_after(give_up_after)
        self._now = now or make_unix_time(mailbox.runtime.clock)
        self._name = hashlib.sha256(f"directsuite\0{mailbox.username.casefold()}".encode()).hexdigest()
        self._poller = StatusPoller(mailbox, self._records, self._state, self._now)

    async def add(self, smtp_id: str, *, recipients: int | Iterable[Recipient | str] = 1) -> None:
        """Follow a message from now on; when this returns, the journal has it. Does nothing for one that it knows.

        smtp_id: what sending it gave. recipients: who they are, of whom one that is named twice is one, or how many, at
        the least; until so many are seen it isn't over. Raises InvalidArgumentError, JournalError, and ClosedError
        where the journal isn't open. Where it is cancelled, the message may be followed.
        """
        await self._follow(validate_smtp_id(smtp_id), validate_recipient_count(recipients))

    async def _follow(self, smtp_id: str, recipients: int) -> None:
        try:
            message = await self._records.add(
                self._name, smtp_id, at=self._now(), recipients=recipients, give_up_after=self._give_up_after
            )
        except BaseException:  # cancelled or not, it may be the journal's all the same
            self._state.invalidate()
            raise
        if message is not None:
            self._poller.begin(message)
            self._poller.schedule(message)
            self._state.add(message)

    async def send(
        self,
        message: Message,
        *,
        key: str,
        settle: float = SETTLE_TIMEOUT,
        resend: bool = False,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message once, however often the program crashes and calls this again, and follow it from then on.

        Operation SendWithHeader (specification 4.C), by `Mailbox.send_once`. key: your own name for this message; the
        journal keeps a hash of it, and of the message. Under a key that has gone, nothing is sent, and the answer holds
        the smtp_id of that time. After an attempt whose end the journal doesn't know, the message is looked for in
        INBOX.Sent for the settle time, then in the other folders, and sent only if it surely isn't there. Another
        message under the same key is refused with InvalidArgumentError. A message to which the service gave no id isn't
        followed, nor is one whose id no request can name.

        settle, resend, timeout: as for `send_once`; the time also covers reading attachments for the hash. Raises what
        that raises, and JournalError where nothing was sent yet, if the journal can't be written. If it can't be
        written after the service has accepted the message, OutcomeUnknownError has `happened` set. If a clock that was
        ahead gave the time of the first attempt, this raises OutcomeUnknownError, and the next call searches all of
        INBOX.Sent. After OutcomeUnknownError call again. If it is raised again, look in INBOX.Sent, and send the
        message under another key if it is not there.
        """
        send_once.validate_key(key)
        deadline = send_once.Deadline.after(self.mailbox.resolve_timeout(timeout))
        checked = arguments.validate_message(message, self.mailbox.username)
        content = await deadline.run_in_time(arguments.compute_message_digest(checked))
        request_id = send_once.make_request_id(self.mailbox.username, key)
        lock = self._state.send_locks.setdefault(request_id, asyncio.Lock())
        await deadline.run_in_time(lock.acquire())
        try:
            began = await self._records.begin_send(self._name, request_id, at=self._now(), content=content)
            if began.content_digest != content:
                raise InvalidArgumentError(
                    "another message went under this key, or may have gone: give a new message a key of its own, and "
                    "the same one as it was, with its recipients, subject, text, header lines, and attachments in "
                    "their order, with their names and content types",
                    parameter="key",
                )
            if began.smtp_id is not None:
                return SendMessageResponse(success=True, code=0, smtp_id=began.smtp_id)
            since = await self._find_first_attempt_time(began, request_id)
            try:
                sent = await self.mailbox.send_once(
                    message, key=key, since=since, settle=settle, resend=resend, timeout=deadline.require_time_left()
                )
            except OutcomeUnknownError as error:
                error.how_to_find_out = _HINT_CALL_AGAIN
                raise
            except DirectSuiteError:
                if began.is_new:
                    with contextlib.suppress(
                        DeliveryJournalError
                    ):  # the next attempt then looks for it first, to no harm
                        await self._records.withdraw_send(self._name, request_id)
                raise
            await self._record_sent(request_id, sent.smtp_id, validate_recipient_count(message.recipients))
            return sent
        finally:
            lock.release()

    async def _find_first_attempt_time(self, began: SendRecord, request_id: str) -> datetime | None:
        """The time from which on an earlier attempt's message is looked for; None if there was no earlier attempt.

        A time in the future says that a clock was ahead, and not since when. This attempt gets `datetime.max`, so that
        it sends nothing; later ones search everything.
        """
        if began.is_new:
            return None
        age = self._now() - began.began_at
        if age < 0:
            await self._records.forget_begin(self._name, request_id)
            return datetime.max.replace(tzinfo=UTC)
        # The tracker's clock may be another than the machine's, which `send_once` and the service go by.
        return min(datetime.fromtimestamp(began.began_at, UTC), datetime.now(UTC) - timedelta(seconds=age))

    async def _record_sent(self, request_id: str, smtp_id: str, recipients: int) -> None:
        """Record that the service has the message, and follow it. Raises OutcomeUnknownError, with `happened`."""
        try:
            if can_be_followed(smtp_id):
                await self._follow(smtp_id, recipients)
            await self._records.end_send(self._name, request_id, smtp_id)
        except DirectSuiteError as error:
            raise OutcomeUnknownError(
                "the message was sent, but the journal could not record it",
                how_to_find_out=_HINT_RECORD_AGAIN,
                happened=True,
                operation=operations.SEND_WITH_HEADER.name,
                service=operations.SEND_WITH_HEADER.service,
            ) from error

    async def followed(self) -> Sequence[str]:
        """The smtp_ids of messages that are not over, as they were added. Raises JournalError."""
        return [message.smtp_id for message in await self._records.load(self._name)]

    def changes(self, *, endless: bool = False) -> Listing[DeliveryChange]:
        """Every recipient's changes, until all messages are over; with endless, messages to come are waited for.

        A change is done when the loop asks for the next one. Leaving the loop, by `break`, an exception or a crash,
        leaves the change in its hands undone, unless `acknowledge` was called: the next loop begins with it, under the
        same id. Requests that fail are made again later. Raises what asking again would only repeat, such as
        AuthenticationError, ClosedError where the suite ends before the messages do, and JournalError; a later loop
        goes on from there. PermissionDeniedError may be of some messages alone: it is raised where none of a poll is
        answered, and the others are followed on where some are.

        One loop at a time, of all trackers of the mailbox on this journal: another raises AnotherLoopError until that
        one has ended or was left, by `async with`, `aclose` or with nobody who has it.
        """
        return _ChangeListing(self._iter_changes, endless)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """A change is done, though its loop may ask for no more. Raises JournalError."""
        await self._records.acknowledge(change)

    async def _iter_changes(self, endless: bool, reader: weakref.ref[object]) -> AsyncGenerator[DeliveryChange]:
        state = self._state
        state.begin(reader)
        try:
            state.is_loaded = False  # the journal may be ahead of a loop that was cancelled
            while True:
                if not state.is_loaded:
                    await state.load(self._load_messages)
                pending = await self._records.list_pending(self._name, _PAGE_CHANGES)
                for change in pending:
                    yield change
                    await self._records.acknowledge(change)
                if not pending and state.is_loaded:
                    if not state.messages and not endless:
                        return
                    await self._poller.poll()
        finally:
            state.end(reader)

    async def _load_messages(self) -> Sequence[TrackedMessage]:
        """The messages that are not over, each with an age."""
        await self._records.correct_times(self._name, self._now())
        messages = await self._records.load(self._name)
        for message in messages:
            self._poller.begin(message)
        return messages

    @property
    def _state(self) -> TrackingState:
        return self._records.get_state(self._name)


def _validate_mailbox(mailbox: object) -> Mailbox:
    if not isinstance(mailbox, Mailbox):
        raise InvalidArgumentError(
            "give a Mailbox: a T-User's messages are followed one by one, with `tuser.track`", parameter="mailbox"
        )
    return mailbox


def _validate_journal(journal: object) -> DeliveryJournal:
    if not isinstance(journal, DeliveryJournal):
        raise InvalidArgumentError(
            'give a Journal that is open, as by `async with Journal("delivery.db") as journal`', parameter="journal"
        )
    return journal


class _ChangeListing(Listing[DeliveryChange]):
    """The changes, for one loop: others may not read them while somebody has this."""

    def __init__(
        self, changes: Callable[[bool, weakref.ref[object]], AsyncGenerator[DeliveryChange]], endless: bool
    ) -> None:
        super().__init__(changes(endless, weakref.ref(self)))


@attrs.frozen
class RejectedBatch:
    """Messages whose request was rejected."""

    messages: Sequence[TrackedMessage]
    error: DirectSuiteError


@attrs.define
class BatchQuery:
    """Asks for batches of messages, and finds out for which messages a batch is rejected.

    What `_request` raises ends the query; a message that is neither answered nor rejected then was not asked for.
    """

    _request: Callable[[Sequence[TrackedMessage]], Awaitable[DirectSuiteError | None]]
    """Makes a request, and returns why it is rejected or None."""
    has_response: bool = False
    """Whether any request was."""
    rejected_batches: list[RejectedBatch] = attrs.field(factory=list[RejectedBatch])
    """Single messages where any request was answered; else the whole batches and those that were asked for alone."""

    async def run(self, batches: Iterable[Sequence[TrackedMessage]]) -> None:
        """Ask for all; where some are rejected and others are answered, in smaller batches, down to one by one."""
        await self._ask(batches)
        if self.rejected_batches and not self.has_response:
            await self._probe()
        if self.has_response:
            await self._split(_SPLIT_BATCH_MESSAGES)
            await self._split(1)

    async def _ask(self, batches: Iterable[Sequence[TrackedMessage]]) -> None:
        for batch in batches:
            error = await self._request(batch)
            if error is None:
                self.has_response = True
            else:
                self.rejected_batches.append(RejectedBatch(batch, error))

    async def _probe(self) -> None:
        """Ask for a few messages alone until one is answered: chosen at random, since bad ones may stand together."""
        several = [message for each in self.rejected_batches if len(each.messages) > 1 for message in each.messages]
        for message in random.sample(several, min(_MAX_PROBES, len(several))):
            rest = [
                attrs.evolve(each, messages=_exclude_message(each.messages, message)) for each in self.rejected_batches
            ]
            self.rejected_batches = [each for each in rest if each.messages]
            await self._ask([[message]])
            if self.has_response:
                return

    async def _split(self, size: int) -> None:
        larger = [each.messages for each in self.rejected_batches if len(each.messages) > size]
        self.rejected_batches = [each for each in self.rejected_batches if len(each.messages) <= size]
        for messages in larger:
            await self._ask(_split_batches(messages, size))


def _exclude_message(messages: Sequence[TrackedMessage], message: TrackedMessage) -> Sequence[TrackedMessage]:
    return [each for each in messages if each is not message]


def _split_batches(messages: Sequence[TrackedMessage], size: int) -> Sequence[Sequence[TrackedMessage]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def select_due_batches(
    messages: Iterable[TrackedMessage], now: float
) -> tuple[Sequence[Sequence[TrackedMessage]], Sequence[TrackedMessage]]:
    """The batches to ask for: all messages that are due, and where there is room left, those that nearly are.

    The second are the isolated ones that are due.
    """
    near = sorted((each for each in messages if each.earliest_poll_at <= now), key=lambda each: each.latest_poll_at)
    together = [each for each in near if not each.isolated]
    due = sum(each.latest_poll_at <= now for each in together)
    requests = -(-due // _MAX_BATCH_MESSAGES)
    return _split_batches(together[: requests * _MAX_BATCH_MESSAGES], _MAX_BATCH_MESSAGES), [
        each for each in near if each.isolated and each.latest_poll_at <= now
    ]


class StatusPoller:
    """Makes the requests for one mailbox's messages as they are due. unix_time: the journal's time."""

    def __init__(
        self, mailbox: Mailbox, records: Records, state: TrackingState, unix_time: Callable[[], float]
    ) -> None:
        self._mailbox = mailbox
        self._records = records
        self._state = state
        self._unix_time = unix_time
        self._monotonic = mailbox.runtime.clock.monotonic
        self._sleep = mailbox.runtime.sleep
        self._ahead = self._unix_time() - self._monotonic()
        self._failures = 0  # in a row
        self._resume_at = 0.0  # until when the service is left alone

    def begin(self, message: TrackedMessage) -> None:
        """Set from when on a message's age counts: from when it was added, which may be long ago."""
        now = self._monotonic()
        age = max(0.0, self._unix_time() - message.added_at)
        if age > message.give_up_after - _EXTENSION_SECONDS:
            age, message.give_up_after = 0.0, min(_EXTENSION_SECONDS, message.give_up_after)
        message.began_at = now - age

    def schedule(self, message: TrackedMessage) -> None:
        """Set when a message is asked for next, from its age now that it was sent or asked for."""
        window = compute_next_poll(max(0.0, self._monotonic() - message.began_at), message.give_up_after)
        message.earliest_poll_at, message.latest_poll_at = (
            message.began_at + window.earliest,
            message.began_at + window.latest,
        )

    async def poll(self) -> None:
        """Ask for the messages that are due, with those that nearly are; or wait until one is due or is added."""
        messages = self._state.messages
        self._notice_sleep()
        now = self._monotonic()
        due_at = min((each.latest_poll_at for each in messages.values()), default=now + _MAX_IDLE_SECONDS)
        if max(due_at, self._resume_at) - now > WAIT_TOLERANCE:
            self._state.wakes_at = due_at if messages else math.inf
            try:
                seconds = min(max(due_at, self._resume_at) - now, MAX_SLEEP if messages else _MAX_IDLE_SECONDS)
                self._state.added.clear()
                await sleep_or_event(self._sleep(seconds), self._state.added)
            finally:
                self._state.wakes_at = -math.inf
            return
        batches, isolated = select_due_batches(messages.values(), now + WAIT_TOLERANCE)
        if batches and not await self._ask(batches):
            return
        for message in isolated:
            if not await self._ask([[message]]):
                return

    def _notice_sleep(self) -> None:
        before, self._ahead = self._ahead, self._unix_time() - self._monotonic()
        if self._ahead - before > MAX_SLEEP:
            for message in self._state.messages.values():
                message.earliest_poll_at = message.latest_poll_at = 0.0

    async def _ask(self, batches: Sequence[Sequence[TrackedMessage]]) -> bool:
        """Ask for these batches, and return whether more may be asked for now."""
        query = BatchQuery(self._request)
        failure: DirectSuiteError | None = None
        try:
            await query.run(batches)
        except DirectSuiteError as error:
            if _is_mailbox_error(error):
                raise
            failure = error
        if query.has_response:
            await self._isolate([each for each in query.rejected_batches if len(each.messages) == 1])
        elif failure is None:
            failure = await self._handle_all_rejected(query.rejected_batches)
        if failure is not None:
            self._failures += 1
            self._resume_at = self._monotonic() + BACKOFF.compute_wait(self._failures, failure.retry_after)
            return False
        self._failures = 0
        return True

    async def _request(self, messages: Sequence[TrackedMessage]) -> DirectSuiteError | None:
        """Ask for these messages, and return why they are rejected or None. Raises errors that aren't about them."""
        try:
            report = await self._mailbox.get_message_statuses([message.smtp_id for message in messages])
        except (ServiceError, ResponseDecodeError) as error:
            if _is_mailbox_error(error) or self._is_service_trouble(error, messages):
                raise
            return error
        await self._set_isolated([message for message in messages if message.isolated], isolated=False)
        await self._record(messages, report.records)
        return None

    async def _isolate(self, rejected: Sequence[RejectedBatch]) -> None:
        """Have these messages asked for one by one from now on, since others are answered and these are not."""
        new = [each.messages[0] for each in rejected if not each.messages[0].isolated]
        await self._set_isolated(new, isolated=True)
        for message in new:
            message.rejections = 0  # those before may have been everybody's
        for each in rejected:
            await self._count_rejection(each)
            self._postpone(each.messages[0])

    async def _handle_all_rejected(self, rejected: Sequence[RejectedBatch]) -> DirectSuiteError | None:
        """Return why the service is left alone, where it answers nothing. Raises what is of the whole mailbox."""
        only = rejected[0].messages[0] if len(rejected) == len(rejected[0].messages) == 1 else None
        if all(isinstance(each.error, PermissionDeniedError) for each in rejected) and not (only and only.isolated):
            if only is not None:  # it may be of this message alone: then it is raised once, and blocks no other message
                await self._set_isolated([only], isolated=True)
            raise rejected[0].error
        for each in rejected:
            await self._count_rejection(each)
        if only is None:
            return rejected[0].error
        self._postpone(only)
        return None

    async def _set_isolated(self, messages: Sequence[TrackedMessage], *, isolated: bool) -> None:
        if messages:
            await self._records.set_isolated(messages, isolated=isolated)
        for message in messages:
            message.isolated = isolated

    async def _count_rejection(self, rejected: RejectedBatch) -> None:
        """Count a rejection for each message, and give up those whose time is over.

        A service that is broken for all messages may know them later, for a day; one that is broken for an isolated
        message alone rejects it.
        """
        for message in rejected.messages:
            message.rejections += 1
        broken = isinstance(rejected.error, ServerError)
        over = [
            message
            for message in rejected.messages
            if message.rejections >= _REJECTIONS_TO_GIVE_UP
            and self._is_overdue(message, later=_BROKEN_SERVICE_SECONDS if broken and not message.isolated else 0.0)
        ]
        await self._record(over, ())

    def _postpone(self, message: TrackedMessage) -> None:
        """Have a message that was rejected asked for when it is due, and not before a pause has passed."""
        self.schedule(message)
        message.latest_poll_at = max(
            message.latest_poll_at, self._monotonic() + BACKOFF.compute_wait(message.rejections)
        )

    def _is_service_trouble(
        self, error: ServiceError | ResponseDecodeError, messages: Sequence[TrackedMessage]
    ) -> bool:
        """Whether the error is the service's own trouble, and not about the messages that were asked for.

        Some services answer 500 to an identifier that they don't like: a 500 that stays is taken for that.
        """
        if isinstance(error, ServerError):
            stays = messages[0].isolated or self._failures >= _FAILURES_TO_REJECT
            return error.status != HTTPStatus.INTERNAL_SERVER_ERROR or not stays
        return isinstance(error, RateLimitedError)

    async def _record(self, messages: Sequence[TrackedMessage], records: Sequence[DirectMessageLog]) -> None:
        """Write to the journal what these records say that is new, and schedule the messages that go on."""
        reported = group_by_message([message.smtp_id for message in messages], records)
        changed = [
            (
                message,
                find_changes(message, reported[normalize_smtp_id(message.smtp_id)], give_up=self._is_overdue(message)),
            )
            for message in messages
        ]
        if any(changes for _, changes in changed):
            await self._records.record(changed)
        for message, changes in changed:
            if changes and changes[-1][1].ends_message:
                del self._state.messages[normalize_smtp_id(message.smtp_id)]
                continue
            message.rejections = 0
            for address, change in changes:
                message.seen[address] = RecipientStatus(change.recipient, change.status, change.step, change.is_end)
            self.schedule(message)

    def _is_overdue(self, message: TrackedMessage, later: float = 0.0) -> bool:
        return self._monotonic() - message.began_at >= message.give_up_after + later - WAIT_TOLERANCE


def _is_mailbox_error(error: DirectSuiteError) -> bool:
    """Return True if asking for other messages would fail as well. A refused permission may be one message's own."""
    return find_error_scope(error) in NOT_RETRYABLE and not isinstance(error, PermissionDeniedError)
