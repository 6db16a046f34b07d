"""`directsuite status`: the delivery status of messages for each recipient.

With --watch, the messages are polled concurrently until all statuses are final or the time is over. With --key, the
SMTP id is read from the delivery journal of `directsuite send --key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import attrs
from cyclopts import Parameter

import directsuite as ds
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.credentials import MailboxAccess, get_mailbox_access
from directsuite.cli.errors import ItemNotFoundError, UsageError, exit_for_error, validate_text, with_value
from directsuite.cli.options import Flag, MailboxOptions, Variadic, make_app, record
from directsuite.cli.output import format_count, show_json, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, end_line, is_verbose
from directsuite.cli.send import find_record, validate_key
from directsuite.core.clock import WAIT_TOLERANCE, Clock, SystemClock
from directsuite.core.outcome import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.messaging.tracking import (
    DEFAULT_GIVE_UP_AFTER,
    is_delivered,
    is_final,
    is_unconfirmed,
    normalize_smtp_id,
    select_latest_by_recipient,
)

app = make_app("status", "'SMTP_ID'", "'SMTP_ID' --watch", "--key hello-1")
app.usage = "directsuite status [OPTIONS] [SMTP_ID…]"


@record
class _StatusOptions(MailboxOptions):
    key: str | None = None
    """The --key with which `send` or `inbox reply` sent the message on this machine, instead of an SMTP id."""
    watch: Annotated[bool, Flag] = False
    """Wait until each recipient has a final status: at most two hours, or 15 minutes for a message that the service
    doesn't know. Changes are reported on stderr.
    """


MAX_UNKNOWN_SECONDS = 900.0
"""The seconds that --watch waits for a message that the service doesn't know, as shortly after sending."""

_HINT_FIND_IDS = "`directsuite inbox read UID --folder INBOX.Sent` shows a message's id."
_SmtpIds = Annotated[
    tuple[str, ...],
    Variadic,
    Parameter(
        name="SMTP_ID…",
        help="The SMTP id that `send` prints and `inbox read UID --folder INBOX.Sent` shows. Separate several "
        "by spaces.",
    ),
]


@app.default
def show_status(
    smtp_id: _SmtpIds = (), /, *, command: CommandParameter, options: _StatusOptions = _StatusOptions()
) -> Work:
    """Show the delivery status of messages for each recipient.

    Exit status 0 means that the messages are delivered or in progress; 4 that the service doesn't know one of them; 1
    that a delivery failed or was never confirmed, or that a message had no final status in time; 3, 5 or 6 that a poll
    failed, so the output may be out of date. If several apply, the last of these is used, and stderr reports each.
    """
    command.option_names = {"smtp_id": "the SMTP id", "smtp_ids": "the SMTP ids", "username": "--mailbox"}
    command.advice = {ds.BadRequestError: "check the SMTP ids and --mailbox"}
    if options.key is not None:
        validate_key(options.key)
        if smtp_id:
            raise UsageError("--key can't be combined with SMTP ids. Give one of them.")
        access = get_mailbox_access(options.mailbox, options.password_file)
        return _report_status_by_key(command, access, options.key, options)
    if not smtp_id:
        raise UsageError(
            "There is no SMTP id. Give the id that `directsuite send` printed, or --key KEY if you sent the message "
            "with --key."
        )
    if not all(normalize_smtp_id(each) for each in smtp_id):
        raise UsageError("An SMTP id is empty. Give the id that `directsuite send` printed.")
    validate_text("".join(smtp_id), "An SMTP id")
    unique = list({normalize_smtp_id(each): each for each in smtp_id}.values())
    return _report_statuses(command, get_mailbox_access(options.mailbox, options.password_file), unique, options)


