"""`directsuite status`: the delivery status of a message for each recipient.

With --watch, the message is polled until all statuses are final or the time is over. With --key, the SMTP id is read
from the delivery journal of `directsuite send --key`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.credentials import MailboxAccess, get_mailbox_access
from directsuite.cli.errors import ItemNotFoundError, UsageError, with_value
from directsuite.cli.options import Flag, MailboxOptions, make_app, record
from directsuite.cli.output import format_count, show_json, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, end_line, is_verbose
from directsuite.cli.send import find_record, validate_key
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.messaging.sending import (
    DEFAULT_GIVE_UP_AFTER,
    can_be_followed,
    group_by_message,
    is_delivered,
    is_final,
    is_unconfirmed,
    select_latest_by_recipient,
)

app = make_app("status", "'SMTP_ID'", "'SMTP_ID' --watch", "--key hello-1")
app.usage = "directsuite status [OPTIONS] [SMTP_ID]"


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


_Records = Mapping[str, ds.DirectMessageLog]
"""The latest record of each recipient, by address."""

_SmtpId = Annotated[
    str | None,
    Parameter(
        name="SMTP_ID",
        help="The SMTP id that `send` prints and `inbox read UID --folder INBOX.Sent` shows.",
        show_default=False,
    ),
]


@app.default
def show_status(
    smtp_id: _SmtpId = None, /, *, command: CommandParameter, options: _StatusOptions = _StatusOptions()
) -> Work:
    """Show a message's delivery status for each recipient.

    Exit status 0 means that the message is delivered or in progress; 4 that the service doesn't know it; 1 that a
    delivery failed or was never confirmed, or that --watch ended without a final status.
    """
    command.option_names = {"smtp_id": "the SMTP id", "smtp_ids": "the SMTP id", "username": "--mailbox"}
    command.advice = {ds.BadRequestError: "check the SMTP id and --mailbox"}
    if options.key is not None:
        validate_key(options.key)
        if smtp_id is not None:
            raise UsageError("--key can't be combined with an SMTP id. Give one of them.")
        access = get_mailbox_access(options.mailbox, options.password_file)
        return _report_status_by_key(command, access, options.key, options)
    if smtp_id is None:
        raise UsageError(
            "There is no SMTP id. Give the id that `directsuite send` printed, or --key KEY if you sent the message "
            "with --key."
        )
    if not can_be_followed(smtp_id):
        raise UsageError("The SMTP id is empty or invalid. Give the id that `directsuite send` printed.")
    return _report_status(command, get_mailbox_access(options.mailbox, options.password_file), smtp_id, options)


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
    return await _report_status(command, access, record.smtp_id, options)


async def _report_status(command: Command, access: MailboxAccess, smtp_id: str, options: _StatusOptions) -> int:
    found: _Records = {}
    async with command.open_mailbox(access) as box:
        try:
            async with show_progress("requesting the status"):
                records = (await box.get_message_status(smtp_id)).records
            found = select_latest_by_recipient(next(iter(group_by_message([smtp_id], records).values())))
        except ds.ServiceError as error:
            if not options.watch or find_error_scope(error) is not ErrorScope.ITEM:
                raise
        if options.watch:
            _report_start(found)
            found = await _watch(box, smtp_id, found, options)
    _show_records(found, options)
    return _get_exit_status(found, options)


async def _watch(box: ds.Mailbox, smtp_id: str, found: _Records, options: _StatusOptions) -> _Records:
    """Wait for final statuses, report each change, and return the latest records. Show them if the wait fails."""

    def handle_poll(records: Sequence[ds.DirectMessageLog], _: float = 0.0) -> None:
        nonlocal found
        before, latest = found, select_latest_by_recipient(records)
        # A response may lack some recipients. Records without an address cannot be matched: a response replaces them.
        found = {name: each for name, each in found.items() if (each.to or "").strip() or not latest} | latest
        _report_changes(before, latest)

    count, is_over = 0, False
    try:
        async with show_progress("waiting for final statuses"):
            while not is_over:
                count = len(found)
                limit = DEFAULT_GIVE_UP_AFTER if found else MAX_UNKNOWN_SECONDS
                delivery = await box.track(smtp_id, recipients=count or 1, give_up_after=limit, on_poll=handle_poll)
                handle_poll(delivery.records)
                # After a new recipient, the message is polled again, because the service may add others.
                is_over = len(found) == count or (delivery.given_up and count > 0)
    except BaseException:
        end_line()
        _show_records(found, options)
        raise
    return found


def _report_start(found: _Records) -> None:
    """Show the statuses at the start on stderr, because stdout has only those at the end."""
    if waiting := sum(not is_final(each.status) for each in found.values()):
        if is_verbose():  # the table names mailboxes
            with contextlib.redirect_stdout(sys.stderr):
                _show_table(found)
        echo_err(f"Waiting for the final status of {format_count(waiting, 'recipient')}.")
    elif not found:
        echo_err(
            "The service doesn't know this message in this mailbox, which is normal shortly after sending. Waiting for "
            f"up to {MAX_UNKNOWN_SECONDS / 60:.0f} minutes. If it was sent earlier, check --mailbox and the id."
        )


def _report_changes(before: _Records, latest: _Records) -> None:
    for address, each in latest.items():
        if address not in before or before[address].status != each.status:
            label = with_value("The status of a recipient", each.to or "no address")
            was = f" (before: {before[address].status})" if address in before else ""
            echo_err(f"{label} is {each.status}{was}.")


def _show_records(found: _Records, options: _StatusOptions) -> None:
    if options.json:
        show_json([*found.values()])
    elif found:
        _show_table(found)


def _show_table(found: _Records) -> None:
    rows = [(each.to, each.status, each.status_details, each.ts) for each in found.values()]
    show_table(("to", "status", "details", "sent"), rows, no_wrap=("to",))


def _get_exit_status(found: _Records, options: _StatusOptions) -> int:
    statuses = [each.status for each in found.values()]
    if not statuses:
        echo_err(
            "The service doesn't know this message in this mailbox. Check --mailbox and the id. `directsuite inbox "
            "read UID --folder INBOX.Sent` shows a message's id."
        )
        return ExitStatus.NOT_FOUND
    unfinished = not all(map(is_final, statuses))
    unconfirmed = sum(map(is_unconfirmed, statuses))
    failed = sum(is_final(each) and not is_delivered(each) for each in statuses) - unconfirmed
    if failed:
        echo_err(f"{failed} of {len(statuses)} deliveries failed. Check the addresses, or use another way to send.")
    if unconfirmed:
        echo_err(
            f"{unconfirmed} of {len(statuses)} deliveries were not confirmed. The message may have arrived: ask the "
            "recipient before you send it again."
        )
    if options.watch and unfinished:
        echo_err("The message had no final status in time. Run the same command again later.")
    return ExitStatus.FAILED if failed or unconfirmed or (options.watch and unfinished) else ExitStatus.DONE
