"""`directsuite inbox save`: attachments, or whole messages, as files of a folder."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MailboxAccess, mailbox_access
from directsuite.cli.errors import NotThereError, RefusedError
from directsuite.cli.mail.file_names import safe_name, written
from directsuite.cli.mail.folders import told_of_folders
from directsuite.cli.mail.reading import NO_SUCH_MESSAGE
from directsuite.cli.output import progress, show_effect, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.core.failures import reason_of
from directsuite.messaging.service import Mailbox


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of the command."""

    uids: Sequence[int]
    into: Path
    eml: bool
    mailbox: str | None
    folder: str
    password_file: Path | None
    as_json: bool


@attrs.frozen(kw_only=True, repr=False)
class _Content:
    """What becomes a file."""

    name: str
    content: bytes


def save_messages(asked: Asked) -> int:
    """Save them; the exit status."""
    command = Command(
        resume="the files that are there are whole; the same command saves all of them once more, under other names",
        options={"folder": "--folder", "username": "--mailbox", "uids": "the numbers"},
    )

    def begin() -> Coroutine[Any, Any, int]:
        access = mailbox_access(asked.mailbox, asked.password_file)
        try:
            asked.into.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RefusedError(f"the folder of --into can't be made ({reason_of(error)}): give another") from None
        return _save(command, access, asked)

    return command.run(begin)


async def _save(command: Command, access: MailboxAccess, asked: Asked) -> int:
    saved, missing = list[tuple[int, Path, int]](), 0
    uids = list(dict.fromkeys(asked.uids))
    is_shown = True
    try:
        async with (
            command.suite(access.settings) as suite,
            progress("saving", unit="pieces", total=len(uids)) as bar,
        ):
            box = suite.mailbox(access.address, access.password)
            for uid in uids:
                async with told_of_folders(box, asked.folder):
                    contents = await _contents(box, asked, uid)
                missing += contents is None
                for each in contents or ():
                    saved.append((uid, written(asked.into, each.name, each.content), len(each.content)))
                bar.advance()
    finally:  # what is there is told, whatever came then
        if saved or asked.as_json:
            files = f"{len(saved)} file{'s' * (len(saved) != 1)}"
            is_shown = show_effect(lambda: _show(saved, asked), f"{files} saved into the folder of --into")
    if missing == len(uids):
        raise NotThereError(NO_SUCH_MESSAGE)
    if missing:
        say(f"{missing} of {len(uids)} messages aren't there: `directsuite inbox list` tells those that are")
        return ExitStatus.NOT_FOUND
    if not is_shown:
        return ExitStatus.FAILED
    if not saved:
        say("there are no attachments; --eml saves the messages themselves")
    return ExitStatus.DONE


def _show(saved: Sequence[tuple[int, Path, int]], asked: Asked) -> None:
    if asked.as_json:
        show_json([{"uid": uid, "path": str(path), "size": size} for uid, path, size in saved])
    else:
        show_table(("uid", "file", "bytes"), saved, right=("uid", "bytes"))


async def _contents(box: Mailbox, asked: Asked, uid: int) -> list[_Content] | None:
    """What a message becomes; None where it isn't there."""
    if asked.eml:
        return next(
            (list(_raw(uid, raw.data)) for raw in await box.get_raw_messages_by_uids(asked.folder, [uid])), None
        )
    for message in await box.get_messages_by_uids(asked.folder, [uid]):
        return [
            _Content(name=safe_name(each.filename, f"message-{uid}-file-{number}"), content=each.content)
            for number, each in enumerate(message.attachments, start=1)
        ]
    return None


def _raw(uid: int, raw: bytes | None) -> Iterator[_Content]:
    if raw is not None:
        yield _Content(name=f"message-{uid}.eml", content=raw)