@attrs.define(kw_only=True, repr=False, eq=False)
class DeliveryWatch:
    """The concurrent polling of several messages."""

    box: ds.Mailbox
    records: dict[str, Sequence[ds.DirectMessageLog]]
    """The records of each message by its SMTP id; empty if the service doesn't know the message."""
    given_up: set[str] = attrs.field(factory=set[str], init=False)
    """The SMTP ids of messages that had no final status in time, or whose polling failed."""
    failure: ds.DirectSuiteError | None = attrs.field(default=None, init=False)
    """The error of a poll, because of which the records may be out of date."""
    give_up_after: float = DEFAULT_GIVE_UP_AFTER
    """The maximum time for all messages, in seconds."""
    clock: Clock = attrs.field(factory=SystemClock)
    on_change: Callable[[ds.DirectMessageLog, ds.DirectMessageLog | None], None] = lambda _record, _previous: None
    """Called with the new and the previous record of a recipient whose status has changed."""

    @property
    def known_records(self) -> list[ds.DirectMessageLog]:
        """The records of all messages so far."""
        return [record for records in self.records.values() for record in records]

    async def run(self) -> None:
        """Wait until each message is final or given up, or until polling fails for good (see `failure`).

        If a message then has more recipients than before, wait for their statuses too.
        """
        ends_at = self.clock.monotonic() + self.give_up_after
        counts = {smtp_id: len(select_latest_by_recipient(records)) for smtp_id, records in self.records.items()}
        async with show_progress("waiting for final statuses"):
            while counts:
                await self._follow_messages(counts, ends_at)
                counts = await self._find_late_recipients() if self.failure is None else {}

    async def _follow_messages(self, counts: Mapping[str, int], ends_at: float) -> None:

        async def follow_one(smtp_id: str, count: int) -> None:
            delivery = await self._follow_message(smtp_id, count, ends_at)
            if delivery is None or delivery.given_up:
                self.given_up.add(smtp_id)
            if delivery is not None:
                self._update_records(smtp_id, delivery.records)

        try:
            async with asyncio.TaskGroup() as group:
                for smtp_id, count in counts.items():
                    group.create_task(follow_one(smtp_id, count))
        except* ds.DirectSuiteError:  # stored in `failure`
            pass

    async def _follow_message(self, smtp_id: str, count: int, ends_at: float) -> ds.Delivery | None:
        """Follow a message until its status is final or the clock reaches `ends_at`.

        Return None after an error, but raise it if other polls would also fail, such as a rejected password. The error
        is stored in `failure`, unless it rejects only this message. count: the number of its known recipients.
        """

        def handle_poll(records: Sequence[ds.DirectMessageLog], _: float) -> None:
            self._update_records(smtp_id, records or self.records[smtp_id])

        follow = functools.partial(self.box.track, smtp_id, on_poll=handle_poll)
        try:
            if not count:
                try:
                    delivery = await follow(give_up_after=min(MAX_UNKNOWN_SECONDS, self.give_up_after))
                except ds.DirectSuiteError as error:
                    if find_error_scope(error) not in (ErrorScope.SERVICE, ErrorScope.UNCERTAIN):
                        raise
                else:
                    if not (delivery.given_up and delivery.records):
                        return delivery
            remaining = max(WAIT_TOLERANCE, ends_at - self.clock.monotonic())  # if no time is left, poll once
            return await follow(recipients=max(1, count), give_up_after=remaining)
        except ds.DirectSuiteError as error:
            if not _is_rejection(error):
                self.failure = error
            if find_error_scope(error) in NOT_RETRYABLE:
                raise
            return None

    async def _find_late_recipients(self) -> dict[str, int]:
        """Return the number of recipients of each final message that has more than before; empty after an error."""
        recorded = [smtp_id for smtp_id, records in self.records.items() if records]
        try:
            latest = (await self.box.get_message_statuses(recorded)).records
        except ds.DirectSuiteError as error:
            self.failure = error
            return {}
        late = dict[str, int]()
        for smtp_id in recorded:
            latest_records = list(select_latest_by_recipient(select_records(smtp_id, latest)).values())
            if len(latest_records) > len(self.records[smtp_id]):
                self._update_records(smtp_id, latest_records)
                if smtp_id not in self.given_up:  # a poll of one message may return fewer recipients than this one
                    late[smtp_id] = len(latest_records)
        return late

    def _update_records(self, smtp_id: str, records: Sequence[ds.DirectMessageLog]) -> None:
        previous_records = select_latest_by_recipient(self.records[smtp_id])
        self.records[smtp_id] = records
        for key, latest in select_latest_by_recipient(records).items():
            previous = previous_records.get(key)
            if previous is None or previous.status != latest.status:
                self.on_change(latest, previous)


