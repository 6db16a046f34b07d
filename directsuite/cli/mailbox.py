"""Commands of `directsuite inbox` that change a mailbox.

move, copy, delete, mark, forward and reply change messages; the subcommands of `inbox folder` change folders.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Annotated

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import inbox
from directsuite.cli.command import Command, CommandParameter, Work, confirm, require_terminal
from directsuite.cli.credentials import get_mailbox_access
from directsuite.cli.errors import ItemNotFoundError, UsageError, with_value
from directsuite.cli.options import Addresses, Flag, MailboxOptions, Uid, Uids, Variadic, make_app, record, register
from directsuite.cli.output import (
    format_count,
    format_time_to_minute,
    show_change,
    show_json,
    show_progress,
    show_table,
)
from directsuite.cli.process import echo_err, echo_err_line, is_verbose
from directsuite.cli.send import (
    HINT_CHECK_SENT_FOLDER,
    TextOptions,
    make_attachments,
    make_status_hint,
    parse_addresses,
    read_body,
    send_with_key,
    set_hints,
    show_dry_run,
    validate_key,
)
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.messaging import arguments

app = inbox.app
_folder_app = make_app("inbox folder", "create INBOX.Done", "delete INBOX.Done --yes")
_folder_app.help = "Create, rename, delete and subscribe to folders."


@record
class _MoveOptions(inbox.InboxOptions):
    to: str
    """The destination folder, such as INBOX.Archive."""


@record
class _DeleteOptions(inbox.InboxOptions):
    forever: Annotated[bool, Flag] = False
    """Delete the messages permanently, instead of moving them to INBOX.Trash."""
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@record
class _MarkOptions(inbox.InboxOptions):
    unread: Annotated[bool, Flag] = False
    """Mark as unread instead of read."""


@record
class _ForwardOptions(inbox.InboxOptions):
    to: Addresses
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    with_bcc: Annotated[bool, Flag] = False
    """Also forward messages that you sent with a Bcc. Every recipient can then see the Bcc recipients."""


@record
class _ReplyOptions(inbox.InboxOptions, TextOptions):
    to_all: Annotated[bool, Flag, Parameter(name="--all")] = False
    """Also reply to the other recipients, except Bcc recipients. The command asks before it sends to several."""
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@record
class _DeleteFolderOptions(MailboxOptions):
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@record
class _SubscribeOptions(MailboxOptions):
    unsubscribe: Annotated[bool, Flag] = False
    """Unsubscribe from the folders instead."""


_Folder = Annotated[str, Parameter(help="The folder's name, as `inbox folders` shows it.")]
_NewFolder = Annotated[str, Parameter(help="The new name, which starts with INBOX. and is not in use.")]
_Folders = Annotated[tuple[str, ...], Variadic, Parameter(name="FOLDER…", help="Folders' names, separated by spaces.")]

_MessageFunction = Callable[[ds.Mailbox, Sequence[int]], Awaitable[object]]
"""Asks for, or makes, a change of messages. Returns a SendMessageResponse if it sends one."""
_FolderFunction = Callable[[ds.Mailbox], Awaitable[object]]

_THREAD_HEADERS = ("In-Reply-To", "References")
_LINE_BREAKS = re.compile(r"[\r\n\0]+[ \t]*")
_TRASH = "INBOX.Trash"
_MAX_LISTED_MESSAGES = 20  # in one question
_OPTION_NAMES = {"folder": "--folder", "dest_folder": "--to", "username": "--mailbox", "uids": "the numbers"}
_FOLDERS_HINT = "check the folders with `directsuite inbox folders` before you run the command again"
_DRY_RUN_REPORT = "Dry run: nothing was sent."
_HIDDEN_RECIPIENT_WARNING = (
    "You are neither in To nor in Cc of the message, so the others would learn that you received it. "
)


@register(app, "folders", "", "--json")
def show_folders(*, command: CommandParameter, options: MailboxOptions = MailboxOptions()) -> Work:
    """List folders with their numbers of messages."""
    command.option_names = _OPTION_NAMES
    access = get_mailbox_access(options.mailbox, options.password_file)

    async def list_folders() -> None:
        async with command.open_mailbox(access) as box, show_progress("reading the folders"):
            counts = [
                (name, await box.get_message_count(name), await box.get_unread_message_count(name))
                for name in await inbox.list_folders(box)
            ]
        titles = ("folder", "messages", "unread")
        if options.json:
            show_json([dict(zip(titles, each, strict=True)) for each in counts])
        else:
            show_table(titles, counts, right=("messages", "unread"), no_wrap=("folder",))

    return list_folders()


@register(app, "move", "3 4 --to INBOX.Referrals", "1 --folder INBOX.Referrals --to INBOX")
def move(uid: Uids, /, *, command: CommandParameter, options: _MoveOptions) -> Work:
    """Move messages to another folder, in which they get new numbers."""
    return _change_messages(
        command, uid, options, "moved", lambda box, uids: box.move_messages_by_uids(options.folder, options.to, uids)
    )


@register(app, "copy", "1 --to INBOX.Referrals", "5 6 --to INBOX.Referrals")
def copy(uid: Uids, /, *, command: CommandParameter, options: _MoveOptions) -> Work:
    """Copy messages to another folder."""

    async def copy_messages(box: ds.Mailbox, uids: Sequence[int]) -> None:
        await box.copy_messages_by_uids(options.folder, options.to, uids, verify=True)

    return _change_messages(command, uid, options, "copied", copy_messages, hint=_make_folder_hint(options.to))


@register(app, "delete", "2", "1 --folder INBOX.Trash --forever --yes")
def delete(uid: Uids, /, *, command: CommandParameter, options: _DeleteOptions = _DeleteOptions()) -> Work:
    """Delete messages after confirmation."""
    done = "deleted forever" if options.forever else "moved to INBOX.Trash"
    if not options.forever and options.folder.casefold() == _TRASH.casefold():
        raise UsageError("Messages in INBOX.Trash are deleted already. Give --forever to remove them.")
    if not options.yes:
        require_terminal()

    async def ask_user(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        if is_verbose():
            messages = await _fetch_metadata(box, options.folder, existing_uids)
            for message in messages[:_MAX_LISTED_MESSAGES]:
                echo_err_line(f"{message.uid}  {message.sender}  {message.subject}")
            if messages[_MAX_LISTED_MESSAGES:]:
                echo_err_line("…")
        await confirm(
            f"{format_count(len(existing_uids), 'message')} of {options.folder} will be {done}.",
            declined_message="Not confirmed. Nothing was deleted.",
        )

    async def delete_messages(box: ds.Mailbox, uids: Sequence[int]) -> None:
        await box.delete_messages_by_uids(options.folder, uids, forever=options.forever)

    return _change_messages(command, uid, options, done, delete_messages, check=None if options.yes else ask_user)


@register(app, "mark", "5 6", "5 --unread")
def mark(uid: Uids, /, *, command: CommandParameter, options: _MarkOptions = _MarkOptions()) -> Work:
    """Mark messages as read or unread."""
    state = "unread" if options.unread else "read"
    change = ds.Mailbox.mark_messages_as_unread_by_uids if options.unread else ds.Mailbox.mark_messages_as_read_by_uids
    return _change_messages(
        command, uid, options, f"marked as {state}", lambda box, uids: change(box, options.folder, uids)
    )


@register(app, "forward", "6 --to bob@direct.example.test", "5 6 --to bob@direct.example.test --json")
def forward(uid: Uids, /, *, command: CommandParameter, options: _ForwardOptions) -> Work:
    """Forward messages; several are attached to one message as .eml files.

    A message that you sent with a Bcc is not forwarded unless --with-bcc is given, because its header names the Bcc
    recipients. The command prints the SMTP id of the sent message for `directsuite status`. Exit status 7 means that
    the response was lost: check INBOX.Sent before you repeat the command.
    """
    recipients = parse_addresses("--to", options.to)
    if not recipients:
        raise UsageError("There is no recipient. Give --to ADDRESS once for each recipient.")

    async def reject_bcc(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        messages = await _fetch_metadata(box, options.folder, existing_uids)
        if with_bcc := [each.uid for each in messages if _has_bcc(each)]:
            raise UsageError(
                f"{format_count(len(with_bcc), 'message')} ({', '.join(map(str, with_bcc))}) may be forwarded with "
                "the Bcc header, which names hidden recipients. Send a new message with `directsuite send`, or "
                "give --with-bcc to forward anyway."
            )

    async def forward_messages(box: ds.Mailbox, uids: Sequence[int]) -> ds.SendMessageResponse:
        return await box.forward(options.folder, uids, recipients)

    check, hint = None if options.with_bcc else reject_bcc, _make_recovery_hint("forward")
    return _change_messages(command, uid, options, "forwarded", forward_messages, check=check, hint=hint)


def _make_recovery_hint(action: str) -> str:
    return (
        f"{HINT_CHECK_SENT_FOLDER} (an earlier {action} has the same subject, "
        f"but a time before {format_time_to_minute(datetime.now(UTC))})"
    )


@register(
    app,
    "reply",
    "7 --body 'Thank you'",
    "7 --body 'Thank you' --key thanks-1",
    "7 --all --body-file letter.txt --attach scan.pdf",
)
def reply(uid: Uid, /, *, command: CommandParameter, options: _ReplyOptions = _ReplyOptions()) -> Work:
    """Reply to a message's sender, or with --all also to its other recipients.

    The command prints the reply's SMTP id for `directsuite status`. Exit status 7 means that the response was lost:
    the reply may or may not have been sent. With --key, you can repeat the same command: the reply is sent only once.
    """
    set_hints(command, options.key, _make_recovery_hint("reply"))
    command.option_names = _OPTION_NAMES
    validate_key(options.key)
    access = get_mailbox_access(options.mailbox, options.password_file)
    body, attachments = read_body(options), make_attachments(options)

    async def send_reply() -> None:
        async with command.open_mailbox(access) as box:
            original = await inbox.fetch_message(box, options.folder, uid)
            recipients = _select_recipients(original, access.address, to_all=options.to_all)
            reply_message = _make_reply(original, access.address, recipients, options, body, attachments)
            addresses = ", ".join(f"{each.type.capitalize()} {each.email}" for each in recipients)
            description = with_value(format_count(len(recipients), "recipient"), addresses)
            is_hidden = bool(recipients[1:]) and _is_hidden_recipient(original, access.address)
            hidden = _HIDDEN_RECIPIENT_WARNING if is_hidden else ""
            if options.dry_run:
                report, as_json = f"{hidden}{_DRY_RUN_REPORT}", options.json
                await show_dry_run(reply_message, access.address, options.key, as_json=as_json, report=report)
                return
            if recipients[1:] and not options.yes:
                await confirm(
                    f"{hidden}The reply will be sent to {description}.",
                    explanation=f"{hidden}The reply would be sent to {description}.",
                    declined_message="Not confirmed. Nothing was sent.",
                )
            is_sent_before, smtp_id = await send_with_key(command, box, access, reply_message, options.key)

        to = [{"email": each.email, "type": each.type} for each in recipients]
        document = {"sent": True, "sent_before": is_sent_before, "recipients": to}
        show_change(document, "The reply was sent", as_json=options.json, smtp_id=smtp_id)
        has_hint = options.key is not None and smtp_id and not options.json
        hint = f" {make_status_hint(access.address, options.key, smtp_id)}" if has_hint else ""
        echo_err(f"The reply was sent{' before with this --key' if is_sent_before else ''} to {description}.{hint}")

    return send_reply()


def _change_messages(
    command: Command,
    uids: Sequence[int],
    options: inbox.InboxOptions,
    done: str,
    change: _MessageFunction,
    *,
    check: _MessageFunction | None = None,
    hint: str = "",
) -> Work:
    """Return the coroutine that changes the messages that exist, and reports their number.

    done: the participle for the report, such as "moved". check: called before `change`, if given; may raise UsageError.
    hint: what to do after Ctrl-C or a lost response, if not to check the folder of the messages.
    """
    new_folder = options.to if isinstance(options, _MoveOptions) else None
    command.option_names = {**_OPTION_NAMES, "folder": with_value("--folder", options.folder)}
    if new_folder is not None:
        command.option_names["dest_folder"] = with_value("--to", new_folder)
    command.resume_hint = command.recovery_hint = hint or _make_folder_hint(options.folder)
    command.advice = {ds.BadRequestError: inbox.CHECK_THE_MESSAGES}
    access, uids = get_mailbox_access(options.mailbox, options.password_file), list(dict.fromkeys(uids))

    async def run_change() -> None:
        async with command.open_mailbox(access) as box:
            async with show_progress("reading the folder"), inbox.explain_missing_folder(box, options.folder):
                listed = set(await box.get_uids(options.folder))
            existing_uids = [uid for uid in uids if uid in listed]
            if not existing_uids:
                raise ItemNotFoundError(inbox.explain_missing_messages(options.folder, uids, uids))
            if check is not None:
                await check(box, existing_uids)
            async with show_progress("working"), contextlib.AsyncExitStack() as stack:
                if new_folder is not None:
                    await stack.enter_async_context(inbox.explain_missing_folder(box, new_folder, option="--to"))
                result = await change(box, existing_uids)
        count = format_count(len(existing_uids), "message")
        missing = [uid for uid in uids if uid not in listed]
        smtp_id = result.smtp_id if isinstance(result, ds.SendMessageResponse) else None
        document = {"uids": existing_uids, "missing": missing}
        show_change(document, f"{count} {done}", as_json=options.json, smtp_id=smtp_id)
        renumbered = " Messages get new numbers in the destination folder, which {} shows."
        echo_err(f"{count} {done}.{renumbered.format(inbox.make_list_command(new_folder)) if new_folder else ''}")
        if missing:
            raise ItemNotFoundError(inbox.explain_missing_messages(options.folder, missing, uids))

    return run_change()


def _make_folder_hint(folder: str) -> str:
    return f"check the folder with {inbox.make_list_command(folder)} before you run the command again"


async def _fetch_metadata(box: ds.Mailbox, folder: str, uids: Sequence[int]) -> list[ds.MessageDetail]:
    wanted, found = set(uids), list[ds.MessageDetail]()
    async with (
        show_progress("reading the folder"),
        box.iter_metadata(folder, timeout=box.resolve_timeout()) as messages,
    ):
        async for message in messages:
            if message.uid in wanted:
                found.append(message)
            if len(found) == len(wanted):
                break
    return found


def _has_bcc(message: ds.MessageDetail) -> bool:
    headers = {(header.name or "").strip().lower() for header in message.headers}
    return "bcc" in headers or bool(_get_addresses(message, ds.RecipientType.BCC))


def _make_reply(
    original: ds.MessageDetail,
    sender: str,
    recipients: list[ds.Recipient],
    options: _ReplyOptions,
    body: str | None,
    attachments: list[ds.Attachment],
) -> ds.MessageWithHeader:
    # A sender can encode line breaks, which a subject or header must not contain.
    subject, msg_id = _LINE_BREAKS.sub(" ", original.subject or ""), _LINE_BREAKS.sub("", original.msg_id or "")
    message = ds.MessageWithHeader(
        sender=sender,
        subject=subject if subject.lower().startswith("re:") else f"Re: {subject}".rstrip(),
        body=body,
        html_body=options.html,
        recipients=recipients,
        attachment_list=attachments,
        headers=[ds.MessageHeader(name, msg_id) for name in _THREAD_HEADERS if msg_id],
    )
    return arguments.validate_message(message, sender)


def _select_recipients(message: ds.MessageDetail, own: str, *, to_all: bool) -> list[ds.Recipient]:
    """Return the recipients of a reply, without duplicates, the mailbox itself and Bcc recipients.

    A reply to a message sent from this mailbox is sent to that message's recipients. own: the mailbox's address.
    """
    sender = message.reply_to or message.sender
    if not sender:
        raise UsageError("The message has no sender. Reply with `directsuite send`.")
    to, cc = _get_addresses(message, ds.RecipientType.TO), _get_addresses(message, ds.RecipientType.CC)
    if not inbox.is_own_message(message, own):
        to, cc = parse_addresses("the senders", [sender]), [*to, *cc]
    recipients = dict[str, ds.Recipient]()
    for addresses, kind in ((to, ds.RecipientType.TO), (cc if to_all else [], ds.RecipientType.CC)):
        for address in addresses:
            recipients.setdefault(address.casefold(), ds.Recipient(address, kind))
    recipients.pop(own.casefold(), None)
    if not recipients:
        raise UsageError(
            "The message has no other recipients than you and those of a Bcc. Reply with `directsuite send`."
        )
    return [*recipients.values()]


def _is_hidden_recipient(message: ds.MessageDetail, own: str) -> bool:
    seen = {*_get_addresses(message, ds.RecipientType.TO), *_get_addresses(message, ds.RecipientType.CC)}
    return not inbox.is_own_message(message, own) and own.casefold() not in {each.casefold() for each in seen}


def _get_addresses(message: ds.MessageDetail, kind: ds.RecipientType) -> list[str]:
    return [parseaddr(each.email)[1] or each.email for each in message.recipients if each.type.upper() == kind]


_folder_app.sort_key = len([*app])
app.command(_folder_app)


@register(app, "folder create", "INBOX.Archive", "INBOX.Archive.2026 --json")
def create_folder(
    folder: _NewFolder, /, *, command: CommandParameter, options: MailboxOptions = MailboxOptions()
) -> Work:
    """Create a folder."""

    async def create(box: ds.Mailbox) -> None:
        await box.create_folder(folder)

    return _change_folders(command, options, "The folder was created", {"folder": folder}, create, new_folder=folder)


@register(app, "folder rename", "INBOX.Archive INBOX.Cases", "INBOX.Cases INBOX.Archive --json")
def rename_folder(
    folder: _Folder,
    new_folder: _NewFolder,
    /,
    *,
    command: CommandParameter,
    options: MailboxOptions = MailboxOptions(),
) -> Work:
    """Rename a folder, with its messages and subfolders."""

    async def rename(box: ds.Mailbox) -> None:
        await box.move_folder(folder, new_folder)

    done, document = "The folder was renamed", {"folder": folder, "new_folder": new_folder}
    return _change_folders(command, options, done, document, rename, folders=[folder], new_folder=new_folder)


@register(app, "folder delete", "INBOX.Archive.2026 --yes", "INBOX.Archive --yes --json")
def delete_folder(
    folder: _Folder, /, *, command: CommandParameter, options: _DeleteFolderOptions = _DeleteFolderOptions()
) -> Work:
    """Delete a folder permanently, with its messages and subfolders, after confirmation."""
    command.option_names = {"folder": with_value("FOLDER", folder)}
    arguments.validate_changeable_folder(folder, "folder")
    if not options.yes:
        require_terminal()

    async def ask_user(box: ds.Mailbox) -> None:
        prefix = f"{folder}.".casefold()
        below = [name for name in await inbox.list_folders(box) if name.casefold().startswith(prefix)]
        count = sum([await box.get_message_count(name) for name in (folder, *below)])
        await confirm(
            f"{folder} will be deleted permanently, with {format_count(len(below), 'subfolder')} and "
            f"{format_count(count, 'message')}.",
            declined_message="Not confirmed. Nothing was deleted.",
        )

    async def delete(box: ds.Mailbox) -> None:
        await box.delete_folder(folder)

    done, check = "The folder was deleted", None if options.yes else ask_user
    return _change_folders(command, options, done, {"folder": folder}, delete, folders=[folder], check=check)


@register(app, "folder subscribe", "INBOX.Referrals", "INBOX.Drafts INBOX.Spam --unsubscribe")
def subscribe(
    folder: _Folders, /, *, command: CommandParameter, options: _SubscribeOptions = _SubscribeOptions()
) -> Work:
    """Subscribe to folders, or unsubscribe. Mail programs can be set to show only subscribed folders."""

    async def set_subscribed(box: ds.Mailbox) -> None:
        await box.set_folders_subscribed(folder, not options.unsubscribe)

    done = f"{'Unsubscribed from' if options.unsubscribe else 'Subscribed to'} {format_count(len(folder), 'folder')}"
    document = {"folders": list(folder), "subscribed": not options.unsubscribe}
    return _change_folders(command, options, done, document, set_subscribed, folders=folder)


def _change_folders(
    command: Command,
    options: MailboxOptions,
    done: str,
    document: Mapping[str, object],
    change: _FolderFunction,
    *,
    check: _FolderFunction | None = None,
    folders: Sequence[str] = (),
    new_folder: str = "",
) -> Work:
    """Return the coroutine that calls `change`, and reports `done`.

    document: the output of --json. check: called before `change`, if given. folders: those that must exist.
    new_folder: the folder that `change` creates, if any.
    """
    label = with_value("FOLDER", " ".join(folders or [new_folder]))
    command.option_names = {"folder": label, "folders": label, "username": "--mailbox"}
    command.option_names["new_folder"] = with_value("NEW_FOLDER", new_folder)
    command.resume_hint = command.recovery_hint = _FOLDERS_HINT
    advice = "check the names; `directsuite inbox folders` lists the existing folders"
    command.advice = {ds.BadRequestError: advice, ds.ServiceError: advice}
    access = get_mailbox_access(options.mailbox, options.password_file)

    async def run_change() -> None:
        async with command.open_mailbox(access) as box, contextlib.AsyncExitStack() as stack:
            if new_folder:
                await stack.enter_async_context(_explain_existing_folder(box, new_folder))
            for name in folders:
                await stack.enter_async_context(inbox.explain_missing_folder(box, name, option="FOLDER"))
            if check is not None:
                await check(box)
            async with show_progress("working"):
                await change(box)
        show_change(document, done, as_json=options.json)
        echo_err(f"{done}.")

    return run_change()


@contextlib.asynccontextmanager
async def _explain_existing_folder(box: ds.Mailbox, folder: str) -> AsyncGenerator[None]:
    """Convert a ServiceError to UsageError if the folder exists. The service has no code for this."""
    try:
        yield
    except ds.ServiceError as error:
        names = list[str]()
        if find_error_scope(error) is ErrorScope.ITEM:
            with contextlib.suppress(ds.DirectSuiteError):
                names = await inbox.list_folders(box)
        if folder.casefold() not in {name.casefold() for name in names}:
            raise
        raise UsageError(
            f"{with_value('The folder', folder)} exists already. Choose another name; `directsuite inbox folders` "
            "lists the folders."
        ) from None
