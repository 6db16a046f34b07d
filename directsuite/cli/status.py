"""`directsuite status`: how far messages have come, for each of their recipients.

With --watch the messages are followed side by side, until all are over or the time is up.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.text import Text

from directsuite.cli.command import Command
from directsuite.cli.credentials import MailboxAccess, get_mailbox_access
from directsuite.cli.errors import UsageError, exit_for_error
from directsuite.cli.options import StatusOptions
from directsuite.cli.output import build_table, model_to_dict, show_json, show_live, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, end_line
from directsuite.core.clock import WAIT_TOLERANCE, Clock, SystemClock
from directsuite.core.failures import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.errors import BadRequestError, DirectSuiteError, PermissionDeniedError, ServiceError
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import (
    DEFAULT_GIVE_UP_AFTER,
    Delivery,
    is_delivered,
    is_final,
    is_unconfirmed,
    normalize_smtp_id,
    select_latest_by_recipient,
)

MAX_UNKNOWN_SECONDS = 900.0
"""Seconds for which a message that the service doesn't know is waited for.

The specification doesn't say how soon after sending a message is known. A service that takes minutes to write it down
is waited for several times over; one that is still unknown then was not sent from this mailbox, or under another id.
"""

_HINT_FIND_IDS = "`directsuite inbox read UID --folder INBOX.Sent` shows that of a message"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # of a surrogate pair: a byte that the command line couldn't read


def show_status(smtp_ids: Sequence[str], options: StatusOptions) -> int:
    """Tell how far messages have come, and return the exit status."""
    command = Command(
        option_names={"smtp_id": "the SMTP id", "smtp_ids": "the SMTP ids", "username": "--mailbox"},
        advice={BadRequestError: "check the SMTP ids and --mailbox"},
    )

    def begin() -> Coroutine[Any, Any, int]:
        if not all(normalize_smtp_id(each) for each in smtp_ids):
            raise UsageError("an SMTP id is empty: give what `directsuite send` printed")
        if _LONE_SURROGATE.search("".join(smtp_ids)):
            raise UsageError("an SMTP id has bytes that are no UTF-8: give what `directsuite send` printed")
        unique = list({normalize_smtp_id(each): each for each in smtp_ids}.values())
        return _report_statuses(command, get_mailbox_access(options.mailbox, options.password_file), unique, options)

    return command.run(begin)


@attrs.define(kw_only=True, repr=False, eq=False)
class DeliveryWatch:
    """Messages that are watched side by side."""

    box: Mailbox
    records: dict[str, Sequence[DirectMessageLog]]
    """What is known of each message, by its SMTP id; empty before the service knows it."""
    given_up: set[str] = attrs.field(factory=set[str], init=False)
    """SMTP ids of messages that came to no end in time, or were never known."""
    failure: DirectSuiteError | None = attrs.field(default=None, init=False)
    """Why it isn't known whether the records are the last."""
    give_up_after: float = DEFAULT_GIVE_UP_AFTER
    """Seconds in which all has to be over."""
    clock: Clock = attrs.field(factory=SystemClock)
    _next_polls: dict[str, float] = attrs.field(factory=dict[str, float], init=False)
    """On the clock, of the messages that are followed."""

    @property
    def known_records(self) -> list[DirectMessageLog]:
        """The records of all messages."""
        return [record for records in self.records.values() for record in records]

    def render(self, console: Console) -> Text:
        """What is known of each recipient, and the seconds until the next poll."""
        rows, now = list[tuple[str | None, ...]](), self.clock.monotonic()
        for smtp_id, records in self.records.items():
            due = self._next_polls.get(smtp_id)
            next_poll_text = None if due is None else f"{max(0.0, due - now):.0f} s"
            rows += [(record.to, record.status, record.status_details, next_poll_text) for record in records]
            if not records:
                rows.append((smtp_id, "not known yet", None, next_poll_text))
        return build_table(console, ("to", "status", "details", "next poll in"), rows, no_wrap=("to",))

    async def run(self) -> None:
        """Return when all are over or given up, or no look can succeed any more.

        How many recipients a message has is not known here: more may show when those that were known came to an end.
        """
        ends_at = self.clock.monotonic() + self.give_up_after
        counts = {smtp_id: len(select_latest_by_recipient(records)) for smtp_id, records in self.records.items()}
        with show_live(self.render):
            while counts:
                await self._follow_messages(counts, ends_at)
                counts = await self._find_late_recipients() if self.failure is None else {}

    async def _follow_messages(self, counts: Mapping[str, int], ends_at: float) -> None:
        """Take in what becomes of these messages. counts: the recipients of each that are known."""

        async def follow_one(smtp_id: str, count: int) -> None:
            delivery = await self._follow_message(smtp_id, count, ends_at)
            if delivery is None or delivery.given_up:
                self.given_up.add(smtp_id)
            if delivery is not None:
                self.records[smtp_id] = delivery.records
            self._next_polls.pop(smtp_id, None)

        try:
            async with asyncio.TaskGroup() as group:
                for smtp_id, count in counts.items():
                    group.create_task(follow_one(smtp_id, count))
        except* DirectSuiteError:  # it ended the others, too, and is the failure
            pass

    async def _follow_message(self, smtp_id: str, count: int, ends_at: float) -> Delivery | None:
        """What became of a message; None where its looks fail, or are refused, to the end.

        count: its recipients that are known, 0 where the service doesn't know it yet.
        """

        def handle_poll(records: Sequence[DirectMessageLog], wait: float) -> None:
            self.records[smtp_id] = records or self.records[smtp_id]
            self._next_polls[smtp_id] = self.clock.monotonic() + wait

        follow = functools.partial(self.box.track, smtp_id, on_poll=handle_poll)
        try:
            if not count:
                try:
                    delivery = await follow(give_up_after=min(MAX_UNKNOWN_SECONDS, self.give_up_after))
                except DirectSuiteError as error:
                    if find_error_scope(error) not in (ErrorScope.SERVICE, ErrorScope.UNCERTAIN):
                        raise
                else:
                    if not (delivery.given_up and delivery.records):
                        return delivery
            remaining = max(WAIT_TOLERANCE, ends_at - self.clock.monotonic())  # with no time left it is looked at once
            return await follow(recipients=max(1, count), give_up_after=remaining)
        except DirectSuiteError as error:
            if not _is_rejection(error):
                self.failure = error
            if find_error_scope(error) in NOT_RETRYABLE:
                raise
            return None

    async def _find_late_recipients(self) -> dict[str, int]:
        """The recipients of each message of which more are seen now than when it was over: how many."""
        recorded = [smtp_id for smtp_id, records in self.records.items() if records]
        try:
            latest = (await self.box.get_message_statuses(recorded)).records
        except DirectSuiteError as error:
            self.failure = error
            return {}
        late = dict[str, int]()
        for smtp_id in recorded:
            latest_records = list(select_latest_by_recipient(select_records(smtp_id, latest)).values())
            if len(latest_records) > len(self.records[smtp_id]):
                self.records[smtp_id] = latest_records
                if smtp_id not in self.given_up:  # a service may tell less of one message than of several
                    late[smtp_id] = len(latest_records)
        return late


