"""`directsuite status`: the delivery status of messages for each recipient.

With --watch, the messages are polled until all statuses are final or the time is over. With --key, the
SMTP id is read from the delivery journal of `directsuite send --key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
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
from directsuite.core.clock import WAIT_TOLERANCE, Clock, SystemClock, wait_until
from directsuite.core.outcome import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.messaging.tracking import (
    BACKOFF,
    DEFAULT_GIVE_UP_AFTER,
    compute_next_poll,
    group_by_message,
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
    """The statuses of several messages, which are polled together."""

    box: ds.Mailbox
    smtp_ids: Sequence[str]
    records: dict[str, Sequence[ds.DirectMessageLog]] = attrs.field(init=False)
    """The latest record of each recipient, by SMTP id; empty if the service doesn't know the message."""
    denied: Mapping[str, ds.PermissionDeniedError] = attrs.field(
        factory=dict[str, ds.PermissionDeniedError], init=False
    )
    """The messages that the mailbox had no permission to see at the last successful poll."""
    unassigned_records: Sequence[ds.DirectMessageLog] = attrs.field(default=(), init=False)
    """The records of the last successful poll that match none of the messages, for example because they have no id."""
    failure: ds.DirectSuiteError | None = attrs.field(default=None, init=False)
    """The error of the last poll, because of which the records may be out of date."""
    clock: Clock = attrs.field(factory=SystemClock)
    on_change: Callable[[ds.DirectMessageLog, ds.DirectMessageLog | None], None] = lambda _record, _previous: None
    """Called with the new and the previous record of a recipient whose status has changed since the first poll."""

    def __attrs_post_init__(self) -> None:
        """Start without records."""
        self.records = dict.fromkeys(self.smtp_ids, ())

    @property
    def known_records(self) -> list[ds.DirectMessageLog]:
        """The records of all messages so far."""
        return [record for records in self.records.values() for record in records]

    @property
    def shown_records(self) -> list[ds.DirectMessageLog]:
        """The records of all messages so far, then those of the last poll that belong to none of them."""
        return [*self.known_records, *self.unassigned_records]

    @property
    def unknown_count(self) -> int:
        """The number of messages that the service doesn't know."""
        return sum(not records and smtp_id not in self.denied for smtp_id, records in self.records.items())

    @property
    def unfinished_count(self) -> int:
        """The number of known messages without a final status of each recipient."""
        return sum(not all(is_final(each.status) for each in records) for records in self.records.values())

    async def poll(self) -> None:
        """Request the statuses of all messages. An error is raised if it concerns all of them."""
        denied = dict[str, ds.PermissionDeniedError]()
        try:
            records = (await self.box.get_message_statuses(self.smtp_ids)).records
        except ds.ServiceError as error:
            if not (self.smtp_ids[1:] and _may_concern_one_message(error)):
                raise
            records, denied = await _fetch_each(self.box, self.smtp_ids, error)
        grouped = group_by_message(self.smtp_ids, records)
        assigned = {id(record) for message_records in grouped.values() for record in message_records}
        self.denied, self.unassigned_records = denied, [record for record in records if id(record) not in assigned]
        for smtp_id in self.smtp_ids:
            previous_records = select_latest_by_recipient(self.records[smtp_id])
            latest_records = select_latest_by_recipient(grouped[normalize_smtp_id(smtp_id)])
            self.records[smtp_id] = [*latest_records.values()] or self.records[smtp_id]
            for key, latest in latest_records.items():
                previous = previous_records.get(key)
                if previous is None or previous.status != latest.status:
                    self.on_change(latest, previous)

    async def run(self) -> None:
        """Poll until each message is final or the time is over, or until polling fails for good (see `failure`).

        Final messages are polled once more, because the service may add recipients.
        """
        began, failures = self.clock.monotonic(), 0
        async with show_progress("waiting for final statuses"):
            while True:
                age, count = self.clock.monotonic() - began, len(self.known_records)
                wait = compute_next_poll(age).latest - age
                try:
                    await self.poll()
                    self.failure, failures = None, 0
                except ds.DirectSuiteError as error:
                    self.failure = None if _is_rejection(error) else error
                    if find_error_scope(error) in NOT_RETRYABLE:
                        return
                    failures += 1
                    wait = BACKOFF.compute_wait(failures, error.retry_after)
                if not (self.unfinished_count or self.unknown_count):
                    if failures or len(self.known_records) == count:
                        return
                    continue
                limit = DEFAULT_GIVE_UP_AFTER if self.unfinished_count else MAX_UNKNOWN_SECONDS
                if age >= limit - WAIT_TOLERANCE:
                    return
                wait = min(wait, limit - age)
                await wait_until(self.clock.monotonic() + wait, self.clock.monotonic, self.clock.sleep)


def _is_rejection(error: ds.DirectSuiteError) -> bool:
    return find_error_scope(error) is ErrorScope.ITEM


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
        watch, rejection = DeliveryWatch(box=box, smtp_ids=smtp_ids), None
        async with show_progress("requesting statuses"):
            try:
                await watch.poll()
            except ds.ServiceError as error:
                if not (options.watch and _is_rejection(error)):
                    raise
                rejection = error
        if options.watch:
            watch.on_change = _report_change
            _report_start(watch.known_records)
            _report_unknown(watch, rejection)
            try:
                await watch.run()
            except asyncio.CancelledError:
                end_line()
                _show_records(watch.shown_records, options)
                raise
    _show_records(watch.shown_records, options)
    return _get_exit_status(command, watch, options)


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
    if rejection is not None:
        echo_err(
            f"The service rejected the request (HTTP {rejection.status}), perhaps because it doesn't know all of the "
            f"messages yet. {hint}, and the service's URL."
        )
    elif watch.unknown_count:
        echo_err(
            f"The service doesn't know {watch.unknown_count} of these messages in this mailbox, which is normal "
            f"shortly after sending. {hint}."
        )


def _get_exit_status(command: Command, watch: DeliveryWatch, options: _StatusOptions) -> int:
    records, unknown, denied = watch.shown_records, watch.unknown_count, watch.denied
    status = ExitStatus.DONE
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
    if options.watch and watch.unfinished_count and watch.failure is None:
        status = ExitStatus.FAILED
        echo_err(
            f"{watch.unfinished_count} of the messages had no final status in time. Run the same command again later."
        )
    for error in [*denied.values()][:1]:
        status, sentence = exit_for_error(error, option_names=command.option_names)
        echo_err(f"The mailbox has no permission to see {len(denied)} of these messages: {sentence}.")
    if watch.failure is not None:
        status, sentence = exit_for_error(watch.failure, option_names=command.option_names)
        echo_err(f"A poll failed, so the output may be out of date: {sentence}.")
    return status
