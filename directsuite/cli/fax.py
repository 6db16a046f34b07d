"""`directsuite fax`: the faxes of a number, one of them with its recipients, and their changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Coroutine, Generator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import NotThereError, RefusedError, explanation_of, naming, words_of
from directsuite.cli.inbox import with_zone
from directsuite.cli.options import FaxListOptions, FaxWatchOptions, TokenOptions
from directsuite.cli.output import cell, members_of, progress, show_json, show_table
from directsuite.cli.process import NOTHING_CHANGED, ExitStatus, say, show_line
from directsuite.errors import BadRequestError, DirectSuiteError, NotFoundError
from directsuite.fax.models import FaxMessage, FaxRecipient, FaxStatus
from directsuite.suite import DirectSuite

_NO_SUCH_FAX = "check number and handle; `directsuite fax list` with the number tells the handles that it has"


def list_faxes(number: str, options: FaxListOptions) -> int:
    """List the newest faxes of a number, and return the exit status."""
    command = _command(number)

    def begin() -> Coroutine[Any, Any, int]:
        since = None if options.since is None else with_zone(options.since)
        _warn_of_state(options.status)
        return _list(_suite(command, number, options), number, since, options)

    return command.run(begin)


def show_fax(number: str, handle: str, options: TokenOptions) -> int:
    """Show one fax, and return the exit status."""
    command = Command(
        options={"fax_number": naming("the fax number", number), "message_handle": naming("the handle", handle)},
        advice={NotFoundError: _NO_SUCH_FAX},
    )
    return command.run(lambda: _show(_suite(command, number, options), number, handle, options))


def _command(number: str, resume: str = NOTHING_CHANGED) -> Command:
    what = naming("the fax number", number)
    advice = f"check {what}: it is one of your own, as 15550100100"
    return Command(
        resume=resume,
        options={"fax_number": what},
        advice={BadRequestError: advice, NotFoundError: advice},
    )


def _suite(command: Command, number: str, options: TokenOptions) -> DirectSuite:
    if not number.strip():
        raise RefusedError("the fax number is empty: give your own, as 15550100100")
    return command.suite(settings_for("fax"), token=token(options.token_file))


def watch(number: str, options: FaxWatchOptions) -> int:
    """Show each change of a number's faxes until Ctrl-C, or of one fax to its end, and return the exit status."""
    command = _command(number, resume="the same command begins anew")
    if options.handle is not None:
        command.options = {**command.options, "message_handle": naming("--handle", options.handle)}
        command.advice = {NotFoundError: _NO_SUCH_FAX}

    def begin() -> Coroutine[Any, Any, int]:
        since = None if options.since is None else with_zone(options.since)
        if since is not None and options.handle is not None:
            raise RefusedError("--handle and --since don't go together: one fax is shown from its present state on")
        _warn_of_state(options.status)
        return _watch(
            _suite(command, number, options), number, since, _Watch(command, options.handle is not None), options
        )

    return command.run(begin)


@attrs.define
class _Watch:
    """How far a watch has come."""

    command: Command
    is_of_one: bool
    """Whether one fax alone is watched, which is shown from its present state on."""
    last: FaxMessage | None = None
    """The last record that came."""
    newest: datetime | None = None
    """The latest update among the records that came."""
    is_away: bool = False
    """Whether the last poll failed."""

    def take(self, fax: FaxMessage) -> None:
        """Take in a record."""
        self.last = fax
        self.newest = max(filter(None, (self.newest, fax.updated_ts)), default=None)

    def polled(self, error: DirectSuiteError | None, _: float) -> None:
        """Say once that polls fail, and once that they succeed again. After a success all records have come."""
        if error is not None and not self.is_away:
            say(
                f"a poll failed, {explanation_of(error)}{words_of(error)}: it is repeated until it succeeds, at ever "
                "longer intervals; `directsuite doctor` says what is wrong"
            )
        elif error is None and self.is_away:
            say("the service answers again")
        self.is_away = error is not None
        if error is None and self.newest is not None and not self.is_of_one:
            self.command.resume = f"the same command with --since {self.newest.isoformat(timespec='seconds')} goes on"


async def _watch(
    suite: DirectSuite, number: str, since: datetime | None, watch: _Watch, options: FaxWatchOptions
) -> int:
    faxes = suite.fax.watch(
        number, interval=options.interval, since=since, message_handle=options.handle, on_poll=watch.polled
    )
    with _missing_explained() if options.handle else contextlib.nullcontext():
        async with suite, faxes:
            async for fax in faxes:
                watch.take(fax)
                if _is_wanted(fax, None, options.status):
                    _show_line(fax, options)
    if watch.last is None:
        raise NotThereError(f"there is no such fax: {_NO_SUCH_FAX}")
    if (watch.last.status or "").strip().casefold() != FaxStatus.COMPLETE:
        say("the fax is over, and not complete")
        return ExitStatus.FAILED
    return ExitStatus.DONE


@contextlib.contextmanager
def _missing_explained() -> Generator[None]:
    """Raise NotThereError where the service refuses the handle: it has no code for one that isn't there."""
    try:
        yield
    except BadRequestError as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        raise NotThereError(f"there is no such fax{words_of(error)}: {_NO_SUCH_FAX}") from None


def _show_line(fax: FaxMessage, options: FaxWatchOptions) -> None:
    if options.json:
        show_json(members_of(fax), indent=None)
    else:
        line = "  ".join(cell(each) for each in (fax.updated_ts, fax.message_handle, fax.status, fax.description))
        show_line(line)
    sys.stdout.flush()


def _warn_of_state(status: str | None) -> None:
    if status is not None and status.strip().casefold() not in list(FaxStatus):
        say("--status: the known states are waiting and complete; faxes in another one are looked for")


def _is_wanted(fax: FaxMessage, since: datetime | None, status: str | None) -> bool:
    is_late = since is None or (fax.updated_ts is not None and fax.updated_ts >= since)
    return is_late and (status is None or status.casefold() == (fax.status or "").strip().casefold())


async def _list(suite: DirectSuite, number: str, since: datetime | None, options: FaxListOptions) -> int:
    limit = None if options.all else options.limit
    faxes, has_more = list[FaxMessage](), False
    async with suite, progress("listing", unit="pieces") as bar, suite.fax.iter_messages(number) as messages:
        async for message in messages:
            if _is_wanted(message, since, options.status):
                has_more = len(faxes) == limit
                if has_more:
                    break
                faxes.append(message)
                bar.advance()
    if options.json:
        show_json([members_of(fax) for fax in faxes])
    elif not faxes:
        say("this number has no such faxes" if since or options.status else "this number has no faxes")
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
            whole=("handle",),
        )
    if has_more:
        say(f"the newest {len(faxes)} are shown, and there are more: give a higher --limit, or --all")
    return ExitStatus.DONE


async def _show(suite: DirectSuite, number: str, handle: str, options: TokenOptions) -> int:
    with _missing_explained():
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
    count = recipient.page_count
    pages = None if count is None else f"{count} page{'s' * (count != 1)}"
    return ", ".join(part for part in (recipient.address, recipient.name, pages, recipient.description) if part)
