"""`directsuite inbox`: list messages, show one as text, save attachments or complete messages.

Senders choose the names of attachments, so they are made safe before they are used as file names.
"""

from __future__ import annotations

import contextlib
import filecmp
import re
import shlex
import sys
import textwrap
import unicodedata
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from email.utils import parseaddr
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import attrs
from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.credentials import MailboxAccess, get_mailbox_access
from directsuite.cli.errors import (
    ItemNotFoundError,
    NotDoneError,
    UsageError,
    create_folder,
    explain_file_errors,
    with_value,
)
from directsuite.cli.html_text import html_to_text
from directsuite.cli.output import (
    format_count,
    format_size,
    format_time,
    make_table_console,
    model_to_dict,
    show_effect,
    show_json,
    show_progress,
    show_table,
    show_text,
)
from directsuite.cli.process import ExitStatus, echo_err, is_verbose, make_printable, show_line
from directsuite.core.files import DEVICE, create_file, move_new
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.core.similar import find_similar
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.operations import CONTENT_PATHS
from directsuite.messaging.send_once import SENT_FOLDER

app = opt.make_app("inbox", "list", "read 1", "save 6 --into received")

_SAVE_GROUP = Group("What to save", sort_key=1, validator=mutually_exclusive)
_SELECTION_GROUP = Group("Which messages to list", sort_key=1, validator=mutually_exclusive)


@opt.record
class InboxOptions(opt.MailboxOptions):
    """Options of `inbox` commands that use one folder."""

    folder: str = "INBOX"
    """The mailbox's folder."""


@opt.record
class InboxListOptions(InboxOptions):
    """Options of `inbox list`."""

    folder: Annotated[str, Parameter(group=opt.FOLDER_GROUP)] = "INBOX"
    """The mailbox's folder."""
    all_folders: Annotated[bool, opt.Flag, Parameter(group=opt.FOLDER_GROUP)] = False
    """List the messages of all folders, with one request for each folder."""
    limit: Annotated[int, opt.integer_parameter(gte=1)] = 50
    """The maximum number of messages to list."""
    all: Annotated[bool, opt.Flag] = False
    """List all messages; --limit is ignored."""
    sender: Annotated[str | None, Parameter(name="--from")] = None
    """Only messages whose sender's address or name contains this."""
    to: str | None = None
    """Only messages with a recipient whose address contains this."""
    subject: str | None = None
    """Only messages whose subject contains this. Other users of this machine can see it while the command runs."""
    since: Annotated[datetime | None, Parameter(group=_SELECTION_GROUP, converter=opt.convert_time)] = None
    """Only messages received since this time: 2026-05-01, 2026-05-01T08:00 in this machine's time zone, today,
    yesterday, or an age in minutes, hours, days or weeks: 30m, 12h, 7d or 2w.
    """
    until: Annotated[datetime | None, Parameter(converter=opt.convert_end_time)] = None
    """Only messages received until this time, in the format of --since. A day is included."""
    unread: Annotated[bool, opt.Flag, Parameter(group=_SELECTION_GROUP)] = False
    """Only unread messages. This takes longer, because the service sends them completely, with attachments. Other lists
    don't mark unread messages, because the service doesn't report which ones are unread.
    """


@opt.record
class _ReadOptions(InboxOptions):
    mark_read: Annotated[bool, opt.Flag] = False
    """Mark the message as read after showing it."""


@opt.record
class _SaveOptions(InboxOptions):
    into: Annotated[Path, Parameter(converter=opt.convert_path)]
    """The folder for the files; it is created if necessary."""
    eml: Annotated[bool, opt.Flag, Parameter(group=_SAVE_GROUP)] = False
    """Save the messages themselves, as .eml files for mail programs."""
    overwrite: Annotated[bool, opt.Flag] = False
    """Replace existing files."""


CHECK_THE_MESSAGES = "check --folder and the numbers of the messages"

_MAX_NAME_BYTES = 150  # file systems allow 255
_MAX_SUFFIX_BYTES = 20
_INDENT_COLUMNS = 10  # width of the label and indentation of a line below a table row
_RECIPIENT_HEADERS = ("To", "Cc", "Bcc")
_MAX_LISTED_UIDS = 20
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_OUTER_BLANKS = re.compile(r"\A[\s.]++|(?<![\s.])[\s.]++\Z")