def _is_rejection(error: ds.DirectSuiteError) -> bool:
    return find_error_scope(error) is ErrorScope.ITEM


def select_records(smtp_id: str, records: Iterable[ds.DirectMessageLog]) -> list[ds.DirectMessageLog]:
    """Return the records of one message. Angle brackets around ids are ignored, because some services omit them."""
    return [
        each
        for each in records
        if each.message_id is not None and normalize_smtp_id(each.message_id) == normalize_smtp_id(smtp_id)
    ]


async def _report_status_by_key(command: Command, access: MailboxAccess, key: str, options: _StatusOptions) -> int:
    record = await find_record(access.address, key)
    if record is None:
        raise ItemNotFoundError(
            f"{with_value('--key', key)}: this machine has no record of a message that this mailbox sent with this "
            "key. Check --key and --mailbox, or give the message's SMTP id."
        )
    if record.smtp_id is None:
        echo_err(
            "The command with this --key may or may not have sent the message. Run that command again: it checks "
            "whether the message was sent, and sends it only once."
        )
        return ExitStatus.UNKNOWN
    if not record.smtp_id:
        raise ItemNotFoundError(
            "The message was sent, but its status is not available, because the service returned no SMTP id."
        )
    return await _report_statuses(command, access, [record.smtp_id], options)


async def _report_statuses(
    command: Command, access: MailboxAccess, smtp_ids: Sequence[str], options: _StatusOptions
) -> int:
    async with command.open_mailbox(access) as box:
        rejection: ds.ServiceError | None = None
        denied: Mapping[str, ds.PermissionDeniedError] = {}
        async with show_progress("requesting statuses"):
            try:
                records = (await box.get_message_statuses(smtp_ids)).records
            except ds.ServiceError as error:
                if options.watch and _is_rejection(error):
                    records, rejection = [], error
                elif smtp_ids[1:] and _may_concern_one_message(error):
                    records, denied = await _fetch_each(box, smtp_ids, error)
                else:
                    raise
        watch = DeliveryWatch(
            box=box,
            records={each: select_records(each, records) for each in smtp_ids if each not in denied},
            on_change=_report_change,
        )
        if options.watch:
            _report_start(watch.known_records)
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


def _show_records(records: Sequence[ds.DirectMessageLog], options: _StatusOptions) -> None:
    if options.json:
        show_json(records)
    elif records:
        _show_table(records)


def _show_table(records: Sequence[ds.DirectMessageLog]) -> None:
    before = [None, *(each.message_id for each in records)]
    rows = [
        (each.to, each.status, each.status_details, each.ts, "" if each.message_id == smtp_id else each.message_id)
        for each, smtp_id in zip(records, before, strict=False)
    ]
    titles = ("to", "status", "details", "sent", "SMTP id")
    show_table(titles, rows, no_wrap=("to", "SMTP id"), above=("SMTP id",))


def _report_start(records: Sequence[ds.DirectMessageLog]) -> None:
    """Show the statuses at the start on stderr, because stdout has only those at the end."""
    waiting = sum(not is_final(record.status) for record in records)
    if not waiting:
        return
    if is_verbose():  # the table names mailboxes
        with contextlib.redirect_stdout(sys.stderr):
            _show_table(records)
    echo_err(f"Waiting for the final status of {format_count(waiting, 'recipient')}.")


