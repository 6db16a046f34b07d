"""The options of the commands, each declared once, and the headings of `directsuite --help`.

cyclopts binds a command's options to an attrs class. A field's docstring is the option's help. An option of several
commands is a type alias. The `convert_*` functions are cyclopts converters: they raise ValueError with a fragment that
follows the option's name: `--interval: {fragment}`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import attrs
from cyclopts import CycloptsError, Group, Parameter, Token, convert
from cyclopts.validators import Number, mutually_exclusive

MAIL = Group("Mail", sort_key=1)
SERVICES = Group("Documents, faxes, patients", sort_key=2)
TOOLS = Group("Trial and troubleshooting", sort_key=3)
MISC = Group("Other", sort_key=4)
COMMANDS_GROUP = Group("Commands")
"""The heading of the subcommands of a command."""

EPILOGUE = "`directsuite --help` and `directsuite guide terminal` list the exit statuses."
"""The last line of each command's help."""

_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,30}")

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


def convert_size(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert a number with an optional K, M or G (powers of 1024) to bytes."""
    text = tokens[0].value
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


def convert_integer(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert decimal digits to an integer. Reject other text: cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if _INTEGER_PATTERN.fullmatch(text) is None:
        raise ValueError("give an integer")
    return int(text)


def _make_integer_parameter(**limits: int) -> Parameter:
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


def _make_seconds_parameter(**limits: float) -> Parameter:
    return Parameter(converter=convert_number, validator=Number(**limits))


def convert_duration(kind: Any, tokens: Sequence[Token]) -> timedelta:
    """Convert a positive duration such as 31m or 2h30m, or a number of seconds."""
    text = tokens[0].value
    try:
        with suppress(ValueError):
            text = f"{float(text):f}s"
        value: timedelta = cast("Any", convert)(timedelta, [text])
    except (ValueError, OverflowError, CycloptsError):
        value = timedelta()
    if value <= timedelta():
        raise ValueError("give a duration such as 31m or 2h30m, or a number of seconds greater than 0")
    return value


def convert_end_time(kind: Any, tokens: Sequence[Token]) -> datetime:
    """Convert a date with or without a time. Without one, return the last millisecond of the day."""
    value: datetime = cast("Any", convert)(kind, tokens)
    has_time = set("T: ") & set(tokens[0].value.strip())
    return value if has_time else value.replace(hour=23, minute=59, second=59, microsecond=999_000)


Json = Annotated[bool, Flag, Parameter(help="Print one JSON document instead of text.")]
MailboxOption = Annotated[
    str | None,
    Parameter(env_var="DIRECTSUITE_MAILBOX", help="The mailbox's Direct address.", show_default=False),
]
PasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that contains only the password and that other users can't read. Without it: "
        "DIRECTSUITE_MAILBOX_PASSWORD, the keyring, or a question on the terminal.",
    ),
]
TokenFile = Annotated[
    Path | None,
    Parameter(
        help="A file that contains only the access token and that other users can't read. Without it: "
        "DIRECTSUITE_TOKEN, the keyring, or a question on the terminal.",
    ),
]
LoginOption = Annotated[
    str | None,
    Parameter(
        env_var="DIRECTSUITE_LOGIN_USERNAME", help="The user name of the reseller or T-User.", show_default=False
    ),
]
LoginPasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that contains only the login's password and that other users can't read. Without it: "
        "DIRECTSUITE_LOGIN_PASSWORD, the keyring, or a question on the terminal.",
    ),
]

_COMMON_GROUP = Group("Options of every command that calls a service", sort_key=9)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class CommonOptions:
    """Options of every command that calls a service."""

    profile: Annotated[str | None, Parameter(group=_COMMON_GROUP, show_default=False)] = None
    """Use the settings of `[profiles.NAME]` in the settings file. The default is DIRECTSUITE_PROFILE."""
    verbose: Annotated[
        int, Parameter(name=("--verbose", "-v"), count=True, negative=(), group=_COMMON_GROUP, show_default=False)
    ] = 0
    """Show file names, values and the service's messages in errors, as on a terminal. Twice: log each request."""


DEFAULT_STORE = Path("directsuite-sync.db")
"""The store if --store is not given."""

_STORE_GROUP = Group("Store", validator=mutually_exclusive)
_FOLDER_GROUP = Group("Folders", validator=mutually_exclusive)

_SIGNATURE_GROUP = Group("Signatures", sort_key=1)
_PROCESSING_GROUP = Group("Processing", sort_key=2)

_File = Annotated[Path | None, Parameter(converter=convert_file_path)]
_Store = Annotated[Path | None, Parameter(group=_STORE_GROUP, converter=convert_file_path)]
_Postgres = Annotated[bool, Flag, Parameter(group=_STORE_GROUP)]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncRunOptions(CommonOptions):
    """Options of `sync run`."""

    mailbox: Annotated[tuple[str, ...], Repeatable] = ()
    """A mailbox's address. Can be repeated. Without it and --mailboxes: DIRECTSUITE_MAILBOX."""
    mailboxes: _File = None
    """A file with one address per line."""
    passwords: _File = None
    """A JSON or TOML file of addresses and passwords that only its owner and its group can read. Without it:
    DIRECTSUITE_MAILBOX_PASSWORD for a single mailbox, the keyring, or a question on the terminal.
    """
    folder: Annotated[tuple[str, ...], Repeatable, Parameter(group=_FOLDER_GROUP)] = ()
    """A folder to synchronise. Can be repeated. The default is INBOX."""
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDER_GROUP)] = False
    """Synchronise all folders of each mailbox."""
    store: _Store = None
    """The store's SQLite file. The default is directsuite-sync.db."""
    postgres: _Postgres = False
    """Run as one of several workers that share the PostgreSQL database named by DIRECTSUITE_POSTGRES."""
    workers: Annotated[int, _make_integer_parameter(gte=1)] = 4
    """The maximum number of workers with --postgres, which share the service's request rate."""
    maildir: Annotated[Path | None, Parameter(converter=convert_path)] = None
    """Write messages into Maildirs below this folder instead of the store."""
    keep_gone: Annotated[bool, Flag] = False
    """Keep messages that were deleted on the server."""
    once: Annotated[bool, Flag] = False
    """Bring all mailboxes up to date, then exit."""
    interval: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """Seconds between two checks of a mailbox. By default, as short as the service's request rate allows."""
    grace: Annotated[float, _make_seconds_parameter(gte=0)] = 30.0
    """Seconds after a signal in which the worker may finish work in progress."""
    status_file: _File = None
    """The file for the worker's report, which `sync status` reads. The default is next to the store."""
    log_names: Annotated[bool, Flag] = False
    """Show mailbox addresses in log lines, which otherwise contain only numbers."""
    json: Annotated[bool, Flag] = False
    """Print events as lines of JSON."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class StoreOptions(CommonOptions):
    """Options of `sync audit` and `sync retry`."""

    mailbox: Annotated[tuple[str, ...], Repeatable] = ()
    """A mailbox's address. Can be repeated. The default is all mailboxes."""
    store: _Store = None
    """The store's SQLite file. The default is directsuite-sync.db."""
    postgres: _Postgres = False
    """Use the PostgreSQL database named by DIRECTSUITE_POSTGRES."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncStatusOptions(StoreOptions):
    """Options of `sync status`."""

    status_file: _File = None
    """The file with the worker's report. The default is next to the store."""
    max_age: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """Check only whether the worker's last report is at most this many seconds old."""
    failing: Annotated[bool, Flag] = False
    """Show only failing mailboxes."""
    quarantined: Annotated[bool, Flag] = False
    """Show the quarantined messages, which can't be fetched, with the reason and the time of the next try."""
    sort: Literal["status", "lag", "messages", "mailbox", "number"] = "status"
    """The order: failing mailboxes first, largest lag first, most messages first, or by address or number."""
    limit: Annotated[int | None, _make_integer_parameter(gte=1)] = None
    """The number of rows to show. The default is 200 in a table, and all with --json."""
    offset: Annotated[int, _make_integer_parameter(gte=0)] = 0
    """The number of rows to skip."""
    json: Json = False


