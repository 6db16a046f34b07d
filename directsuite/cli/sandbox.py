"""`directsuite sandbox`: run the four services on this machine, and control them while they run.

The server prints the environment of the demo account for a shell, and then a line for each call, until SIGINT or
SIGTERM. With `json`, it prints only one line of JSON for programs: {"ready": true, "urls": {…}}, with the token if it
has created one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import shlex
import signal
import socket
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.command import handle_signals, log_to_stderr
from directsuite.cli.credentials import decode_input, read_input, validate_address
from directsuite.cli.errors import ItemNotFoundError, NotDoneError, UsageError, with_value
from directsuite.cli.output import format_count, format_time, show_effect, show_json, show_table
from directsuite.cli.process import (
    MissingExtraError,
    echo_err,
    ignore_stdout_errors,
    require_extra,
    show_line,
)
from directsuite.config_file import read_secret_file
from directsuite.core.files import explain_os_error, run_in_thread
from directsuite.sandbox import Control, ControlError
from directsuite.sandbox.access import is_loopback
from directsuite.sandbox.calls import CallRecord
from directsuite.sandbox.client import DEFAULT_URL, TOKEN_VARIABLE
from directsuite.sandbox.database import FolderInUseError
from directsuite.sandbox.faults import FAULT_KINDS, describe_kind, describe_remaining
from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.samples import FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, MAILBOXES, TUSER, add_sample_content
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox, has_pdf_libraries

if TYPE_CHECKING:
    from directsuite.sandbox.signing.token import TokenKeyStore

PIN_VARIABLE = "DIRECTSUITE_PKCS11_PIN"
_MAX_BODY_BYTES = 2**26
_KINDS_BY_OPTION = {
    **dict.fromkeys(("status", "body", "retry_after"), ("status",)),
    "seconds": ("latency",),
    "processed": ("status", "hang"),
}
"""The kinds of faults with which an option of `fault` has an effect."""

_CLIENT_VARIABLES = frozenset(
    f"DIRECTSUITE_{name}"
    for name in (
        *("SIGNING_URL", "FAX_URL", "MESSAGE_URL", "REGISTRATION_URL", "TOKEN", "LOGIN_USERNAME", "LOGIN_PASSWORD"),
        *("MAILBOX", "MAILBOX_PASSWORD", "SANDBOX"),
    )
)
"""The only variables that are printed for a shell."""

app = opt.make_app("sandbox", "", "--memory --port 0 --profile java")

_STATE_GROUP = Group("State", sort_key=1, validator=mutually_exclusive)
_TOKEN_GROUP = Group("Signing key in a token", sort_key=1)
_SANDBOX_GROUP = Group("Sandbox to control", sort_key=9)
_CLOCK_GROUP = Group("Change of the clock", sort_key=1, validator=mutually_exclusive)


def _convert_size(kind: Any, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


@opt.record
class SandboxOptions:
    """Options of `sandbox`."""

    port: Annotated[int, opt.integer_parameter(gte=0, lte=65535)] = 8025
    """The port to listen on; with 0, any free port."""
    host: str = "127.0.0.1"
    """The address to listen on: a loopback address, or any with --allow-remote."""
    allow_remote: Annotated[bool, opt.Flag] = False
    """Accept connections from other machines. The page and the control API then require a token."""
    data: Annotated[Path, Parameter(group=_STATE_GROUP, converter=opt.convert_path)] = Path("directsuite-sandbox")
    """The folder for the state."""
    memory: Annotated[bool, opt.Flag, Parameter(group=_STATE_GROUP)] = False
    """Keep the state in memory only."""
    profile: Annotated[tuple[Literal["strict", "java", "attachment-list"], ...], opt.Repeatable] = ()
    """Deviate from the specification as some servers do; strict, the default, does not. Can be repeated."""
    imitate: Annotated[Path | None, Parameter(converter=opt.convert_path)] = None
    """Respond like the server whose differences are in this report of `doctor --deep`."""
    max_body: Annotated[int | None, Parameter(converter=_convert_size)] = None
    """The maximum size of a request body, such as 500M. By default Save accepts documents of 1 GiB, Send and
    SaveRawMessages attachments of 1 GiB, and other operations 64 MiB.
    """
    quiet: Annotated[bool, opt.Flag] = False
    """Don't print the calls."""
    json: Annotated[bool, opt.Flag] = False
    """Print only one line of JSON, when the sandbox is ready."""
    pkcs11_module: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=opt.convert_path)] = None
    """The PKCS #11 library of the token that signs."""
    pkcs11_token: Annotated[str, Parameter(group=_TOKEN_GROUP)] = ""
    """The token's label."""
    pkcs11_key: Annotated[str, Parameter(group=_TOKEN_GROUP)] = "directsuite sandbox"
    """The label of the key in the token; the key is created if necessary."""
    pkcs11_pin_file: Annotated[Path | None, Parameter(group=_TOKEN_GROUP, converter=opt.convert_path)] = None
    """A file that contains the token's PIN. Without it: DIRECTSUITE_PKCS11_PIN."""


