"""`directsuite status`: the delivery status of messages for each recipient.

With --watch, the messages are polled until all statuses are final or the time is over. With --key, the
SMTP id is read from the delivery journal of `directsuite send --key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
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
from directsuite.core.clock import WAIT_TOLERANCE, SystemClock, wait_until
from directsuite.core.outcome import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.messaging.sending import (
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
_MAX_FAILED_POLLS = 5  # in succession, of messages that have only final statuses

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
class _Message:
    smtp_id: str
    records: Sequence[ds.DirectMessageLog] = ()
    """The latest record of each recipient; empty if the service doesn't know the message."""
    error: ds.DirectSuiteError | None = None
    """The error of the last poll, because of which the records may be out of date."""

    @property
    def is_unknown(self) -> bool:
        """True if the service doesn't know the message, or rejects its id."""
        return not self.records and (self.error is None or _is_rejection(self.error))

    @property
    def is_unfinished(self) -> bool:
        """True if a recipient has no final status."""
        return not all(is_final(each.status) for each in self.records)

    @property
    def is_awaited(self) -> bool:
        """True if a later poll may report a status that is final, or the first status."""
        return not isinstance(self.error, ds.PermissionDeniedError) and (self.is_unfinished or not self.records)

    async def poll(self, box: ds.Mailbox, *, is_watched: bool) -> None:
        """Request the records. A response may lack some recipients. is_watched: report changes on stderr."""
        records = (await box.get_message_status(self.smtp_id)).records
        own = group_by_message([self.smtp_id], records)[normalize_smtp_id(self.smtp_id)]
        new = select_latest_by_recipient(own).values()
        # Records without an address cannot be matched: a response replaces them.
        kept = [record for record in self.records if (record.to or "").strip() or not own]
        previous, latest = select_latest_by_recipient(self.records), select_latest_by_recipient(kept)
        latest |= select_latest_by_recipient(new)
        self.records, self.error = [*latest.values()], None
        for address, each in select_latest_by_recipient(self.records).items() if is_watched else ():
            before = previous[address].status if address in previous else None
            if before != each.status or address not in previous:
                label = with_value("The status of a recipient", each.to or "no address")
                echo_err(f"{label} is {each.status}{'' if before is None else f' (before: {before})'}.")


def _is_rejection(error: ds.DirectSuiteError) -> bool:
    return find_error_scope(error) is ErrorScope.ITEM


async def _poll(box: ds.Mailbox, messages: Sequence[_Message], *, is_watched: bool = False) -> None:
    """Request the statuses of all messages. An error of one message is raised only if all have the same."""
    for message in messages:
        try:
            await message.poll(box, is_watched=is_watched)
        except ds.DirectSuiteError as error:
            if not _is_rejection(error) and not isinstance(error, ds.PermissionDeniedError):
                for each in messages:
                    each.error = error
                raise
            message.error = error
    first = messages[0].error
    if first is not None and all(type(each.error) is type(first) for each in messages):
        raise first


async def _watch(box: ds.Mailbox, messages: Sequence[_Message]) -> None:
    """Poll until all messages have only final statuses, or the time is over, or polling fails for good.

    After a new recipient, final messages are polled again, because the service may add others.
    """
    clock, failures = SystemClock(), 0
    began = clock.monotonic()
    while True:
        age, count, failure = clock.monotonic() - began, len(_list_records(messages)), None
        try:
            await _poll(box, messages, is_watched=True)
            failures = 0
        except ds.DirectSuiteError as error:
            failures, failure = failures + 1, error
        awaited = [each for each in messages if each.is_awaited]
        if failure is None:
            is_over = not awaited and len(_list_records(messages)) == count
            wait = compute_next_poll(age).latest - age
        else:
            is_last = not awaited and (_is_rejection(failure) or failures >= _MAX_FAILED_POLLS)
            is_over = is_last or find_error_scope(failure) in NOT_RETRYABLE
            wait = BACKOFF.compute_wait(failures, failure.retry_after)
        limit = MAX_UNKNOWN_SECONDS if awaited and not _list_records(awaited) else DEFAULT_GIVE_UP_AFTER
        wait = min(wait, limit - age)
        if is_over or wait <= WAIT_TOLERANCE:
            return
        await wait_until(clock.monotonic() + wait, clock.monotonic, clock.sleep)


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
    messages, rejection = [_Message(smtp_id=each) for each in smtp_ids], None
    async with command.open_mailbox(access) as box:
        async with show_progress("requesting statuses"):
            try:
                await _poll(box, messages)
            except ds.ServiceError as error:
                if not (options.watch and _is_rejection(error)):
                    raise
                rejection = error
        if options.watch:
            _report_start(messages, rejection)
            try:
                async with show_progress("waiting for final statuses"):
                    await _watch(box, messages)
            except asyncio.CancelledError:
                end_line()
                _show_records(messages, options)
                raise
    _show_records(messages, options)
    return _get_exit_status(command, messages, options)


def _list_records(messages: Sequence[_Message]) -> list[ds.DirectMessageLog]:
    return [record for message in messages for record in message.records]


def _show_records(messages: Sequence[_Message], options: _StatusOptions) -> None:
    records = _list_records(messages)
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


def _report_start(messages: Sequence[_Message], rejection: ds.ServiceError | None) -> None:
    """Show the statuses at the start on stderr, because stdout has only those at the end."""
    records = _list_records(messages)
    waiting, unknown = sum(not is_final(record.status) for record in records), sum(each.is_unknown for each in messages)
    if waiting:
        if is_verbose():  # the table names mailboxes
            with contextlib.redirect_stdout(sys.stderr):
                _show_table(records)
        echo_err(f"Waiting for the final status of {format_count(waiting, 'recipient')}.")
    hint = f"Waiting for up to {MAX_UNKNOWN_SECONDS / 60:.0f} minutes. If they were sent earlier, check --mailbox and"
    if rejection is not None:
        echo_err(
            f"The service rejected the request (HTTP {rejection.status}), perhaps because it doesn't know all of the "
            f"messages yet. {hint} the ids, and the service's URL."
        )
    elif unknown:
        echo_err(
            f"The service doesn't know {unknown} of these messages in this mailbox, which is normal "
            f"shortly after sending. {hint} the ids."
        )


def _get_exit_status(command: Command, messages: Sequence[_Message], options: _StatusOptions) -> int:
    records, unknown = _list_records(messages), sum(each.is_unknown for each in messages)
    failed_polls = [each.error for each in messages if each.error is not None and not each.is_unknown]
    status = ExitStatus.DONE
    if unknown:
        status = ExitStatus.NOT_FOUND
        echo_err(
            f"The service knows none of these messages in this mailbox. Check --mailbox and the ids. {_HINT_FIND_IDS}"
            if unknown == len(messages)
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
    unfinished = sum(each.is_unfinished and each.error is None for each in messages)
    if options.watch and unfinished:
        status = ExitStatus.FAILED
        echo_err(f"{unfinished} of the messages had no final status in time. Run the same command again later.")
    counts = Counter(exit_for_error(each, option_names=command.option_names) for each in failed_polls)
    for (poll_status, sentence), count in sorted(counts.items()):
        if status is ExitStatus.DONE or poll_status is not ExitStatus.NOT_FOUND:
            status = poll_status
        echo_err(f"The statuses of {count} of these messages are missing or out of date: {sentence}.")
    return status
