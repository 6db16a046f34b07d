"""Creation and registration of commands, options of several commands, and converters.

cyclopts binds a command's options to a record. A field's docstring is the option's help. The `convert_*` functions are
cyclopts converters: they raise ValueError with a fragment that follows the option's name: `--interval: {fragment}`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, get_type_hints

from cyclopts import App, CycloptsError, Group, Parameter, Token, convert
from cyclopts.validators import Number, mutually_exclusive

T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=Callable[..., object])

_COMMANDS_GROUP = Group("Commands", sort_key=10)  # groups of single commands have 1
EPILOGUE = "`directsuite --help` and `directsuite guide terminal` list the exit statuses."
"""The last line of each command's help."""
_MAILBOX_COMMANDS = ("send", "inbox", "status", "sync", "doctor")
_AGO_PATTERN = re.compile(r"([0-9]{1,9})([mhdw])")
_AGO_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_EXPECTED_TIME = (
    "give a date such as 2026-05-01, a time such as 2026-05-01T08:00, today, yesterday, or an age such as 7d"
)
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d")
_MAX_DURATION = timedelta(days=36_500)
_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,30}")


def make_app(name: str, *examples: str) -> App:
    """Make a top-level command, for `build_app` to add, or a group of subcommands, such as `inbox folder`.

    examples: arguments, for the end of the help; each fits on one line of 80 columns, and works with what
    `directsuite sandbox` prints.
    """
    epilogue = _make_epilogue(name, examples)
    last = name.split()[-1]
    return App(name=last, help_epilogue=epilogue, group_commands=_COMMANDS_GROUP, result_action="return_value")


def register(app: App, name: str, *examples: str) -> Callable[[CommandT], CommandT]:
    """Add a subcommand to `app`, after those added before. Its docstring is its help.

    name: the subcommand, after its group if it has one, such as "folder create". examples: see `make_app`.
    """
    epilogue = _make_epilogue(f"{app.name[0]} {name}", examples)
    *groups, last = name.split()
    for group in groups:
        app = app[group]
    return app.command(name=last, sort_key=len([*app]), help_epilogue=epilogue)


def _make_epilogue(command: str, examples: Sequence[str]) -> str:
    lines = "\n".join(f"    directsuite {command} {arguments}".rstrip() for arguments in examples)
    where = " with DIRECTSUITE_MAILBOX=alice@direct.example.test" if command.split()[0] in _MAILBOX_COMMANDS else ""
    return f"Examples{where}:\n\n{lines}\n\n{EPILOGUE}"


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass. Its repr shows no values, which may be personal."""
    made = dataclass(kw_only=True, frozen=True, repr=False)(cls)
    # cyclopts would look up the names in inherited annotations in the module of the subclass.
    made.__init__.__annotations__ = get_type_hints(made, include_extras=True)
    return Parameter(name="*")(made)


Flag = Parameter(negative=(), show_default=False)
"""An option without a value."""
Repeatable = Parameter(negative=(), consume_multiple=False, show_default=False)
"""An option that is repeated for each value."""


def convert_path(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert one or several paths. Reject an empty one: an unset shell variable would mean the working folder."""
    if not all(token.value.strip() for token in tokens):
        raise ValueError("the path is empty; name a file or a folder")
    return cast("Any", convert)(kind, tokens)


