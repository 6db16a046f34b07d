"""`directsuite send`: send one message; with --key exactly once, even if the command is interrupted and repeated.

Each --key has the journal of a `DeliveryTracker` in DIRECTSUITE_STATE or the user's state folder, named by a hash of
the key. Only one command can open it at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import stat
import sys
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli import credentials
from directsuite.cli import options as opt
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.errors import NotDoneError, UsageError, validate_text, with_value
from directsuite.cli.output import format_size, show_change, show_json, show_progress, show_table
from directsuite.cli.process import echo_err, is_verbose
from directsuite.config_file import Configuration
from directsuite.core.files import explain_os_error
from directsuite.messaging import arguments
from directsuite.messaging.send_once import make_request_id

if TYPE_CHECKING:
    from directsuite.jobs.delivery.journal import DeliveryJournal, SendRecord

app = opt.make_app(
    "send",
    "--to bob@direct.example.test --subject Hello --body 'Hi Bob'",
    "--to bob@direct.example.test --body-file letter.txt --dry-run",
    "--to bob@direct.example.test --body Hello --attach scan.pdf",
    "--to bob@direct.example.test --body Hello --key hello-1",
)

_BODY_GROUP = Group("Text", sort_key=1, validator=mutually_exclusive)


@opt.record
class TextOptions:
    """Common options of `send` and `inbox reply`."""

    body: Annotated[str | None, Parameter(group=_BODY_GROUP)] = None
    """The text. Other users of this machine can see it while the command runs, but not a --body-file."""
    body_file: Annotated[
        Path | None, Parameter(group=_BODY_GROUP, allow_leading_hyphen=True, converter=opt.convert_path)
    ] = None
    """A UTF-8 file with the text; - for stdin."""
    html: Annotated[bool, opt.Flag] = False
    """The text is HTML."""
    attach: Annotated[tuple[Path, ...], opt.Repeatable, Parameter(converter=opt.convert_path)] = ()
    """A file to attach, of any size. Can be repeated."""
    key: str | None = None
    """A unique name for this message. If you repeat the command with it, the message is still sent only once.
    `directsuite status --key` shows its delivery.
    """
    dry_run: Annotated[bool, opt.Flag] = False
    """Show what would be sent, and send nothing."""


@opt.record
class _SendOptions(opt.CommonOptions, TextOptions):
    mailbox: Annotated[str | None, Parameter(name=("--mailbox", "--from"), show_default=False)] = None
    """The Direct address of the sending mailbox. The default is DIRECTSUITE_MAILBOX."""
    to: opt.Addresses = ()
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    cc: opt.Addresses = ()
    """A recipient of a copy, in the format of --to."""
    bcc: opt.Addresses = ()
    """A recipient of a copy whom the other recipients don't see, in the format of --to."""
    subject: str | None = None
    """The subject. Other users of this machine can see it while the command runs."""
    max_attempts: Annotated[int | None, opt.integer_parameter(gte=1)] = None
    """The maximum number of attempts, including the first: 1 means that the message is not sent again after an error.
    The default is retry_attempts in the settings file.
    """
    password_file: opt.PasswordFile = None
    json: opt.Json = False


_STATE_VAR = "DIRECTSUITE_STATE"
_OPTION_NAMES = {
    "sender": "--mailbox",
    "username": "--mailbox",
    "recipients": "--to",
    "attachment_list": "--attach",
    "key": "--key",
}
HINT_CHECK_SENT_FOLDER = (
    "check whether `directsuite inbox list --folder INBOX.Sent` shows the message, and run the command again only if "
    "it does not"
)
_HINT_REPEAT_WITH_KEY = (
    "run the same command again with the same --key; it checks whether the message was sent, and sends it only once"
)
_HINT_USE_NEW_KEY = (
    "check whether `directsuite inbox list --folder INBOX.Sent` shows the message, and only if it does not, run the "
    "command again with a new --key"
)
_HINT_OTHER_STATE_FOLDER = (
    "An earlier command may have sent the message. If `directsuite inbox list --folder INBOX.Sent` does not show it, "
    f"name a different folder with {_STATE_VAR}."
)
_MIN_UPLOAD_BYTES_PER_SECOND = 100_000.0  # slower uploads run into the timeout
_BASE64_RATIO = 4 / 3
_MAX_TEXT_BYTES = 2**26
_QUOTED_TEXT = r'"(?:[^"\\]|\\.)*+"'
_CLOSED_QUOTES_PATTERN = re.compile(rf'(?:[^"]++|{_QUOTED_TEXT})*+')
_NAMED_ADDRESS_PATTERN = re.compile(rf'(?:{_QUOTED_TEXT}\s*+|[^"<>]*+)<(?P<address>[^<>]*+)>')
_NAME_BEFORE_ADDRESS_PATTERN = re.compile(r"[^\s,]\s*<")
_COMMA_OR_QUOTED_TEXT = re.compile(rf",|{_QUOTED_TEXT}?")  # the last quotation mark is optional, for linear time
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