def _report_change(record: ds.DirectMessageLog, previous: ds.DirectMessageLog | None) -> None:
    before = "" if previous is None or previous.status is None else f" (before: {previous.status})"
    echo_err(f"{with_value('The status of a recipient', record.to or 'no address')} is {record.status}{before}.")


def _may_concern_one_message(error: ds.ServiceError) -> bool:
    return _is_rejection(error) or isinstance(error, ds.PermissionDeniedError)


async def _fetch_each(
    box: ds.Mailbox, smtp_ids: Sequence[str], rejection: ds.ServiceError
) -> tuple[list[ds.DirectMessageLog], dict[str, ds.PermissionDeniedError]]:
    """Return the records, and the permission errors by SMTP id. Raise `rejection` if all messages are rejected."""
    records, rejected_count, denied = list[ds.DirectMessageLog](), 0, dict[str, ds.PermissionDeniedError]()
    for smtp_id in smtp_ids:
        try:
            records += (await box.get_message_status(smtp_id)).records
        except ds.ServiceError as error:
            if not _may_concern_one_message(error):
                raise
            rejected_count += 1
            if isinstance(error, ds.PermissionDeniedError):
                denied[smtp_id] = error
    if rejected_count == len(smtp_ids):
        raise rejection
    return records, denied


def _report_unknown(watch: DeliveryWatch, rejection: ds.ServiceError | None) -> None:
    minutes = f"{MAX_UNKNOWN_SECONDS / 60:.0f} minutes"
    hint = f"Waiting for up to {minutes}. If they were sent earlier, check --mailbox and the ids"
    unknown = sum(not records for records in watch.records.values())
    if rejection is not None:
        echo_err(
            f"The service rejected the request (HTTP {rejection.status}), perhaps because it doesn't know all of the "
            f"messages yet. {hint}, and the service's URL."
        )
    elif unknown:
        echo_err(
            f"The service doesn't know {unknown} of these messages in this mailbox, which is normal shortly after "
            f"sending. {hint}."
        )


def _get_exit_status(
    command: Command,
    watch: DeliveryWatch,
    records: Sequence[ds.DirectMessageLog],
    denied: Mapping[str, ds.PermissionDeniedError],
) -> int:
    status = ExitStatus.DONE
    unknown = sum(not message_records for message_records in watch.records.values())
    if unknown and watch.failure is not None:
        echo_err(f"The status of {unknown} of these messages is unknown, because a poll failed.")
    elif unknown:
        status = ExitStatus.NOT_FOUND
        echo_err(
            f"The service knows none of these messages in this mailbox. Check --mailbox and the ids. {_HINT_FIND_IDS}"
            if not records
            else f"The service doesn't know {unknown} of these messages in this mailbox. Check the ids of those that "
            f"are not shown. {_HINT_FIND_IDS}"
        )
    unconfirmed = sum(is_unconfirmed(record.status) for record in records)
    failed = sum(is_final(record.status) and not is_delivered(record.status) for record in records) - unconfirmed
    if failed:
        status = ExitStatus.FAILED
        echo_err(f"{failed} of {len(records)} deliveries failed. Check the addresses, or use another way to send.")
    if unconfirmed:
        status = ExitStatus.FAILED
        echo_err(
            f"{unconfirmed} of {len(records)} deliveries were not confirmed. The message may have arrived: ask the "
            "recipient before you send it again."
        )
    given_up = sum(bool(watch.records[each]) for each in watch.given_up)
    if given_up:
        status = ExitStatus.FAILED
        echo_err(f"{given_up} of the messages had no final status in time. Run the same command again later.")
    for error in [*denied.values()][:1]:
        status, sentence = exit_for_error(error, option_names=command.option_names)
        echo_err(f"The mailbox has no permission to see {len(denied)} of these messages: {sentence}.")
    if watch.failure is not None:
        status, sentence = exit_for_error(watch.failure, option_names=command.option_names)
        echo_err(f"A poll failed, so the output may be out of date: {sentence}.")
    return status
