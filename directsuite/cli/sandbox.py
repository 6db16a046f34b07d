"""`directsuite sandbox`: run the four services on this machine, and control them while they run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from directsuite.cli import sandbox_server
from directsuite.cli.command import Command
from directsuite.cli.errors import ItemNotFoundError, UsageError, validate_text
from directsuite.cli.inbox import add_local_zone
from directsuite.cli.output import format_time, show_effect, show_json, show_table
from directsuite.cli.process import EXTRAS, INSTALL_COMMAND, ExitStatus, echo_err, find_missing, show_line
from directsuite.cli.sandbox_options import (
    ControlListOptions,
    ControlOptions,
    SandboxAccountOptions,
    SandboxClockOptions,
    SandboxFaultOptions,
    SandboxFaxOptions,
    SandboxOptions,
)
from directsuite.configuration import read_secret_file
from directsuite.core.files import explain_os_error
from directsuite.sandbox import Control, ControlError
from directsuite.sandbox.access import is_loopback
from directsuite.sandbox.faults import describe_kind, describe_remaining
from directsuite.sandbox.samples import MAILBOX_LOGIN

_MAX_BODY_BYTES = 2**26
P = ParamSpec("P")
OptionsT = TypeVar("OptionsT", bound=ControlOptions)


def _run_with_control(
    work: Callable[Concatenate[Control, OptionsT, P], Awaitable[int]],
) -> Callable[Concatenate[OptionsT, P], int]:
    """Make a command of `work`. A ControlError becomes ItemNotFoundError if the sandbox did not respond, else
    UsageError.
    """

    def command(options: OptionsT, /, *args: P.args, **kwargs: P.kwargs) -> int:
        async def drive() -> int:
            try:
                async with Control(options.at) as control:
                    return await work(control, options, *args, **kwargs)
            except ControlError as error:
                raise (ItemNotFoundError if error.status is None else UsageError)(str(error)) from None

        return Command().run(drive)

    return command


def serve(options: SandboxOptions) -> int:
    """Serve until Ctrl-C."""
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


@_run_with_control
async def show_environment(control: Control, options: ControlOptions) -> ExitStatus:
    """Print the variables for a shell. Raises ItemNotFoundError if another program responds."""
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


@_run_with_control
async def add_account(
    control: Control, options: SandboxAccountOptions, address: str, password: str | None
) -> ExitStatus:
    """Add a mailbox. Raise UsageError if the password is among the arguments."""
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


@_run_with_control
async def add_individual(
    control: Control, options: ControlOptions, first_name: str, last_name: str, ssn4: str, dob: str
) -> ExitStatus:
    """Add an individual."""
    number = await control.add_individual(first_name, last_name, ssn4, dob)
    return _show_key(str(number), "individual", "id")


@_run_with_control
async def add_or_update_fax(control: Control, options: SandboxFaxOptions, number: str) -> ExitStatus:
    """Add a fax, or change the status of one."""
    if options.handle is not None:
        await control.set_fax_status(options.handle, options.status)
        echo_err(f"The status of the fax is now {options.status}.")
        return ExitStatus.DONE
    handle = await control.add_fax(number, status=options.status, description=options.description)
    return _show_key(handle, "fax", "handle")


def _show_key(key: str, kind: str, key_name: str) -> ExitStatus:
    if not show_effect(lambda: show_line(key), f"The {kind} was added with the {key_name} {key}"):
        return ExitStatus.FAILED
    echo_err(f"The {kind} was added with this {key_name}.")
    return ExitStatus.DONE


@_run_with_control
async def show_or_set_clock(control: Control, options: SandboxClockOptions) -> ExitStatus:
    """Show or change the time."""
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


@_run_with_control
async def manage_faults(
    control: Control, options: SandboxFaultOptions, operation: str | None, kind: str | None
) -> ExitStatus:
    """Add, list or remove faults. Raises UsageError."""
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


@_run_with_control
async def show_ledger(control: Control, options: ControlListOptions, operation: str | None) -> ExitStatus:
    """List the effects of requests."""
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


@_run_with_control
async def reset_sandbox(control: Control, options: ControlOptions) -> ExitStatus:
    """Delete the state of the sandbox."""
    await control.reset()
    echo_err("The sandbox was reset to its initial state.")
    return ExitStatus.DONE