@app.default
def send(*, command: CommandParameter, options: _SendOptions = _SendOptions()) -> Work:
    """Send a message, with attachments.

    The command prints the message's SMTP id for `directsuite status`. Exit status 7 means that the response was lost:
    the message may or may not have been sent. With --key, you can repeat the same command: the message is sent only
    once.
    """
    set_hints(command, options.key, HINT_CHECK_SENT_FOLDER)
    command.option_names = _OPTION_NAMES
    validate_key(options.key)
    sender = credentials.get_mailbox_address(options.mailbox)
    message = _build_message(options, sender)
    size = format_size(round(_sum_attachment_bytes(message) * _BASE64_RATIO))
    command.advice = {
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"its files take {size} in the request; send less, or ask the service's "
        "provider for the limit",
        ds.BadRequestError: "check the addresses, the text and the files",
    }
    if any(_NAME_BEFORE_ADDRESS_PATTERN.search(each) for each in (*options.to, *options.cc, *options.bcc)):
        echo_err("Only the address of `Name <address>` is sent, because the service accepts no names.")
    if options.dry_run:
        report = "Dry run: nothing was sent, and neither the service nor the password was checked."
        return show_dry_run(message, sender, options.key, as_json=options.json, report=report)
    access = credentials.get_mailbox_access(sender, options.password_file)
    return _send_message(command, access, message, options)


