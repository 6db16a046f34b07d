"""`directsuite sandbox`: the four services on this machine, and what drives them while they run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from directsuite.cli.command import Command
from directsuite.cli.errors import NotThereError, RefusedError
from directsuite.cli.options import (
    ControlListOptions,
    ControlOptions,
    SandboxClockOptions,
    SandboxFaultOptions,
    SandboxFaxOptions,
    SandboxOptions,
)
from directsuite.cli.output import moment, show_json, show_table
from directsuite.cli.process import EXTRAS, REMEDY, ExitStatus, missing, say
from directsuite.core.failures import reason_of
from directsuite.sandbox import Control, ControlError, serving
from directsuite.sandbox.access import is_loopback
from directsuite.sandbox.faults import kind_text, still_text
from directsuite.sandbox.serving import Serving, exports

P = ParamSpec("P")
Chosen = TypeVar("Chosen", bound=ControlOptions)


def _driving(work: Callable[Concatenate[Control, Chosen, P], Awaitable[None]]) -> Callable[Concatenate[Chosen, P], int]:
    """The command that does this to the sandbox that the options name, and gives the exit status."""

    def command(options: Chosen, /, *args: P.args, **kwargs: P.kwargs) -> int:
        async def drive() -> int:
            """Raises NotThereError and RefusedError."""
            try:
                async with Control(options.at) as control:
                    await work(control, options, *args, **kwargs)
            except ControlError as error:
                raise (NotThereError if error.status is None else RefusedError)(str(error)) from None
            return ExitStatus.DONE

        return Command().run(drive)

    return command


def serve(options: SandboxOptions) -> int:
    """Serve until Ctrl-C, and return the exit status."""
    if not (options.allow_remote or is_loopback(options.host)):
        say("--host: the sandbox listens on loopback only: give it 127.0.0.1, ::1 or localhost, or --allow-remote")
        return ExitStatus.REFUSED
    if (options.pkcs11_module is None) == bool(options.pkcs11_token):
        say("--pkcs11-module and --pkcs11-token go together")
        return ExitStatus.REFUSED
    if missing(EXTRAS["sandbox"]):
        say(f"signing will refuse, and the page lacks something, for want of packages: {REMEDY}")
    folder = None if options.memory else options.data or serving.DEFAULT_FOLDER
    chosen = Serving(
        folder=folder,
        host=options.host,
        allow_remote=options.allow_remote,
        port=options.port,
        profile=options.profile or "strict",
        imitate=options.imitate,
        max_body=options.max_body,
        quiet=options.quiet,
        json=options.json,
        pkcs11_module=options.pkcs11_module,
        pkcs11_token=options.pkcs11_token,
        pkcs11_key=options.pkcs11_key,
        pkcs11_pin_file=options.pkcs11_pin_file,
    )
    try:
        asyncio.run(serving.serve(chosen))
    except serving.CannotStartError as error:
        say(f"the sandbox cannot start: {error}")
        return ExitStatus.FAILED
    return ExitStatus.DONE  # SIGINT and SIGTERM are meant to end it


@_driving
async def env(control: Control, options: ControlOptions) -> None:
    """Print the environment for a shell."""
    environment = await control.environment() | {"DIRECTSUITE_SANDBOX": options.at}
    sys.stdout.writelines(f"{line}\n" for line in exports(environment))


@_driving
async def account(control: Control, options: ControlOptions, address: str, password: str) -> None:
    """Add a mailbox."""
    await control.add_mailbox(address, password)
    say(f"added; its password is {password}")


@_driving
async def patient(
    control: Control, options: ControlOptions, first_name: str, last_name: str, ssn4: str, dob: str
) -> None:
    """Add an individual."""
    sys.stdout.write(f"{await control.add_individual(first_name, last_name, ssn4, dob)}\n")
    say("added, under this id")


@_driving
async def fax(control: Control, options: SandboxFaxOptions, number: str) -> None:
    """Add a fax, or change one."""
    if options.handle is not None:
        await control.set_fax_status(options.handle, options.status)
        say(f"the fax is {options.status}")
        return
    handle = await control.add_fax(number, status=options.status, description=options.description)
    sys.stdout.write(f"{handle}\n")
    say("added, under this handle")


@_driving
async def clock(control: Control, options: SandboxClockOptions) -> None:
    """Show or change the time."""
    if options.advance is not None:
        now = await control.advance(options.advance)
    elif options.set is not None:
        now = await control.set_clock(options.set if options.set.utcoffset() is not None else options.set.astimezone())
    elif options.freeze:
        now = await control.freeze()
    else:
        now = await (control.resume() if options.resume else control.now())
    sys.stdout.write(f"{moment(now)}\n")


@_driving
async def fault(control: Control, options: SandboxFaultOptions, operation: str | None, kind: str | None) -> None:
    """Add a fault, list or remove them. Raises RefusedError."""
    if options.clear:
        await control.clear_faults()
    if operation is not None:
        if kind is None:
            raise RefusedError("what goes wrong? Give a kind: `directsuite sandbox fault Send reset_after`")
        times = None if options.always else options.times
        more = {
            "retry_after": options.retry_after,
            "seconds": options.seconds,
            "processed": options.processed or None,
            "body": None if options.body is None else _body_of(options.body),
        }
        given = {name: value for name, value in more.items() if value is not None}
        await control.inject_fault(operation, kind, times=times, skip=options.skip, status=options.status, **given)
    faults = await control.faults()
    if options.json:
        show_json(faults)
    elif faults:
        rows = [(each["id"], each["operation"], kind_text(each), each["applied"], still_text(each)) for each in faults]
        show_table(("id", "operation", "fault", "applied", "still"), rows, right=("id", "applied"))
    else:
        say("nothing goes wrong")


def _body_of(text: str) -> object:
    """What --body says: JSON or other text, which is a file's after @. Raises RefusedError."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except OSError as error:
            raise RefusedError(f"--body can't be read, {reason_of(error)}: give another file") from None
        except ValueError:
            raise RefusedError("--body: the file is no text in UTF-8") from None
    try:
        return json.loads(text)
    except ValueError:
        return text


@_driving
async def ledger(control: Control, options: ControlListOptions, operation: str | None) -> None:
    """List effects."""
    effects = await control.ledger(operation)
    if options.json:
        show_json(effects)
    elif effects:
        rows = [
            (datetime.fromtimestamp(each["at"] / 1000, UTC), each["operation"], each["subject"]) for each in effects
        ]
        show_table(("at", "operation", "item"), rows, whole=("item",))
    else:
        say("nothing has happened")


@_driving
async def reset(control: Control, options: ControlOptions) -> None:
    """Start over."""
    await control.reset()
    say("everything is as at the first start")