SourcePaths = Annotated[
    tuple[Path, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        converter=convert_path,
        help="PDF files and folders of PDFs.",
    ),
]
_SignatureParameter = Parameter(group=_SIGNATURE_GROUP)
_ProcessingParameter = Parameter(group=_PROCESSING_GROUP)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SignOptions(CommonOptions):
    """Options of `sign`."""

    output: Annotated[Path, Parameter(converter=convert_path)]
    """The folder for the signed files, which keep their names; it is created if necessary. For a single PDF, it can be
    a file that ends in .pdf.
    """
    recursive: Annotated[bool, Flag] = False
    """Include subfolders."""
    name: Annotated[tuple[str, ...], Repeatable, _SignatureParameter] = ()
    """A signature's name. Can be repeated. Without --widget, it names an empty signature field: a PDF without that
    field is not signed.
    """
    widget: Annotated[tuple[str, ...], Repeatable, _SignatureParameter] = ()
    """The position of a signature: X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, in points from the top left corner of the
    page. PAGE counts from 1, the default; `directsuite sign info` shows the number of pages and their size. Can be
    repeated. Without it, a signature is in the field named by --name, or invisible.
    """
    image: Annotated[Path | None, _SignatureParameter] = None
    """A PNG or JPEG file that the signatures show."""
    reason: Annotated[str | None, _SignatureParameter] = None
    """The reason for signing."""
    signer: Annotated[str | None, _SignatureParameter] = None
    """The name of the signer."""
    timezone: Annotated[str | None, _SignatureParameter] = None
    """The signer's time zone, such as America/New_York."""
    dry_run: Annotated[bool, Flag, _ProcessingParameter] = False
    """Show which PDFs would be signed, and why others would not; send nothing. Only if --output is a folder."""
    again: Annotated[bool, Flag, _ProcessingParameter] = False
    """Also sign the PDFs that failed before. Only if --output is a folder."""
    overwrite: Annotated[bool, Flag, _ProcessingParameter] = False
    """Replace existing files."""
    concurrency: Annotated[int, _make_integer_parameter(gte=1, lte=100), _ProcessingParameter] = 10
    """The number of PDFs processed at the same time. Only if --output is a folder."""
    patience: Annotated[float, _make_seconds_parameter(gte=0), _ProcessingParameter] = 120.0
    """Seconds to wait for a failing service; with 0, nothing is retried. Only if --output is a folder."""
    token_file: TokenFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class TokenOptions(CommonOptions):
    """Options of `sign info` and `fax show`."""

    token_file: TokenFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class VerifyOptions(TokenOptions):
    """Options of `sign verify`."""

    recursive: Annotated[bool, Flag] = False
    """Include subfolders."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DocumentOutputOptions(TokenOptions):
    """Options of `sign flatten` and `sign clear`."""

    output: Annotated[Path, Parameter(converter=convert_path)]
    """The file for the result."""
    overwrite: Annotated[bool, Flag] = False
    """Replace an existing file."""


FaxNumber = Annotated[str, Parameter(help="Your fax number, as the service knows it.")]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxesOptions(TokenOptions):
    """Common options of `fax list` and `fax watch`."""

    since: Annotated[datetime | None, Parameter(show_default=False)] = None
    """Only faxes updated since this time: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    status: str | None = None
    """Only faxes with this status: waiting, complete, or another that the service sends."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxListOptions(FaxesOptions):
    """Options of `fax list`."""

    limit: Annotated[int, _make_integer_parameter(gte=1)] = 50
    """The maximum number of faxes to show."""
    all: Annotated[bool, Flag] = False
    """Show all faxes; --limit is ignored."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxWatchOptions(FaxesOptions):
    """Options of `fax watch`."""

    handle: str | None = None
    """Only the fax with this handle, until its status is final. Exit status 1 means that it is not complete."""
    interval: Annotated[float, _make_seconds_parameter(gt=0, lte=86_400)] = 60.0
    """Seconds between two requests."""
    json: Annotated[bool, Flag] = False
    """Print one JSON document per line on stdout instead of text."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientOptions(CommonOptions):
    """Options of all `patient` commands."""

    domain: str
    """The Direct domain, such as direct.example.org."""
    login: LoginOption = None
    password_file: LoginPasswordFile = None


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientFindOptions(PatientOptions):
    """Options of `patient find` and `patient by-username`."""

    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientAddOptions(PatientFindOptions):
    """Options of `patient add`."""

    another: Annotated[bool, Flag] = False
    """Provision an additional address, even if the person has one in the domain."""
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


PrivateFile = Annotated[Path, Parameter(allow_leading_hyphen=True)]
"""A file that other users must not be able to read, or - for stdin."""

_BODY_GROUP = Group("Text", validator=mutually_exclusive)
_SAVE_GROUP = Group("What to save", validator=mutually_exclusive)
_SELECTION_GROUP = Group("Which messages to list", validator=mutually_exclusive)
_Addresses = Annotated[tuple[str, ...], Repeatable]

Uid = Annotated[int, _make_integer_parameter(gte=0)]
"""A message's number in its folder."""
Uids = Annotated[
    tuple[Uid, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        help="Message numbers, as `inbox list` shows them, separated by spaces.",
    ),
]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False, slots=False)  # a second base of classes with slots
class TextOptions:
    """Common options of `send` and `inbox reply`: the content of a message."""

    body: Annotated[str | None, Parameter(group=_BODY_GROUP)] = None
    """The text. Other users of this machine can see it while the command runs, but not a --body-file."""
    body_file: Annotated[Path | None, Parameter(group=_BODY_GROUP, allow_leading_hyphen=True)] = None
    """A UTF-8 file with the text; - for stdin."""
    html: Annotated[bool, Flag] = False
    """The text is HTML."""
    attach: Annotated[tuple[Path, ...], Repeatable] = ()
    """A file to attach, of any size. Can be repeated."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SendOptions(CommonOptions, TextOptions):
    """Options of `send`."""

    sender: Annotated[str | None, Parameter(name="--from", env_var="DIRECTSUITE_MAILBOX", show_default=False)] = None
    """The Direct address of the sending mailbox."""
    to: _Addresses = ()
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    cc: _Addresses = ()
    """A recipient of a copy, in the format of --to."""
    bcc: _Addresses = ()
    """A recipient of a copy whom the other recipients don't see, in the format of --to."""
    subject: str | None = None
    """The subject. Other users of this machine can see it while the command runs."""
    key: str | None = None
    """A unique name for this message. If you repeat the command with it, the message is still sent only once."""
    dry_run: Annotated[bool, Flag] = False
    """Show what would be sent, and send nothing."""
    password_file: PasswordFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class MailboxOptions(CommonOptions):
    """Common options of `status` and `inbox`."""

    mailbox: MailboxOption = None
    password_file: PasswordFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class StatusOptions(MailboxOptions):
    """Options of `status`."""

    watch: Annotated[bool, Flag] = False
    """Wait until each recipient has a final status: at most two hours, or 15 minutes for a message that the service
    doesn't know.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxOptions(MailboxOptions):
    """Options of `inbox` commands that use one folder."""

    folder: str = "INBOX"
    """The mailbox's folder."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxListOptions(InboxOptions):
    """Options of `inbox list`."""

    folder: Annotated[str, Parameter(group=_FOLDER_GROUP)] = "INBOX"
    """The mailbox's folder."""
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDER_GROUP)] = False
    """List the messages of all folders, with one request for each folder."""
    limit: Annotated[int, _make_integer_parameter(gte=1)] = 50
    """The maximum number of messages to list."""
    all: Annotated[bool, Flag] = False
    """List all messages; --limit is ignored."""
    before: Annotated[int | None, _make_integer_parameter(gte=1)] = None
    """Only messages with lower numbers than this. An incomplete list shows the number to continue with."""
    sender: Annotated[str | None, Parameter(name="--from")] = None
    """Only messages whose sender's address or name contains this."""
    to: str | None = None
    """Only messages with a recipient whose address contains this."""
    subject: str | None = None
    """Only messages whose subject contains this. Other users of this machine can see it while the command runs."""
    since: Annotated[datetime | None, Parameter(group=_SELECTION_GROUP)] = None
    """Only messages received since this time: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    until: Annotated[datetime | None, Parameter(converter=convert_end_time)] = None
    """Only messages received until this time: 2026-05-01, including that day, or 2026-05-01T08:00."""
    unread: Annotated[bool, Flag, Parameter(group=_SELECTION_GROUP)] = False
    """Only unread messages. This takes longer, because the service sends them completely, with attachments. Other lists
    don't mark unread messages, because the service doesn't report which ones are unread.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReadOptions(InboxOptions):
    """Options of `inbox read`."""

    mark_read: Annotated[bool, Flag] = False
    """Mark the message as read after showing it."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxSaveOptions(InboxOptions):
    """Options of `inbox save`."""

    into: Annotated[Path, Parameter(converter=convert_path)]
    """The folder for the files; it is created if necessary."""
    eml: Annotated[bool, Flag, Parameter(group=_SAVE_GROUP)] = False
    """Save the messages themselves, as .eml files for mail programs."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMoveOptions(InboxOptions):
    """Options of `inbox move` and `inbox copy`."""

    to: str
    """The destination folder, such as INBOX.Archive."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxDeleteOptions(InboxOptions):
    """Options of `inbox delete`."""

    forever: Annotated[bool, Flag] = False
    """Delete the messages permanently, instead of moving them to INBOX.Trash."""
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMarkOptions(InboxOptions):
    """Options of `inbox mark`."""

    unread: Annotated[bool, Flag] = False
    """Mark as unread instead of read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxForwardOptions(InboxOptions):
    """Options of `inbox forward`."""

    to: _Addresses
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    with_bcc: Annotated[bool, Flag] = False
    """Also forward messages that you sent with a Bcc. Every recipient can then see the Bcc recipients."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReplyOptions(InboxOptions, TextOptions):
    """Options of `inbox reply`."""

    to_all: Annotated[bool, Flag, Parameter(name="--all")] = False
    """Also reply to the other recipients, except Bcc recipients. The command asks before it sends to several."""
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ConfigOptions(CommonOptions):
    """Options of `config show`."""

    json: Json = False


_DEEP = Group("Comparison with the OpenAPI document")


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DoctorOptions(CommonOptions):
    """Options of `doctor`."""

    mailbox: MailboxOption = None
    password_file: PasswordFile = None
    token_file: TokenFile = None
    login: LoginOption = None
    login_password_file: LoginPasswordFile = None
    timeout: Annotated[float, _make_seconds_parameter(gt=0, lte=600)] = 10.0
    """Seconds for each check."""
    deep: Annotated[bool, Flag, Parameter(group=_DEEP)] = False
    """Call each read-only operation that the credentials allow, and report how the responses differ."""
    fax_number: Annotated[str | None, Parameter(group=_DEEP)] = None
    """Your fax number, for requests to the fax service."""
    document: Annotated[str | None, Parameter(group=_DEEP)] = None
    """The identifier of a stored document, for requests to the signing service."""
    patient: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A patient's Direct address, for requests to the registration service."""
    proofing_id: Annotated[int | None, _make_integer_parameter(), Parameter(group=_DEEP)] = None
    """The id of that patient's identity-proofing record, for GetPatientAddressByMeta."""
    tuser: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A T-User who acts for the mailbox, for GetMessageStatusWithTuser."""
    tuser_password_file: Annotated[Path | None, Parameter(group=_DEEP, converter=convert_path)] = None
    """A file that contains only the T-User's password and that other users can't read."""
    report: Annotated[Path | None, Parameter(group=_DEEP, converter=convert_path)] = None
    """Write the differences to a new file, as paths and types without values."""
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DemoOptions:
    """Options of `demo`."""

    output: Annotated[Path, Parameter(converter=convert_path)] = Path("demo-output")
    """The folder for the signed PDFs and the messages."""
    json: Annotated[bool, Flag] = False
    """Print the report as one JSON document instead of text."""
    messages: Annotated[int, _make_integer_parameter(gte=1, lte=10_000)] = 300
    """The number of messages to read from a mailbox."""
    documents: Annotated[int, _make_integer_parameter(gte=1, lte=500)] = 12
    """The number of PDFs to sign."""
    faxes: Annotated[int, _make_integer_parameter(gte=1, lte=1_000)] = 35
    """The number of faxes to list."""
    keep: Annotated[bool, Flag] = False
    """Keep the sandbox and its page running afterwards, until Ctrl-C."""


_SANDBOX_GROUP = Group("Sandbox to control", sort_key=9)
_STATE_GROUP = Group("State", validator=mutually_exclusive)
_TOKEN_GROUP = Group("Signing key in a token")
_CLOCK_GROUP = Group("Change of the clock", validator=mutually_exclusive)
DEFAULT_SANDBOX = "http://127.0.0.1:8025"


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxOptions:
    """Options of `sandbox`."""

    port: Annotated[int, _make_integer_parameter(gte=0, lte=65535)] = 8025
    """The port to listen on; with 0, any free port."""
    host: str = "127.0.0.1"
    """The address to listen on: a loopback address, or any with --allow-remote."""
    allow_remote: Annotated[bool, Flag] = False
    """Accept connections from other machines. The page and the control API then require a token."""
    data: Annotated[Path | None, Parameter(group=_STATE_GROUP, converter=convert_path)] = None
    """The folder for the state. The default is directsuite-sandbox."""
    memory: Annotated[bool, Flag, Parameter(group=_STATE_GROUP)] = False
    """Keep the state in memory only."""
    profile: Annotated[tuple[Literal["strict", "java", "attachment-list"], ...], Repeatable] = ()
    """Deviate from the specification as some servers do; strict, the default, does not. Can be repeated."""
    imitate: Annotated[Path | None, Parameter(converter=convert_path)] = None
    """Respond like the server whose differences are in this report of `doctor --deep`."""
    max_body: Annotated[int | None, Parameter(converter=convert_size)] = None
    """The maximum size of a request body, such as 500M. By default Save accepts documents of 1 GiB, Send and
    SaveRawMessages attachments of 1 GiB, and other operations 64 MiB.
    """
    quiet: Annotated[bool, Flag] = False
    """Don't print the calls."""
    json: Annotated[bool, Flag] = False
    """Print only one line of JSON, when the sandbox is ready."""
    pkcs11_module: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=convert_path)] = None
    """The PKCS #11 library of the token that signs."""
    pkcs11_token: Annotated[str, Parameter(group=_TOKEN_GROUP)] = ""
    """The token's label."""
    pkcs11_key: Annotated[str, Parameter(group=_TOKEN_GROUP)] = "directsuite sandbox"
    """The label of the key in the token; the key is created if necessary."""
    pkcs11_pin_file: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=convert_path)] = None
    """A file that contains the token's PIN. Without it: DIRECTSUITE_PKCS11_PIN."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlOptions:
    """Options of the commands that control a running sandbox."""

    at: Annotated[str, Parameter(group=_SANDBOX_GROUP, env_var="DIRECTSUITE_SANDBOX")] = DEFAULT_SANDBOX
    """The URL of the sandbox."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlListOptions(ControlOptions):
    """Options of `sandbox ledger`."""

    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxAccountOptions(ControlOptions):
    """Options of `sandbox account`."""

    password_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """A file that contains only the password and that other users can't read; - for stdin. Without it, the password is
    `sandbox`, which is not secret.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaxOptions(ControlOptions):
    """Options of `sandbox fax`."""

    status: Literal["waiting", "complete"] = "complete"
    """The fax's status."""
    description: str = ""
    """The new fax's description."""
    handle: str | None = None
    """Change the status of the fax with this handle, instead of adding a fax."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxClockOptions(ControlOptions):
    """Options of `sandbox clock`."""

    advance: Annotated[timedelta | None, Parameter(group=_CLOCK_GROUP, converter=convert_duration)] = None
    """Advance the clock by a duration such as 31m or 2h30m, or by a number of seconds."""
    set: Annotated[datetime | None, Parameter(group=_CLOCK_GROUP)] = None
    """Set the clock: 2026-05-01T09:00, in this machine's time zone unless it names another."""
    freeze: Annotated[bool, Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Stop the clock."""
    resume: Annotated[bool, Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Let the clock run again."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaultOptions(ControlOptions):
    """Options of `sandbox fault`."""

    status: Annotated[int, _make_integer_parameter(gte=200, lte=599)] = 503
    """The HTTP status, for the kind status."""
    body: str | None = None
    """The body, for the kind status: JSON or other text, or @FILE for a file's content. Messaging and registration send
    errors with status 200."""
    retry_after: Annotated[int | None, _make_integer_parameter(gte=0)] = None
    """The seconds of the Retry-After header, for the kind status."""
    times: Annotated[int, _make_integer_parameter(gte=1)] = 1
    """How often the fault happens."""
    skip: Annotated[int, _make_integer_parameter(gte=0)] = 0
    """The number of requests that this fault ignores first, whether or not other faults hit them."""
    processed: Annotated[bool, Flag] = False
    """Run the operation first, for the kinds status and hang."""
    seconds: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """The delay, for the kind latency."""
    always: Annotated[bool, Flag] = False
    """Repeat the fault for every request."""
    clear: Annotated[bool, Flag] = False
    """Remove all faults."""
    json: Json = False
