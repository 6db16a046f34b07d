"""`directsuite inbox read`: one message as text."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MailboxAccess, mailbox_access
from directsuite.cli.errors import NotThereError
from directsuite.cli.mail.folders import told_of_folders
from directsuite.cli.mail.html_text import text_of
from directsuite.cli.mail.listing import size_in_words
from directsuite.cli.output import members_of, moment, printable, progress, show_json, show_text
from directsuite.cli.process import ExitStatus, say
from directsuite.messaging.models import MessageDetail

NO_SUCH_MESSAGE = "the folder has no message of this number: `directsuite inbox list` tells those that it has"


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of the command."""

    uid: int
    mailbox: str | None
    folder: str
    mark_read: bool
    password_file: Path | None
    as_json: bool


def read_message(asked: Asked) -> int:
    """Show it; the exit status."""
    command = Command(options={"folder": "--folder", "username": "--mailbox", "uids": "the number"})

    def begin() -> Coroutine[Any, Any, int]:
        return _read(command, mailbox_access(asked.mailbox, asked.password_file), asked)

    return command.run(begin)


async def _read(command: Command, access: MailboxAccess, asked: Asked) -> int:
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        async with progress("fetching the message"), told_of_folders(box, asked.folder):
            found = await box.get_messages_by_uids(asked.folder, [asked.uid])
        if not found:
            raise NotThereError(NO_SUCH_MESSAGE)
        if asked.as_json:
            show_json({**members_of(found[0]), "attachments": [_attachment(each) for each in found[0].attachments]})
        else:
            _show(found[0])
        sys.stdout.flush()
        if asked.mark_read:
            async with progress("marking it as read"):
                await box.mark_messages_as_read_by_uids(asked.folder, [asked.uid])
    return ExitStatus.DONE


def _show(message: MessageDetail) -> None:
    received = message.received_date or message.sent_date
    lines = {
        "From": message.sender,
        **{
            kind: ", ".join(each.email for each in message.recipients if each.type == kind.upper())
            for kind in ("To", "Cc", "Bcc")
        },
        "Subject": message.subject,
        "Received": None if received is None else moment(received),
    }
    for name, value in lines.items():
        if value:
            sys.stdout.write(f"{name + ':':<10}{printable(value)}\n")
    for attachment in message.attachments:
        size = size_in_words(len(attachment.content))
        sys.stdout.write(f"{'File:':<10}{printable(f'{attachment.filename}, {attachment.media_type}, {size}')}\n")
    sys.stdout.write("\n")
    body = message.body or ""
    if not message.html_body:
        show_text(body)
        return
    text = text_of(body)
    show_text(text)
    if body.strip() and not text:
        say("its HTML shows no text: the same command with --json tells it as it came")


def _attachment(attachment: Any) -> dict[str, Any]:
    return {**members_of(attachment), "size": len(attachment.content)}
