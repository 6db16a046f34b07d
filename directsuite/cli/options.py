"""The options of the commands, each declared once, and the headings of `directsuite --help`.

cyclopts binds a command's options to a record, whose fields say all: the name, the type, the default and the help. An
alias is for an option that several commands have.
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
TOOLS = Group("To try things, and to find what is wrong", sort_key=3)
MISC = Group("Other", sort_key=4)
COMMANDS_GROUP = Group("Commands")
"""Of a command that has some below it."""

EPILOGUE = "`directsuite --help` and `directsuite guide terminal` list the exit statuses."
"""Below the help of each command."""

_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,30}")

Flag = Parameter(negative=(), show_default=False)
"""An option that is there or isn't."""
Repeatable = Parameter(negative=(), consume_multiple=False, show_default=False)
"""An option that is given once for each value."""


def convert_path(kind: Any, tokens: Sequence[Token]) -> Any:
    """A path, or several: a converter. An empty one, as of a variable that isn't set, would be the working folder."""
    if not all(token.value.strip() for token in tokens):
        raise ValueError("it is empty: name a file or a folder")
    return cast("Any", convert)(kind, tokens)


def convert_file_path(kind: Any, tokens: Sequence[Token]) -> Any:
    """A file that need not be there yet: a converter."""
    if any(os.path.isdir(token.value) for token in tokens):  # noqa: PTH112  Path.is_dir raises for some names
        raise ValueError("it is a folder: name a file")
    return convert_path(kind, tokens)


def convert_size(kind: Any, tokens: Sequence[Token]) -> int:
    """Bytes, such as 500M: a converter. Raises ValueError."""
    from directsuite.sandbox.serving import parse_size  # other commands don't pay for it

    return parse_size(tokens[0].value)


def convert_integer(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert decimal digits to an integer. Raise ValueError for other texts: cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if _INTEGER_PATTERN.fullmatch(text) is None:
        raise ValueError("give a whole number")
    return int(text)


def _make_integer_parameter(**limits: int) -> Parameter:
    """Return the parameter of an integer option or argument, with the limits of `Number`."""
    return Parameter(converter=convert_integer, validator=Number(**limits) if limits else None)


def convert_number(kind: Any, tokens: Sequence[Token]) -> float:
    """Convert text to a number. Raise ValueError for other texts, and for nan and inf."""
    try:
        number = float(tokens[0].value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("give a number")
    return number


def _make_seconds_parameter(**limits: float) -> Parameter:
    """Return the parameter of an option in seconds, with the limits of `Number`."""
    return Parameter(converter=convert_number, validator=Number(**limits))


def convert_duration(kind: Any, tokens: Sequence[Token]) -> timedelta:
    """A time such as 31m or 2h30m, or seconds: a converter. Raises ValueError."""
    text = tokens[0].value
    try:
        with suppress(ValueError):
            text = f"{float(text):f}s"
        value: timedelta = cast("Any", convert)(timedelta, [text])
    except (ValueError, OverflowError, CycloptsError):
        value = timedelta()
    if value <= timedelta():
        raise ValueError("give a time such as 31m or 2h30m, or a number of seconds above 0")
    return value


def convert_end_time(kind: Any, tokens: Sequence[Token]) -> datetime:
    """A moment, which is the last one of a day where no time is given: a converter."""
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
        help="A file that holds only the password, and that others can't read. Without it: "
        "DIRECTSUITE_MAILBOX_PASSWORD, the keyring, or a question on the terminal.",
    ),
]
TokenFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds only the access token, and that others can't read. Without it: DIRECTSUITE_TOKEN, "
        "the keyring, or a question on the terminal.",
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
        help="A file that holds only the login's password, and that others can't read. Without it: "
        "DIRECTSUITE_LOGIN_PASSWORD, the keyring, or a question on the terminal.",
    ),
]

_COMMON_GROUP = Group("Options of every command that calls a service", sort_key=9)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class CommonOptions:
    """The options of every command that calls a service."""

    profile: Annotated[str | None, Parameter(group=_COMMON_GROUP, show_default=False)] = None
    """Use the settings of `[profiles.NAME]` in the settings file. The default is DIRECTSUITE_PROFILE."""
    verbose: Annotated[
        int, Parameter(name=("--verbose", "-v"), count=True, negative=(), group=_COMMON_GROUP, show_default=False)
    ] = 0
    """Name files and values in errors, and quote the service, as on a terminal; given twice, report each request."""


