"""The commands `send`, `inbox` and `status`, and their options."""

from __future__ import annotations

from datetime import datetime  # cyclopts reads the annotations when it runs
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from directsuite.cli.options import COMMANDS, EPILOGUE, MAIL, Flag, Json, Mailbox, PasswordFile, Several, named

_BODY = Group("What it says", validator=mutually_exclusive)
_WHAT = Group("What is saved", validator=mutually_exclusive)
_WHICH = Group("Which messages", validator=mutually_exclusive)

_Addresses = Annotated[tuple[str, ...], Several]
_Folder = Annotated[str, Parameter(help="The mailbox's folder.")]
_Uid = Annotated[int, Parameter(validator=Number(gte=0))]
_Count = Parameter(validator=Number(gte=1))

inbox = App(
    name="inbox",
    help="Look into a mailbox: list, read and save messages.",
    help_epilogue=EPILOGUE,
    group_commands=COMMANDS,
    result_action="return_value",
    group=MAIL,
    sort_key=2,
)


def send(
    *,
    sender: Annotated[
        str | None,
        Parameter(name="--from", env_var="DIRECTSUITE_MAILBOX", show_default=False),
    ] = None,
    to: _Addresses = (),
    cc: _Addresses = (),
    bcc: _Addresses = (),
    subject: str | None = None,
    body: Annotated[str | None, Parameter(group=_BODY)] = None,
    body_file: Annotated[Path | None, Parameter(group=_BODY, allow_leading_hyphen=True)] = None,
    html: Annotated[bool, Flag] = False,
    attach: Annotated[tuple[Path, ...], Several] = (),
    key: str | None = None,
    dry_run: Annotated[bool, Flag] = False,
    password_file: PasswordFile = None,
    json: Json = False,
) -> int:
    """Send a message, with files.

    It prints the message's SMTP id, for `directsuite status`. Exit status 7 says that the answer got lost, so that
    the message may or may not have gone: with --key the same command may be given again, and sends it once.

    Parameters
    ----------
    sender: str
        The mailbox that sends, by its Direct address.
    to: tuple[str, ...]
        A recipient's Direct address; as often as there are.
    cc: tuple[str, ...]
        Likewise, for a copy.
    bcc: tuple[str, ...]
        Likewise, for a copy that the others don't see.
    subject: str
        What it is about. Other users of this machine can read it while the command runs.
    body: str
        Its text. Other users of this machine can read it while the command runs, but not a --body-file.
    body_file: Path
        A file with its text, in UTF-8; - for stdin.
    html: bool
        The text is HTML.
    attach: tuple[Path, ...]
        A file to send with it, of any size; as often as there are.
    key: str
        Your own name for this message, which has it sent once: given again, the same command looks whether it went.
    dry_run: bool
        Say what would be sent, and send nothing.
    """
    from directsuite.cli.mail.sending import Asked, send_message

    asked = Asked(
        sender=sender,
        to=to,
        cc=cc,
        bcc=bcc,
        subject=subject,
        body=body,
        body_file=body_file,
        html=html,
        attach=attach,
        key=key,
        dry_run=dry_run,
        password_file=password_file,
        as_json=json,
    )
    return send_message(asked)


def status(
    smtp_id: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)],
    /,
    *,
    mailbox: Mailbox = None,
    watch: Annotated[bool, Flag] = False,
    password_file: PasswordFile = None,
    json: Json = False,
) -> int:
    """Tell how far messages have come, for each recipient.

    Exit status 0 says that they are delivered or under way; 4 that the service doesn't know one of them; 1 that a
    recipient doesn't have one, and won't, or that one came to no end in time; 3, 5 or 6 that a look failed, so that
    what is shown may not be the last. Where several hold it is the last of these, and stderr says each.

    Parameters
    ----------
    smtp_id: tuple[str, ...]
        What `send` printed; several with blanks between them.
    watch: bool
        Wait until every recipient has it or won't: an hour and a bit at the most, two hours in all where the service
        doesn't say, a quarter of an hour where it doesn't know the message.
    """
    from directsuite.cli.mail.status import Asked, tell_status

    return tell_status(Asked(smtp_ids=smtp_id, mailbox=mailbox, watch=watch, password_file=password_file, as_json=json))


@inbox.command(name="list", sort_key=1)
def list_(
    *,
    mailbox: Mailbox = None,
    folder: _Folder = "INBOX",
    limit: Annotated[int, _Count] = 50,
    since: Annotated[datetime | None, Parameter(group=_WHICH)] = None,
    unread: Annotated[bool, Flag, Parameter(group=_WHICH)] = False,
    password_file: PasswordFile = None,
    json: Json = False,
) -> int:
    """List messages, newest first.

    Parameters
    ----------
    limit: int
        How many at the most.
    since: datetime
        Only those received from then on: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone.
    unread: bool
        Only unread ones. The service gives these whole, so it takes longer.
    """
    from directsuite.cli.mail.listing import Asked, list_messages

    return list_messages(
        Asked(
            mailbox=mailbox,
            folder=folder,
            limit=limit,
            since=since,
            unread=unread,
            password_file=password_file,
            as_json=json,
        )
    )


@inbox.command(sort_key=2)
def read(
    uid: _Uid,
    /,
    *,
    mailbox: Mailbox = None,
    folder: _Folder = "INBOX",
    mark_read: Annotated[bool, Flag] = False,
    password_file: PasswordFile = None,
    json: Json = False,
) -> int:
    """Show one message as text.

    It stays unread, unless --mark-read is given. Of HTML the text is shown.

    Parameters
    ----------
    uid: int
        Its number in the folder, as `inbox list` tells it.
    mark_read: bool
        Mark it as read when it has been shown.
    """
    from directsuite.cli.mail.reading import Asked, read_message

    return read_message(
        Asked(
            uid=uid,
            mailbox=mailbox,
            folder=folder,
            mark_read=mark_read,
            password_file=password_file,
            as_json=json,
        )
    )


@inbox.command(sort_key=3)
def save(
    uid: Annotated[tuple[_Uid, ...], Parameter(consume_multiple=True, negative=(), show_default=False)],
    /,
    *,
    into: Annotated[Path, Parameter(converter=named)],
    eml: Annotated[bool, Flag, Parameter(group=_WHAT)] = False,
    mailbox: Mailbox = None,
    folder: _Folder = "INBOX",
    password_file: PasswordFile = None,
    json: Json = False,
) -> int:
    """Save the attachments of messages, or the messages.

    Never outside of the folder, and never over a file that is there: a second `report.pdf` becomes `report-2.pdf`.
    What is saved only you can read. It prints the files' paths; the messages stay as they are.

    Parameters
    ----------
    uid: tuple[int, ...]
        Numbers of messages, as `inbox list` tells them; several with blanks between them.
    into: Path
        The folder for the files, made where it isn't there.
    eml: bool
        The messages themselves, as .eml files that mail programs read.
    """
    from directsuite.cli.mail.saving import Asked, save_messages

    return save_messages(
        Asked(
            uids=uid,
            into=into,
            eml=eml,
            mailbox=mailbox,
            folder=folder,
            password_file=password_file,
            as_json=json,
        )
    )
