"""`directsuite fax list` and `show`."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import NotThereError, RefusedError
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.fax.models import FaxMessage, FaxRecipient
from directsuite.secret import Secret
from directsuite.settings import Settings

_NO_SUCH_FAX = "check number and handle; `directsuite fax list` with the number tells the handles that it has"


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of both commands."""

    number: str
    handle: str = ""
    limit: int = 1
    token_file: Path | None
    as_json: bool


def list_faxes(asked: Asked) -> int:
    """List them; the exit status."""
    command = Command(options={"fax_number": "the fax number"})

    def begin() -> Coroutine[Any, Any, int]:
        return _list(command, *_access(asked), asked)

    return command.run(begin)


def show_fax(asked: Asked) -> int:
    """Show it; the exit status."""
    command = Command(
        options={"fax_number": "the fax number", "message_handle": "the handle"},
        advice={BadRequestError: _NO_SUCH_FAX, NotFoundError: _NO_SUCH_FAX},
    )

    def begin() -> Coroutine[Any, Any, int]:
        return _show(command, *_access(asked), asked)

    return command.run(begin)


def _access(asked: Asked) -> tuple[Settings, Secret]:
    if not asked.number.strip():
        raise RefusedError("the fax number is empty: give your own, as 15550100100")
    return settings_for("fax"), token(asked.token_file)


async def _list(command: Command, settings: Settings, access_token: Secret, asked: Asked) -> int:
    async with command.suite(settings, token=access_token) as suite, progress("listing", unit="pieces") as bar:
        faxes = list[FaxMessage]()
        async with suite.fax.iter_messages(asked.number, limit=asked.limit) as messages:
            async for message in messages:
                faxes.append(message)
                bar.advance()
    if asked.as_json:
        show_json([members_of(fax) for fax in faxes])
        return ExitStatus.DONE
    if not faxes:
        say("this number has no faxes")
        return ExitStatus.DONE
    show_table(
        ("handle", "status", "updated", "recipients", "pages", "description"),
        [
            (each.message_handle, each.status, each.updated_ts, len(each.recipients), _pages(each), each.description)
            for each in faxes
        ],
        right=("recipients", "pages"),
    )
    return ExitStatus.DONE


async def _show(command: Command, settings: Settings, access_token: Secret, asked: Asked) -> int:
    async with command.suite(settings, token=access_token) as suite, progress("asking"):
        answer = await suite.fax.get_single_message_info(asked.number, asked.handle)
    if not answer.message_detail:
        raise NotThereError(f"there is no such fax: {_NO_SUCH_FAX}")
    if asked.as_json:
        show_json([members_of(fax) for fax in answer.message_detail])
        return ExitStatus.DONE
    for fax in answer.message_detail:
        handle = fax.message_handle or answer.message_handle
        rows: list[Sequence[object]] = [
            ("Handle", handle),
            ("Number", fax.fax_number),
            ("Status", fax.status),
            ("Updated", fax.updated_ts),
            ("Description", fax.description),
            *(("Recipient", _in_words(recipient)) for recipient in fax.recipients),
        ]
        show_table(("", "fax"), [row for row in rows if row[1] is not None])
    return ExitStatus.DONE


def _pages(fax: FaxMessage) -> int | None:
    counts = [recipient.page_count for recipient in fax.recipients if recipient.page_count is not None]
    return sum(counts) if counts else None


def _in_words(recipient: FaxRecipient) -> str:
    pages = None if recipient.page_count is None else f"{recipient.page_count} pages"
    return ", ".join(part for part in (recipient.address, recipient.name, pages, recipient.description) if part)