def convert_file_path(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the path of a file, which need not exist. Reject a folder."""
    if any(os.path.isdir(token.value) for token in tokens):  # noqa: PTH112  Path.is_dir raises for some names
        raise ValueError("this is a folder; name a file")
    return convert_path(kind, tokens)


def convert_integer(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert decimal digits to an integer. Reject other text: cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if _INTEGER_PATTERN.fullmatch(text) is None:
        raise ValueError("give an integer")
    return int(text)


def integer_parameter(**limits: int) -> Parameter:
    """Make the parameter of an integer. limits: arguments of `Number`, such as `gte`."""
    return Parameter(converter=convert_integer, validator=Number(**limits) if limits else None)


def convert_number(kind: Any, tokens: Sequence[Token]) -> float:
    """Convert text to a finite number."""
    try:
        number = float(tokens[0].value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("give a number")
    return number


def seconds_parameter(**limits: float) -> Parameter:
    """Return the parameter of an option in seconds. limits: `gt`, `gte`, `lt` or `lte`, as in `Number` of cyclopts."""
    return Parameter(converter=convert_number, validator=Number(**limits))


def convert_duration(kind: Any, tokens: Sequence[Token]) -> timedelta:
    """Convert a duration such as 31m or 2h30m, or a number of seconds: more than 0, and at most 100 years."""
    text = tokens[0].value
    with contextlib.suppress(ValueError):
        text = f"{float(text):f}s"
    try:
        duration: timedelta = cast("Any", convert)(timedelta, [text])
    except (CycloptsError, OverflowError, ValueError):
        duration = timedelta()
    if not timedelta() < duration <= _MAX_DURATION:
        raise ValueError("give a duration such as 31m or 2h30m: more than 0, and at most 100 years")
    return duration


def convert_time(kind: Any, tokens: Sequence[Token]) -> datetime:
    """Convert a date, a date and time, `today`, `yesterday`, or an age such as 30m, 12h, 7d or 2w.

    A date without a time means the start of that day. A time without a zone is in this machine's time zone.
    """
    return _parse_time(kind, tokens[0], end_of_day=False)


def convert_end_time(kind: Any, tokens: Sequence[Token]) -> datetime:
    """Convert as `convert_time`, but a date without a time to the last millisecond of the day."""
    return _parse_time(kind, tokens[0], end_of_day=True)


def _parse_time(kind: Any, token: Token, *, end_of_day: bool) -> datetime:
    text = token.value.strip().lower()
    try:
        if ago := _AGO_PATTERN.fullmatch(text):
            return datetime.now().astimezone() - timedelta(**{_AGO_UNITS[ago[2]]: int(ago[1])})
        if text in _DAYS_AGO:
            text = f"{(datetime.now().astimezone() - timedelta(days=_DAYS_AGO[text])).date()}"
            token = Token(value=text)
        value: datetime = cast("Any", convert)(kind, [token])
    except (CycloptsError, OverflowError, ValueError):
        problem = "there is no such day or time: " if _DATE_PATTERN.match(text) else ""
        raise ValueError(problem + _EXPECTED_TIME) from None
    if end_of_day and not set("t: ") & set(text):
        value = value.replace(hour=23, minute=59, second=59, microsecond=999_000)
    try:
        return value if value.utcoffset() is not None else value.astimezone()
    except (OSError, OverflowError, ValueError):
        if value.year == MAXYEAR:
            return value.replace(tzinfo=UTC)  # such a time means "no limit", so its hour does not matter
        raise ValueError("out of the supported range; give a day such as 2026-05-01") from None


def _secret_file_parameter(what: str, variable: str, client: str = "") -> Parameter:
    help_text = (
        f"A file that contains only the {what} and that other users can't read. Without it: {variable}, {client}the "
        "keyring, or a question on the terminal."
    )
    return Parameter(converter=convert_path, help=help_text)


Json = Annotated[bool, Flag, Parameter(help="Print one JSON document instead of text.")]
JsonLines = Annotated[bool, Flag, Parameter(help="Print JSON documents, one per line, instead of text.")]
MailboxOption = Annotated[
    str | None, Parameter(help="The mailbox's Direct address. The default is DIRECTSUITE_MAILBOX.", show_default=False)
]
PasswordFile = Annotated[Path | None, _secret_file_parameter("password", "DIRECTSUITE_MAILBOX_PASSWORD")]
_CLIENT_HELP = "a request with the OAuth client of the settings (token_url, client_id), "
TokenFile = Annotated[Path | None, _secret_file_parameter("access token", "DIRECTSUITE_TOKEN", _CLIENT_HELP)]
LoginOption = Annotated[
    str | None,
    Parameter(
        help="The user name of the reseller or T-User. The default is DIRECTSUITE_LOGIN_USERNAME.", show_default=False
    ),
]
LoginPasswordFile = Annotated[Path | None, _secret_file_parameter("login's password", "DIRECTSUITE_LOGIN_PASSWORD")]
_COMMON_GROUP = Group("Options of every command that calls a service", sort_key=9)


@record
class CommonOptions:
    """Options of every command that calls a service."""

    profile: Annotated[str | None, Parameter(group=_COMMON_GROUP, show_default=False)] = None
    """Use the settings of `[profiles.NAME]` in the settings file. The default is DIRECTSUITE_PROFILE."""
    verbose: Annotated[
        int, Parameter(name=("--verbose", "-v"), count=True, negative=(), group=_COMMON_GROUP, show_default=False)
    ] = 0
    """Show file names, values and the service's messages in errors, as on a terminal. Twice: log each request."""


FOLDER_GROUP = Group("Folders", sort_key=1, validator=mutually_exclusive)
Variadic = Parameter(consume_multiple=True, negative=(), show_default=False)
"""Positional arguments of any number."""
SourcePaths = Annotated[
    tuple[Path, ...], Variadic, Parameter(name="SOURCE…", converter=convert_path, help="PDF files and folders of PDFs.")
]


@record
class TokenOptions(CommonOptions):
    """Options of `sign info` and `fax show`."""

    token_file: TokenFile = None
    json: Json = False


Addresses = Annotated[tuple[str, ...], Repeatable]
Uid = Annotated[
    int, integer_parameter(gte=0), Parameter(help="The message's number in the folder, as `inbox list` shows it.")
]
Uids = Annotated[
    tuple[Annotated[int, integer_parameter(gte=0)], ...],
    Variadic,
    Parameter(name="UID…", help="Message numbers, as `inbox list` shows them, separated by spaces."),
]


@record
class MailboxOptions(CommonOptions):
    """Common options of `status` and `inbox`."""

    mailbox: MailboxOption = None
    password_file: PasswordFile = None
    json: Json = False
