"""Commands of `directsuite inbox` that change a mailbox: move, copy, delete, mark, forward and reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Annotated

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import inbox
from directsuite.cli.command import Command, CommandParameter, Work, confirm, require_terminal
from directsuite.cli.credentials import get_mailbox_access
from directsuite.cli.errors import ItemNotFoundError, UsageError, with_value
from directsuite.cli.options import Addresses, Flag, MailboxOptions, Uid, Uids, record, register
from directsuite.cli.output import (
    format_count,
    format_time_to_minute,
    show_change,
    show_json,
    show_progress,
    show_table,
)
from directsuite.cli.process import ExitStatus, echo_err, echo_err_line, is_verbose
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
from directsuite.messaging import arguments

app = inbox.app


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


_MailboxFunction = Callable[[ds.Mailbox, Sequence[int]], Awaitable[ds.SendMessageResponse | None]]
"""Changes messages. Returns the response to sending, if any."""

_THREAD_HEADERS = ("In-Reply-To", "References")
_TRASH = "INBOX.Trash"
_MAX_LISTED_MESSAGES = 20  # in one question
_OPTION_NAMES = {"folder": "--folder", "dest_folder": "--to", "username": "--mailbox", "uids": "the numbers"}
_DRY_RUN_REPORT = "Dry run: nothing was sent."
_HIDDEN_RECIPIENT_WARNING = (
    "You are neither in To nor in Cc of the message, so the others would learn that you received it. "
)


@register(app, "folders", "", "--json")
def show_folders(*, command: CommandParameter, options: MailboxOptions = MailboxOptions()) -> Work:
    """List folders with their numbers of messages."""
    command.option_names = _OPTION_NAMES
    access = get_mailbox_access(options.mailbox, options.password_file)

    async def list_folders() -> int:
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
        return ExitStatus.DONE

    return list_folders()


@register(app, "move", "3 4 --to INBOX.Referrals", "1 --folder INBOX.Referrals --to INBOX")
def move(uid: Uids, /, *, command: CommandParameter, options: _MoveOptions) -> Work:
    """Move messages to another folder, in which they get new numbers."""

    async def move_messages(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        async with inbox.explain_missing_folder(box, options.to, option="--to"):
            await box.move_messages_by_uids(options.folder, options.to, existing_uids)

    return _change_messages(command, uid, options, "moved", move_messages, new_folder=options.to)


@register(app, "copy", "1 --to INBOX.Referrals", "5 6 --to INBOX.Referrals")
def copy(uid: Uids, /, *, command: CommandParameter, options: _MoveOptions) -> Work:
    """Copy messages to another folder."""

    async def copy_messages(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        async with inbox.explain_missing_folder(box, options.to, option="--to"):
            await box.copy_messages_by_uids(options.folder, options.to, existing_uids, verify=True)

    hint = _make_folder_hint(options.to)
    return _change_messages(command, uid, options, "copied", copy_messages, recovery_hint=hint, new_folder=options.to)


@register(app, "delete", "2", "1 --folder INBOX.Trash --forever --yes")
def delete(uid: Uids, /, *, command: CommandParameter, options: _DeleteOptions = _DeleteOptions()) -> Work:
    """Delete messages after confirmation."""
    done = "deleted forever" if options.forever else "moved to INBOX.Trash"
    if not options.forever and options.folder.casefold() == _TRASH.casefold():
        raise UsageError("Messages in INBOX.Trash are deleted already. Give --forever to remove them.")
    if not options.yes:
        require_terminal()

    async def delete_messages(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        if not options.yes:
            await ask_user(box, existing_uids)
        async with show_progress("working"):
            await box.delete_messages_by_uids(options.folder, existing_uids, forever=options.forever)

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

    return _change_messages(command, uid, options, done, delete_messages)


@register(app, "mark", "5 6", "5 --unread")
def mark(uid: Uids, /, *, command: CommandParameter, options: _MarkOptions = _MarkOptions()) -> Work:
    """Mark messages as read or unread."""

    async def mark_messages(box: ds.Mailbox, existing_uids: Sequence[int]) -> None:
        mark = box.mark_messages_as_unread_by_uids if options.unread else box.mark_messages_as_read_by_uids
        await mark(options.folder, existing_uids)

    done = "marked as unread" if options.unread else "marked as read"
    return _change_messages(command, uid, options, done, mark_messages)


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

    async def forward_messages(box: ds.Mailbox, existing_uids: Sequence[int]) -> ds.SendMessageResponse:
        messages = [] if options.with_bcc else await _fetch_metadata(box, options.folder, existing_uids)
        if with_bcc := [each.uid for each in messages if _has_bcc(each)]:
            raise UsageError(
                f"{format_count(len(with_bcc), 'message')} ({', '.join(map(str, with_bcc))}) may be forwarded with "
                "the Bcc header, which names hidden recipients. Send a new message with `directsuite send`, or "
                "give --with-bcc to forward anyway."
            )
        async with show_progress("working"):
            return await box.forward(options.folder, existing_uids, recipients)

    hint = _make_recovery_hint("forward")
    return _change_messages(command, uid, options, "forwarded", forward_messages, recovery_hint=hint)


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

    async def send_reply() -> int:
        async with command.open_mailbox(access) as box:
            original = await inbox.fetch_message(box, options.folder, uid)
            recipients = _select_recipients(original, access.address, to_all=options.to_all)
            reply_message = _make_reply(original, access.address, recipients, options, body, attachments)
            description = _describe_recipients(recipients)
            is_hidden = bool(recipients[1:]) and _is_hidden_recipient(original, access.address)
            hidden = _HIDDEN_RECIPIENT_WARNING if is_hidden else ""
            if options.dry_run:
                report, as_json = f"{hidden}{_DRY_RUN_REPORT}", options.json
                return await show_dry_run(reply_message, access.address, options.key, as_json=as_json, report=report)
            if recipients[1:] and not options.yes:
                await confirm(
                    f"{hidden}The reply will be sent to {description}.",
                    explanation=f"{hidden}The reply would be sent to {description}.",
                    declined_message="Not confirmed. Nothing was sent.",
                )
            is_sent_before, smtp_id = await send_with_key(command, box, access, reply_message, options.key)

        to = [{"email": each.email, "type": each.type} for each in recipients]
        document = {"sent": True, "sent_before": is_sent_before, "recipients": to}
        if not show_change(document, "The reply was sent", as_json=options.json, smtp_id=smtp_id):
            return ExitStatus.FAILED
        has_hint = options.key is not None and smtp_id and not options.json
        hint = f" {make_status_hint(access.address, options.key, smtp_id)}" if has_hint else ""
        echo_err(f"The reply was sent{' before with this --key' if is_sent_before else ''} to {description}.{hint}")
        return ExitStatus.DONE

    return send_reply()


def _change_messages(
    command: Command,
    uids: Sequence[int],
    options: inbox.InboxOptions,
    done: str,
    work: _MailboxFunction,
    recovery_hint: str = "",
    new_folder: str | None = None,
) -> Work:
    """Return the coroutine that applies `work` to the messages that exist, and reports their number.

    done: the participle for the report, such as "moved". new_folder: the folder in which the messages get new numbers.
    """
    command.option_names = {**_OPTION_NAMES, "folder": with_value("--folder", options.folder)}
    if isinstance(options, _MoveOptions):
        command.option_names["dest_folder"] = with_value("--to", options.to)
    command.resume_hint = command.recovery_hint = recovery_hint or _make_folder_hint(options.folder)
    command.advice = {ds.BadRequestError: inbox.CHECK_THE_MESSAGES}
    access, uids = get_mailbox_access(options.mailbox, options.password_file), list(dict.fromkeys(uids))

    async def run_change() -> int:
        async with command.open_mailbox(access) as box:
            async with show_progress("reading the folder"), inbox.explain_missing_folder(box, options.folder):
                listed = set(await box.get_uids(options.folder))
            existing_uids = [uid for uid in uids if uid in listed]
            if not existing_uids:
                raise ItemNotFoundError(inbox.explain_missing_messages(options.folder, uids))
            result = await work(box, existing_uids)
        count = format_count(len(existing_uids), "message")
        missing = [uid for uid in uids if uid not in listed]
        smtp_id = None if result is None else result.smtp_id
        document = {"uids": existing_uids, "missing": missing}
        if not show_change(document, f"{count} {done}", as_json=options.json, smtp_id=smtp_id):
            return ExitStatus.FAILED
        echo_err(f"{count} {done}.{'' if new_folder is None else _explain_new_numbers(new_folder)}")
        if missing:
            echo_err(inbox.describe_missing(missing, uids, options.folder))
        return ExitStatus.NOT_FOUND if missing else ExitStatus.DONE

    return run_change()


def _explain_new_numbers(folder: str) -> str:
    return f" Messages get new numbers in the destination folder, which {inbox.make_list_command(folder)} shows."


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
    subject = original.subject or ""
    message = ds.MessageWithHeader(
        sender=sender,
        subject=subject if subject.lower().startswith("re:") else f"Re: {subject}".rstrip(),
        body=body,
        html_body=options.html,
        recipients=recipients,
        attachment_list=attachments,
        headers=[ds.MessageHeader(name, original.msg_id) for name in _THREAD_HEADERS if original.msg_id],
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
    if not _is_own_message(message, own):
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
    return not _is_own_message(message, own) and own.casefold() not in {each.casefold() for each in seen}


def _is_own_message(message: ds.MessageDetail, own: str) -> bool:
    return parseaddr(message.sender or "")[1].casefold() == own.casefold()


def _get_addresses(message: ds.MessageDetail, kind: ds.RecipientType) -> list[str]:
    return [parseaddr(each.email)[1] or each.email for each in message.recipients if each.type.upper() == kind]


def _describe_recipients(recipients: Sequence[ds.Recipient]) -> str:
    count = format_count(len(recipients), "recipient")
    return with_value(count, ", ".join(f"{each.type.capitalize()} {each.email}" for each in recipients))
