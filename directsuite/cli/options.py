"""The options of the commands, each declared once, and the headings of `directsuite --help`.

cyclopts binds a command's options to a record, whose fields say all: the name, the type, the default and the help. An
alias is for an option that several commands have.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import attrs
from cyclopts import Group, Parameter, Token, convert
from cyclopts.validators import Number, mutually_exclusive

MAIL = Group("Mail", sort_key=1)
SERVICES = Group("Documents, faxes, patients", sort_key=2)
TRYING = Group("To try things, and to find what is wrong", sort_key=3)
OTHERS = Group("Other", sort_key=4)
COMMANDS = Group("Commands")
"""Of a command that has some below it."""

EPILOGUE = "The exit statuses stand in `directsuite --help`."
"""Below the help of each command."""

Flag = Parameter(negative=(), show_default=False)
"""An option that is there or isn't."""
Several = Parameter(negative=(), consume_multiple=False, show_default=False)
"""An option that is given once for each value."""


def named(kind: Any, tokens: Sequence[Token]) -> Any:
    """A path, or several: a converter. An empty one, as of a variable that isn't set, would be the working folder."""
    if not all(token.value.strip() for token in tokens):
        raise ValueError("it is empty: name a file or a folder")
    return cast("Any", convert)(kind, tokens)


def named_file(kind: Any, tokens: Sequence[Token]) -> Any:
    """A file that need not be there yet: a converter."""
    if any(os.path.isdir(token.value) for token in tokens):  # noqa: PTH112  Path.is_dir raises for some names
        raise ValueError("it is a folder: name a file")
    return named(kind, tokens)


def size(kind: Any, tokens: Sequence[Token]) -> int:
    """Bytes, such as 500M: a converter. Raises ValueError."""
    from directsuite.sandbox.serving import size_of  # other commands don't pay for it

    return size_of(tokens[0].value)


Json = Annotated[bool, Flag, Parameter(help="One JSON document on stdout, in place of what people read.")]
Mailbox = Annotated[
    str | None,
    Parameter(env_var="DIRECTSUITE_MAILBOX", help="The mailbox's Direct address.", show_default=False),
]
PasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the password alone, and that others may not read. Without it: "
        "DIRECTSUITE_MAILBOX_PASSWORD, the keyring, or a question on the terminal.",
    ),
]
TokenFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the access token alone, and that others may not read. Without it: DIRECTSUITE_TOKEN, "
        "the keyring, or a question on the terminal.",
    ),
]
Login = Annotated[
    str | None,
    Parameter(env_var="DIRECTSUITE_LOGIN_USERNAME", help="The reseller's or T-User's name.", show_default=False),
]
LoginPasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the login's password alone, and that others may not read. Without it: "
        "DIRECTSUITE_LOGIN_PASSWORD, the keyring, or a question on the terminal.",
    ),
]

_EVERYWHERE = Group("Of every command that calls a service", sort_key=9)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class CommonOptions:
    """The options of every command that calls a service."""

    profile: Annotated[str | None, Parameter(group=_EVERYWHERE, show_default=False)] = None
    """The settings that `[profiles.NAME]` of the settings file has; DIRECTSUITE_PROFILE where nothing is given."""
    verbose: Annotated[
        int, Parameter(name=("--verbose", "-v"), count=True, negative=(), group=_EVERYWHERE, show_default=False)
    ] = 0
    """Name files and quote the service in errors, as on a terminal; given twice, report each request, too."""


DEFAULT_STORE = Path("directsuite-sync.db")
"""The store where none is named."""

_WHERE = Group("Where it is kept", validator=mutually_exclusive)
_FOLDERS = Group("Which folders", validator=mutually_exclusive)

_LOOK = Group("What a signature is like", sort_key=1)
_HOW = Group("How it goes", sort_key=2)