DEFAULT_STORE = Path("directsuite-sync.db")
"""The store where none is named."""

_STORE_GROUP = Group("Store", validator=mutually_exclusive)
_FOLDER_GROUP = Group("Folders", validator=mutually_exclusive)

_SIGNATURE_GROUP = Group("Signatures", sort_key=1)
_PROCESSING_GROUP = Group("Course of the work", sort_key=2)

_File = Annotated[Path | None, Parameter(converter=convert_file_path)]
_Store = Annotated[Path | None, Parameter(group=_STORE_GROUP, converter=convert_file_path)]
_Postgres = Annotated[bool, Flag, Parameter(group=_STORE_GROUP)]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncRunOptions(CommonOptions):
    """The options of `sync run`."""

    mailbox: Annotated[tuple[str, ...], Repeatable] = ()
    """The address of a mailbox; give it once for each. The default is DIRECTSUITE_MAILBOX, without --mailboxes."""
    mailboxes: _File = None
    """A file with one address on each line."""
    passwords: _File = None
    """A file of addresses and passwords, as JSON or TOML, that only its owner and its group can read. Without it:
    DIRECTSUITE_MAILBOX_PASSWORD for a single mailbox, the keyring, or a question on the terminal.
    """
    folder: Annotated[tuple[str, ...], Repeatable, Parameter(group=_FOLDER_GROUP)] = ()
    """A folder to synchronise; give it once for each. The default is INBOX."""
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDER_GROUP)] = False
    """Synchronise all folders of each mailbox."""
    store: _Store = None
    """The SQLite file of the store. The default is directsuite-sync.db."""
    postgres: _Postgres = False
    """Run as one of several workers that share the PostgreSQL database of DIRECTSUITE_POSTGRES."""
    workers: Annotated[int, _make_integer_parameter(gte=1)] = 4
    """The largest number of workers with --postgres; they share the service's rate."""
    maildir: Annotated[Path | None, Parameter(converter=convert_path)] = None
    """Write messages into Maildirs below this folder instead of the store."""
    keep_gone: Annotated[bool, Flag] = False
    """Keep messages that were deleted on the server."""
    once: Annotated[bool, Flag] = False
    """Bring all mailboxes up to date, and exit."""
    interval: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """Seconds between two checks of a mailbox. By default, checks are as frequent as the service's rate allows."""
    grace: Annotated[float, _make_seconds_parameter(gte=0)] = 30.0
    """Seconds after a signal in which the worker may finish what is under way."""
    status_file: _File = None
    """The file of the worker's report, which `sync status` reads. By default it is beside the store."""
    log_names: Annotated[bool, Flag] = False
    """Name mailboxes in log lines, which otherwise have only their numbers."""
    json: Annotated[bool, Flag] = False
    """Print what happens as lines of JSON."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class StoreOptions(CommonOptions):
    """The options of `sync audit` and `sync retry`."""

    mailbox: Annotated[tuple[str, ...], Repeatable] = ()
    """The address of a mailbox; give it once for each. The default is all."""
    store: _Store = None
    """The store's file. The default is directsuite-sync.db."""
    postgres: _Postgres = False
    """Use the PostgreSQL database of DIRECTSUITE_POSTGRES."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncStatusOptions(StoreOptions):
    """The options of `sync status`."""

    status_file: _File = None
    """The file of the worker's report. By default it is beside the store."""
    max_age: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """Check only that the worker's last report is at most so many seconds old."""
    failing: Annotated[bool, Flag] = False
    """Show only mailboxes that fail."""
    quarantined: Annotated[bool, Flag] = False
    """Show the messages that are quarantined, why, and when each is tried next."""
    sort: Literal["status", "lag", "messages", "mailbox", "number"] = "status"
    """The order: first the mailboxes that fail, those that lag most or have most messages, or by address or number."""
    limit: Annotated[int | None, _make_integer_parameter(gte=1)] = None
    """How many to show. The default is 200 in a table, and all with --json."""
    offset: Annotated[int, _make_integer_parameter(gte=0)] = 0
    """How many to skip."""
    json: Json = False


