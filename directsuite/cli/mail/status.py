"""`directsuite status`: how far messages have come, for each of their recipients."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MailboxAccess, mailbox_access
from directsuite.cli.errors import RefusedError, ending_of
from directsuite.cli.mail.watching import UNTIL_KNOWN, Watch, is_refusal, records_of
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.errors import PermissionDeniedError, ServiceError
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import bare, is_delivered, is_end

_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair: a byte that the command line couldn't read


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of the command."""

    smtp_ids: Sequence[str]
    mailbox: str | None
    watch: bool
    password_file: Path | None
    as_json: bool


def tell_status(asked: Asked) -> int:
    """Tell it; the exit status."""
    command = Command(options={"smtp_id": "the SMTP id", "smtp_ids": "the SMTP ids", "username": "--mailbox"})

    def begin() -> Coroutine[Any, Any, int]:
        if not all(bare(each) for each in asked.smtp_ids):
            raise RefusedError("an SMTP id is empty: give what `directsuite send` printed")
        if _HALF.search("".join(asked.smtp_ids)):
            raise RefusedError("an SMTP id has bytes that are no UTF-8: give what `directsuite send` printed")
        return _tell(command, mailbox_access(asked.mailbox, asked.password_file), asked)

    return command.run(begin)


async def _tell(command: Command, access: MailboxAccess, asked: Asked) -> int:
    smtp_ids = list({bare(each): each for each in asked.smtp_ids}.values())
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        refusal: ServiceError | None = None
        denied: Mapping[str, PermissionDeniedError] = {}
        async with progress("asking"):
            try:
                known = (await box.get_message_statuses(smtp_ids)).records
            except ServiceError as error:
                if asked.watch and is_refusal(error):
                    known, refusal = [], error
                elif smtp_ids[1:] and _may_be_of_one(error):
                    known, denied = await _each_alone(box, smtp_ids, error)
                else:
                    raise
        watch = Watch(box=box, records={each: records_of(each, known) for each in smtp_ids if each not in denied})
        if asked.watch:
            _tell_of_unknown(watch, refusal)
            await watch.run()
    records = [record for of_one in watch.records.values() for record in of_one] if asked.watch else known
    if asked.as_json:
        show_json([members_of(record) for record in records])
    elif records:
        show_table(
            ("to", "status", "details", "sent", "SMTP id"),
            [(each.to, each.status, each.status_details, each.ts, each.message_id) for each in records],
        )
    return _status(command, watch, records, denied)


def _may_be_of_one(error: ServiceError) -> bool:
    """Whether it may be that the service refuses to tell of one message alone."""
    return is_refusal(error) or isinstance(error, PermissionDeniedError)


async def _each_alone(
    box: Mailbox, smtp_ids: Sequence[str], refusal: ServiceError
) -> tuple[list[DirectMessageLog], dict[str, PermissionDeniedError]]:
    """What is known, where the service refuses to tell of all together, and which messages the mailbox may not see.

    Raises `refusal` where it tells of none.
    """
    found, refused, denied = list[DirectMessageLog](), 0, dict[str, PermissionDeniedError]()
    for smtp_id in smtp_ids:
        try:
            found += (await box.get_message_status(smtp_id)).records
        except ServiceError as error:
            if not _may_be_of_one(error):
                raise
            refused += 1
            if isinstance(error, PermissionDeniedError):
                denied[smtp_id] = error
    if refused == len(smtp_ids):
        raise refusal
    return found, denied


def _tell_of_unknown(watch: Watch, refusal: ServiceError | None) -> None:
    """Say how long is waited for messages that the service doesn't know."""
    until = f"up to {UNTIL_KNOWN / 60:.0f} minutes; where it was sent earlier, check --mailbox"
    unknown = sum(not records for records in watch.records.values())
    if refusal is not None:
        say(
            f"the service refuses to tell of {unknown} messages (HTTP {refusal.status}), as it may where it doesn't "
            f"know one yet, right after sending: each is waited for {until}, the ids and the service's URL"
        )
    elif unknown:
        say(
            f"the service doesn't know {unknown} of these messages of this mailbox, as it may right after sending: it "
            f"is waited for {until} and the ids"
        )


def _status(
    command: Command,
    watch: Watch,
    records: Sequence[DirectMessageLog],
    denied: Mapping[str, PermissionDeniedError],
) -> int:
    """Say all that isn't well; the exit status of the worst. A look that failed is: more may be wrong than is known."""
    status = ExitStatus.DONE
    unknown = sum(not of_one for of_one in watch.records.values())
    if unknown and watch.failure is not None:
        say(f"nothing is known of {unknown} of these messages")
    elif unknown:
        status = ExitStatus.NOT_FOUND
        say(
            "the service knows none of these messages of this mailbox: check --mailbox and the ids"
            if not records
            else f"the service doesn't know {unknown} of these messages of this mailbox: check those ids"
        )
    undelivered = sum(is_end(record.status) and not is_delivered(record.status) for record in records)
    if undelivered:
        status = ExitStatus.FAILED
        say(f"{undelivered} of {len(records)} deliveries failed: see to the addresses, or send by another way")
    given_up = sum(bool(watch.records[each]) for each in watch.given_up)
    if given_up:
        status = ExitStatus.FAILED
        say(f"{given_up} of the messages came to no end in time: look again later with the same command")
    for error in [*denied.values()][:1]:
        status, sentence = ending_of(error, options=command.options)
        say(f"it isn't allowed to see {len(denied)} of these messages: {sentence}")
    if watch.failure is not None:
        status, sentence = ending_of(watch.failure, options=command.options)
        say(f"a look failed, and what was known before it is shown: {sentence}")
    return status
