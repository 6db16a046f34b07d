"""`directsuite fax`: list the faxes of a number, show one fax, and watch for changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.credentials import load_settings, read_token
from directsuite.cli.errors import ItemNotFoundError, UsageError, explain_error, quote_service_message, with_value
from directsuite.cli.output import format_cell, format_count, show_json, show_progress, show_table
from directsuite.cli.process import echo_err, show_line

app = opt.make_app("fax", "list 15550100100", "show 15550100100 HANDLE")

FaxNumber = Annotated[str, Parameter(help="Your fax number, as the service knows it.")]


@opt.record
class _SelectionOptions(opt.TokenOptions):
    since: Annotated[datetime | None, Parameter(converter=opt.convert_time, show_default=False)] = None
    """Only faxes updated since this time: 2026-05-01, 2026-05-01T08:00 in this machine's time zone, today, yesterday,
    or an age in minutes, hours, days or weeks: 30m, 12h, 7d or 2w.
    """
    status: str | None = None
    """Only faxes with this status: waiting, complete, or another that the service sends."""


@opt.record
class _ListOptions(_SelectionOptions):
    limit: Annotated[int, opt.integer_parameter(gte=1)] = 50
    """The maximum number of faxes to show."""
    all: Annotated[bool, opt.Flag] = False
    """Show all faxes; --limit is ignored."""


@opt.record
class _WatchOptions(_SelectionOptions):
    interval: Annotated[float, opt.seconds_parameter(gt=0, lte=86_400)] = 60.0
    """Seconds between two requests."""
    json: opt.JsonLines = False


_NO_SUCH_FAX = "check the number and the handle; `directsuite fax list` with the number shows the handles"


@opt.register(app, "list", "15550100100 --limit 5", "15550100100 --status complete --since 2026-05-01 --json")
def list_faxes(number: FaxNumber, /, *, command: CommandParameter, options: _ListOptions = _ListOptions()) -> Work:
    """List the faxes of a number, newest first."""
    _warn_of_unknown_status(options.status)
    return _list_faxes(_make_suite(command, number, options), number, options)


@opt.register(app, "show", "15550100100 HANDLE", "15550100100 HANDLE --json")
def show_fax(
    number: FaxNumber,
    handle: Annotated[str, Parameter(help="The fax's handle, as `fax list` shows it.")],
    /,
    *,
    command: CommandParameter,
    options: opt.TokenOptions = opt.TokenOptions(),
) -> Work:
    """Show one fax with its recipients."""
    suite = _make_suite(command, number, options)
    command.option_names["message_handle"] = with_value("the handle", handle)
    command.advice = {ds.NotFoundError: _NO_SUCH_FAX}
    return _show_fax(suite, number, handle, options)


def _make_suite(command: Command, number: str, options: opt.TokenOptions) -> ds.DirectSuite:
    if not number.strip():
        raise UsageError("The fax number is empty. Give your own, such as 15550100100.")
    what = with_value("the fax number", number)
    advice = f"check {what}: it must be one of your own, such as 15550100100"
    command.option_names = {"fax_number": what}
    command.advice = {ds.BadRequestError: advice, ds.NotFoundError: advice}
    return command.make_suite(load_settings("fax"), token=read_token(options.token_file))


@opt.register(app, "watch", "15550100100", "15550100100 --since 2026-05-01 --status complete --json")
def watch_faxes(number: FaxNumber, /, *, command: CommandParameter, options: _WatchOptions = _WatchOptions()) -> Work:
    """Show each new or changed fax of a number until Ctrl-C."""
    command.resume_hint = "the same command starts again from the beginning"
    _warn_of_unknown_status(options.status)
    suite, latest_update, is_failing = _make_suite(command, number, options), options.since, False

    def handle_poll(error: ds.DirectSuiteError | None, _: float) -> None:
        """Report the first of several failed polls, and the next success. After a success, update the hint."""
        nonlocal is_failing
        if error is not None and not is_failing:
            echo_err(
                f"A poll failed ({explain_error(error)}{quote_service_message(error)}). It is repeated at growing "
                "intervals until it succeeds. Run `directsuite doctor` to see what is wrong."
            )
        elif error is None and is_failing:
            echo_err("The service responds again.")
        is_failing = error is not None
        if error is None and latest_update is not None:
            since = latest_update.isoformat(timespec="seconds")
            command.resume_hint = f"the same command with --since {since} continues"

    async def watch() -> None:
        nonlocal latest_update
        faxes = suite.fax.watch(number, interval=options.interval, since=options.since, on_poll=handle_poll)
        async with suite, faxes:
            async for fax in faxes:
                latest_update = max(filter(None, (latest_update, fax.updated_ts)), default=None)
                if not _has_status(fax, options.status):
                    continue
                if options.json:
                    show_json(fax, indent=None)
                else:
                    cells = (fax.updated_ts, fax.message_handle, fax.status, fax.description)
                    show_line("  ".join(format_cell(each) for each in cells))
                sys.stdout.flush()

    return watch()


async def _show_fax(suite: ds.DirectSuite, number: str, handle: str, options: opt.TokenOptions) -> None:
    try:
        async with suite, show_progress("requesting the fax"):
            response = await suite.fax.get_single_message_info(number, handle)
    except ds.BadRequestError as error:  # the service has no error code for an unknown handle
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        raise ItemNotFoundError(f"There is no such fax{quote_service_message(error)}: {_NO_SUCH_FAX}.") from None
    if not response.message_detail:
        raise ItemNotFoundError(f"There is no such fax: {_NO_SUCH_FAX}.")
    if options.json:
        show_json(response.message_detail)
        return
    for fax in response.message_detail:
        rows: list[Sequence[object]] = [
            ("Handle", fax.message_handle or response.message_handle),
            ("Number", fax.fax_number),
            ("Status", fax.status),
            ("Updated", fax.updated_ts),
            ("Description", fax.description),
            *(("Recipient", _format_recipient(recipient)) for recipient in fax.recipients),
        ]
        show_table(("", "fax"), [row for row in rows if row[1] is not None])


def _warn_of_unknown_status(status: str | None) -> None:
    if status is not None and status.strip().casefold() not in list(ds.FaxStatus):
        echo_err("--status is neither waiting nor complete, the known states. The command searches for it anyway.")


def _has_status(fax: ds.FaxMessage, status: str | None) -> bool:
    return status is None or (fax.status or "").strip().casefold() == status.casefold()


async def _list_faxes(suite: ds.DirectSuite, number: str, options: _ListOptions) -> None:
    limit = None if options.all else options.limit
    faxes, has_more = list[ds.FaxMessage](), False
    async with suite, show_progress("listing", unit="pieces") as bar, suite.fax.iter_messages(number) as messages:
        async for fax in messages:
            is_late = options.since is None or (fax.updated_ts is not None and fax.updated_ts >= options.since)
            if is_late and _has_status(fax, options.status):
                has_more = len(faxes) == limit
                if has_more:
                    break
                faxes.append(fax)
                bar.advance()
    if options.json:
        show_json(faxes)
    elif not faxes:
        echo_err(
            "No fax of this number matches."
            if options.since or options.status
            else "This number has no faxes. Check the number."
        )
    else:
        titles = ("handle", "status", "updated", "recipients", "pages", "description")
        rows = list[Sequence[object]]()
        for each in faxes:
            pages = [recipient.page_count for recipient in each.recipients if recipient.page_count is not None]
            counts = (len(each.recipients), sum(pages) if pages else None)
            rows.append((each.message_handle, each.status, each.updated_ts, *counts, each.description))
        show_table(titles, rows, right=("recipients", "pages"), no_wrap=("handle",))
    if has_more:
        echo_err(f"Only the newest {len(faxes)} are shown. To see more, give a higher --limit, or --all.")


def _format_recipient(recipient: ds.FaxRecipient) -> str:
    pages = None if recipient.page_count is None else format_count(recipient.page_count, "page")
    return ", ".join(part for part in (recipient.address, recipient.name, pages, recipient.description) if part)
