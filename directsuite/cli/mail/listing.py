"""`directsuite inbox list`: a folder's newest messages, from metadata."""

from __future__ import annotations

import heapq
from collections.abc import Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MailboxAccess, mailbox_access
from directsuite.cli.errors import RefusedError
from directsuite.cli.mail.folders import told_of_folders
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import ExitStatus
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.service import Mailbox


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of the command. since: in this machine's time zone where it has none."""

    mailbox: str | None
    folder: str
    limit: int
    since: datetime | None
    unread: bool
    password_file: Path | None
    as_json: bool


def list_messages(asked: Asked) -> int:
    """List them; the exit status."""
    command = Command(options={"folder": "--folder", "username": "--mailbox"})

    def begin() -> Coroutine[Any, Any, int]:
        with_zone = attrs.evolve(asked, since=None if asked.since is None else _with_zone(asked.since))
        return _list(command, mailbox_access(asked.mailbox, asked.password_file), with_zone)

    return command.run(begin)


def _with_zone(since: datetime) -> datetime:
    if since.utcoffset() is not None:
        return since
    try:
        return since.astimezone()
    except (OSError, OverflowError, ValueError):
        raise RefusedError("--since lies where no calendar reaches: give a day, as 2026-05-01") from None


async def _list(command: Command, access: MailboxAccess, asked: Asked) -> int:
    async with command.suite(access.settings) as suite, progress("reading the folder"):
        box = suite.mailbox(access.address, access.password)
        async with told_of_folders(box, asked.folder):
            newest = await _newest(box, asked)
    if asked.as_json:
        show_json([document_of(message) for message in newest])
    else:
        show_table(
            ("uid", "received", "from", "subject", "files", "size"),
            [_row(message) for message in newest],
            right=("uid", "files", "size"),
        )
    return ExitStatus.DONE


async def _newest(box: Mailbox, asked: Asked) -> Sequence[MessageDetail]:
    """Those with the highest uids, which count in the order of receiving; no more are held in memory."""
    if asked.unread:
        return _highest(await box.get_unread_messages(asked.folder), asked.limit)
    if asked.since is not None:
        found = await box.search_messages_metadata_by_received_date(asked.folder, asked.since, None)
        return _highest(found, asked.limit)
    newest = list[MessageDetail]()
    async with box.iter_metadata(asked.folder) as messages:
        async for message in messages:
            newest.append(message)
            if len(newest) >= 2 * asked.limit + 1_000:
                newest = [*_highest(newest, asked.limit)]
    return _highest(newest, asked.limit)


def _highest(messages: Sequence[MessageDetail], limit: int) -> Sequence[MessageDetail]:
    return heapq.nlargest(limit, messages, key=lambda message: -1 if message.uid is None else message.uid)


def document_of(message: MessageDetail) -> dict[str, Any]:
    """A message's metadata, for `show_json`."""
    members = members_of(message)
    del members["body"], members["headers"]
    return members


def _row(message: MessageDetail) -> Sequence[object]:
    size = None if message.size is None or message.size < 0 else size_in_words(message.size)
    received = message.received_date or message.sent_date
    return (message.uid, received, message.sender, message.subject, len(message.attachments) or None, size)


def size_in_words(count: int) -> str:
    """So many bytes."""
    for unit, length in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= length:
            tenths = (20 * count // length + 1) // 2  # whole numbers, since a server may tell of more than floats hold
            return f"{tenths // 10}.{tenths % 10} {unit}"
    return f"{count} B"
