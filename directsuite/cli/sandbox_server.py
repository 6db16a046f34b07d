"""The server of `directsuite sandbox`: the sandbox with sample data, until SIGINT or SIGTERM.

It prints the environment of the demo account for a shell, and then a line for each call. With `json`, it prints only
one line of JSON for programs: {"ready": true, "urls": {…}}, with the token if the sandbox has created one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import sqlite3
import sys
import traceback
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli.options import Flag, Repeatable, convert_path, integer_parameter, record
from directsuite.cli.process import show_line
from directsuite.config_file import read_secret_file
from directsuite.core.files import explain_os_error
from directsuite.sandbox.calls import CallRecord
from directsuite.sandbox.client import TOKEN_VARIABLE
from directsuite.sandbox.database import FolderInUseError
from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.samples import FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, MAILBOXES, TUSER, add_sample_content
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox, has_pdf_libraries

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from directsuite.sandbox.signing.token import TokenKeyStore

DEFAULT_FOLDER = Path("directsuite-sandbox")
_CLIENT_VARIABLES = frozenset(
    f"DIRECTSUITE_{name}"
    for name in (
        *("SIGNING_URL", "FAX_URL", "MESSAGE_URL", "REGISTRATION_URL", "TOKEN", "LOGIN_USERNAME", "LOGIN_PASSWORD"),
        *("MAILBOX", "MAILBOX_PASSWORD", "SANDBOX"),
    )
)
"""The only variables that are printed for a shell."""
PIN_VARIABLE = "DIRECTSUITE_PKCS11_PIN"
_STATE_GROUP = Group("State", sort_key=1, validator=mutually_exclusive)
_TOKEN_GROUP = Group("Signing key in a token", sort_key=1)


def convert_size(kind: Any, tokens: Sequence[Token]) -> int:
    """Convert a number with an optional K, M or G (powers of 1024) to bytes."""
    text = tokens[0].value
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


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


class CannotStartError(Exception):
    """The sandbox cannot start. The text contains the reason and what to do."""


async def serve(options: SandboxOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises CannotStartError, for example if the port is in use."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as running:
        running.enter_context(log_to_stderr())
        given = os.environ.get(TOKEN_VARIABLE)
        is_made = options.allow_remote and not given
        token = (given or secrets.token_urlsafe(24)) if options.allow_remote else None
        sandbox = await _open_sandbox(running, options, token)
        sandbox.environment |= {"DIRECTSUITE_MAILBOX": MAILBOXES[0], "DIRECTSUITE_MAILBOX_PASSWORD": MAILBOX_LOGIN}
        if options.json:
            _print(json.dumps({"ready": True, "urls": sandbox.urls} | ({"token": token} if is_made else {})))
        else:
            _print(format_summary(sandbox, options))
            if is_made:
                _print(f"export {TOKEN_VARIABLE}={token}  # for the page and the control API")
            if not options.quiet:
                sandbox.calls.listeners.append(_print_call)
        await stop.wait()


class _Formatter(logging.Formatter):
    """Formats the first line of a message, and the traceback and type of an exception, without its text.

    The text of an exception may quote a request, and the other lines of asyncio's messages quote exceptions.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        return super().formatMessage(record).partition("\n")[0]

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's name
        kind, _, trace = ei
        return "".join((*traceback.format_tb(trace), kind.__name__))