SourcePaths = Annotated[
    tuple[Path, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        converter=convert_path,
        help="PDF files, and folders of PDFs.",
    ),
]
_SignatureParameter = Parameter(group=_SIGNATURE_GROUP)
_ProcessingParameter = Parameter(group=_PROCESSING_GROUP)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SignOptions(CommonOptions):
    """The options of `sign`."""

    output: Annotated[Path, Parameter(converter=convert_path)]
    """The folder for the signed files, which keep their names; it is made if necessary. For a single PDF, also a file
    whose name ends in .pdf.
    """
    recursive: Annotated[bool, Flag] = False
    """Include the folders in a folder."""
    name: Annotated[tuple[str, ...], Repeatable, _SignatureParameter] = ()
    """A signature's name; give it once for each signature. Without --widget, it names an empty signature field: a PDF
    that lacks the field is not signed.
    """
    widget: Annotated[tuple[str, ...], Repeatable, _SignatureParameter] = ()
    """The place of a signature: X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, in points from the top left corner of the
    page. PAGE counts from 1, and is 1 by default; `directsuite sign info` shows how many pages there are, and their
    size. Give it once for each signature. Without it, a signature is in the field of its name, or invisible.
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
    """Replace files that are already in the output."""
    concurrency: Annotated[int, _make_integer_parameter(gte=1, lte=100), _ProcessingParameter] = 10
    """How many PDFs are processed at a time. Only if --output is a folder."""
    patience: Annotated[float, _make_seconds_parameter(gte=0), _ProcessingParameter] = 120.0
    """Seconds to wait for a service that fails; with 0, nothing is tried again. Only if --output is a folder."""
    token_file: TokenFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class TokenOptions(CommonOptions):
    """The options of `sign info` and `fax show`: nothing but a token is needed."""

    token_file: TokenFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class VerifyOptions(TokenOptions):
    """The options of `sign verify`."""

    recursive: Annotated[bool, Flag] = False
    """Include the folders in a folder."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DocumentOutputOptions(TokenOptions):
    """The options of `sign flatten` and `sign clear`."""

    output: Annotated[Path, Parameter(converter=convert_path)]
    """The file for the result."""
    overwrite: Annotated[bool, Flag] = False
    """Replace an existing file."""


FaxNumber = Annotated[str, Parameter(help="Your fax number, as the service knows it.")]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxesOptions(TokenOptions):
    """The options that `fax list` and `fax watch` have in common."""

    since: Annotated[datetime | None, Parameter(show_default=False)] = None
    """Only faxes updated since this time: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    status: str | None = None
    """Only faxes with this status: waiting, complete, or another that the service sends."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxListOptions(FaxesOptions):
    """The options of `fax list`."""

    limit: Annotated[int, _make_integer_parameter(gte=1)] = 50
    """How many faxes to show at most."""
    all: Annotated[bool, Flag] = False
    """Show all faxes, whatever --limit says."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxWatchOptions(FaxesOptions):
    """The options of `fax watch`."""

    handle: str | None = None
    """Only the fax of this handle, until it is no longer under way. Exit status 1 says that it ended otherwise than
    complete.
    """
    interval: Annotated[float, _make_seconds_parameter(gt=0, lte=86_400)] = 60.0
    """Seconds between two requests."""
    json: Annotated[bool, Flag] = False
    """One JSON document a line on stdout, in place of what people read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientOptions(CommonOptions):
    """The options of `patient passwords`, which all commands about patients have."""

    domain: str
    """The Direct domain, such as direct.example.org."""
    login: LoginOption = None
    password_file: LoginPasswordFile = None


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientFindOptions(PatientOptions):
    """The options of `patient find` and `patient by-username`."""

    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientAddOptions(PatientFindOptions):
    """The options of `patient add`."""

    another: Annotated[bool, Flag] = False
    """Provision one more address for a person who has one in the domain, or may have one."""
    yes: Annotated[bool, Flag] = False
    """Don't ask."""


