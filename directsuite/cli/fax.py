"""`directsuite fax`: the faxes of a number, and one of them with its recipients."""

from __future__ import annotations

from collections.abc import Sequence

from directsuite.cli.command import Command
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import NotThereError, RefusedError
from directsuite.cli.options import FaxListOptions, FaxOptions
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.fax.models import FaxMessage, FaxRecipient
from directsuite.suite import DirectSuite

_NO_SUCH_FAX = "check number and handle; `directsuite fax list` with the number tells the handles that it has"


def list_faxes(number: str, options: FaxListOptions) -> int:
    """List the newest faxes of a number, and return the exit status."""
    command = Command(options={"fax_number": "the fax number"})
    return command.run(lambda: _list(_suite(command, number, options), number, options))


def show_fax(number: str, handle: str, options: FaxOptions) -> int:
    """Show one fax, and return the exit status."""
    command = Command(
        options={"fax_number": "the fax number", "message_handle": "the handle"},
        advice={BadRequestError: _NO_SUCH_FAX, NotFoundError: _NO_SUCH_FAX},
    )
    return command.run(lambda: _show(_suite(command, number, options), number, handle, options))


def _suite(command: Command, number: str, options: FaxOptions) -> DirectSuite:
    if not number.strip():
        raise RefusedError("the fax number is empty: give your own, as 15550100100")
    return command.suite(settings_for("fax"), token=token(options.token_file))


async def _list(suite: DirectSuite, number: str, options: FaxListOptions) -> int:
    async with suite, progress("listing", unit="pieces") as bar:
        faxes = list[FaxMessage]()
        async with suite.fax.iter_messages(number, limit=options.limit) as messages:
            async for message in messages:
                faxes.append(message)
                bar.advance()
    if options.json:
        show_json([members_of(fax) for fax in faxes])
    elif not faxes:
        say("this number has no faxes")
    else:
        show_table(
            ("handle", "status", "updated", "recipients", "pages", "description"),
            [
                (
                    each.message_handle,
                    each.status,
                    each.updated_ts,
                    len(each.recipients),
                    _pages(each),
                    each.description,
                )
                for each in faxes
            ],
            right=("recipients", "pages"),
        )
    return ExitStatus.DONE


async def _show(suite: DirectSuite, number: str, handle: str, options: FaxOptions) -> int:
    async with suite, progress("asking"):
        answer = await suite.fax.get_single_message_info(number, handle)
    if not answer.message_detail:
        raise NotThereError(f"there is no such fax: {_NO_SUCH_FAX}")
    if options.json:
        show_json([members_of(fax) for fax in answer.message_detail])
        return ExitStatus.DONE
    for fax in answer.message_detail:
        rows: list[Sequence[object]] = [
            ("Handle", fax.message_handle or answer.message_handle),
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