_Seconds = Parameter(validator=Number(gt=0))
_File = Annotated[Path | None, Parameter(converter=named_file)]
_Store = Annotated[Path | None, Parameter(group=_WHERE, converter=named_file)]
_Postgres = Annotated[bool, Flag, Parameter(group=_WHERE)]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncRunOptions(CommonOptions):
    """The options of `sync run`."""

    mailbox: Annotated[tuple[str, ...], Several] = ()
    """The address of a mailbox; as often as there are. That of DIRECTSUITE_MAILBOX where neither this nor --mailboxes
    is given.
    """
    mailboxes: _File = None
    """A file with one address a line."""
    passwords: _File = None
    """A file of addresses and passwords, as JSON or TOML, that only its owner and its group may read. Without it,
    DIRECTSUITE_MAILBOX_PASSWORD for a single mailbox, the keyring, or a question on the terminal.
    """
    folder: Annotated[tuple[str, ...], Several, Parameter(group=_FOLDERS)] = ()
    """A folder to check; as often as there are. INBOX where nothing is given."""
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDERS)] = False
    """Look at all folders that a mailbox has."""
    store: _Store = None
    """The SQLite file that keeps what is known; directsuite-sync.db where nothing is given."""
    postgres: _Postgres = False
    """Be one of a fleet of workers that share the PostgreSQL database of DIRECTSUITE_POSTGRES."""
    workers: Annotated[int, Parameter(validator=Number(gte=1))] = 4
    """How many workers the fleet has at most: they keep to the service's rate together."""
    maildir: Annotated[Path | None, Parameter(converter=named)] = None
    """Put messages into Maildirs below this folder, and not into the store."""
    keep_gone: Annotated[bool, Flag] = False
    """Keep messages that were deleted on the server."""
    once: Annotated[bool, Flag] = False
    """Bring all up to date and end."""
    interval: Annotated[float | None, _Seconds] = None
    """Seconds between two looks at a mailbox; as often as the service's rate allows where nothing is given."""
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 30.0
    """Seconds that what is under way gets when a signal comes."""
    status_file: _File = None
    """The worker's report, which status reads; beside the store where nothing is given."""
    log_names: Annotated[bool, Flag] = False
    """Name mailboxes in log lines, which have their numbers alone otherwise."""
    json: Annotated[bool, Flag] = False
    """Tell what happens as lines of JSON on stdout."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class StoreOptions(CommonOptions):
    """The options of `sync audit` and `sync retry`."""

    mailbox: Annotated[tuple[str, ...], Several] = ()
    """The address of a mailbox; as often as there are. All where nothing is given."""
    store: _Store = None
    """The store's file; directsuite-sync.db where nothing is given."""
    postgres: _Postgres = False
    """Of the fleet whose database DIRECTSUITE_POSTGRES names."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SyncStatusOptions(StoreOptions):
    """The options of `sync status`."""

    status_file: _File = None
    """The worker's report; beside the store where nothing is given."""
    max_age: Annotated[float | None, _Seconds] = None
    """Seconds that the worker's last report may be old."""
    failing: Annotated[bool, Flag] = False
    """Show only mailboxes that fail."""
    sort: Literal["status", "lag", "messages", "mailbox", "number"] = "status"
    """What comes first: the mailboxes that fail, those that lag most or have most messages, or by address or number."""
    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """How many to show: 200 in a table and all with --json where nothing is given."""
    offset: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """How many to pass over."""
    json: Json = False