@opt.register(app, "list", "--from hospital --subject referral", "--since 7d --json", "--folder INBOX.Sent")
def list_messages(*, command: CommandParameter, options: InboxListOptions = InboxListOptions()) -> Work:
    """List messages, newest first.

    The service applies --since and --until. The command applies --from, --to and --subject itself, so they don't make
    it faster.
    """
    _describe_errors(command, options, "the number")
    if options.since is not None and options.until is not None and options.until < options.since:
        raise UsageError("--until is before --since. Correct one of them, or swap them.")
    return _list_messages(command, get_mailbox_access(options.mailbox, options.password_file), options)


@opt.register(app, "read", "1", "6 --mark-read")
def read_message(uid: opt.Uid, /, *, command: CommandParameter, options: _ReadOptions = _ReadOptions()) -> Work:
    """Show one message as text.

    The message stays unread unless --mark-read is given. An HTML message is converted to text.
    """
    _describe_errors(command, options, "the number")
    access = get_mailbox_access(options.mailbox, options.password_file)

    async def read() -> None:
        async with command.open_mailbox(access) as box:
            message = await fetch_message(box, options.folder, uid)
            if options.json:
                attachments = [{**model_to_dict(each), "size": len(each.content)} for each in message.attachments]
                show_json({**model_to_dict(message), "attachments": attachments})
            else:
                _show_message(message, access.address)
            sys.stdout.flush()
            if options.mark_read:
                async with show_progress("marking it as read"):
                    await box.mark_messages_as_read_by_uids(options.folder, [uid])

    return read()


@opt.register(app, "save", "6 --into received", "5 6 --eml --into received")
def save_messages(uid: opt.Uids, /, *, command: CommandParameter, options: _SaveOptions) -> Work:
    """Save the attachments of messages, or the messages themselves.

    If several attachments are named `report.pdf`, the second becomes `report-2.pdf`. Existing files are skipped unless
    --overwrite is given. Exit status 1 means that a skipped file has other content. Only you can read the files. The
    command prints their paths and doesn't change the messages.
    """
    _describe_errors(command, options, "the numbers")
    command.resume_hint = "saved files are complete; running the same command again saves the others"
    access = get_mailbox_access(options.mailbox, options.password_file)
    create_folder("--into", options.into)
    return _save_files(command, access, list(dict.fromkeys(uid)), options)


