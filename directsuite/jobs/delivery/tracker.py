"""Tracking of the delivery of many messages of one mailbox.

A message is *over* when every recipient has a final status or it was given up. A request is *rejected* if its error
seems to be caused by the Message-IDs in it. An *isolated* message is polled alone, because its requests were rejected.

add ─► journal ─► polled when due, together with messages that are nearly due
                     └─ changes ─► journal ─► body of the loop ─► acknowledged when the loop asks for the next change

a batch of up to 1,000 messages
  └─ all batches rejected ─► poll a few messages alone ─► all rejected too: the service is the cause, pause
  └─ any request succeeded ─► split rejected batches into 50, then into single messages, and isolate those

Requests are sent only while the loop waits for a change. Ages are measured with the monotonic clock. If Unix time moves
ahead of it, the machine may have been suspended, and all messages become due.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import attrs

from directsuite.core.clock import MAX_SLEEP, WAIT_TOLERANCE, make_unix_time, sleep_or_event
from directsuite.core.events import Progress, validate_progress
from directsuite.core.iteration import Listing
from directsuite.core.outcome import NOT_RETRYABLE, find_error_scope
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
from directsuite.jobs.delivery.journal import (
    DeliveryChange,
    DeliveryJournal,
    DeliveryJournalError,
    RecipientStatus,
    SendRecord,
    TrackedMessage,
    TrackingState,
    find_changes,
    hash_mailbox,
)
from directsuite.messaging import arguments, operations, send_once
from directsuite.messaging.confirmations import Deadline
from directsuite.messaging.models import DirectMessageLog, Message, Recipient, SendMessageResponse
from directsuite.messaging.sending import (
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
from directsuite.messaging.service import Mailbox

_MAX_BATCH_MESSAGES = 1_000
"""Requests stay below 1 MB with the longest Message-IDs (998 octets, RFC 5322)."""
_SPLIT_BATCH_MESSAGES = 50  # size of the parts of a rejected batch
_MAX_PROBES = 3  # messages polled alone if all batches are rejected

_EXTENSION_SECONDS = 300.0
"""How long a message is polled that is already overdue in the journal: the clock may have been wrong."""
_REJECTIONS_TO_GIVE_UP = 5  # consecutive; a single rejection may be temporary
_FAILURES_TO_REJECT = 3  # consecutive; then HTTP 500 counts as a rejection
_MAX_IDLE_SECONDS = 3_600.0
_BROKEN_SERVICE_SECONDS = 86_400.0  # added to the age at which messages are given up

_PAGE_CHANGES = 200  # changes read from the journal at a time

_OTHER_MESSAGE_HAS_KEY = (
    "another message was sent with this key, or may have been. Use a different key for a new message. To repeat the "
    "earlier message, pass the same recipients, subject, text, header lines and attachments, in the same order and "
    "with the same names and content types"
)
_HINT_CALL_AGAIN = (
    "call send again later, with the same key. It searches for the message before it sends. If the error is raised "
    "again, look in INBOX.Sent and the other folders, and send the message with another key if it is not there."
)
_HINT_RECORD_AGAIN = (
    "make the journal writable (is the disk full?), then call send again with the same key. It finds the message "
    "and tracks it. Do not send it with another key."
)


@scrub_class
class DeliveryTracker:
    """Sends messages of one mailbox once each, and tracks their delivery.

        async with ds.DirectSuite(settings) as suite, DeliveryJournal("delivery.db") as journal:
            tracker = DeliveryTracker(suite.mailbox(address, password), journal=journal)
            for key, message in messages.items():
                await tracker.send(message, key=key)
            async for change in tracker.changes():
                ...

    Trackers can share a journal. Those of one mailbox then share their messages: one can add while another loops. The
    final statuses are Delivered, Locally Failed, Remotely Failed and NO MDN Received.

    journal: an open journal.
    give_up_after: age in seconds at which a message added by this tracker is given up without a final status. Not while
        the service does not respond; a day later if it returns HTTP 500 for all messages. A message that is overdue
        when the program starts is polled for five more minutes.
    now: returns Unix time, for tests. None: derived from the suite's clock.

    Raises InvalidArgumentError.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        journal: DeliveryJournal,
        give_up_after: float = DEFAULT_GIVE_UP_AFTER,
        now: Callable[[], float] | None = None,
    ) -> None:
        _validate_argument_types(mailbox, journal)
        self.mailbox = mailbox
        self._journal = journal
        self._give_up_after = validate_give_up_after(give_up_after)
        self._now = now or make_unix_time(mailbox.environment.clock)
        self._name = hash_mailbox(mailbox.username)
        self._poller = StatusPoller(mailbox, self._journal, self._state, self._now)

    async def add(self, smtp_id: str, *, recipients: int | Iterable[Recipient | str] = 1) -> None:
        """Track a message, unless it was added before. If this is cancelled, it may have been added.

        recipients: the expected recipients (duplicates are ignored), or their minimum number. The message is not over
            until all are reported.

        Raises InvalidArgumentError, DeliveryJournalError, and ClosedError if the journal is not open.
        """
        await self._follow(validate_smtp_id(smtp_id), validate_recipient_count(recipients))

    async def _follow(self, smtp_id: str, recipients: int) -> None:
        try:
            message = await self._journal.add(
                self._name, smtp_id, at=self._now(), recipients=recipients, give_up_after=self._give_up_after
            )
        except BaseException:  # the message may be in the journal
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
        settle: float | None = None,
        resend: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message once, even if the program crashes and calls this again, and track it.

        Operation SendWithHeader (specification 4.C), by `Mailbox.send_once`. Return the earlier smtp_id if the message
        was already sent. After an attempt with an unknown result, search the mailbox, and send only if the message is
        certainly not there. A message without a usable smtp_id is not tracked.

        key: unique name of this message. The journal stores hashes of the key and of the message.
        settle, resend, progress, timeout: as for `send_once`. The timeout includes reading the attachments. No progress
            is reported if the message was sent before.

        Raises the exceptions of `send_once`; InvalidArgumentError if a different message has this key;
        DeliveryJournalError if nothing was sent because the journal cannot be written. Raises OutcomeUnknownError with
        `happened` set if the message was sent but not recorded, and without it if the first attempt's time is in the
        future. After OutcomeUnknownError, call again. If it is raised again, and INBOX.Sent does not have the message,
        send it with another key.
        """
        send_once.validate_key(key)
        validate_progress(progress)
        deadline = Deadline.after(self.mailbox.resolve_timeout(timeout))
        checked = arguments.validate_message(message, self.mailbox.username)
        content = await deadline.run_in_time(arguments.compute_message_digest(checked))
        request_id = send_once.make_request_id(self.mailbox.username, key)
        lock = self._state.send_locks.setdefault(request_id, asyncio.Lock())
        await deadline.run_in_time(lock.acquire())
        try:
            began = await self._journal.begin_send(self._name, request_id, at=self._now(), content=content)
            if began.content_digest != content:
                raise InvalidArgumentError(_OTHER_MESSAGE_HAS_KEY, parameter="key")
            if began.smtp_id is not None:
                return SendMessageResponse(success=True, code=0, smtp_id=began.smtp_id)
            since = await self._find_first_attempt_time(began, request_id)
            try:
                sent = await self.mailbox.send_once(
                    message,
                    key=key,
                    since=since,
                    settle=settle,
                    resend=resend,
                    progress=progress,
                    timeout=deadline.require_time_left(),
                )
            except OutcomeUnknownError as error:
                error.how_to_find_out = _HINT_CALL_AGAIN
                raise
            except DirectSuiteError:
                if began.is_new:
                    # If this fails, the next attempt needlessly searches for the message.
                    with contextlib.suppress(DeliveryJournalError):
                        await self._journal.withdraw_send(self._name, request_id)
                raise
            await self._record_sent(request_id, sent.smtp_id, validate_recipient_count(message.recipients))
            return sent
        finally:
            lock.release()

    async def _find_first_attempt_time(self, began: SendRecord, request_id: str) -> datetime | None:
        """Return the time from which to search for an earlier attempt's message, None for the first attempt.

        A time in the future is cleared, so that later attempts search everything. The result is then `datetime.max`,
        with which `send_once` sends nothing.
        """
        if began.is_new:
            return None
        age = self._now() - began.began_at
        if age < 0:
            await self._journal.forget_begin(self._name, request_id)
            return datetime.max.replace(tzinfo=UTC)
        # The tracker's clock may differ from the system clock of `send_once` and the service.
        return min(datetime.fromtimestamp(began.began_at, UTC), datetime.now(UTC) - timedelta(seconds=age))

    async def _record_sent(self, request_id: str, smtp_id: str, recipients: int) -> None:
        try:
            if can_be_followed(smtp_id):
                await self._follow(smtp_id, recipients)
            await self._journal.end_send(self._name, request_id, smtp_id)
        except DirectSuiteError as error:
            raise OutcomeUnknownError(
                "the message was sent, but the journal could not record it",
                how_to_find_out=_HINT_RECORD_AGAIN,
                happened=True,
                operation=operations.SEND_WITH_HEADER.name,
                service=operations.SEND_WITH_HEADER.service,
            ) from error

    async def followed(self) -> Sequence[str]:
        """Return the smtp_ids of messages that are not over, oldest first. Raises DeliveryJournalError."""
        return [message.smtp_id for message in await self._journal.load(self._name, self._now())]

    def changes(self, *, endless: bool = False) -> Listing[DeliveryChange]:
        """Yield the changes of all recipients until all messages are over.

        If the loop ends before it asks for the next change, the next loop starts with the same change and `id`, unless
        `acknowledge` was called. Temporary failures of requests are retried, after an hour at most.

        endless: wait for new messages when all are over.

        Raises errors that a retry would not fix, such as AuthenticationError; ClosedError; DeliveryJournalError;
        PermissionDeniedError if a poll was denied for all its messages; AnotherLoopError while another loop of this
        mailbox and journal exists. A loop ends with `async with`, `aclose`, or garbage collection.
        """
        return _ChangeListing(self._iter_changes, endless)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """Record that a change was processed, without asking for the next. Raises DeliveryJournalError."""
        await self._journal.acknowledge(change)

    async def _iter_changes(self, endless: bool, reader: weakref.ref[object]) -> AsyncGenerator[DeliveryChange]:
        state = self._state
        state.begin(reader)
        try:
            state.is_loaded = False  # the journal may be newer
            while True:
                if not state.is_loaded:
                    await state.load(self._load_messages)
                pending = await self._journal.list_pending(self._name, _PAGE_CHANGES)
                for change in pending:
                    yield change
                    await self._journal.acknowledge(change)
                if not pending and state.is_loaded:
                    if not state.messages and not endless:
                        return
                    await self._poller.poll()
        finally:
            state.end(reader)

    async def _load_messages(self) -> Sequence[TrackedMessage]:
        messages = await self._journal.load(self._name, self._now())
        for message in messages:
            self._poller.begin(message)
        return messages

    @property
    def _state(self) -> TrackingState:
        return self._journal.get_state(self._name)


def _validate_argument_types(mailbox: object, journal: object) -> None:
    if not isinstance(mailbox, Mailbox):
        raise InvalidArgumentError(
            "mailbox must be a Mailbox. Track the messages of a T-User with `tuser.track`", parameter="mailbox"
        )
    if not isinstance(journal, DeliveryJournal):
        raise InvalidArgumentError(
            'journal must be a DeliveryJournal. Open one with `async with DeliveryJournal("delivery.db") as journal`',
            parameter="journal",
        )


class _ChangeListing(Listing[DeliveryChange]):
    """While this object is referenced, no other loop can start."""

    def __init__(
        self, changes: Callable[[bool, weakref.ref[object]], AsyncGenerator[DeliveryChange]], endless: bool
    ) -> None:
        super().__init__(changes(endless, weakref.ref(self)))


@attrs.define
class RejectedBatch:
    """A rejected request."""

    messages: Sequence[TrackedMessage]
    error: DirectSuiteError


@attrs.define
class BatchQuery:
    """Polls batches of messages, and finds the messages that cause rejections."""

    _request: Callable[[Sequence[TrackedMessage]], Awaitable[DirectSuiteError | None]]
    """Returns the error of a rejected request."""
    has_response: bool = False
    rejected_batches: list[RejectedBatch] = attrs.field(factory=list[RejectedBatch])
    """Single messages if any request succeeded, else entire batches."""
    is_denied: bool = True
    """True if all requests were denied."""

    async def run(self, batches: Iterable[Sequence[TrackedMessage]]) -> None:
        """Poll all batches. Split rejected ones if any other request succeeds."""
        await self._poll(batches)
        if not self.has_response:  # poll a few messages alone, at random because bad ones may be adjacent
            several = [message for each in self.rejected_batches if len(each.messages) > 1 for message in each.messages]
            for message in random.sample(several, min(_MAX_PROBES, len(several))):
                if await self._try([message]) is None:
                    for each in self.rejected_batches:
                        each.messages = [other for other in each.messages if other is not message]
                    break
        for size in (_SPLIT_BATCH_MESSAGES, 1) if self.has_response else ():
            larger = [each.messages for each in self.rejected_batches if len(each.messages) > size]
            self.rejected_batches = [each for each in self.rejected_batches if len(each.messages) <= size]
            for messages in larger:
                await self._poll(_split_batches(messages, size))

    async def _poll(self, batches: Iterable[Sequence[TrackedMessage]]) -> None:
        for batch in batches:
            error = await self._try(batch)
            if error is not None:
                self.rejected_batches.append(RejectedBatch(batch, error))

    async def _try(self, batch: Sequence[TrackedMessage]) -> DirectSuiteError | None:
        error = await self._request(batch)
        self.has_response = self.has_response or error is None
        self.is_denied = self.is_denied and isinstance(error, PermissionDeniedError)
        return error


def _split_batches(messages: Sequence[TrackedMessage], size: int) -> Sequence[Sequence[TrackedMessage]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def select_due_batches(
    messages: Iterable[TrackedMessage], now: float
) -> tuple[Sequence[Sequence[TrackedMessage]], Sequence[TrackedMessage]]:
    """Return batches of due messages, filled up with nearly due ones, and the due isolated messages."""
    near = sorted((each for each in messages if each.earliest_poll_at <= now), key=lambda each: each.latest_poll_at)
    together = [each for each in near if not each.isolated]
    due = sum(each.latest_poll_at <= now for each in together)
    requests = -(-due // _MAX_BATCH_MESSAGES)
    return _split_batches(together[: requests * _MAX_BATCH_MESSAGES], _MAX_BATCH_MESSAGES), [
        each for each in near if each.isolated and each.latest_poll_at <= now
    ]


class StatusPoller:
    """Polls the statuses of one mailbox's messages. unix_time: returns the journal's time."""

    def __init__(
        self, mailbox: Mailbox, journal: DeliveryJournal, state: TrackingState, unix_time: Callable[[], float]
    ) -> None:
        self._mailbox = mailbox
        self._journal = journal
        self._state = state
        self._unix_time = unix_time
        self._monotonic = mailbox.environment.clock.monotonic
        self._sleep = mailbox.environment.session.sleep
        self._ahead = self._unix_time() - self._monotonic()
        self._failures = 0  # consecutive
        self._resume_at = 0.0  # end of the pause after a failure

    def begin(self, message: TrackedMessage) -> None:
        """Set the start of a message's age. If the message is nearly overdue, allow it five minutes from now."""
        now = self._monotonic()
        age = max(0.0, self._unix_time() - message.added_at)
        if age > message.give_up_after - _EXTENSION_SECONDS:
            age, message.give_up_after = 0.0, min(_EXTENSION_SECONDS, message.give_up_after)
        message.began_at = now - age

    def schedule(self, message: TrackedMessage) -> None:
        """Set the time of a message's next poll."""
        window = compute_next_poll(max(0.0, self._monotonic() - message.began_at), message.give_up_after)
        message.earliest_poll_at, message.latest_poll_at = (
            message.began_at + window.earliest,
            message.began_at + window.latest,
        )

    async def poll(self) -> None:
        """Poll the due messages, or wait until a message is due or added, or until a pause is over.

        Raises DeliveryJournalError, and errors that a retry would not fix. PermissionDeniedError is only raised if the
        service rejects all requests with it, and for a single message only once.
        """
        messages, now = self._state.messages, self._monotonic()
        before, self._ahead = self._ahead, self._unix_time() - now
        if self._ahead - before > MAX_SLEEP:  # the machine may have been suspended
            for message in messages.values():
                message.earliest_poll_at = message.latest_poll_at = 0.0
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

    async def _ask(self, batches: Sequence[Sequence[TrackedMessage]]) -> bool:
        """Return False if the service needs a pause: a request failed, or all were rejected (more than one message).

        Raises errors that a retry would not fix.
        """
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
            failure = await self._handle_all_rejected(query.rejected_batches, is_denied=query.is_denied)
        if failure is not None:
            self._failures += 1
            self._resume_at = self._monotonic() + BACKOFF.compute_wait(self._failures, failure.retry_after)
            return False
        self._failures = 0
        return True

    async def _request(self, messages: Sequence[TrackedMessage]) -> DirectSuiteError | None:
        """Record statuses. Return None, or the error if the messages are rejected. Raises other errors."""
        try:
            report = await self._mailbox.get_message_statuses([message.smtp_id for message in messages])
            records = report.records  # a report that is not CSV is rejected too
        except (ServiceError, ResponseDecodeError) as error:
            if _is_mailbox_error(error) or self._is_service_trouble(error, messages):
                raise
            return error
        await self._set_isolated([message for message in messages if message.isolated], isolated=False)
        await self._record(messages, records)
        return None

    async def _isolate(self, rejected: Sequence[RejectedBatch]) -> None:
        new = [each.messages[0] for each in rejected if not each.messages[0].isolated]
        await self._set_isolated(new, isolated=True)
        for message in new:
            message.rejections = 0  # earlier rejections may have been caused by other messages
        for each in rejected:
            await self._count_rejection(each)
            self._postpone(each.messages[0])

    async def _handle_all_rejected(
        self, rejected: Sequence[RejectedBatch], *, is_denied: bool
    ) -> DirectSuiteError | None:
        """Return the error for which to pause, or None if a single message was rejected and is polled later.

        Raises PermissionDeniedError if all requests were denied, except for a message isolated before.
        """
        only = rejected[0].messages[0] if len(rejected) == len(rejected[0].messages) == 1 else None
        if is_denied and not (only and only.isolated):
            if only is not None:
                # Possibly only this message is denied. Isolated, it raises once and does not block others.
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
            await self._journal.set_isolated(messages, isolated=isolated)
        for message in messages:
            message.isolated = isolated

    async def _count_rejection(self, rejected: RejectedBatch) -> None:
        """Give up overdue messages that are rejected repeatedly; a day later if the service fails with 5xx for all."""
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
        self.schedule(message)
        message.latest_poll_at = max(
            message.latest_poll_at, self._monotonic() + BACKOFF.compute_wait(message.rejections)
        )

    def _is_service_trouble(
        self, error: ServiceError | ResponseDecodeError, messages: Sequence[TrackedMessage]
    ) -> bool:
        """Return True if the service failed for another reason than the messages in the request.

        Some services return HTTP 500 for certain identifiers, so 500 is a rejection if it persists.
        """
        if isinstance(error, ServerError):
            stays = messages[0].isolated or self._failures >= _FAILURES_TO_REJECT
            return error.status != HTTPStatus.INTERNAL_SERVER_ERROR or not stays
        return isinstance(error, RateLimitedError)

    async def _record(self, messages: Sequence[TrackedMessage], records: Sequence[DirectMessageLog]) -> None:
        reported = group_by_message([message.smtp_id for message in messages], records)
        changed = [
            (
                message,
                find_changes(message, reported[normalize_smtp_id(message.smtp_id)], give_up=self._is_overdue(message)),
            )
            for message in messages
        ]
        if any(changes for _, changes in changed):
            await self._journal.record(changed)
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
    return find_error_scope(error) in NOT_RETRYABLE and not isinstance(error, PermissionDeniedError)