Sources = Annotated[
    tuple[Path, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        converter=named,
        help="PDFs, and folders whose PDFs are meant.",
    ),
]
_Signature = Parameter(group=_LOOK)
_Going = Parameter(group=_HOW)


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SignOptions(CommonOptions):
    """The options of `sign`."""

    output: Annotated[Path, Parameter(converter=named)]
    """The folder for the signed files, made where it isn't there: they keep their names. Or a file that ends in .pdf,
    for a single PDF.
    """
    recursive: Annotated[bool, Flag] = False
    """Take the folders in a folder, too."""
    name: Annotated[tuple[str, ...], Several, _Signature] = ()
    """A signature's name; as often as there are signatures. Without --widget it is that of an empty signature field,
    which a single PDF has to have; a PDF of several that lacks it is signed invisibly.
    """
    widget: Annotated[tuple[str, ...], Several, _Signature] = ()
    """Where a signature stands: X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, in points from the top left corner of the
    page. PAGE counts from 1, and is 1 by default; `directsuite sign info` shows how many pages there are, and their
    size. As often as there are signatures. Without it a signature is in the field of its name, or
    invisible.
    """
    image: Annotated[Path | None, _Signature] = None
    """A PNG or JPEG file, which the signatures show."""
    reason: Annotated[str | None, _Signature] = None
    """Why it is signed."""
    signer: Annotated[str | None, _Signature] = None
    """Who signs."""
    timezone: Annotated[str | None, _Signature] = None
    """Of the signer, as in America/New_York."""
    dry_run: Annotated[bool, Flag, _Going] = False
    """Say what would be signed, where to, and what not and why; send nothing. Only where --output is a folder."""
    again: Annotated[bool, Flag, _Going] = False
    """Try again what failed, and nothing else. Only where --output is a folder."""
    overwrite: Annotated[bool, Flag, _Going] = False
    """Replace files that are in the output already."""
    concurrency: Annotated[int, Parameter(validator=Number(gte=1, lte=100)), _Going] = 10
    """How many PDFs are under way side by side."""
    patience: Annotated[float, Parameter(validator=Number(gte=0)), _Going] = 120.0
    """Seconds for which a service in trouble is waited for."""
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
    """Take the folders in a folder, too."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DocumentOutputOptions(TokenOptions):
    """The options of `sign flatten` and `sign clear`."""

    output: Annotated[Path, Parameter(converter=named)]
    """The file for the result."""
    overwrite: Annotated[bool, Flag] = False
    """Replace a file that is there."""


FaxNumber = Annotated[str, Parameter(help="Your fax number, as the service knows it.")]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxesOptions(TokenOptions):
    """The options that `fax list` and `fax watch` have in common."""

    since: Annotated[datetime | None, Parameter(show_default=False)] = None
    """Only those updated from then on: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    status: str | None = None
    """Only those in this state: waiting, complete, or another that the service sends."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxListOptions(FaxesOptions):
    """The options of `fax list`."""

    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50
    """How many at the most."""
    all: Annotated[bool, Flag] = False
    """All of them, whatever --limit says."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class FaxWatchOptions(FaxesOptions):
    """The options of `fax watch`."""

    handle: str | None = None
    """Only the fax of this handle, until it is no longer under way. Exit status 1 says that it ended otherwise than
    complete.
    """
    interval: Annotated[float, Parameter(validator=Number(gt=0, lte=86_400))] = 60.0
    """Seconds between two requests."""
    json: Annotated[bool, Flag] = False
    """One JSON document a line on stdout, in place of what people read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class PatientOptions(CommonOptions):
    """The options of `patient passwords`, which all commands about patients have."""

    domain: str
    """The Direct domain, as direct.example.org."""
    login: Login = None
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

_BODY = Group("What it says", validator=mutually_exclusive)
_WHAT = Group("What is saved", validator=mutually_exclusive)
_WHICH = Group("Which messages", validator=mutually_exclusive)
_Addresses = Annotated[tuple[str, ...], Several]

Uid = Annotated[int, Parameter(validator=Number(gte=0))]
"""A message's number in its folder."""
Uids = Annotated[
    tuple[Uid, ...],
    Parameter(
        consume_multiple=True,
        negative=(),
        show_default=False,
        help="Numbers of messages, as `inbox list` tells them; several with blanks between them.",
    ),
]


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False, slots=False)  # a second base of records that have slots
class TextOptions:
    """What a message says: the options that `send` and `inbox reply` have in common."""

    body: Annotated[str | None, Parameter(group=_BODY)] = None
    """Its text. Other users of this machine can read it while the command runs, but not a --body-file."""
    body_file: Annotated[Path | None, Parameter(group=_BODY, allow_leading_hyphen=True)] = None
    """A file with its text, in UTF-8; - for stdin."""
    html: Annotated[bool, Flag] = False
    """The text is HTML."""
    attach: Annotated[tuple[Path, ...], Several] = ()
    """A file to send with it, of any size; as often as there are."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SendOptions(CommonOptions, TextOptions):
    """The options of `send`."""

    sender: Annotated[str | None, Parameter(name="--from", env_var="DIRECTSUITE_MAILBOX", show_default=False)] = None
    """The mailbox that sends, by its Direct address."""
    to: _Addresses = ()
    """A recipient's Direct address, or `Name <address>`; several with commas, or as often as there are."""
    cc: _Addresses = ()
    """Likewise, for a copy."""
    bcc: _Addresses = ()
    """Likewise, for a copy that the others don't see."""
    subject: str | None = None
    """What it is about. Other users of this machine can read it while the command runs."""
    key: str | None = None
    """Your own name for this message, which has it sent once: given again, the same command looks whether it went."""
    dry_run: Annotated[bool, Flag] = False
    """Say what would be sent, and send nothing."""
    password_file: PasswordFile = None
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class MailboxOptions(CommonOptions):
    """The options that `status` and `inbox` have in common."""

    mailbox: Mailbox = None
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
    """The mailbox's folder."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxListOptions(InboxOptions):
    """The options of `inbox list`."""

    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50
    """How many at the most."""
    all: Annotated[bool, Flag] = False
    """All of them, whatever --limit says."""
    before: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Only those with lower numbers than this one, which a listing that has more ends with."""
    sender: Annotated[str | None, Parameter(name="--from")] = None
    """Only those whose sender has this in the address or name."""
    subject: str | None = None
    """Only those whose subject has this. Other users of this machine can read it while the command runs."""
    since: Annotated[datetime | None, Parameter(group=_WHICH)] = None
    """Only those received from then on: 2026-05-01, or 2026-05-01T08:00 in this machine's time zone."""
    unread: Annotated[bool, Flag, Parameter(group=_WHICH)] = False
    """Only unread messages. The service sends these whole, with their attachments, so it takes longer. A list without
    --unread doesn't mark unread messages, because the service doesn't say which ones are.
    """


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReadOptions(InboxOptions):
    """The options of `inbox read`."""

    mark_read: Annotated[bool, Flag] = False
    """Mark it as read when it has been shown."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxSaveOptions(InboxOptions):
    """The options of `inbox save`."""

    into: Annotated[Path, Parameter(converter=named)]
    """The folder for the files, made where it isn't there."""
    eml: Annotated[bool, Flag, Parameter(group=_WHAT)] = False
    """The messages themselves, as .eml files that mail programs read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMoveOptions(InboxOptions):
    """The options of `inbox move` and `inbox copy`."""

    to: str
    """The folder that gets them, as INBOX.Archive."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxDeleteOptions(InboxOptions):
    """The options of `inbox delete`."""

    forever: Annotated[bool, Flag] = False
    """Remove them, in place of moving them to INBOX.Trash."""
    yes: Annotated[bool, Flag] = False
    """Don't ask."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxMarkOptions(InboxOptions):
    """The options of `inbox mark`."""

    unread: Annotated[bool, Flag] = False
    """As unread, in place of read."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxForwardOptions(InboxOptions):
    """The options of `inbox forward`."""

    to: _Addresses
    """A recipient's Direct address, or `Name <address>`; several with commas, or as often as there are."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class InboxReplyOptions(InboxOptions, TextOptions):
    """The options of `inbox reply`."""

    to_all: Annotated[bool, Flag, Parameter(name="--all")] = False
    """To its other recipients, too."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ConfigOptions(CommonOptions):
    """The options of `config show`."""

    json: Json = False