PrivateFile = Annotated[Path, Parameter(allow_leading_hyphen=True)]
"""A file that others may not read, or - for stdin."""

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
        help="Numbers of messages, as `inbox list` shows them; several are separated by blanks.",
    ),
]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False, slots=False)  # a second base of records that have slots
class TextOptions:
    """What a message says: the options that `send` and `inbox reply` have in common."""

    body: Annotated[str | None, Parameter(group=_BODY_GROUP)] = None
    """The text. Other users of this machine can see it while the command runs, but not a --body-file."""
    body_file: Annotated[Path | None, Parameter(group=_BODY_GROUP, allow_leading_hyphen=True)] = None
    """A file with the text, in UTF-8; - for stdin."""
    html: Annotated[bool, Flag] = False
    """The text is HTML."""
    attach: Annotated[tuple[Path, ...], Repeatable] = ()
    """A file to attach, of any size; give it once for each file."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SendOptions(CommonOptions, TextOptions):
    """The options of `send`."""

    sender: Annotated[str | None, Parameter(name="--from", env_var="DIRECTSUITE_MAILBOX", show_default=False)] = None
    """The Direct address of the mailbox that sends."""
    to: _Addresses = ()
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    cc: _Addresses = ()
    """A recipient of a copy, given as with --to."""
    bcc: _Addresses = ()
    """A recipient of a copy whom the others don't see, given as with --to."""
    subject: str | None = None
    """The subject. Other users of this machine can see it while the command runs."""
    key: str | None = None
    """A name of your own for this message, so that it is sent once: the same command again first looks for it."""
    dry_run: Annotated[bool, Flag] = False
    """Show what would be sent, and send nothing."""
    password_file: PasswordFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class MailboxOptions(CommonOptions):
    """The options that `status` and `inbox` have in common."""

    mailbox: MailboxOption = None
    password_file: PasswordFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class StatusOptions(MailboxOptions):
    """The options of `status`."""

    watch: Annotated[bool, Flag] = False
    """Wait until each recipient has a final status, for two hours at most, and a quarter of an hour for a message that
    the service doesn't know.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxOptions(MailboxOptions):
    """The options that all commands of `inbox` have."""

    folder: str = "INBOX"
    """The folder of the mailbox."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxListOptions(InboxOptions):
    """The options of `inbox list`."""

    folder: Annotated[str, Parameter(group=_FOLDER_GROUP)] = "INBOX"
    """The mailbox's folder."""
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDER_GROUP)] = False
    """Look into all folders, one request for each."""
    limit: Annotated[int, _make_integer_parameter(gte=1)] = 50
    """How many messages to list at most."""
    all: Annotated[bool, Flag] = False
    """List all messages, whatever --limit says."""
    before: Annotated[int | None, _make_integer_parameter(gte=1)] = None
    """Only messages with lower numbers than this. A list that was cut off says which number continues it."""
    sender: Annotated[str | None, Parameter(name="--from")] = None
    """Only messages whose sender's address or name contains this."""
    to: str | None = None
    """Only messages with a recipient whose address contains this."""
    subject: str | None = None
    """Only messages whose subject contains this. Other users of this machine can see it while the command runs."""
    since: Annotated[datetime | None, Parameter(group=_SELECTION_GROUP)] = None
    """Only messages received since this time: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    until: Annotated[datetime | None, Parameter(converter=convert_end_time)] = None
    """Only messages received until this time: 2026-05-01, with all of that day, or 2026-05-01T08:00."""
    unread: Annotated[bool, Flag, Parameter(group=_SELECTION_GROUP)] = False
    """Only unread messages. The service sends these whole, with their attachments, so it takes longer. A list without
    --unread doesn't mark unread messages, because the service doesn't say which ones are.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReadOptions(InboxOptions):
    """The options of `inbox read`."""

    mark_read: Annotated[bool, Flag] = False
    """Mark the message as read after showing it."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxSaveOptions(InboxOptions):
    """The options of `inbox save`."""

    into: Annotated[Path, Parameter(converter=convert_path)]
    """The folder for the files; it is made if necessary."""
    eml: Annotated[bool, Flag, Parameter(group=_SAVE_GROUP)] = False
    """Save the messages themselves, as .eml files that mail programs read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMoveOptions(InboxOptions):
    """The options of `inbox move` and `inbox copy`."""

    to: str
    """The destination folder, such as INBOX.Archive."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxDeleteOptions(InboxOptions):
    """The options of `inbox delete`."""

    forever: Annotated[bool, Flag] = False
    """Delete the messages for good, instead of moving them to INBOX.Trash."""
    yes: Annotated[bool, Flag] = False
    """Don't ask."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMarkOptions(InboxOptions):
    """The options of `inbox mark`."""

    unread: Annotated[bool, Flag] = False
    """Mark as unread instead of read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxForwardOptions(InboxOptions):
    """The options of `inbox forward`."""

    to: _Addresses
    """A recipient's Direct address, or `Name <address>`, of which the name is not sent. Separate several by commas, or
    repeat the option.
    """
    with_bcc: Annotated[bool, Flag] = False
    """Also forward messages of your own that name the recipients of a Bcc, whom everybody may then see."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReplyOptions(InboxOptions, TextOptions):
    """The options of `inbox reply`."""

    to_all: Annotated[bool, Flag, Parameter(name="--all")] = False
    """Answer its other recipients, too, but for those of a Bcc. The command asks before it sends to several."""
    yes: Annotated[bool, Flag] = False
    """Don't ask."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ConfigOptions(CommonOptions):
    """The options of `config show`."""

    json: Json = False


_DEEP = Group("Comparison with the OpenAPI document")


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DoctorOptions(CommonOptions):
    """The options of `doctor`."""

    mailbox: MailboxOption = None
    password_file: PasswordFile = None
    token_file: TokenFile = None
    login: LoginOption = None
    login_password_file: LoginPasswordFile = None
    timeout: Annotated[float, _make_seconds_parameter(gt=0, lte=600)] = 10.0
    """Seconds for each check."""
    deep: Annotated[bool, Flag, Parameter(group=_DEEP)] = False
    """Call each operation that only reads and that the credentials allow, and report how the answers differ."""
    fax_number: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A fax number of yours, to ask the fax service for."""
    document: Annotated[str | None, Parameter(group=_DEEP)] = None
    """The identifier of a stored document, to ask the signing service for."""
    patient: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A patient's Direct address, to ask the registration service for."""
    proofing_id: Annotated[int | None, _make_integer_parameter(), Parameter(group=_DEEP)] = None
    """The id of that patient's identity-proofing record, for GetPatientAddressByMeta."""
    tuser: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A T-User who acts for the mailbox, for GetMessageStatusWithTuser."""
    tuser_password_file: Annotated[Path | None, Parameter(group=_DEEP, converter=convert_path)] = None
    """A file that holds only the T-User's password, and that others can't read."""
    report: Annotated[Path | None, Parameter(group=_DEEP, converter=convert_path)] = None
    """Write the differences into a new file, as paths and types without values."""
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DemoOptions:
    """The options of `demo`."""

    output: Annotated[Path, Parameter(converter=convert_path)] = Path("demo-output")
    """The folder for the signed PDFs and the messages."""
    json: Annotated[bool, Flag] = False
    """Print the report as one JSON document instead of text."""
    messages: Annotated[int, _make_integer_parameter(gte=1, lte=10_000)] = 300
    """How many messages to read from a mailbox."""
    documents: Annotated[int, _make_integer_parameter(gte=1, lte=500)] = 12
    """How many PDFs to sign."""
    faxes: Annotated[int, _make_integer_parameter(gte=1, lte=1_000)] = 35
    """How many faxes to list."""
    keep: Annotated[bool, Flag] = False
    """Keep the sandbox and its page running afterwards, until Ctrl-C."""


_SANDBOX_GROUP = Group("Which sandbox to drive", sort_key=9)
_STATE_GROUP = Group("State", validator=mutually_exclusive)
_TOKEN_GROUP = Group("Signing key in a token")
_CLOCK_GROUP = Group("Change of the clock", validator=mutually_exclusive)
DEFAULT_SANDBOX = "http://127.0.0.1:8025"


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxOptions:
    """The options of `sandbox`."""

    port: Annotated[int, _make_integer_parameter(gte=0, lte=65535)] = 8025
    """The port to listen on; 0 takes a free one."""
    host: str = "127.0.0.1"
    """The address to listen on: a loopback address, or any with --allow-remote."""
    allow_remote: Annotated[bool, Flag] = False
    """Accept connections from other machines. The page and the control API then require a token."""
    data: Annotated[Path | None, Parameter(group=_STATE_GROUP, converter=convert_path)] = None
    """The folder that keeps the state. The default is directsuite-sandbox."""
    memory: Annotated[bool, Flag, Parameter(group=_STATE_GROUP)] = False
    """Keep the state in memory only."""
    profile: Annotated[tuple[Literal["strict", "java", "attachment-list"], ...], Repeatable] = ()
    """Deviate from the specification as some servers do; may be given several times."""
    imitate: Annotated[Path | None, Parameter(converter=convert_path)] = None
    """Answer as the server whose differences are in this report of `doctor --deep`."""
    max_body: Annotated[int | None, Parameter(converter=convert_size)] = None
    """The largest body of a request, such as 500M. By default Save takes documents of 1 GiB, Send and SaveRawMessages
    attachments of 1 GiB, and the others 64 MiB."""
    quiet: Annotated[bool, Flag] = False
    """Print no calls."""
    json: Annotated[bool, Flag] = False
    """Print only one line of JSON, when the sandbox is ready."""
    pkcs11_module: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=convert_path)] = None
    """The PKCS #11 library of the token that signs."""
    pkcs11_token: Annotated[str, Parameter(group=_TOKEN_GROUP)] = ""
    """The token's label."""
    pkcs11_key: Annotated[str, Parameter(group=_TOKEN_GROUP)] = "directsuite sandbox"
    """The label of the key in the token; it is made if there is none."""
    pkcs11_pin_file: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=convert_path)] = None
    """A file that holds the token's PIN. Without it: DIRECTSUITE_PKCS11_PIN."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlOptions:
    """The options of the commands that drive a running sandbox."""

    at: Annotated[str, Parameter(group=_SANDBOX_GROUP, env_var="DIRECTSUITE_SANDBOX")] = DEFAULT_SANDBOX
    """The URL of the sandbox."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlListOptions(ControlOptions):
    """The options of `sandbox ledger`."""

    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxAccountOptions(ControlOptions):
    """The options of `sandbox account`."""

    password_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """A file that holds only the password, and that others can't read; - for stdin. Without it, the password is
    `sandbox`, which is no secret.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaxOptions(ControlOptions):
    """The options of `sandbox fax`."""

    status: Literal["waiting", "complete"] = "complete"
    """The fax's status."""
    description: str = ""
    """The new fax's description."""
    handle: str | None = None
    """Change the status of the fax with this handle, and add none."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxClockOptions(ControlOptions):
    """The options of `sandbox clock`."""

    advance: Annotated[timedelta | None, Parameter(group=_CLOCK_GROUP, converter=convert_duration)] = None
    """Advance the clock by a time such as 31m or 2h30m, or by so many seconds."""
    set: Annotated[datetime | None, Parameter(group=_CLOCK_GROUP)] = None
    """Set the clock: 2026-05-01T09:00, in this machine's time zone unless it names another."""
    freeze: Annotated[bool, Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Stop the clock."""
    resume: Annotated[bool, Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Let the clock run again."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaultOptions(ControlOptions):
    """The options of `sandbox fault`."""

    status: Annotated[int, _make_integer_parameter(gte=200, lte=599)] = 503
    """The HTTP status, for the kind status."""
    body: str | None = None
    """The body, for the kind status: JSON or other text, or @FILE for that of a file. Messaging and registration refuse
    with status 200."""
    retry_after: Annotated[int | None, _make_integer_parameter(gte=0)] = None
    """The seconds of the Retry-After header, for the kind status."""
    times: Annotated[int, _make_integer_parameter(gte=1)] = 1
    """How often the fault happens."""
    skip: Annotated[int, _make_integer_parameter(gte=0)] = 0
    """How many requests of the operation are answered as usual before, whether or not other faults hit them."""
    processed: Annotated[bool, Flag] = False
    """Run the operation first, for the kinds status and hang."""
    seconds: Annotated[float | None, _make_seconds_parameter(gt=0)] = None
    """The delay, for the kind latency."""
    always: Annotated[bool, Flag] = False
    """Let the fault happen at every request."""
    clear: Annotated[bool, Flag] = False
    """Remove all faults."""
    json: Json = False
