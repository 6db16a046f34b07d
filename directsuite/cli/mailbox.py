"""`directsuite inbox` for what changes a mailbox: move, copy, delete, mark, forward and answer messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Any

from directsuite.cli.command import Command, confirm_while_running
from directsuite.cli.credentials import MailboxAccess, is_somebody_there, mailbox_access
from directsuite.cli.errors import NotThereError, RefusedError, naming
from directsuite.cli.inbox import CHECK_THE_MESSAGES, NO_SUCH_MESSAGE, missing_folder_explained, those_missing
from directsuite.cli.options import (
    InboxDeleteOptions,
    InboxForwardOptions,
    InboxMarkOptions,
    InboxMoveOptions,
    InboxOptions,
    InboxReplyOptions,
    MailboxOptions,
)
from directsuite.cli.output import brief, progress, show_effect, show_json, show_table
from directsuite.cli.process import ExitStatus, say, say_line, show_line, shows_details
from directsuite.cli.send import LOOK_FIRST, addresses_of, attachments_of, body_of
from directsuite.errors import BadRequestError
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.models import (
    Attachment,
    MessageDetail,
    MessageHeader,
    MessageWithHeader,
    Recipient,
    RecipientType,
    SendMessageResponse,
)
from directsuite.messaging.service import Mailbox

_Work = Callable[[Mailbox, Sequence[int]], Awaitable[object]]

_THREAD = ("In-Reply-To", "References")
_TRASH = "INBOX.Trash"
_NAMED = 20  # messages that a question names
_UNASKED = "there is no terminal to ask on: say --yes if it is meant"
_OPTIONS = {"folder": "--folder", "dest_folder": "--to", "username": "--mailbox", "uids": "the numbers"}
_FIND_OUT = "`directsuite inbox list` tells which messages a folder has: look before you give the command again"
_HIDDEN = "You are in neither To nor Cc of the message, so the others would learn that you have it. "


def list_folders(options: MailboxOptions) -> int:
    """List the folders of a mailbox with their messages, and return the exit status."""
    command = Command(options=_OPTIONS)
    return command.run(lambda: _folders(command, _access(options), options))


def move(uids: Sequence[int], options: InboxMoveOptions) -> int:
    """Move messages to another folder, and return the exit status."""

    def work(box: Mailbox, there: Sequence[int]) -> Awaitable[object]:
        return box.move_messages_by_uids(options.folder, options.to, there)

    return _change(uids, options, "moved", _into(options.to, work))


def copy(uids: Sequence[int], options: InboxMoveOptions) -> int:
    """Copy messages to another folder, and return the exit status."""

    def work(box: Mailbox, there: Sequence[int]) -> Awaitable[object]:
        return box.copy_messages_by_uids(options.folder, options.to, there, verify=True)

    return _change(uids, options, "copied", _into(options.to, work))


def delete(uids: Sequence[int], options: InboxDeleteOptions) -> int:
    """Delete messages once somebody has said yes, and return the exit status."""
    done = "deleted forever" if options.forever else "moved to INBOX.Trash"

    def work(box: Mailbox, there: Sequence[int]) -> Awaitable[object]:
        return box.delete_messages_by_uids(options.folder, there, forever=options.forever)

    def check() -> None:
        if not options.forever and options.folder.casefold() == _TRASH.casefold():
            raise RefusedError("what is in INBOX.Trash is deleted already: --forever removes it")
        if not options.yes and not is_somebody_there():
            raise RefusedError(_UNASKED)

    async def ask(box: Mailbox, there: Sequence[int]) -> None:
        """Have somebody say yes who has seen what it is about."""
        if options.yes:
            return
        if shows_details():
            async with progress("reading the folder"):
                messages = await _metadata_of(box, options.folder, there)
            for message in messages[:_NAMED]:
                say_line(f"{message.uid}  {message.sender}  {message.subject}")
            if messages[_NAMED:]:
                say_line("…")
        await confirm_while_running(
            f"{_counted(there)} of {options.folder} will be {done}. Go on?",
            unasked=_UNASKED,
            declined="not confirmed: nothing was deleted",
        )

    return _change(uids, options, done, work, check, ask)


def mark(uids: Sequence[int], options: InboxMarkOptions) -> int:
    """Mark messages as read or unread, and return the exit status."""

    def work(box: Mailbox, there: Sequence[int]) -> Awaitable[object]:
        if options.unread:
            return box.mark_messages_as_unread_by_uids(options.folder, there)
        return box.mark_messages_as_read_by_uids(options.folder, there)

    return _change(uids, options, "marked as unread" if options.unread else "marked as read", work)


def forward(uids: Sequence[int], options: InboxForwardOptions) -> int:
    """Forward messages, and return the exit status."""

    def check() -> None:
        if not addresses_of("--to", options.to):
            raise RefusedError("there is no recipient: give --to ADDRESS, once for each")

    async def refuse_bcc(box: Mailbox, there: Sequence[int]) -> None:
        """Forward no header that names who should not be seen, unless that is meant."""
        if options.with_bcc:
            return
        async with progress("reading the folder"):
            messages = await _metadata_of(box, options.folder, there)
        if with_bcc := [message.uid for message in messages if _names_bcc(message)]:
            raise RefusedError(
                f"{_counted(with_bcc)} ({', '.join(map(str, with_bcc))}) may be forwarded with the header that names "
                "the recipients of the Bcc: write to them with `directsuite send`, or say --with-bcc if it is meant"
            )

    def work(box: Mailbox, there: Sequence[int]) -> Awaitable[object]:
        return box.forward(options.folder, there, addresses_of("--to", options.to))

    return _change(uids, options, "forwarded", work, check, refuse_bcc, find_out=_look_first("forward"))


def _look_first(what: str) -> str:
    """How to find out whether a forward or a reply was sent, beside earlier ones of the same message."""
    return f"{LOOK_FIRST}; an earlier {what} has the same subject, and a time before {brief(datetime.now(UTC))}"


def reply(uid: int, options: InboxReplyOptions) -> int:
    """Answer a message, and return the exit status."""
    command = Command(
        resume="nothing was sent: give the same command again", find_out=_look_first("reply"), options=_OPTIONS
    )

    def begin() -> Coroutine[Any, Any, int]:
        return _reply(command, _access(options), uid, body_of(options), attachments_of(options), options)

    return command.run(begin)


def _into(destination: str, work: _Work) -> _Work:
    """The same work, whose refusal says if there is no such folder to put messages into."""

    async def explained(box: Mailbox, there: Sequence[int]) -> object:
        """Do the work."""
        async with missing_folder_explained(box, destination, option="--to"):
            return await work(box, there)

    return explained


def _change(
    uids: Sequence[int],
    options: InboxOptions,
    done: str,
    work: _Work,
    check: Callable[[], None] = lambda: None,
    ask: _Work | None = None,
    find_out: str = _FIND_OUT,
) -> int:
    """Do something with those of the messages that are there, and say how many they were.

    The SMTP id of what `work` sent is printed. check: raises RefusedError before anything is sent. ask: does once it is
    known which messages are there. find_out: how the user learns what happened.
    """
    named = {**_OPTIONS, "folder": naming("--folder", options.folder)}
    if isinstance(options, InboxMoveOptions):
        named["dest_folder"] = naming("--to", options.to)
    command = Command(resume=find_out, find_out=find_out, options=named, advice={BadRequestError: CHECK_THE_MESSAGES})

    def begin() -> Coroutine[Any, Any, int]:
        check()
        return _changed(command, _access(options), list(dict.fromkeys(uids)), options, done, work, ask)

    return command.run(begin)


async def _changed(
    command: Command,
    access: MailboxAccess,
    uids: Sequence[int],
    options: InboxOptions,
    done: str,
    work: _Work,
    ask: _Work | None,
) -> int:
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        async with progress("reading the folder"), missing_folder_explained(box, options.folder):
            listed = set(await box.get_uids(options.folder))
        there = [uid for uid in uids if uid in listed]
        if not there:
            raise NotThereError(NO_SUCH_MESSAGE)
        if ask is not None:
            await ask(box, there)
        async with progress("working"):
            result = await work(box, there)
    smtp_id = result.smtp_id if isinstance(result, SendMessageResponse) else ""
    missing = [uid for uid in uids if uid not in listed]

    def show() -> None:
        if options.json:
            sent = {"smtp_id": result.smtp_id or None} if isinstance(result, SendMessageResponse) else {}
            show_json({"uids": there, "missing": missing, **sent})
        elif smtp_id:
            show_line(smtp_id)

    if not show_effect(show, f"{_counted(there)} {done}{f' as {smtp_id}' if smtp_id else ''}"):
        return ExitStatus.FAILED
    say(f"{_counted(there)} {done}")
    if missing:
        say(those_missing(missing, uids))
    return ExitStatus.NOT_FOUND if missing else ExitStatus.DONE


async def _metadata_of(box: Mailbox, folder: str, uids: Sequence[int]) -> list[MessageDetail]:
    """The metadata of these messages, without their contents; that of the folder is read until all are found."""
    wanted, found = set(uids), list[MessageDetail]()
    async with box.iter_metadata(folder, timeout=box.time_limit()) as messages:
        async for message in messages:
            if message.uid in wanted:
                found.append(message)
            if len(found) == len(wanted):
                break
    return found


def _names_bcc(message: MessageDetail) -> bool:
    """Return True if a message, as one's own copies do, says who got it as Bcc."""
    headers = {(header.name or "").strip().lower() for header in message.headers}
    return "bcc" in headers or bool(_addressed(message, RecipientType.BCC))