_DEEP = Group("First contact with a service")


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DoctorOptions(CommonOptions):
    """The options of `doctor`."""

    mailbox: Mailbox = None
    password_file: PasswordFile = None
    token_file: TokenFile = None
    login: Login = None
    login_password_file: LoginPasswordFile = None
    timeout: Annotated[float, Parameter(validator=Number(gt=0, lte=600))] = 10.0
    """Seconds for each check."""
    deep: Annotated[bool, Flag, Parameter(group=_DEEP)] = False
    """Ask for all that the credentials may read, and say how the answers differ from what is known of the services."""
    fax_number: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A number of yours, for the fax service."""
    document: Annotated[str | None, Parameter(group=_DEEP)] = None
    """The identifier of a stored document, for the signing service."""
    patient: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A patient's Direct address, for the registration service."""
    proofing_id: Annotated[int | None, Parameter(group=_DEEP)] = None
    """The id of that patient's identity-proofing record, for GetPatientAddressByMeta."""
    tuser: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A T-User who acts for the mailbox, for GetMessageStatusWithTuser."""
    tuser_password_file: Annotated[Path | None, Parameter(group=_DEEP, converter=named)] = None
    """A file that holds the T-User's password alone, and that others may not read."""
    report: Annotated[Path | None, Parameter(group=_DEEP, converter=named)] = None
    """A new file for the differences, as paths and types without values."""
    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class DemoOptions:
    """The options of `demo`."""

    output: Annotated[Path, Parameter(converter=named)] = Path("demo-output")
    """The folder for the signed PDFs and the messages."""
    json: Annotated[bool, Flag] = False
    """Report as one JSON document on stdout, and nothing else there."""
    messages: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 300
    """How many messages the mailbox holds that is read."""
    documents: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 12
    """How many PDFs are signed."""
    faxes: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 35
    """How many fax records are walked."""
    keep: Annotated[bool, Flag] = False
    """Leave the sandbox running afterwards, with its page, until Ctrl-C."""


