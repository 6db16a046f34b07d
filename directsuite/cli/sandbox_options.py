"""The options and commands of `directsuite sandbox`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import CycloptsError, Group, Parameter, Token, convert
from cyclopts.validators import mutually_exclusive

from directsuite.cli.options import (
    Flag,
    Json,
    Repeatable,
    convert_path,
    integer_parameter,
    make_app,
    record,
    register,
    seconds_parameter,
)

app = make_app("sandbox", "", "--memory --port 0 --profile java")


def convert_size(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert a number with an optional K, M or G (powers of 1024) to bytes."""
    text = tokens[0].value
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


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

_STATE_GROUP = Group("State", validator=mutually_exclusive)

_TOKEN_GROUP = Group("Signing key in a token")

_CLOCK_GROUP = Group("Change of the clock", validator=mutually_exclusive)

DEFAULT_SANDBOX = "http://127.0.0.1:8025"


@record
class SandboxOptions:
    """Options of `sandbox`."""

    port: Annotated[int, integer_parameter(gte=0, lte=65535)] = 8025
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


@record
class ControlOptions:
    """Options of the commands that control a running sandbox."""

    at: Annotated[str, Parameter(group=_SANDBOX_GROUP, env_var="DIRECTSUITE_SANDBOX")] = DEFAULT_SANDBOX
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


@app.default
def serve(*, options: SandboxOptions = SandboxOptions()) -> int:
    """Run the four services on this machine, with sample content.

    The sandbox prints each call, and runs until Ctrl-C. The commands below control a running sandbox.
    """
    from directsuite.cli import sandbox

    return sandbox.serve(options)


@register(app, "env", "", "--at http://127.0.0.1:8025")
def sandbox_env(*, options: ControlOptions = ControlOptions()) -> int:
    """Print the variables that a client needs, for a shell: eval "$(directsuite sandbox env)"."""
    from directsuite.cli import sandbox

    return sandbox.show_environment(options)


@register(app, "account", "carol@direct.example.test", "dan@direct.example.test")
def sandbox_account(
    address: str,
    password: Annotated[str | None, Parameter(show=False)] = None,
    /,
    *,
    options: SandboxAccountOptions = SandboxAccountOptions(),
) -> int:
    """Add a mailbox.

    Parameters
    ----------
    address: str
        The Direct address, in any domain.
    """
    from directsuite.cli import sandbox

    return sandbox.add_account(options, address, password)


@register(app, "patient", "Ada Byron 4321 1980-12-10", "Alan Sample 8642 1970-01-31")
def sandbox_patient(
    first_name: str, last_name: str, ssn4: str, dob: str, /, *, options: ControlOptions = ControlOptions()
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
    from directsuite.cli import sandbox

    return sandbox.add_patient(options, first_name, last_name, ssn4, dob)


@register(app, "fax", "15550100100 --status waiting", "15550100100 --handle HANDLE --status complete")
def sandbox_fax(number: str, /, *, options: SandboxFaxOptions = SandboxFaxOptions()) -> int:
    """Add a fax, or change the status of one.

    Parameters
    ----------
    number: str
        The fax number.
    """
    from directsuite.cli import sandbox

    return sandbox.add_or_update_fax(options, number)


@register(app, "clock", "", "--advance 10m")
def sandbox_clock(*, options: SandboxClockOptions = SandboxClockOptions()) -> int:
    """Show or change the sandbox's time, which sessions, tokens and deliveries follow."""
    from directsuite.cli import sandbox

    return sandbox.show_or_set_clock(options)


@register(app, "fault", "Send reset_after", "'*' status --status 503 --times 3", "--clear")
def sandbox_fault(
    operation: str | None = None,
    kind: str | None = None,
    /,
    *,
    options: SandboxFaultOptions = SandboxFaultOptions(),
) -> int:
    """Make an operation fail, or list the faults.

    Parameters
    ----------
    operation: str
        An operation's name in the specification, such as Send, or '*' for all. Without it, faults are listed.
    kind: str
        The kind of fault: status, latency, hang, reset_before, reset_after, truncate, malformed, expire_token or
        expire_session.
    """
    from directsuite.cli import sandbox

    return sandbox.manage_faults(options, operation, kind)


@register(app, "ledger", "", "Send --json")
def sandbox_ledger(operation: str | None = None, /, *, options: ControlListOptions = ControlListOptions()) -> int:
    """List the effects of calls: messages sent, documents signed, patients provisioned.

    Parameters
    ----------
    operation: str
        An operation's name in the specification; without it, the effects of all operations are listed.
    """
    from directsuite.cli import sandbox

    return sandbox.show_ledger(options, operation)


@register(app, "reset", "", "--at http://127.0.0.1:8025")
def sandbox_reset(*, options: ControlOptions = ControlOptions()) -> int:
    """Restore the initial content."""
    from directsuite.cli import sandbox

    return sandbox.reset_sandbox(options)