def make_safe_name(name: str | None, fallback: str) -> str:
    """Return a file name that is valid on every system.

    It contains no folder and no control character, is not hidden, not a device name of Windows, and not too long.
    name: chosen by the sender. fallback: the result if no usable character is left.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name or ""))[-1]
    replaced = "".join(
        "\0" if letter in '<>:"|?*' or unicodedata.category(letter) in _UNSAFE_CATEGORIES else letter for letter in last
    )
    safe, before = re.sub("\0+", "_", replaced), None
    while safe != before:  # shortening can produce an unsafe name again
        before, safe = safe, _OUTER_BLANKS.sub("", safe)
        safe = _shorten_name(f"_{safe}" if DEVICE.match(safe) or safe.startswith("-") else safe)
    return safe if safe.strip("_") else fallback


@attrs.define(kw_only=True)
class FileSaver:
    """Saves the files of one command in a folder. Only their owner can read them."""

    folder: Path
    overwrite: bool = False
    """True to replace files that existed before the command."""
    existing: int = attrs.field(default=0, init=False)
    """The number of files that were skipped because they exist."""
    different: int = attrs.field(default=0, init=False)
    """The number of skipped files whose content is different."""
    _used_names: set[str] = attrs.field(factory=set[str], init=False)

    def save(self, name: str, content: bytes) -> Path | None:
        """Save a file. Return its path, None if it was skipped. Raises OSError.

        name: a result of `make_safe_name`. A number is appended if this object used the name before.
        """
        stem, suffix = _split_suffix(name)
        number = 1
        while name.casefold() in self._used_names:  # some file systems ignore case
            number += 1
            name = f"{stem}-{number}{suffix}"
        self._used_names.add(name.casefold())
        path, temporary = self.folder / name, self.folder / f".{uuid4().hex}.tmp"
        try:
            with create_file(temporary) as file:
                file.write(content)
            if self.overwrite:
                temporary.replace(path)  # a link is replaced itself, because its target is outside the folder
            elif not move_new(temporary, path):
                is_same = False
                with contextlib.suppress(OSError):
                    is_same = filecmp.cmp(temporary, path, shallow=False)
                self.existing, self.different = self.existing + 1, self.different + (not is_same)
                return None
        finally:
            temporary.unlink(missing_ok=True)
        return path


def _describe_errors(command: Command, options: InboxOptions, uids_label: str) -> None:
    folder = with_value("--folder", options.folder)
    command.option_names = {"folder": folder, "username": "--mailbox", "uids": uids_label}
    command.advice = {ds.BadRequestError: CHECK_THE_MESSAGES}


async def _list_messages(command: Command, access: MailboxAccess, options: InboxListOptions) -> None:
    async with command.open_mailbox(access) as box, show_progress("reading the folder"):
        if options.all_folders:
            newest, more = await _find_newest(box, await list_folders(box), options)
        else:
            async with explain_missing_folder(box, options.folder):
                newest, more = await _find_newest(box, [options.folder], options)
    if options.json:
        members = [model_to_dict(message) for message in newest]
        show_json([{name: each[name] for name in each if name not in ("body", "headers")} for each in members])
    elif not newest:
        elsewhere = "" if options.all_folders else " --all-folders searches all folders."
        conditions = (options.since, options.until, options.unread, options.sender, options.to, options.subject)
        echo_err(f"No message matches.{elsewhere}" if any(conditions) else "There are no messages.")
    else:
        _show_list(newest, options)
    if more:
        echo_err(f"{more} more. To see them, give --limit {options.limit + more} or --all.")


def _show_list(messages: Sequence[ds.MessageDetail], options: InboxListOptions) -> None:
    if options.all_folders:
        omitted = {"sent"}
    elif options.folder.upper() == SENT_FOLDER.upper():
        omitted = {"folder", "received", "from"}
    else:
        omitted = {"folder", "sent", "to"}
    width = make_table_console().width - _INDENT_COLUMNS
    rows = [{name: cell for name, cell in _build_row(each, width).items() if name not in omitted} for each in messages]
    no_wrap = ("folder", "received", "sent", "from", "to")
    show_table([*rows[0]], [[*row.values()] for row in rows], right=("uid", "files", "size"), no_wrap=no_wrap)


async def _find_newest(
    box: ds.Mailbox, folders: Sequence[str], options: InboxListOptions
) -> tuple[Sequence[ds.MessageDetail], int]:
    """Return the newest messages that match, up to --limit, and the number of other messages that match."""
    newest, count = list[ds.MessageDetail](), 0
    limit = None if options.all else options.limit

    def compute_rank(message: ds.MessageDetail) -> float:
        if not options.all_folders:
            return -1 if message.uid is None else message.uid
        received = message.received_date or message.sent_date
        return 0 if received is None else received.timestamp()

    for folder in folders:
        async for message in _iter_messages(box, folder, options):
            if _is_wanted(message, options):
                newest.append(message if message.folder else attrs.evolve(message, folder=folder))
                count += 1
            if limit is not None and len(newest) >= 2 * limit + 1_000:  # bounds the memory
                newest = sorted(newest, key=compute_rank, reverse=True)[:limit]
    newest = sorted(newest, key=compute_rank, reverse=True)[:limit]
    return newest, count - len(newest)


async def _iter_messages(box: ds.Mailbox, folder: str, options: InboxListOptions) -> AsyncGenerator[ds.MessageDetail]:
    if options.unread:
        for message in await box.get_unread_messages(folder):
            yield message
    elif options.since or options.until:
        for message in await box.search_messages_metadata_by_received_date(folder, options.since, options.until):
            yield message
    else:
        async with box.iter_metadata(folder, timeout=box.resolve_timeout()) as messages:
            async for message in messages:
                yield message


def _is_wanted(message: ds.MessageDetail, options: InboxListOptions) -> bool:
    received, until = message.received_date, options.until
    return (
        (until is None or received is None or received <= until)
        and _has_text(options.sender, message.sender)
        and _has_text(options.to, *(each.email for each in message.recipients))
        and _has_text(options.subject, message.subject)
    )


def _has_text(wanted: str | None, *texts: str | None) -> bool:
    return wanted is None or any(wanted.casefold() in (text or "").casefold() for text in texts)


def _build_row(message: ds.MessageDetail, width: int) -> dict[str, object]:
    """Return the cells by title. If the recipients don't fit into `width`, only the first is named."""
    addresses = [each.email for each in message.recipients]
    to = ", ".join(addresses)
    return {
        "folder": message.folder,
        "uid": message.uid,
        "received": message.received_date or message.sent_date,
        "sent": message.sent_date or message.received_date,
        "from": message.sender,
        "to": to if len(to) <= width or not addresses[1:] else f"{addresses[0]} and {len(addresses) - 1} more",
        "subject": message.subject,
        "files": len(message.attachments) or None,
        "size": None if message.size is None or message.size < 0 else format_size(message.size),
    }


