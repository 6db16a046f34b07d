"""`directsuite send`: one message."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MAILBOX, MailboxAccess, mailbox_access
from directsuite.cli.errors import RefusedError, refuse_no_text
from directsuite.cli.mail.composing import Wanted, digest_of, message_of, size_of
from directsuite.cli.mail.listing import size_in_words
from directsuite.cli.mail.sent_once import record_of
from directsuite.cli.output import Bar, progress, show_effect, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.core.call import SETTLE_TIMEOUT
from directsuite.errors import DirectSuiteError, OutcomeUnknownError
from directsuite.messaging import arguments
from directsuite.messaging.models import Message
from directsuite.messaging.send_once import request_id
from directsuite.messaging.service import Mailbox

_OPTIONS = {
    "sender": "--from",
    "username": "--from",
    "recipients": "--to",
    "attachment_list": "--attach",
    "key": "--key",
}
_LOOK = (
    "look whether `directsuite inbox list --folder INBOX.Sent` has it, and give the command again only where it hasn't"
)
_AGAIN_WITH_KEY = "give the same command again with the same --key: it looks whether it went, and sends it once"
_NEW_KEY = (
    "this server doesn't show it; look whether `directsuite inbox list --folder INBOX.Sent` has it, and only where it "
    "hasn't, give the command again with a new --key"
)
_SLOWEST = 100_000.0  # bytes per second of an upload that is still waited for
_ENCODED = 4 / 3  # bytes on the way for one of a file: base64


@attrs.frozen(kw_only=True, repr=False)
class Asked(Wanted):
    """The options of the command."""

    sender: str | None
    key: str | None
    dry_run: bool
    password_file: Path | None
    as_json: bool


def send_message(asked: Asked) -> int:
    """Send it; the exit status."""
    with_key = asked.key is not None
    command = Command(
        resume=_AGAIN_WITH_KEY if with_key else "nothing was sent: give the same command again",
        find_out=_AGAIN_WITH_KEY if with_key else _LOOK,
        options=_OPTIONS,
    )

    def begin() -> Coroutine[Any, Any, int]:
        if not asked.sender:
            raise RefusedError(f"who sends it? Give --from ADDRESS, or set {MAILBOX}")
        if asked.key == "":
            raise RefusedError("--key is empty: give a name that only this message has, or leave it out")
        refuse_no_text(asked.key, "--key")
        refuse_no_text(asked.sender, "--from")
        sender = arguments.address(asked.sender, "sender")
        message = message_of(asked, sender)
        if asked.dry_run:
            return _tell(message, asked)
        return _send(command, mailbox_access(sender, asked.password_file, option="--from"), message, asked)

    return command.run(begin)


async def _tell(message: Message, asked: Asked) -> int:
    """What would be sent."""
    files = [(each.filename, each.media_type, size_of(each)) for each in message.attachment_list]
    if asked.as_json:
        show_json(
            {
                "sent": False,
                "from": message.sender,
                "recipients": [{"email": each.email, "type": each.type} for each in message.recipients],
                "subject": message.subject,
                "characters": len(message.body or ""),
                "html": message.html_body,
                "attachments": [{"filename": name, "media_type": kind, "size": size} for name, kind, size in files],
            }
        )
    else:
        rows: list[Sequence[object]] = [("From", message.sender)]
        rows += [(each.type.capitalize(), each.email) for each in message.recipients]
        kind = "HTML" if message.html_body else "text"
        rows += [("Subject", message.subject), ("Body", f"{kind}, {len(message.body or '')} characters")]
        rows += [("File", f"{name}, {kind}, {size_in_words(size)}") for name, kind, size in files]
        show_table(("", "would be sent"), rows)
    say("this was a dry run: nothing was sent, and neither the service nor the password was tried")
    return ExitStatus.DONE


async def _send(command: Command, access: MailboxAccess, message: Message, asked: Asked) -> int:
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        before = False
        if asked.key is None:
            async with _shown("sending", _size(message)) as bar:
                smtp_id = (await box.send(message, progress=bar.tell)).smtp_id
        else:
            before, smtp_id = await _send_once(command, box, access, message, asked.key)

    def show() -> None:
        if asked.as_json:
            show_json({"sent": True, "sent_before": before, "smtp_id": smtp_id or None})
        elif smtp_id:
            sys.stdout.write(f"{smtp_id}\n")

    if not show_effect(show, f"the message was sent{f' as {smtp_id}' if smtp_id else ''}"):
        return ExitStatus.FAILED
    told = "it went before, with this --key" if before else "sent"
    if not smtp_id:
        say(f"{told}; the service gave no SMTP id to ask for its status with")
    elif not asked.as_json:
        say(f"{told}; `directsuite status` with this id tells how far it has come")
    return ExitStatus.DONE


async def _send_once(
    command: Command, box: Mailbox, access: MailboxAccess, message: Message, key: str
) -> tuple[bool, str]:
    """Whether it is known to have gone before this command, and its SMTP id."""
    with record_of(request_id(access.address, key)) as record:
        record.attempt(digest_of(message))
        if record.is_sent:
            return True, record.smtp_id
        size = _size(message)
        timeout = access.settings.timeout + SETTLE_TIMEOUT + size * _ENCODED / _SLOWEST
        title = "sending" if record.first_attempt is None else "looking whether it went, then sending"
        try:
            async with _shown(title, size) as bar:
                answer = await box.send_once(
                    message,
                    key=key,
                    since=record.first_attempt,
                    settle=SETTLE_TIMEOUT,
                    progress=bar.tell,
                    timeout=timeout,
                )
        except OutcomeUnknownError as error:
            if record.first_attempt is not None and error.looked:  # another look would see no more
                command.find_out = _NEW_KEY
            raise
        except DirectSuiteError:  # of this attempt, which sent nothing
            record.not_sent()
            raise
        record.sent(answer.smtp_id)
        return False, answer.smtp_id


def _size(message: Message) -> int:
    return sum(size_of(each) for each in message.attachment_list)


def _shown(title: str, size: int) -> AbstractAsyncContextManager[Bar]:
    return progress(title, unit="bytes" if size else "waiting", total=size or None)
