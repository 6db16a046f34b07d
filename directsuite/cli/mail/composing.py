"""The message that the options of `directsuite send` describe. Errors name options, and nothing that stands in them."""

from __future__ import annotations

import hashlib
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from directsuite.cli.credentials import is_address
from directsuite.cli.errors import RefusedError, refuse_no_text
from directsuite.core.failures import reason_of
from directsuite.messaging import arguments
from directsuite.messaging.models import Attachment, Message, Recipient, RecipientType

_STDIN = Path("-")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


@attrs.frozen(kw_only=True, repr=False)
class Wanted:
    """What the message is made of."""

    to: Sequence[str]
    cc: Sequence[str]
    bcc: Sequence[str]
    subject: str | None
    body: str | None
    body_file: Path | None
    html: bool
    attach: Sequence[Path]


def message_of(wanted: Wanted, sender: str) -> Message:
    """The message, whose files are read when it is sent. Raises RefusedError and InvalidArgumentError."""
    kinds = ((RecipientType.TO, wanted.to), (RecipientType.CC, wanted.cc), (RecipientType.BCC, wanted.bcc))
    for kind, addresses in kinds:
        for number, address in enumerate(addresses, start=1):
            option = f"--{kind.lower()}"
            refuse_no_text(address, f"number {number} of {option}")
            if not is_address(address):
                raise RefusedError(f"number {number} of {option} is no address: {option} nurse@direct.example.org")
    if not any(addresses for _, addresses in kinds):
        raise RefusedError("who gets it? Give --to ADDRESS, as often as there are")
    refuse_no_text(wanted.subject, "--subject")
    if _CONTROL.search(wanted.subject or ""):
        raise RefusedError("--subject has a line break or another control character: give one line of text")
    refuse_no_text(wanted.body, "--body")
    message = Message(
        sender=sender,
        subject=wanted.subject,
        body=_body(wanted),
        html_body=wanted.html,
        recipients=[Recipient(address, kind) for kind, addresses in kinds for address in addresses],
        attachment_list=[_attachment(path, number) for number, path in enumerate(wanted.attach, start=1)],
    )
    return arguments.checked_message(message, sender)


def digest_of(message: Message) -> str:
    """A hash of all that recipients get. Reads the files."""
    digest = hashlib.sha256()

    def add(text: str | None) -> None:
        content = (text or "").encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(content) + content)

    for recipient in message.recipients:
        add(f"{recipient.type} {recipient.email.lower()}")
    for text in (message.subject, message.body, str(message.html_body)):
        add(text)
    for attachment in message.attachment_list:
        add(attachment.filename)
        if isinstance(attachment.source, Path):
            with attachment.source.open("rb") as file:
                add(hashlib.file_digest(file, "sha256").hexdigest())
    return digest.hexdigest()


def size_of(attachment: Attachment) -> int:
    """Bytes of a file to send."""
    return attachment.source.stat().st_size if isinstance(attachment.source, Path) else len(attachment.content)


def _body(wanted: Wanted) -> str | None:
    """Raises RefusedError for a message that would say nothing, as where stdin or a variable came empty."""
    body = _text(wanted)
    if wanted.attach or (body and not body.isspace()):
        return body
    was_given = "" if body is None else ": its text is empty"
    raise RefusedError(f"what does it say{was_given}? Give --body-file FILE, - for stdin, or --body TEXT")


def _text(wanted: Wanted) -> str | None:
    if wanted.body is not None or wanted.body_file is None:
        return wanted.body
    try:
        content = sys.stdin.buffer.read() if wanted.body_file == _STDIN else wanted.body_file.read_bytes()
    except OSError as error:
        raise RefusedError(f"the file of --body-file can't be read ({reason_of(error)}): give another") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError("the file of --body-file is no text in UTF-8: send it with --attach") from None


def _attachment(path: Path, number: int) -> Attachment:
    """Refused now where it can't be read: nobody likes to learn that after everything else was sent."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        if is_file:  # to open a pipe is to wait for who writes into it
            with path.open("rb"):
                pass
    except OSError as error:
        raise RefusedError(
            f"number {number} of --attach can't be read ({reason_of(error)}): see to that file"
        ) from None
    if not is_file:
        raise RefusedError(f"number {number} of --attach is no file: save it as one")
    refuse_no_text(path.name, f"the name of number {number} of --attach")
    return Attachment.from_path(path)