_DRIVEN = Group("Which sandbox", sort_key=9)
_STATE = Group("Where the state is kept", validator=mutually_exclusive)
_TOKEN = Group("A token that holds the signing key")
_TIME = Group("What the clock does", validator=mutually_exclusive)
DEFAULT_SANDBOX = "http://127.0.0.1:8025"


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxOptions:
    """The options of `sandbox`."""

    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8025
    """Where to listen; 0 takes a free port."""
    host: str = "127.0.0.1"
    """Where to listen: a loopback address, or any with --allow-remote."""
    allow_remote: Annotated[bool, Flag] = False
    """Let others than this machine connect. The page and the control API ask for a token then."""
    data: Annotated[Path | None, Parameter(group=_STATE, converter=named)] = None
    """The folder that keeps the state; directsuite-sandbox where nothing is given."""
    memory: Annotated[bool, Flag, Parameter(group=_STATE)] = False
    """Keep the state in memory and forget it at the end."""
    profile: Annotated[tuple[Literal["strict", "java", "attachment-list"], ...], Several] = ()
    """Answer otherwise than the specification says, as some servers do; may be given several times."""
    imitate: Annotated[Path | None, Parameter(converter=named)] = None
    """Answer as the server does whose differences this report of `doctor --deep` has."""
    max_body: Annotated[int | None, Parameter(converter=size)] = None
    """The largest body of a request, such as 500M. By default Save takes documents of 1 GiB, Send and SaveRawMessages
    attachments of 1 GiB, and the others 64 MiB."""
    quiet: Annotated[bool, Flag] = False
    """Print no calls."""
    json: Annotated[bool, Flag] = False
    """Print one line of JSON when it is ready, for programs, and nothing else."""
    pkcs11_module: Annotated[Path | None, Parameter(group=_TOKEN, converter=named)] = None
    """The PKCS #11 library of a token, which then signs with a key that can't leave it."""
    pkcs11_token: Annotated[str, Parameter(group=_TOKEN)] = ""
    """The token's label."""
    pkcs11_key: Annotated[str, Parameter(group=_TOKEN)] = "directsuite sandbox"
    """The label of the key in it, which is made where there is none."""
    pkcs11_pin_file: Annotated[Path | None, Parameter(group=_TOKEN, converter=named)] = None
    """A file that holds the token's PIN; otherwise DIRECTSUITE_PKCS11_PIN is taken."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlOptions:
    """The options of the commands that drive a running sandbox."""

    at: Annotated[str, Parameter(group=_DRIVEN, env_var="DIRECTSUITE_SANDBOX")] = DEFAULT_SANDBOX
    """Where the sandbox listens."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class ControlListOptions(ControlOptions):
    """The options of `sandbox ledger`."""

    json: Json = False


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaxOptions(ControlOptions):
    """The options of `sandbox fax`."""

    status: Literal["waiting", "complete"] = "complete"
    """The fax's status."""
    description: str = ""
    """The new fax's description."""
    handle: str | None = None
    """Change the fax of this handle, and add none."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxClockOptions(ControlOptions):
    """The options of `sandbox clock`."""

    advance: Annotated[float | None, _Seconds, Parameter(group=_TIME)] = None
    """Let so many seconds pass."""
    set: Annotated[datetime | None, Parameter(group=_TIME)] = None
    """Set it: 2026-05-01T09:00, in this machine's time zone where none is given."""
    freeze: Annotated[bool, Flag, Parameter(group=_TIME)] = False
    """Stop it."""
    resume: Annotated[bool, Flag, Parameter(group=_TIME)] = False
    """Let it go on."""


@Parameter(name="*")
@attrs.frozen(kw_only=True, repr=False)
class SandboxFaultOptions(ControlOptions):
    """The options of `sandbox fault`."""

    status: Annotated[int, Parameter(validator=Number(gte=200, lte=599))] = 503
    """The HTTP status of the kind status."""
    body: str | None = None
    """Its body: JSON or other text, or @FILE for that of a file. Messaging and registration refuse with status 200."""
    retry_after: Annotated[int | None, Parameter(validator=Number(gte=0))] = None
    """The seconds of its Retry-After header."""
    times: Annotated[int, Parameter(validator=Number(gte=1))] = 1
    """How often it happens."""
    skip: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Requests of the operation that it lets through before, whether or not other faults hit them."""
    processed: Annotated[bool, Flag] = False
    """With the kinds status and hang: the operation runs first."""
    seconds: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """The delay of the kind latency."""
    always: Annotated[bool, Flag] = False
    """It happens for ever."""
    clear: Annotated[bool, Flag] = False
    """Remove all faults."""
    json: Json = False