async def _reply(
    command: Command,
    access: MailboxAccess,
    uid: int,
    body: str | None,
    attachments: list[Attachment],
    options: InboxReplyOptions,
) -> int:
    async with command.suite(access.settings) as suite:
        box = suite.mailbox(access.address, access.password)
        async with progress("fetching the message"), missing_folder_explained(box, options.folder):
            messages = await box.get_messages_by_uids(options.folder, [uid])
        if not messages:
            raise NotThereError(NO_SUCH_MESSAGE)
        recipients = _recipients_of(messages[0], access.address, to_all=options.to_all)
        described = _described(recipients)
        if recipients[1:] and not options.yes:
            hidden = _HIDDEN if _hides(messages[0], access.address) else ""
            await confirm_while_running(
                f"{hidden}The answer goes to {described}. Go on?",
                unasked=f"{hidden}The answer would go to {described}: give --yes if that is meant",
                declined="not confirmed: nothing was sent",
            )
        answer = MessageWithHeader(
            sender=access.address,
            subject=_subject_of(messages[0].subject),
            body=body,
            html_body=options.html,
            recipients=recipients,
            attachment_list=attachments,
            headers=[MessageHeader(name, messages[0].msg_id) for name in _THREAD if messages[0].msg_id],
        )
        async with progress("sending"):
            smtp_id = (await box.send(answer)).smtp_id

    def show() -> None:
        if options.json:
            to = [{"email": each.email, "type": each.type} for each in recipients]
            show_json({"sent": True, "smtp_id": smtp_id or None, "recipients": to})
        elif smtp_id:
            show_line(smtp_id)

    if not show_effect(show, f"the answer was sent{f' as {smtp_id}' if smtp_id else ''}"):
        return ExitStatus.FAILED
    say(f"sent to {described}")
    return ExitStatus.DONE