def _is_rejection(error: DirectSuiteError) -> bool:
    """Return True if the service says no, as some do where they don't know a message, or not yet."""
    return find_error_scope(error) is ErrorScope.ITEM


def select_records(smtp_id: str, records: Iterable[DirectMessageLog]) -> list[DirectMessageLog]:
    """The records of one message; ids count without their angle brackets, which some leave out."""
    return [
        each
        for each in records
        if each.message_id is not None and normalize_smtp_id(each.message_id) == normalize_smtp_id(smtp_id)
    ]


async def _report_statuses(
    command: Command, access: MailboxAccess, smtp_ids: Sequence[str], options: StatusOptions
) -> int:
    async with command.make_suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        rejection: ServiceError | None = None
        denied: Mapping[str, PermissionDeniedError] = {}
        async with show_progress("asking"):
            try:
                records = (await box.get_message_statuses(smtp_ids)).records
            except ServiceError as error:
                if options.watch and _is_rejection(error):
                    records, rejection = [], error
                elif smtp_ids[1:] and _may_concern_one_message(error):
                    records, denied = await _fetch_each(box, smtp_ids, error)
                else:
                    raise
        watch = DeliveryWatch(
            box=box, records={each: select_records(each, records) for each in smtp_ids if each not in denied}
        )
        if options.watch:
            _report_unknown(watch, rejection)
            try:
                await watch.run()
            except asyncio.CancelledError:
                end_line()
                _show_records(watch.known_records, options)
                raise
            records = watch.known_records
    _show_records(records, options)
    return _get_exit_status(command, watch, records, denied)


