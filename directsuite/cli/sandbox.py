"""`directsuite sandbox`: run the four services on this machine, and control them while they run."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import CycloptsError, Group, Parameter, Token, convert
from cyclopts.validators import mutually_exclusive

from directsuite.cli import sandbox_server
from directsuite.cli.command import Command
from directsuite.cli.errors import ItemNotFoundError, UsageError, validate_text
from directsuite.cli.inbox import add_local_zone
from directsuite.cli.options import (
    Flag,
    Json,
    integer_parameter,
    make_app,
    record,
    register,
    seconds_parameter,
)
from directsuite.cli.output import format_time, show_effect, show_json, show_table
from directsuite.cli.process import EXTRAS, INSTALL_COMMAND, ExitStatus, echo_err, find_missing, show_line
from directsuite.cli.sandbox_server import SandboxOptions
from directsuite.configuration import read_secret_file
from directsuite.core.files import explain_os_error
from directsuite.sandbox import Control, ControlError
from directsuite.sandbox.access import is_loopback
from directsuite.sandbox.client import DEFAULT_URL
from directsuite.sandbox.faults import describe_kind, describe_remaining
from directsuite.sandbox.samples import MAILBOX_LOGIN

_MAX_BODY_BYTES = 2**26
ControlParameter = Annotated[Control, Parameter(parse=False)]

app = make_app("sandbox", "", "--memory --port 0 --profile java")


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


_SANDBOX_GROUP = Group("Sandbox to control", sort_key=9)

_CLOCK_GROUP = Group("Change of the clock", validator=mutually_exclusive)


@record
class ControlOptions:
    """Options of the commands that control a running sandbox."""

    at: Annotated[str, Parameter(group=_SANDBOX_GROUP, env_var="DIRECTSUITE_SANDBOX")] = DEFAULT_URL
    """The URL of the sandbox."""


@record
class ControlListOptions(ControlOptions):
    """Options of `sandbox ledger`."""

    json: Json = False


@record
class SandboxAccountOptions(ControlOptions):
    """Options of `sandbox account`."""

    password_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """A file that contains only the password and that other users can't read; - for stdin. Without it, the password is
    `sandbox`, which is not secret.
    """


@record
class SandboxFaxOptions(ControlOptions):
    """Options of `sandbox fax`."""

    status: Literal["waiting", "complete"] = "complete"
    """The fax's status."""
    description: str = ""
    """The new fax's description."""
    handle: str | None = None
    """Change the status of the fax with this handle, instead of adding a fax."""


@record
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


@record
class SandboxFaultOptions(ControlOptions):
    """Options of `sandbox fault`."""

    status: Annotated[int, integer_parameter(gte=200, lte=599)] = 503
    """The HTTP status, for the kind status."""
    body: str | None = None
    """The body, for the kind status: JSON or other text, or @FILE for a file's content. Messaging and registration send
    errors with status 200."""
    retry_after: Annotated[int | None, integer_parameter(gte=0)] = None
    """The seconds of the Retry-After header, for the kind status."""
    times: Annotated[int, integer_parameter(gte=1)] = 1
    """How often the fault happens."""
    skip: Annotated[int, integer_parameter(gte=0)] = 0
    """The number of requests that this fault ignores first, whether or not other faults hit them."""
    processed: Annotated[bool, Flag] = False
    """Run the operation first, for the kinds status and hang."""
    seconds: Annotated[float | None, seconds_parameter(gt=0)] = None
    """The delay, for the kind latency."""
    always: Annotated[bool, Flag] = False
    """Repeat the fault for every request."""
    clear: Annotated[bool, Flag] = False
    """Remove all faults."""
    json: Json = False