async def show_dry_run(message: ds.Message, sender: str, key: str | None, *, as_json: bool, report: str) -> None:
    """Show a message that would be sent, and whether it was sent before with its key. report: the last line on stderr.

    Raises UsageError if the key belongs to a different message.
    """
    record = None if key is None else await find_record(sender, key)
    if record is not None:
        _validate_digest(record, await arguments.compute_message_digest(message))
    is_sent_before = record is not None and record.smtp_id is not None
    files = [(each.filename, each.media_type, _get_attachment_bytes(each)) for each in message.attachment_list]
    if as_json:
        show_json(
            {
                "sent": False,
                "sent_before": is_sent_before,
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
        rows += [("File", f"{name}, {kind}, {format_size(size)}") for name, kind, size in files]
        show_table(
            ("", "was sent before" if is_sent_before else "would be sent" if record is None else "message"), rows
        )
    if is_sent_before:
        echo_err("The message was sent before with this --key. It would not be sent again.")
    elif record is not None:
        echo_err(
            "An earlier command may have sent the message. It would be sent only if a search proves that it was not."
        )
    echo_err(report)


async def _send_message(
    command: Command, access: credentials.MailboxAccess, message: ds.Message, options: _SendOptions
) -> None:
    retry = None if options.max_attempts is None else ds.RetryPolicy(attempts=options.max_attempts)
    async with command.open_mailbox(access) as box:
        box = box.with_options(retry=retry)
        is_sent_before, smtp_id = await send_with_key(command, box, access, message, options.key)

    document = {"sent": True, "sent_before": is_sent_before}
    show_change(document, "The message was sent", as_json=options.json, smtp_id=smtp_id)
    result = "The message was sent before with this --key" if is_sent_before else "The message was sent"
    if not smtp_id:
        echo_err(f"{result}. Its status is not available, because the service returned no SMTP id.")
    elif not options.json:
        echo_err(f"{result}. {make_status_hint(access.address, options.key, smtp_id)}")


def make_status_hint(sender: str, key: str | None, smtp_id: str) -> str:
    """Return the sentence with the command that shows the delivery of a sent message."""
    if not is_verbose():
        return f"`directsuite status` with this {'id' if key is None else '--key'} shows its delivery."
    message = shlex.quote(smtp_id)
    if key is not None:
        message = f"--key{'=' if key.startswith('-') else ' '}{shlex.quote(key)}"
    configured = Configuration.read().get("mailbox")  # not get_text: after sending, an invalid value is not an error
    is_configured = configured is not None and configured.value == sender
    mailbox = "" if is_configured else f" --mailbox {shlex.quote(sender)}"
    return f"`directsuite status {message}{mailbox}` shows its delivery."


def set_hints(command: Command, key: str | None, recovery_hint: str) -> None:
    """Set what to do after Ctrl-C or a lost response. recovery_hint: for a message without a key."""
    command.resume_hint = "nothing was sent: run the same command again" if key is None else _HINT_REPEAT_WITH_KEY
    command.recovery_hint = recovery_hint if key is None else _HINT_REPEAT_WITH_KEY


def validate_key(key: str | None) -> None:
    """Raise UsageError if the key is empty or has undecodable bytes."""
    if key == "":
        raise UsageError("--key is empty. Give a unique name for this message, or omit --key.")
    validate_text(key, "--key")


async def send_with_key(
    command: Command, box: ds.Mailbox, access: credentials.MailboxAccess, message: ds.Message, key: str | None
) -> tuple[bool, str]:
    """Send the message, with a key only if no earlier command did.

    Return True if an earlier command sent it, else False; and the SMTP id, empty if the service returned none. Raises
    UsageError if the key belongs to a different message.
    """
    size = _sum_attachment_bytes(message)
    progress = show_progress("sending", unit="bytes" if size else "waiting", total=size or None)
    if key is None:
        async with progress as bar:
            return False, (await box.send(message, progress=bar.update)).smtp_id
    from directsuite.jobs.delivery import DeliveryJournalError, DeliveryTracker  # slow to import

    async with _open_journal(access.address, key) as journal:
        record = await _read_record(journal, access.address, key)
        if record is not None and record.smtp_id is not None:
            _validate_digest(record, await arguments.compute_message_digest(message))
            return True, record.smtp_id
        if record is not None:
            settle = f"{access.settings.settle:g} s"
            echo_err(f"An earlier command may have sent the message. INBOX.Sent is searched for up to {settle}.")
        upload_seconds = size * _BASE64_RATIO / _MIN_UPLOAD_BYTES_PER_SECOND
        timeout = access.settings.timeout + access.settings.settle + upload_seconds
        try:
            async with progress as bar:
                tracker = DeliveryTracker(box, journal=journal)
                return False, (await tracker.send(message, key=key, progress=bar.update, timeout=timeout)).smtp_id
        except ds.InvalidArgumentError as error:
            if record is not None and error.parameter == "key":
                raise _make_other_message_error(record) from None
            raise
        except ds.OutcomeUnknownError as error:
            if isinstance(error.__cause__, DeliveryJournalError):
                raise NotDoneError(
                    "The message was sent, but the journal of --key could not record it. "
                    f"{error.__cause__.explanation.rstrip('.')}. Then run the same command again with the same "
                    "journal: it searches for the message, and does not send it again. With a new journal, it would."
                ) from None
            if record is not None and error.looked:  # another search would not find more
                command.recovery_hint = _HINT_USE_NEW_KEY
            raise


def _sum_attachment_bytes(message: ds.Message) -> int:
    return sum(_get_attachment_bytes(each) for each in message.attachment_list)


def _build_message(options: _SendOptions, sender: str) -> ds.Message:
    kinds = ((ds.RecipientType.TO, options.to), (ds.RecipientType.CC, options.cc), (ds.RecipientType.BCC, options.bcc))
    recipients = [
        ds.Recipient(each, kind) for kind, values in kinds for each in parse_addresses(f"--{kind.lower()}", values)
    ]
    if not recipients:
        raise UsageError("There is no recipient. Give --to ADDRESS once for each recipient.")
    validate_text(options.subject, "--subject")
    if _CONTROL_CHARACTER.search(options.subject or ""):
        raise UsageError("--subject contains a line break or another control character. Give one line of text.")
    message = ds.Message(
        sender=sender,
        subject=options.subject,
        body=read_body(options),
        html_body=options.html,
        recipients=recipients,
        attachment_list=make_attachments(options),
    )
    return arguments.validate_message(message, sender)


def _get_attachment_bytes(attachment: ds.Attachment) -> int:
    return attachment.source.stat().st_size if isinstance(attachment.source, Path) else len(attachment.content)


def parse_addresses(option: str, values: Sequence[str]) -> list[str]:
    """Return the addresses of an option's values. Raises UsageError if one is invalid.

    A value contains one or several of `address` and `Name <address>`, separated by commas.
    """
    addresses = list[str]()
    for number, value in enumerate(values, start=1):
        source = f"{option} number {number}"
        validate_text(value, source)
        if not _CLOSED_QUOTES_PATTERN.fullmatch(value):
            raise UsageError(f"{with_value(source, value)} contains a quotation mark that is not closed. Close it.")
        for part in _split_at_commas(value):
            named = _NAMED_ADDRESS_PATTERN.fullmatch(part.strip())
            address = named["address"] if named else part.strip()
            credentials.validate_address(address, source)
            addresses.append(address)
    return addresses


def _split_at_commas(value: str) -> list[str]:
    """Split a text at the commas outside its quoted parts."""
    commas = [found.start() for found in _COMMA_OR_QUOTED_TEXT.finditer(value) if found[0] == ","]
    return [value[before + 1 : after] for before, after in itertools.pairwise([-1, *commas, len(value)])]


def read_body(options: TextOptions) -> str | None:
    """Return the text of the message; None if only attachments are given."""
    validate_text(options.body, "--body")
    body = options.body
    if body is None and options.body_file is not None:
        name = with_value("The file of --body-file", options.body_file)
        advice = "Name a text file, or send this file with --attach."
        content = credentials.read_input(options.body_file, name, limit=_MAX_TEXT_BYTES, advice=advice)
        body = credentials.decode_input(content, name, advice="Save it in UTF-8, or send it with --attach.")
    if options.attach or (body and not body.isspace()):
        return body
    what = "The message has no text" if body is None else "The text of the message is empty"
    raise UsageError(f"{what}. Give --body-file FILE (- for stdin) or --body TEXT.")


def make_attachments(options: TextOptions) -> list[ds.Attachment]:
    """Return the attachments. Raises UsageError if a path is not a readable file."""
    for number, path in enumerate(options.attach, start=1):
        label = f"--attach number {number}"
        try:
            mode = path.stat().st_mode
            is_file = stat.S_ISREG(mode)
            if is_file:  # opening a pipe would block until there is a writer
                path.open("rb").close()
        except OSError as error:
            why = explain_os_error(error)
            raise UsageError(f"{with_value(label, path)} can't be read ({why}). Check the path.") from None
        if not is_file:
            problem = "is a folder. Give a file." if stat.S_ISDIR(mode) else "is not a file. Save it as a file first."
            raise UsageError(f"{with_value(label, path)} {problem}")
        validate_text(path.name, f"The name of {label}")
    return [ds.Attachment.from_path(path) for path in options.attach]


@contextlib.asynccontextmanager
async def _open_journal(sender: str, key: str) -> AsyncGenerator[DeliveryJournal]:
    """Open the journal of a key. Raises UsageError if it can't be opened, or can't be used in the block."""
    import sqlite3

    from directsuite.jobs.delivery.journal import DeliveryJournal, DeliveryJournalError  # slow to import

    folder = _get_journal_folder()
    label = with_value("The journal of --key", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{label} can't be used: {explain_os_error(error)}. {_HINT_OTHER_STATE_FOLDER}") from None
    try:
        async with DeliveryJournal(folder / make_request_id(sender, key)) as journal:
            yield journal
    except DeliveryJournalError as error:
        is_in_use = getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        advice = "Wait until the other command or program has ended." if is_in_use else _HINT_OTHER_STATE_FOLDER
        raise UsageError(f"{label} can't be used: {error.explanation.rstrip('.')}. {advice}") from None


def _validate_digest(record: SendRecord, digest: str) -> None:
    """Raise UsageError if the record of a key is that of a different message."""
    if record.content_digest != digest:
        raise _make_other_message_error(record)


def _make_other_message_error(record: SendRecord) -> UsageError:
    is_sent = "may have been sent" if record.smtp_id is None else "was sent"
    return UsageError(
        f"This --key was used for a different message, which {is_sent}. The message of this command was not sent: "
        "use a new --key for each message."
    )


async def find_record(sender: str, key: str) -> SendRecord | None:
    """Return the record of a key; None if the sender has used it for no message. Raises UsageError."""
    if not (_get_journal_folder() / make_request_id(sender, key)).exists():
        return None
    async with _open_journal(sender, key) as journal:
        return await _read_record(journal, sender, key)


async def _read_record(journal: DeliveryJournal, sender: str, key: str) -> SendRecord | None:
    from directsuite.jobs.delivery.journal import hash_mailbox  # slow to import

    return await journal.find_send(hash_mailbox(sender), make_request_id(sender, key))


def _get_journal_folder() -> Path:
    if named := os.environ.get(_STATE_VAR):
        return Path(named) / "sends"
    variable, below_home = "XDG_STATE_HOME", ".local/state"
    if sys.platform == "win32":
        variable, below_home = "LOCALAPPDATA", "AppData/Local"
    try:
        return Path(os.environ.get(variable) or Path.home() / below_home) / "directsuite" / "sends"
    except RuntimeError:  # as in a container whose user has no name
        raise UsageError(f"--key needs a folder, but this user has no home folder. Set {_STATE_VAR}.") from None