def _convert_url(kind: Any, tokens: Sequence[Token]) -> str:
    if re.match("https?://[^/]", tokens[0].value) is None:
        raise ValueError(f"give a URL such as {DEFAULT_URL}")
    return tokens[0].value


@opt.record
class ControlOptions:
    """Options of the commands that control a running sandbox."""

    at: Annotated[str, Parameter(group=_SANDBOX_GROUP, env_var="DIRECTSUITE_SANDBOX", converter=_convert_url)] = (
        DEFAULT_URL
    )
    """The URL of the sandbox."""


@opt.record
class _LedgerOptions(ControlOptions):
    json: opt.Json = False


@opt.record
class _FaxOptions(ControlOptions):
    status: Literal["waiting", "complete"] = "complete"
    """The fax's status."""
    description: str = ""
    """The new fax's description."""
    handle: str | None = None
    """Change the status of the fax with this handle, instead of adding a fax."""


@opt.record
class _ClockOptions(ControlOptions):
    advance: Annotated[timedelta | None, Parameter(group=_CLOCK_GROUP, converter=opt.convert_duration)] = None
    """Advance the clock by a duration such as 31m or 2h30m, or by a number of seconds."""
    set: Annotated[datetime | None, Parameter(group=_CLOCK_GROUP, converter=opt.convert_time)] = None
    """Set the clock: 2026-05-01T09:00, in this machine's time zone unless it names another."""
    freeze: Annotated[bool, opt.Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Stop the clock."""
    resume: Annotated[bool, opt.Flag, Parameter(group=_CLOCK_GROUP)] = False
    """Let the clock run again."""


@opt.record
class _FaultOptions(ControlOptions):
    status: Annotated[int | None, opt.integer_parameter(gte=200, lte=599)] = None
    """The HTTP status of a fault of the kind "status". The default is 503."""
    body: str | None = None
    """The body of a fault of the kind "status": JSON or other text, or @FILE for a file's content. Messaging and
    registration send errors with status 200."""
    retry_after: Annotated[int | None, opt.integer_parameter(gte=0)] = None
    """The seconds of the Retry-After header of a fault of the kind "status"."""
    times: Annotated[int, opt.integer_parameter(gte=1)] = 1
    """How often the fault happens."""
    skip: Annotated[int, opt.integer_parameter(gte=0)] = 0
    """The number of requests that this fault ignores first, whether or not other faults hit them."""
    processed: Annotated[bool, opt.Flag] = False
    """Run the operation first, for the kinds status and hang."""
    seconds: Annotated[float | None, opt.seconds_parameter(gt=0, lte=60)] = None
    """The delay, for the kind latency."""
    always: Annotated[bool, opt.Flag] = False
    """Repeat the fault for every request."""
    clear: Annotated[bool, opt.Flag] = False
    """Remove all faults."""
    json: opt.Json = False


class CannotStartError(Exception):
    """The sandbox cannot start. The text contains the reason and what to do."""


@asynccontextmanager
async def _open_control(options: ControlOptions) -> AsyncGenerator[Control]:
    """Connect to the sandbox. A ControlError becomes ItemNotFoundError if it or an item is missing, else UsageError."""
    try:
        async with Control(options.at) as control:
            yield control
    except ControlError as error:
        raise (ItemNotFoundError if error.status in (None, HTTPStatus.NOT_FOUND) else UsageError)(str(error)) from None


@app.default
def run_sandbox(*, options: SandboxOptions = SandboxOptions()) -> None:
    """Run the four services on this machine, with sample content.

    The sandbox prints each call, and runs until Ctrl-C. The commands below control a running sandbox.
    """
    if not (options.allow_remote or is_loopback(options.host)):
        raise UsageError(
            "--host must be a loopback address: 127.0.0.1, ::1 or localhost. For other addresses, give --allow-remote."
        )
    if (options.pkcs11_module is None) == bool(options.pkcs11_token):
        raise UsageError("--pkcs11-module and --pkcs11-token must be given together.")
    try:
        require_extra("sandbox")
    except MissingExtraError as missing:
        echo_err(f"Signing and parts of the page do not work. {missing}")
    try:
        asyncio.run(serve(options))
    except CannotStartError as error:
        raise NotDoneError(f"The sandbox cannot start: {error}.") from None


async def serve(options: SandboxOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises CannotStartError, for example if the port is in use."""
    stop = asyncio.Event()
    with (
        handle_signals(lambda _: stop.set(), (signal.SIGINT, signal.SIGTERM)),
        log_to_stderr(),
        ignore_stdout_errors(lambda _: None),  # the server must continue if stdout is closed
    ):
        given = os.environ.get(TOKEN_VARIABLE)
        is_made = options.allow_remote and not given
        token = (given or secrets.token_urlsafe(24)) if options.allow_remote else None
        async with _open_sandbox(options, token) as sandbox:
            sandbox.environment |= {"DIRECTSUITE_MAILBOX": MAILBOXES[0], "DIRECTSUITE_MAILBOX_PASSWORD": MAILBOX_LOGIN}
            if options.json:
                show_json({"ready": True, "urls": sandbox.urls} | ({"token": token} if is_made else {}), indent=None)
            else:
                for line in format_summary(sandbox, options):
                    show_line(line)
                if is_made:
                    show_line(f"export {TOKEN_VARIABLE}={token}  # for the page and the control API")
                if not options.quiet:
                    sandbox.calls.listeners.append(_show_call)
            await stop.wait()


def _show_call(call: CallRecord) -> None:
    at = call.at.astimezone().isoformat(" ", "seconds")[:19]
    show_line(f"{at}  {call.operation:<40} {call.outcome}  {call.milliseconds:.0f} ms")


@asynccontextmanager
async def _open_sandbox(options: SandboxOptions, token: str | None) -> AsyncGenerator[Sandbox]:
    async with AsyncExitStack() as running:
        try:
            keys = await run_in_thread(_open_token_keys, options)
            if keys is not None:
                running.callback(keys.close)
            sandbox = Sandbox(
                None if options.memory else options.data,
                host=options.host,
                port=options.port,
                seed=add_sample_content,
                profile=options.profile or "strict",
                token=token,
                keys=keys,
                imitate=options.imitate,
                max_body=options.max_body,
            )
            await running.enter_async_context(sandbox)
        except (ds.ConfigurationError, KeyUnavailableError, OSError, ValueError, sqlite3.Error) as error:
            raise CannotStartError(_explain_start_failure(error, options)) from None
        yield sandbox


def _open_token_keys(options: SandboxOptions) -> TokenKeyStore | None:
    """Return the opened PKCS #11 token, or None if none is configured."""
    if options.pkcs11_module is None:
        return None
    if find_spec("pkcs11") is None or not has_pdf_libraries():
        raise CannotStartError(
            "a key in a token needs more libraries: in a copy of the repository, run pip install '.[hsm]'"
        )
    from directsuite.sandbox.signing.token import TokenKeyStore

    pin, file = os.environ.get(PIN_VARIABLE), options.pkcs11_pin_file
    if file is not None:
        pin = read_secret_file(file, f"the file of --pkcs11-pin-file ({file})").reveal()
    keys = TokenKeyStore(options.pkcs11_module, options.pkcs11_token, key=options.pkcs11_key, pin=pin)
    keys.open()
    return keys


def _explain_start_failure(error: Exception, options: SandboxOptions) -> str:
    """Return the reason and advice. Only file errors have a filename."""
    if isinstance(error, ds.ConfigurationError | ValueError):
        return str(error).replace("the sandbox's token", TOKEN_VARIABLE)
    if isinstance(error, KeyUnavailableError):
        return f"{error}: check --pkcs11-module, --pkcs11-token and the PIN (--pkcs11-pin-file or {PIN_VARIABLE})"
    folder = f"the folder of --data ({options.data})"
    if isinstance(error, FolderInUseError):
        return f"another sandbox uses the state in {folder}: end it, or use --memory or another folder with --data"
    if isinstance(error, socket.gaierror):
        return f"the host of --host ({options.host}) is not known: give an address or a name of this machine"
    reason, file, number = str(error), None, None
    if isinstance(error, OSError):
        reason, file, number = explain_os_error(error), error.filename, error.errno
    if file is not None and options.imitate is not None and Path(file) == options.imitate:
        return f"the report of --imitate ({options.imitate}) cannot be read ({reason}): choose another file"
    if isinstance(error, sqlite3.Error) or file is not None or number == errno.ENOSPC:
        where = "in memory" if options.memory else f"in {folder}"
        return f"the state {where} cannot be used ({reason}): choose another folder with --data"
    if number == errno.EADDRINUSE:
        return f"port {options.port} is in use: end the program that uses it, or use --port 0 for a free port"
    return f"it cannot listen on {options.host}, port {options.port} ({reason}): use another --host or --port"


def format_summary(sandbox: Sandbox, options: SandboxOptions) -> list[str]:
    """Return the environment as lines for a shell, with logins and URLs as comments."""
    location = "in memory and lost at the end" if options.memory else f"in {options.data.absolute()}"
    return [
        f"# the four services; their state is {location}",
        *format_exports(sandbox.environment),
        f"# mailboxes {' and '.join(MAILBOXES)}, password {MAILBOX_LOGIN}; the first one has messages",
        f"# T-User {TUSER[0]}, password {TUSER[1]}; fax number {FAX_NUMBER}",
        f"# patients to provision: {'; '.join(' '.join(each[:4]) for each in INDIVIDUALS)}",
        f"# OAuth 2.0 client {DEMO_CLIENT[0]}, secret {DEMO_CLIENT[1]}, at {sandbox.token_url}",
        f"# page, and URL of the sandbox for Control and --at: {sandbox.root_url}",
        f"# OpenAPI documents {sandbox.root_url}/openapi.json and {sandbox.root_url}/_sandbox/openapi.json",
        f'# Ctrl-C stops it; in another terminal: eval "$(directsuite sandbox env --at {sandbox.root_url})"',
    ]


def format_exports(environment: Mapping[str, str]) -> list[str]:
    """Return those variables that clients read, as lines for a shell, with quoted values."""
    return [f"export {name}={shlex.quote(each)}" for name, each in environment.items() if name in _CLIENT_VARIABLES]


@opt.register(app, "env", "", "--at http://127.0.0.1:8025")
async def show_environment(*, options: ControlOptions = ControlOptions()) -> None:
    """Print the variables that a client needs, for a shell: eval "$(directsuite sandbox env)"."""
    async with _open_control(options) as control:
        environment = await control.environment() | {"DIRECTSUITE_SANDBOX": options.at}
    for line in format_exports(environment):
        show_line(line)


@opt.register(app, "account", "carol@direct.example.test", "dan@direct.example.test")
async def add_account(
    address: Annotated[str, Parameter(help="The Direct address, in any domain.")],
    /,
    *,
    options: ControlOptions = ControlOptions(),
) -> None:
    """Add a mailbox with the password `sandbox`."""
    validate_address(address, "ADDRESS")
    async with _open_control(options) as control:
        await control.add_account(address, MAILBOX_LOGIN)
    echo_err(f"The mailbox was added. Its password is {MAILBOX_LOGIN}.")


@opt.register(app, "individual", "Ada Byron 4321 1980-12-10", "Alan Sample 8642 1970-01-31")
async def add_individual(
    first_name: str,
    last_name: str,
    ssn4: Annotated[str, Parameter(help="The last four digits of the social security number.")],
    dob: Annotated[str, Parameter(help="The date of birth, as 1980-02-29.")],
    /,
    *,
    options: ControlOptions = ControlOptions(),
) -> None:
    """Add an identity-proofed individual, whom `directsuite patient add` can provision."""
    async with _open_control(options) as control:
        number = await control.add_individual(first_name, last_name, ssn4, dob)
    _show_key(str(number), "individual", "id")


@opt.register(app, "fax", "15550100100 --status waiting", "15550100100 --handle HANDLE --status complete")
async def add_or_update_fax(
    number: Annotated[str, Parameter(help="The fax number.")], /, *, options: _FaxOptions = _FaxOptions()
) -> None:
    """Add a fax, or change the status of one."""
    async with _open_control(options) as control:
        if options.handle is not None:
            await control.set_fax_status(options.handle, options.status)
            echo_err(f"The status of the fax is now {options.status}.")
            return
        handle = await control.add_fax(number, status=options.status, description=options.description)
    _show_key(handle, "fax", "handle")


def _show_key(key: str, kind: str, key_name: str) -> None:
    show_effect(lambda: show_line(key), f"The {kind} was added with the {key_name} {key}")
    echo_err(f"The {kind} was added. Its {key_name} is on standard output.")


@opt.register(app, "clock", "", "--advance 10m")
async def show_or_set_clock(*, options: _ClockOptions = _ClockOptions()) -> None:
    """Show or change the sandbox's time, which sessions, tokens and deliveries follow."""
    async with _open_control(options) as control:
        clock = control.clock
        if options.advance is not None:
            now = await clock.advance(options.advance)
        elif options.set is not None:
            now = await clock.set(options.set)
        else:
            change = clock.freeze if options.freeze else clock.resume if options.resume else clock.now
            now = await change()
    show_effect(lambda: show_line(format_time(now)), f"The time of the sandbox is {format_time(now)}")


@opt.register(app, "fault", "Send reset_after", "'*' status --status 503 --times 3", "--clear")
async def manage_faults(
    operation: str | None = None, kind: str | None = None, /, *, options: _FaultOptions = _FaultOptions()
) -> None:
    """Make an operation fail, and list the faults.

    Parameters
    ----------
    operation: str
        An operation of the specification, such as Send, or '*' for all. Without it, no fault is added.
    kind: str
        The kind, required with an operation: status, latency, hang, reset_before, reset_after, truncate, malformed,
        expire_token or expire_session.
    """
    if operation is not None and kind is None:
        raise UsageError("The kind of the fault is missing. Example: `directsuite sandbox fault Send reset_after`.")
    given = {name: getattr(options, name) for name in _KINDS_BY_OPTION}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if options.body is not None:
        given["body"] = _parse_body(options.body)
    for name in given:
        if kind in FAULT_KINDS and kind not in _KINDS_BY_OPTION[name]:
            option, kinds = f"--{name.replace('_', '-')}", " and ".join(_KINDS_BY_OPTION[name])
            raise UsageError(f"{option} has no effect with the kind {kind}, only with {kinds}. Omit it.")
    times = None if options.always else options.times
    async with _open_control(options) as control:
        if options.clear:
            count = len(await control.faults())
            await control.clear_faults()
            echo_err(f"{format_count(count, 'fault')} removed.")
        if operation is not None and kind is not None:
            await control.inject_fault(operation, kind, times=times, skip=options.skip, **given)
        faults = await control.faults()
    if options.json:
        show_json(faults)
    elif faults:
        rows = [
            (each["id"], each["operation"], describe_kind(each), each["applied"], describe_remaining(each))
            for each in faults
        ]
        show_table(("id", "operation", "fault", "applied", "still"), rows, right=("id", "applied"))
    elif not options.clear:
        echo_err("There are no faults.")


app["fault"].usage = "directsuite sandbox fault [OPTIONS] [OPERATION KIND]"


def _parse_body(text: str) -> object:
    """Return the value of --body, or of the file named after @: JSON if it can be parsed, else text."""
    if text.startswith("@"):
        name = with_value("The file of --body", text[1:])
        text = decode_input(read_input(Path(text[1:]), name, limit=_MAX_BODY_BYTES), name)
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError("--body is JSON that is nested too deeply.") from None
    except ValueError:
        return text


@opt.register(app, "ledger", "", "Send --json")
async def show_ledger(operation: str | None = None, /, *, options: _LedgerOptions = _LedgerOptions()) -> None:
    """List the effects of calls: messages sent, documents signed, patients provisioned.

    Parameters
    ----------
    operation: str
        An operation's name in the specification; without it, the effects of all operations are listed.
    """
    async with _open_control(options) as control:
        effects = await control.ledger(operation)
    if options.json:
        show_json(effects)
    elif effects:
        rows = [
            (datetime.fromtimestamp(each["at"] / 1000, UTC), each["operation"], each["subject"]) for each in effects
        ]
        show_table(("at", "operation", "item"), rows, no_wrap=("item",))
    else:
        echo_err("There are no effects.")


app["ledger"].usage = "directsuite sandbox ledger [OPTIONS] [OPERATION]"


@opt.register(app, "reset", "", "--at http://127.0.0.1:8025")
async def reset_sandbox(*, options: ControlOptions = ControlOptions()) -> None:
    """Restore the initial content."""
    async with _open_control(options) as control:
        await control.reset()
    echo_err("The sandbox was reset to its initial state.")