def _run_with_control(work: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """Make a command of `work`, which gets a `Control`. A ControlError becomes ItemNotFoundError if the sandbox did not
    respond, else UsageError.
    """

    @functools.wraps(work)
    def command(*args: Any, **kwargs: Any) -> int:
        bound = inspect.signature(work).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        options: ControlOptions = bound.arguments["options"]

        async def drive() -> int:
            try:
                async with Control(options.at) as control:
                    return await work(*args, control=control, **{**kwargs, "options": options})
            except ControlError as error:
                raise (ItemNotFoundError if error.status is None else UsageError)(str(error)) from None

        return Command().run(drive)

    return command


@app.default
def serve(*, options: SandboxOptions = SandboxOptions()) -> int:
    """Run the four services on this machine, with sample content.

    The sandbox prints each call, and runs until Ctrl-C. The commands below control a running sandbox.
    """
    if not (options.allow_remote or is_loopback(options.host)):
        echo_err(
            "--host must be a loopback address: 127.0.0.1, ::1 or localhost. For other addresses, give --allow-remote."
        )
        return ExitStatus.USAGE_ERROR
    if (options.pkcs11_module is None) == bool(options.pkcs11_token):
        echo_err("--pkcs11-module and --pkcs11-token must be given together.")
        return ExitStatus.USAGE_ERROR
    if find_missing(EXTRAS["sandbox"]):
        echo_err(f"Packages are missing, so signing and parts of the page do not work. Run {INSTALL_COMMAND}.")
    try:
        asyncio.run(sandbox_server.serve(options))
    except sandbox_server.CannotStartError as error:
        echo_err(f"The sandbox cannot start: {error}.")
        return ExitStatus.FAILED
    return ExitStatus.DONE  # also after SIGINT and SIGTERM


@register(app, "env", "", "--at http://127.0.0.1:8025")
@_run_with_control
async def show_environment(*, control: ControlParameter, options: ControlOptions = ControlOptions()) -> int:
    """Print the variables that a client needs, for a shell: eval "$(directsuite sandbox env)"."""
    environment = await control.environment() | {"DIRECTSUITE_SANDBOX": options.at}
    try:
        lines = sandbox_server.format_exports(environment)
    except ValueError as error:
        raise ItemNotFoundError(
            f"The program at {options.at} is not a sandbox of directsuite: its variable {error}."
        ) from None
    for line in lines:
        show_line(line)
    return ExitStatus.DONE


@register(app, "account", "carol@direct.example.test", "dan@direct.example.test")
@_run_with_control
async def add_account(
    address: str,
    password: Annotated[str | None, Parameter(show=False)] = None,
    /,
    *,
    control: ControlParameter,
    options: SandboxAccountOptions = SandboxAccountOptions(),
) -> int:
    """Add a mailbox.

    Parameters
    ----------
    address: str
        The Direct address, in any domain.
    """
    if password is not None:
        raise UsageError(
            "The password can't be an argument, because other users of this machine can read arguments. "
            "Give --password-file FILE, or --password-file - for stdin. Without it, the password is `sandbox`."
        )
    file = options.password_file
    if file is None:
        await control.add_account(address, MAILBOX_LOGIN)
        echo_err(f"The mailbox was added. Its password is {MAILBOX_LOGIN}.")
    else:
        await control.add_account(address, _read_password(file))
        echo_err("The mailbox was added with the password of --password-file.")
    return ExitStatus.DONE


def _read_password(file: Path) -> str:
    if str(file) != "-":
        return read_secret_file(file, "the file of --password-file").reveal()
    text = sys.stdin.readline().rstrip("\r\n")
    if "\N{REPLACEMENT CHARACTER}" in text:  # the replacement of undecodable bytes
        raise UsageError("The first line of stdin (--password-file -) is not text in the encoding of this terminal.")
    if not text:
        raise UsageError("The first line of stdin (--password-file -) is empty. Write the password there.")
    validate_text(text, "The password on stdin")
    return text


@register(app, "individual", "Ada Byron 4321 1980-12-10", "Alan Sample 8642 1970-01-31")
@_run_with_control
async def add_individual(
    first_name: str,
    last_name: str,
    ssn4: str,
    dob: str,
    /,
    *,
    control: ControlParameter,
    options: ControlOptions = ControlOptions(),
) -> int:
    """Add an identity-proofed individual, whom `directsuite patient add` can provision.

    Parameters
    ----------
    first_name: str
        The first name.
    last_name: str
        The last name.
    ssn4: str
        The last four digits of the social security number.
    dob: str
        The date of birth, as 1980-02-29.
    """
    number = await control.add_individual(first_name, last_name, ssn4, dob)
    return _show_key(str(number), "individual", "id")


@register(app, "fax", "15550100100 --status waiting", "15550100100 --handle HANDLE --status complete")
@_run_with_control
async def add_or_update_fax(
    number: str, /, *, control: ControlParameter, options: SandboxFaxOptions = SandboxFaxOptions()
) -> int:
    """Add a fax, or change the status of one.

    Parameters
    ----------
    number: str
        The fax number.
    """
    if options.handle is not None:
        await control.set_fax_status(options.handle, options.status)
        echo_err(f"The status of the fax is now {options.status}.")
        return ExitStatus.DONE
    handle = await control.add_fax(number, status=options.status, description=options.description)
    return _show_key(handle, "fax", "handle")


def _show_key(key: str, kind: str, key_name: str) -> ExitStatus:
    if not show_effect(lambda: show_line(key), f"The {kind} was added with the {key_name} {key}"):
        return ExitStatus.FAILED
    echo_err(f"The {kind} was added. Its {key_name} is on standard output.")
    return ExitStatus.DONE


@register(app, "clock", "", "--advance 10m")
@_run_with_control
async def show_or_set_clock(*, control: ControlParameter, options: SandboxClockOptions = SandboxClockOptions()) -> int:
    """Show or change the sandbox's time, which sessions, tokens and deliveries follow."""
    if options.advance is not None:
        now = await control.clock.advance(options.advance)
    elif options.set is not None:
        now = await control.clock.set(add_local_zone(options.set, "--set"))
    elif options.freeze:
        now = await control.clock.freeze()
    else:
        now = await (control.clock.resume() if options.resume else control.clock.now())
    is_shown = show_effect(lambda: show_line(format_time(now)), f"The time of the sandbox is {format_time(now)}")
    return ExitStatus.DONE if is_shown else ExitStatus.FAILED


@register(app, "fault", "Send reset_after", "'*' status --status 503 --times 3", "--clear")
@_run_with_control
async def manage_faults(
    operation: str | None = None,
    kind: str | None = None,
    /,
    *,
    control: ControlParameter,
    options: SandboxFaultOptions = SandboxFaultOptions(),
) -> int:
    """Make an operation fail, and list the faults.

    Parameters
    ----------
    operation: str
        An operation of the specification, such as Send, or '*' for all. Without it, no fault is added.
    kind: str
        The kind, required with an operation: status, latency, hang, reset_before, reset_after, truncate, malformed,
        expire_token or expire_session.
    """
    if options.clear:
        await control.clear_faults()
    if operation is not None:
        if kind is None:
            raise UsageError("The kind of the fault is missing. Example: `directsuite sandbox fault Send reset_after`.")
        times = None if options.always else options.times
        fault_options = {
            "retry_after": options.retry_after,
            "seconds": options.seconds,
            "processed": options.processed or None,
            "body": None if options.body is None else _parse_body(options.body),
        }
        given_options = {name: value for name, value in fault_options.items() if value is not None}
        await control.inject_fault(
            operation, kind, times=times, skip=options.skip, status=options.status, **given_options
        )
    faults = await control.faults()
    if options.json:
        show_json(faults)
    elif faults:
        rows = [
            (each["id"], each["operation"], describe_kind(each), each["applied"], describe_remaining(each))
            for each in faults
        ]
        show_table(("id", "operation", "fault", "applied", "still"), rows, right=("id", "applied"))
    else:
        echo_err("There are no faults.")
    return ExitStatus.DONE


def _parse_body(text: str) -> object:
    """Return the value of --body, or of the file named after @: JSON if it can be parsed, else text."""
    if text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                content = file.read(_MAX_BODY_BYTES + 1)
            if len(content) > _MAX_BODY_BYTES:
                raise UsageError(f"The file of --body has more than {_MAX_BODY_BYTES:,} bytes.")
            text = content.decode()
        except OSError as error:
            raise UsageError(f"The file of --body can't be read ({explain_os_error(error)}).") from None
        except ValueError:
            raise UsageError("The file of --body is not UTF-8 text.") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError("--body is JSON that is nested too deeply.") from None
    except ValueError:
        return text


@register(app, "ledger", "", "Send --json")
@_run_with_control
async def show_ledger(
    operation: str | None = None, /, *, control: ControlParameter, options: ControlListOptions = ControlListOptions()
) -> int:
    """List the effects of calls: messages sent, documents signed, patients provisioned.

    Parameters
    ----------
    operation: str
        An operation's name in the specification; without it, the effects of all operations are listed.
    """
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
    return ExitStatus.DONE


@register(app, "reset", "", "--at http://127.0.0.1:8025")
@_run_with_control
async def reset_sandbox(*, control: ControlParameter, options: ControlOptions = ControlOptions()) -> int:
    """Restore the initial content."""
    await control.reset()
    echo_err("The sandbox was reset to its initial state.")
    return ExitStatus.DONE
