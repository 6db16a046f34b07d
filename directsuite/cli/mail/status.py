"""`directsuite status`: how far messages have come, for each of their recipients."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.access import MailboxAccess, mailbox_access
from directsuite.cli.exit_status import ExitStatus
from directsuite.cli.progress import progress
from directsuite.cli.refusal import RefusedError
from directsuite.cli.results import members_of, show_json, show_table
from directsuite.cli.running import Command, say
from directsuite.messaging.models import DirectMessageLog, MessageStatus
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import by_recipient

_UNDELIVERED = (MessageStatus.LOCALLY_FAILED, MessageStatus.REMOTELY_FAILED, MessageStatus.NO_MDN_RECEIVED)
_AT_A_TIME = 10  # messages that are followed together: as many as there are connections


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
        if not all(each.strip() for each in asked.smtp_ids):
            raise RefusedError("an SMTP id is empty: give what `directsuite send` printed")
        return _tell(command, mailbox_access(asked.mailbox, asked.password_file), asked)

    return command.run(begin)


async def _tell(command: Command, access: MailboxAccess, asked: Asked) -> int:
    smtp_ids = list(dict.fromkeys(asked.smtp_ids))
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        async with progress("asking"):
            records = (await box.get_message_statuses(smtp_ids)).records
        unknown = [each for each in smtp_ids if not _of(each, records)]
        if asked.watch:
            records = await _watch(box, [each for each in smtp_ids if each not in unknown], records)
    if asked.as_json:
        show_json([members_of(record) for record in records])
    elif records:
        show_table(
            ("to", "status", "details", "sent", "SMTP id"),
            [(each.to, each.status, each.status_details, each.ts, each.message_id) for each in records],
        )
    return _status(records, unknown)


def _status(records: Sequence[DirectMessageLog], unknown: Sequence[str]) -> int:
    if unknown:
        say(
            "the service knows none of these messages of this mailbox: check --mailbox and the ids"
            if not records
            else f"the service doesn't know {len(unknown)} of these messages of this mailbox: check those ids"
        )
        return ExitStatus.NOT_FOUND
    undelivered = sum(record.status in _UNDELIVERED for record in records)
    if undelivered:
        say(f"{undelivered} of {len(records)} deliveries failed: see to the addresses, or send by another way")
        return ExitStatus.FAILED
    return ExitStatus.DONE


async def _watch(box: Mailbox, smtp_ids: Sequence[str], known: Sequence[DirectMessageLog]) -> list[DirectMessageLog]:
    """The last records of these messages, each when it is over."""
    places = asyncio.Semaphore(_AT_A_TIME)

    async def followed(smtp_id: str) -> Sequence[DirectMessageLog]:
        recipients = len(by_recipient(_of(smtp_id, known)))
        async with places:
            delivery = await box.track(smtp_id, recipients=recipients)
        bar.advance()
        return delivery.records

    async with progress("following", unit="pieces", total=len(smtp_ids)) as bar, asyncio.TaskGroup() as group:
        tasks = [group.create_task(followed(smtp_id)) for smtp_id in smtp_ids]
    return [record for task in tasks for record in task.result()]


def _of(smtp_id: str, records: Iterable[DirectMessageLog]) -> list[DirectMessageLog]:
    """The records of one message; ids count without their angle brackets, which some leave out."""
    bare = smtp_id.strip().strip("<>")
    return [record for record in records if record.message_id is not None and record.message_id.strip("<> ") == bare]