def _show_records(records: Sequence[DirectMessageLog], options: StatusOptions) -> None:
    if options.json:
        show_json([model_to_dict(record) for record in records])
    elif records:
        show_table(("to", "status", "details", "sent", "SMTP id"), _build_rows(records), no_wrap=("to", "SMTP id"))


def _build_rows(records: Sequence[DirectMessageLog]) -> list[Sequence[object]]:
    """A row for each recipient; the SMTP id stands in the first of a message's."""
    before = [None, *(each.message_id for each in records)]
    return [
        (each.to, each.status, each.status_details, each.ts, None if each.message_id == smtp_id else each.message_id)
        for each, smtp_id in zip(records, before, strict=False)
    ]


def _may_concern_one_message(error: ServiceError) -> bool:
    """Return True if the service may refuse to tell of one message alone."""
    return _is_rejection(error) or isinstance(error, PermissionDeniedError)


async def _fetch_each(
    box: Mailbox, smtp_ids: Sequence[str], rejection: ServiceError
) -> tuple[list[DirectMessageLog], dict[str, PermissionDeniedError]]:
    """What is known, where the service refuses to tell of all together, and which messages the mailbox may not see.

    Raises `refusal` where it tells of none.
    """
    records, rejected_count, denied = list[DirectMessageLog](), 0, dict[str, PermissionDeniedError]()
    for smtp_id in smtp_ids:
        try:
            records += (await box.get_message_status(smtp_id)).records
        except ServiceError as error:
            if not _may_concern_one_message(error):
                raise
            rejected_count += 1
            if isinstance(error, PermissionDeniedError):
                denied[smtp_id] = error
    if rejected_count == len(smtp_ids):
        raise rejection
    return records, denied


def _report_unknown(watch: DeliveryWatch, rejection: ServiceError | None) -> None:
    """Say how long is waited for messages that the service doesn't know."""
    until = f"up to {MAX_UNKNOWN_SECONDS / 60:.0f} minutes; where it was sent earlier, check --mailbox"
    unknown = sum(not records for records in watch.records.values())
    if rejection is not None:
        echo_err(
            f"the service refuses to tell of {unknown} messages (HTTP {rejection.status}), as it may where it doesn't "
            f"know one yet, right after sending: each is waited for {until}, the ids and the service's URL"
        )
    elif unknown:
        echo_err(
            f"the service doesn't know {unknown} of these messages of this mailbox, as it may right after sending: it "
            f"is waited for {until} and the ids"
        )


def _get_exit_status(
    command: Command,
    watch: DeliveryWatch,
    records: Sequence[DirectMessageLog],
    denied: Mapping[str, PermissionDeniedError],
) -> int:
    """Say all that isn't well; the exit status of the worst. A poll that failed is: more may be wrong than is known."""
    status = ExitStatus.DONE
    unknown = sum(not message_records for message_records in watch.records.values())
    if unknown and watch.failure is not None:
        echo_err(f"nothing is known of {unknown} of these messages")
    elif unknown:
        status = ExitStatus.NOT_FOUND
        echo_err(
            f"the service knows none of these messages of this mailbox: check --mailbox and the ids; {_HINT_FIND_IDS}"
            if not records
            else f"the service doesn't know {unknown} of these messages of this mailbox: check those ids; "
            f"{_HINT_FIND_IDS}"
        )
    unconfirmed = sum(is_unconfirmed(record.status) for record in records)
    failed = sum(is_final(record.status) and not is_delivered(record.status) for record in records) - unconfirmed
    if failed:
        status = ExitStatus.FAILED
        echo_err(f"{failed} of {len(records)} deliveries failed: see to the addresses, or send by another way")
    if unconfirmed:
        status = ExitStatus.FAILED
        echo_err(
            f"{unconfirmed} of {len(records)} deliveries unconfirmed: the message may have arrived; ask the recipient "
            "before you send it again"
        )
    given_up = sum(bool(watch.records[each]) for each in watch.given_up)
    if given_up:
        status = ExitStatus.FAILED
        echo_err(f"{given_up} of the messages came to no end in time: look again later with the same command")
    for error in [*denied.values()][:1]:
        status, sentence = exit_for_error(error, option_names=command.option_names)
        echo_err(f"it isn't allowed to see {len(denied)} of these messages: {sentence}")
    if watch.failure is not None:
        status, sentence = exit_for_error(watch.failure, option_names=command.option_names)
        echo_err(f"a poll failed, and what was known before it is shown: {sentence}")
    return status