async def fetch_message(box: ds.Mailbox, folder: str, uid: int) -> ds.MessageDetail:
    """Return a message. Raises ItemNotFoundError if it does not exist."""
    async with show_progress("fetching the message"), explain_missing_folder(box, folder):
        messages = await box.get_messages_by_uids(folder, [uid])
    if not messages:
        raise ItemNotFoundError(explain_missing_messages(folder, [uid], [uid]))
    return messages[0]


def is_own_message(message: ds.MessageDetail, own: str) -> bool:
    """Return True if the message was sent from the address `own`."""
    return parseaddr(message.sender or "")[1].casefold() == own.casefold()


def _show_message(message: ds.MessageDetail, own: str) -> None:
    received = message.received_date or message.sent_date
    lines = {
        "SMTP id": message.msg_id if is_own_message(message, own) else None,  # an argument of `directsuite status`
        "From": message.sender,
        **{
            kind: ", ".join(each.email for each in message.recipients if each.type == kind.upper())
            for kind in _RECIPIENT_HEADERS
        },
        "Subject": message.subject,
        "Received": None if received is None else format_time(received),
    }
    width = max(make_table_console().width, 2 * _INDENT_COLUMNS)
    for name, value in lines.items():
        if not value:
            continue
        text = f"{name + ':':<10}{make_printable(value)}"
        if name in _RECIPIENT_HEADERS:
            text = textwrap.fill(
                text, width, subsequent_indent=" " * 10, break_long_words=False, break_on_hyphens=False
            )
        show_text(text)
    for attachment in message.attachments:
        size = format_size(len(attachment.content))
        show_line(f"{'File:':<10}{attachment.filename}, {attachment.media_type}, {size}")
    show_line()
    body = message.body or ""
    if not message.html_body:
        show_text(body)
        return
    text = html_to_text(body)
    show_text(text)
    if body.strip() and not text:
        echo_err("The HTML of the message contains no visible text. Run the same command with --json to see the HTML.")


async def _save_files(command: Command, access: MailboxAccess, uids: Sequence[int], options: _SaveOptions) -> int:
    saved, missing = list[tuple[int, Path, int]](), list[int]()
    saver, is_shown = FileSaver(folder=options.into, overwrite=options.overwrite), True

    def show() -> None:
        if options.json:
            show_json([{"uid": uid, "path": str(path), "size": size} for uid, path, size in saved])
        else:
            show_table(("uid", "file", "bytes"), saved, right=("uid", "bytes"), no_wrap=("file",))

    try:
        async with command.open_mailbox(access) as box, show_progress("saving", unit="pieces", total=len(uids)) as bar:
            for uid in uids:
                async with explain_missing_folder(box, options.folder):
                    files = await _fetch_files(box, uid, options)
                missing += [uid] if files is None else []
                for name, content in files or ():
                    with explain_file_errors("--into", options.into):
                        path = saver.save(name, content)
                    if path is not None:
                        saved.append((uid, path, len(content)))
                bar.advance()
    finally:  # report saved files also after an error
        if saved or options.json:
            try:
                show_effect(show, f"{format_count(len(saved), 'file')} saved into the folder of --into")
            except NotDoneError as error:  # another error may have ended the command
                is_shown = False
                echo_err(str(error))
        skipped = f"{format_count(saver.existing, 'existing file')} skipped"
        if saver.different:
            echo_err(
                f"{skipped}, {saver.different} with other content. Give --overwrite to replace existing files, or a "
                "different folder with --into."
            )
        elif saver.existing:
            echo_err(f"{skipped}, with the same content.")
    if missing:
        raise ItemNotFoundError(explain_missing_messages(options.folder, missing, uids))
    if not is_shown or saver.different:
        return ExitStatus.FAILED
    if not saved and not saver.existing:
        echo_err("There are no attachments. --eml saves the complete messages.")
    return ExitStatus.DONE


