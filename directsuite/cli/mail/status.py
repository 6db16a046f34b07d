"""`directsuite status`: how far messages have come, for each of their recipients."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.access import MailboxAccess, mailbox_access
from directsuite.cli.exit_status import ExitStatus
from directsuite.cli.progress import progress
from directsuite.cli.refusal import RefusedError
from directsuite.cli.results import members_of, show_json, show_table
from directsuite.cli.running import Command, say
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.messaging.models import DirectMessageLog, MessageStatus
from directsuite.messaging.service import Mailbox
from directsuite.messaging.tracking import Delivery, by_recipient

_UNDELIVERED = (MessageStatus.LOCALLY_FAILED, MessageStatus.REMOTELY_FAILED, MessageStatus.NO_MDN_RECEIVED)


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
        given_up: Collection[str] = ()
        if asked.watch:
            records, given_up = await _watch(box, smtp_ids, records)
    if asked.as_json:
        show_json([members_of(record) for record in records])
    elif records:
        show_table(
            ("to", "status", "details", "sent", "SMTP id"),
            [(each.to, each.status, each.status_details, each.ts, each.message_id) for each in records],
        )
    return _status(records, [each for each in smtp_ids if not _of(each, records)], given_up)


def _status(records: Sequence[DirectMessageLog], unknown: Sequence[str], given_up: Collection[str]) -> int:
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
    if given_up:
        say(f"{len(given_up)} of the messages came to no end in time: look again later with the same command")
    return ExitStatus.FAILED if undelivered or given_up else ExitStatus.DONE


async def _watch(
    box: Mailbox, smtp_ids: Sequence[str], known: Sequence[DirectMessageLog]
) -> tuple[list[DirectMessageLog], Collection[str]]:
    """The last records of these messages, when all are over, and the ids of those that didn't come to it in time.

    How many recipients a message has is not known here: more may show when those that were known came to an end.
    """
    if unknown := sum(not _of(each, known) for each in smtp_ids):
        say(f"the service doesn't know {unknown} of these messages of this mailbox yet: waiting for it")
    found, given_up = dict[str, Sequence[DirectMessageLog]](), set[str]()
    counts = {each: len(by_recipient(_of(each, known))) or 1 for each in smtp_ids}
    while counts:
        for delivery in await _follow(box, counts):
            found[delivery.smtp_id] = delivery.records
            if delivery.given_up:
                given_up.add(delivery.smtp_id)
        latest = (await box.get_message_statuses(smtp_ids)).records
        shown = {each: len(by_recipient(_of(each, latest))) for each in smtp_ids if each not in given_up}
        counts = {each: count for each, count in shown.items() if count > len(found[each])}
    return [record for each in smtp_ids for record in found[each]], given_up


async def _follow(box: Mailbox, recipients: Mapping[str, int]) -> list[Delivery]:
    """What became of each message. recipients: how many of them are known, by its SMTP id."""

    async def followed(smtp_id: str, count: int) -> Delivery:
        try:
            delivery = await box.track(smtp_id, recipients=count)
        except (BadRequestError, NotFoundError):  # to the end of its patience
            delivery = Delivery(smtp_id=smtp_id, records=(), given_up=True)
        bar.advance()
        return delivery

    try:
        async with (
            progress("following", unit="pieces", total=len(recipients)) as bar,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(followed(*each)) for each in recipients.items()]
    except ExceptionGroup as failed:  # the first, which ended the others
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _of(smtp_id: str, records: Iterable[DirectMessageLog]) -> list[DirectMessageLog]:
    """The records of one message; ids count without their angle brackets, which some leave out."""
    bare = smtp_id.strip().strip("<>")
    return [record for record in records if record.message_id is not None and record.message_id.strip("<> ") == bare]