def _subject_of(subject: str | None) -> str:
    return subject if subject and subject.lower().startswith("re:") else f"Re: {subject or ''}".rstrip()


def _recipients_of(message: MessageDetail, own: str, *, to_all: bool) -> list[Recipient]:
    """Who gets an answer, each once: never the mailbox itself, nor a recipient of a Bcc.

    An answer to a message of one's own goes to those whom that went to. Raises RefusedError where nobody is left.
    """
    sender = message.reply_to or message.sender
    if not sender:
        raise RefusedError("the message has no sender: answer it with `directsuite send`")
    to, cc = _addressed(message, RecipientType.TO), _addressed(message, RecipientType.CC)
    if not _is_own(message, own):
        to, cc = addresses_of("the senders", [sender]), [*to, *cc]
    recipients = dict[str, Recipient]()
    for addresses, kind in ((to, RecipientType.TO), (cc if to_all else [], RecipientType.CC)):
        for address in addresses:
            recipients.setdefault(address.casefold(), Recipient(address, kind))
    recipients.pop(own.casefold(), None)
    if not recipients:
        raise RefusedError("nobody but you and recipients of a Bcc would get it: write it with `directsuite send`")
    return [*recipients.values()]


def _hides(message: MessageDetail, own: str) -> bool:
    """Return True if the others who got a message can't see that this mailbox got it, too."""
    seen = {*_addressed(message, RecipientType.TO), *_addressed(message, RecipientType.CC)}
    return not _is_own(message, own) and own.casefold() not in {each.casefold() for each in seen}


def _is_own(message: MessageDetail, own: str) -> bool:
    return parseaddr(message.sender or "")[1].casefold() == own.casefold()


def _addressed(message: MessageDetail, kind: RecipientType) -> list[str]:
    """The addresses in one of the headers that name a message's recipients."""
    return [parseaddr(each.email)[1] or each.email for each in message.recipients if each.type.upper() == kind]


def _described(recipients: Sequence[Recipient]) -> str:
    """How many they are; of several, who they are, where stderr may show it."""
    count = f"{len(recipients)} recipient{'s' * (len(recipients) != 1)}"
    if not recipients[1:]:
        return count
    return naming(count, ", ".join(f"{each.type.capitalize()} {each.email}" for each in recipients))


async def _folders(command: Command, access: MailboxAccess, options: MailboxOptions) -> int:
    async with command.suite(access.settings) as suite, progress("reading the folders"):
        box = suite.mailbox(access.address, access.password)
        names = list(dict.fromkeys([INBOX, *await box.get_folders()]))
        counts = [(name, await box.get_message_count(name), await box.get_unread_message_count(name)) for name in names]
    if options.json:
        show_json([{"folder": name, "messages": messages, "unread": unread} for name, messages, unread in counts])
    else:
        show_table(("folder", "messages", "unread"), counts, right=("messages", "unread"), whole=("folder",))
    return ExitStatus.DONE


def _access(options: MailboxOptions) -> MailboxAccess:
    return mailbox_access(options.mailbox, options.password_file)


def _counted(uids: Sequence[object]) -> str:
    return f"{len(uids)} message{'s' * (len(uids) != 1)}"