async def _fetch_files(box: ds.Mailbox, uid: int, options: _SaveOptions) -> list[tuple[str, bytes]] | None:
    """Return the safe names and contents of the files to save, if any; None if the message does not exist."""
    box = box.with_strict_paths(CONTENT_PATHS)
    if options.eml:
        for raw in await box.get_raw_messages_by_uids(options.folder, [uid]):
            return [] if raw.data is None else [(f"message-{uid}.eml", raw.data)]
        return None
    for message in await box.get_messages_by_uids(options.folder, [uid]):
        return [
            (make_safe_name(each.filename, f"message-{uid}-file-{number}"), each.content)
            for number, each in enumerate(message.attachments, start=1)
        ]
    return None


@contextlib.asynccontextmanager
async def explain_missing_folder(box: ds.Mailbox, folder: str, *, option: str = "--folder") -> AsyncGenerator[None]:
    """Convert a ServiceError to ItemNotFoundError if the mailbox has no such folder.

    The service has no error code for this, so the folders are listed. Other errors are raised unchanged.

    option: the option or argument that names the folder; --to for a destination, which the user may want to create.
    """
    try:
        yield
    except ds.ServiceError as error:
        if find_error_scope(error) is not ErrorScope.ITEM:
            raise
        try:
            folders = {name.casefold(): name for name in await list_folders(box)}
        except ds.DirectSuiteError:
            raise error from None
        if folder.casefold() in folders:
            raise
        meant = _find_similar_folder(folder.casefold(), folders)
        suggestion = f"Did you mean {make_printable(meant)}? " if meant and is_verbose() else ""
        create, new_folder = "", folder if folder.casefold().startswith("inbox.") else f"INBOX.{folder}"
        if option == "--to" and new_folder.casefold() not in folders:
            create = f", or `directsuite inbox folder create {_quote_folder(new_folder)}` to create one"
        raise ItemNotFoundError(
            f"{with_value(option, folder)}: the mailbox has no such folder. {suggestion}"
            f"Run `directsuite inbox folders` to see the folders{create}."
        ) from None


def _find_similar_folder(typed: str, folders: Mapping[str, str]) -> str | None:
    """Return the folder that was probably meant, if any. typed: in lower case, as the keys of `folders`."""
    typed = typed.removeprefix("inbox.")
    short_names = {key.removeprefix("inbox."): name for key, name in folders.items()}
    ends = [name for key, name in folders.items() if f".{key}".endswith(f".{typed}")]
    return next(iter(ends + [short_names[each] for each in find_similar(typed, short_names)]), None)


def explain_missing_messages(folder: str, missing: Sequence[int], uids: Sequence[int]) -> str:
    """Return the sentences about the messages that do not exist (`missing`), of all requested ones (`uids`)."""
    listed = ", ".join(map(str, missing[:_MAX_LISTED_UIDS])) + (", …" if len(missing) > _MAX_LISTED_UIDS else "")
    if len(missing) == len(uids):
        what = with_value("this number" if len(missing) == 1 else "these numbers", listed)
        problem = f"{folder if is_verbose() else 'The folder'} has no message with {what}"
    else:
        problem = f"{len(missing)} of {len(uids)} messages do not exist ({listed})"
    return f"{problem}. Run {make_list_command(folder)} to see the numbers."


def make_list_command(folder: str) -> str:
    """Return the command that lists the folder, in backquotes. It names the folder only if stderr may show it."""
    option = "" if folder.casefold() == INBOX.casefold() else f" --folder {_quote_folder(folder)}"
    return f"`directsuite inbox list{option}`"


def _quote_folder(folder: str) -> str:
    return shlex.quote(folder) if is_verbose() else "FOLDER"


async def list_folders(box: ds.Mailbox) -> list[str]:
    """Return the names of all folders, INBOX first."""
    return list(dict.fromkeys([INBOX, *await box.get_folders()]))


def _shorten_name(name: str) -> str:
    stem, suffix = _split_suffix(name)
    cut = stem.encode()[: _MAX_NAME_BYTES - _MAX_SUFFIX_BYTES].decode(errors="ignore")
    return (stem if cut == stem else _OUTER_BLANKS.sub("", cut)) + suffix


def _split_suffix(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.rpartition(".")
    return (stem, f".{suffix}") if stem and dot and len(suffix.encode()) < _MAX_SUFFIX_BYTES else (name, "")