@contextlib.contextmanager
def log_to_stderr() -> Generator[None]:
    """Log errors in the sandbox and in asyncio to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = logging.getLogger("directsuite.sandbox"), logging.getLogger("asyncio")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _print(text: str) -> None:
    """Print lines. Ignore errors, because the server must continue if stdout is closed."""
    with contextlib.suppress(OSError):
        for line in text.splitlines():
            show_line(line)
        sys.stdout.flush()


def _print_call(call: CallRecord) -> None:
    at = call.at.astimezone().isoformat(" ", "seconds")[:19]
    _print(f"{at}  {call.operation:<40} {call.outcome}  {call.milliseconds:.0f} ms")


async def _open_sandbox(running: AsyncExitStack, options: SandboxOptions, token: str | None) -> Sandbox:
    keys = await asyncio.to_thread(_open_token_keys, options)
    if keys is not None:
        running.callback(keys.close)
    try:
        sandbox = Sandbox(
            choose_folder(options),
            host=options.host,
            port=options.port,
            seed=add_sample_content,
            profile=options.profile or "strict",
            token=token,
            keys=keys,
            imitate=options.imitate,
            max_body=options.max_body,
        )
        return await running.enter_async_context(sandbox)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise CannotStartError(_explain_start_failure(error, options)) from None


def choose_folder(options: SandboxOptions) -> Path | None:
    """Return the folder of the state, or None if it is in memory only."""
    return None if options.memory else options.data or DEFAULT_FOLDER


def _open_token_keys(options: SandboxOptions) -> TokenKeyStore | None:
    """Return the opened PKCS #11 token, or None if none is configured. Raises CannotStartError if opening fails."""
    if options.pkcs11_module is None:
        return None
    if find_spec("pkcs11") is None or not has_pdf_libraries():
        raise CannotStartError(
            "a key in a token needs more libraries: in a copy of the repository, run pip install '.[hsm]'"
        )
    from directsuite.sandbox.signing.token import TokenKeyStore

    pin = os.environ.get(PIN_VARIABLE)
    try:
        if options.pkcs11_pin_file is not None:
            pin = read_secret_file(
                options.pkcs11_pin_file, f"the file of --pkcs11-pin-file ({options.pkcs11_pin_file})"
            ).reveal()
        keys = TokenKeyStore(options.pkcs11_module, options.pkcs11_token, key=options.pkcs11_key, pin=pin)
        keys.open()
    except ds.ConfigurationError as error:
        raise CannotStartError(str(error)) from None
    except KeyUnavailableError as error:
        raise CannotStartError(
            f"{error}: check --pkcs11-module, --pkcs11-token and the PIN (--pkcs11-pin-file or {PIN_VARIABLE})"
        ) from None
    return keys


def _explain_start_failure(error: OSError | ValueError | sqlite3.Error, options: SandboxOptions) -> str:
    """Return the reason and advice. Only file errors have a filename."""
    host, port = options.host, options.port
    folder = f"the folder of --data ({options.data})" if options.data else f"{DEFAULT_FOLDER} (the default of --data)"
    if getattr(error, "errno", None) == errno.ENOSPC or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return f"the disk of {folder} is full: free some space, or choose another folder with --data"
    if isinstance(error, sqlite3.Error):
        where = "in memory" if options.memory else f"in {folder}"
        return f"the state {where} cannot be used ({error}): move it away, or choose another folder with --data"
    if isinstance(error, ValueError):
        return str(error).replace("the sandbox's token", TOKEN_VARIABLE)
    if isinstance(error, FolderInUseError):
        return f"another sandbox uses the state in {folder}: end it, or use --memory or another folder with --data"
    if isinstance(error, socket.gaierror):
        return f"the host of --host ({host}) is not known: give an address or a name of this machine"
    reason = explain_os_error(error)
    if error.filename is not None and options.imitate is not None and Path(error.filename) == options.imitate:
        return f"the report of --imitate ({options.imitate}) cannot be read ({reason}): choose another file"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"the state cannot be stored in {folder}: it is a file or inside of one: choose a folder"
    if error.filename is not None:
        return f"the state cannot be stored in {folder} ({reason}): choose another folder with --data"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: end the program that uses it, or use --port 0 for a free port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not use port {port}: use another --port, or --port 0 for a free port"
    return f"it cannot listen on {host}, port {port} ({reason}): use another --host or --port"


def format_summary(sandbox: Sandbox, options: SandboxOptions) -> str:
    """Return the environment as lines for a shell, with logins and URLs as comments."""
    folder = choose_folder(options)
    location = "in memory and lost at the end" if folder is None else f"in {folder.absolute()}"
    return "\n".join(
        [
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
    )


def format_exports(environment: Mapping[str, str]) -> list[str]:
    """Return those variables that clients read, as lines for a shell, with quoted values."""
    known = {name: value for name, value in environment.items() if name in _CLIENT_VARIABLES}
    for name, value in known.items():
        if not value.isprintable():
            raise ValueError(f"{name} has characters that cannot be printed")
    return [f"export {name}={shlex.quote(value)}" for name, value in known.items()]
