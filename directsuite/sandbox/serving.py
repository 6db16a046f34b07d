"""Run the sandbox with sample data as a server until SIGINT or SIGTERM, for both command lines.

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
import sqlite3
import stat
import sys
import time
import traceback
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from directsuite.sandbox.calls import CallRecord
from directsuite.sandbox.client import TOKEN_VARIABLE
from directsuite.sandbox.database import FolderInUseError
from directsuite.sandbox.quirks import read_report
from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.samples import FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, MAILBOXES, TUSER, add_sample_content
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox, has_pdf_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from directsuite.sandbox.quirks import Profiles
    from directsuite.sandbox.signing.token import TokenKeyStore

MAX_PIN_BYTES = 1_000
MAX_DECODED_BYTES = 64 * 2**20
"""The maximum size of a decoded stream of a PDF."""
MAX_LOG_RECORDS_PER_MINUTE = 60
"""A limit, so that a client with invalid requests does not fill the disk."""
DEFAULT_PORT = 8025
DEFAULT_HOST = "127.0.0.1"
DEFAULT_FOLDER = Path("directsuite-sandbox")
DEFAULT_KEY_LABEL = "directsuite sandbox"
CLIENT_VARIABLES = frozenset(
    f"DIRECTSUITE_{name}"
    for name in (
        *("SIGNING_URL", "FAX_URL", "MESSAGE_URL", "REGISTRATION_URL", "TOKEN", "LOGIN_USERNAME", "LOGIN_PASSWORD"),
        *("MAILBOX", "MAILBOX_PASSWORD", "SANDBOX"),
    )
)
"""The only variables that are printed for a shell."""
PIN_VARIABLE = "DIRECTSUITE_PKCS11_PIN"


class CannotStartError(Exception):
    """The sandbox cannot start. The text contains the reason and what to do."""


@attrs.frozen(kw_only=True)
class ServingOptions:
    """The options of the sandbox as a server."""

    folder: Path | None = DEFAULT_FOLDER
    """The folder of the state. None: the state is in memory."""
    host: str = DEFAULT_HOST
    allow_remote: bool = False
    """Accept connections from other machines, with the token in DIRECTSUITE_SANDBOX_TOKEN or a new one."""
    port: int = DEFAULT_PORT
    profile: Profiles = "strict"
    imitate: Path | None = None
    """A report of `directsuite doctor --deep`, whose differences the responses imitate."""
    max_body: int | None = None
    """See `Sandbox`."""
    quiet: bool = False
    json: bool = False
    pkcs11_module: Path | None = None
    """The library of the PKCS #11 token that signs. None: the key in the folder signs."""
    pkcs11_token: str = ""
    pkcs11_key: str = DEFAULT_KEY_LABEL
    pkcs11_pin_file: Path | None = None
    """The file with the PIN. None: the PIN is in DIRECTSUITE_PKCS11_PIN."""


def parse_size(text: str) -> int:
    """Return the bytes of a number with an optional K, M or G (powers of 1024). Raises ValueError."""
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


def run(options: ServingOptions) -> int:
    """Serve until a signal is received. Return the exit status: 0, or 1 if the sandbox cannot start."""
    try:
        asyncio.run(serve(options))
    except CannotStartError as error:
        sys.stderr.write(f"The sandbox cannot start: {error}.\n")
        return 1
    return 0


@contextlib.contextmanager
def limit_pdf_streams() -> Generator[None]:
    """Limit the memory for the decoding of a stream in this process, because a PDF of 2 kB can contain a gigabyte.

    qpdf decodes only object streams, which have one filter.
    """
    if not has_pdf_libraries():
        yield
        return
    from pikepdf.settings import set_qpdf_limits

    before: dict[str, Any] = set_qpdf_limits(
        max_stream_filters=1, flate_max_memory=MAX_DECODED_BYTES, run_length_max_memory=MAX_DECODED_BYTES
    )
    try:
        yield
    finally:
        set_qpdf_limits(**before)


async def serve(options: ServingOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises CannotStartError, for example if the port is in use."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as running:
        running.enter_context(log_to_stderr())
        running.enter_context(limit_pdf_streams())
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


class _LogLimit(logging.Filter):
    """Passes at most MAX_LOG_RECORDS_PER_MINUTE. The next record that passes has the number of dropped ones.

    Only the first line of a message passes, because the others of asyncio's messages quote exceptions.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._minute, self._passed_count, self._dropped_count = now(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if self._now() - self._minute >= 60:
            self._minute, self._passed_count = self._now(), 0
        self._passed_count += 1
        if self._passed_count > MAX_LOG_RECORDS_PER_MINUTE:
            self._dropped_count += 1
            return False
        text = record.getMessage().partition("\n")[0]
        if self._dropped_count:
            text += f" ({self._dropped_count} messages before it were omitted)"
            self._dropped_count = 0
        record.msg, record.args = text, ()
        return True


class _Formatter(logging.Formatter):
    """Formats an exception as its traceback and type, without its text, which may quote a request."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's name
        kind, _, trace = ei
        return "".join((*traceback.format_tb(trace), kind.__name__))


@contextlib.contextmanager
def log_to_stderr(now: Callable[[], float] = time.monotonic) -> Generator[None]:
    """Log errors in the sandbox and in asyncio to stderr, with a limit per minute.

    asyncio logs a traceback for each connection that it cannot accept while too many files are open.
    now: returns the time in seconds.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_LogLimit(now))
    loggers = logging.getLogger("directsuite.sandbox"), logging.getLogger("asyncio")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _print(text: str) -> None:
    """Print a line. Errors are ignored, because the server must continue if its output is closed."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _print_call(call: CallRecord) -> None:
    at = call.at.astimezone().isoformat(" ", "seconds")[:19]
    _print(f"{at}  {call.operation:<40} {call.outcome}  {call.milliseconds:.0f} ms")


async def _open_sandbox(running: AsyncExitStack, options: ServingOptions, token: str | None) -> Sandbox:
    folder, host, port = options.folder, options.host, options.port
    keys = await asyncio.to_thread(_open_token_keys, options)
    if keys is not None:
        running.callback(keys.close)
    await asyncio.to_thread(_validate_report, options)
    try:
        sandbox = Sandbox(
            folder,
            host=host,
            port=port,
            seed=add_sample_content,
            profile=options.profile,
            token=token,
            keys=keys,
            imitate=options.imitate,
            max_body=options.max_body,
        )
        return await running.enter_async_context(sandbox)
    except sqlite3.Error as error:
        where = "in memory" if folder is None else f"in {folder}"
        raise CannotStartError(
            f"the state {where} cannot be used ({error}): move it away, or choose another folder"
        ) from None
    except OSError as error:
        raise CannotStartError(_explain_start_failure(error, folder, host, port)) from None
    except ValueError as error:
        raise CannotStartError(str(error)) from None


def _validate_report(options: ServingOptions) -> None:
    try:
        if options.imitate is not None:
            read_report(options.imitate)
    except OSError as error:
        reason = _explain_os_error(error)
        raise CannotStartError(
            f"the report {options.imitate} cannot be read ({reason}): choose another file for --imitate"
        ) from None
    except ValueError as error:
        raise CannotStartError(f"--imitate {options.imitate}: {error}") from None


def _open_token_keys(options: ServingOptions) -> TokenKeyStore | None:
    """Return the opened token that signs, or None if none is configured. Raises CannotStartError."""
    if options.pkcs11_module is None:
        return None
    if find_spec("pkcs11") is None or not has_pdf_libraries():
        raise CannotStartError("a key in a token needs more libraries: run pip install 'directsuite[hsm]'")
    from directsuite.sandbox.signing.token import TokenKeyStore

    pin = os.environ.get(PIN_VARIABLE)
    if options.pkcs11_pin_file is not None:
        try:
            pin = _read_private_file(options.pkcs11_pin_file).decode().strip()
        except OSError as error:
            reason = _explain_os_error(error)
            raise CannotStartError(
                f"the PIN file {options.pkcs11_pin_file} cannot be read ({reason}): choose another --pkcs11-pin-file"
            ) from None
        except ValueError:
            raise CannotStartError(f"the PIN file {options.pkcs11_pin_file} is not UTF-8 text: correct it") from None
    keys = TokenKeyStore(options.pkcs11_module, options.pkcs11_token, key=options.pkcs11_key, pin=pin)
    try:
        keys.open()
    except KeyUnavailableError as error:
        raise CannotStartError(
            f"{error}: check --pkcs11-module, --pkcs11-token and the PIN (--pkcs11-pin-file or {PIN_VARIABLE})"
        ) from None
    return keys


def _read_private_file(file: Path) -> bytes:
    """Return the start of a file. Raises CannotStartError if others than its owner and group may read it."""
    with file.open("rb") as opened:
        if sys.platform != "win32" and os.fstat(opened.fileno()).st_mode & stat.S_IRWXO:
            raise CannotStartError(f"others may read the PIN file {file}: remove their permission with chmod o=")
        return opened.read(MAX_PIN_BYTES)


def _explain_start_failure(error: OSError, folder: Path | None, host: str, port: int) -> str:
    """Return the reason and what to do. Only errors of files have a file name."""
    if isinstance(error, FolderInUseError):
        return f"another sandbox uses the state in {folder}: end it, or use --memory or another folder with --data"
    reason = _explain_os_error(error)
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"the state cannot be stored in {folder}, which is a file or inside of one: choose a folder"
    if error.filename is not None:
        return f"the state cannot be stored in {folder} ({reason}): choose another folder"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: end the program that uses it, or use --port 0 for a free port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not use port {port}: use another --port, or --port 0 for a free port"
    return f"it cannot listen on {host}, port {port} ({reason}): use another --host or --port"


def _explain_os_error(error: OSError) -> str:
    return type(error).__name__ if error.errno is None else os.strerror(error.errno)


def format_summary(sandbox: Sandbox, options: ServingOptions) -> str:
    """Return the environment as lines for a shell, with logins and URLs as comments."""
    location = "in memory and lost at the end" if options.folder is None else f"in {options.folder.absolute()}"
    return "\n".join(
        [
            f"# the four services; their state is {location}",
            *format_exports(sandbox.environment),
            f"# mailboxes {' and '.join(MAILBOXES)}, password {MAILBOX_LOGIN}; the first one has messages",
            f"# T-User {TUSER[0]}, password {TUSER[1]}; fax number {FAX_NUMBER}",
            f"# patients to provision: {'; '.join(' '.join(each[:4]) for each in INDIVIDUALS)}",
            f"# OAuth 2.0 client {DEMO_CLIENT[0]}, secret {DEMO_CLIENT[1]}, at {sandbox.token_url}",
            f"# page {sandbox.root_url}/",
            f"# control API {sandbox.control_url}; OpenAPI document {sandbox.root_url}/openapi.json",
            f'# Ctrl-C stops it; in another terminal: eval "$(directsuite sandbox env --at {sandbox.root_url})"',
        ]
    )


def format_exports(environment: Mapping[str, str]) -> list[str]:
    """Return the variables for clients as lines for a shell, with literal values.

    Raises ValueError if a value has control characters.
    """
    known = {name: value for name, value in environment.items() if name in CLIENT_VARIABLES}
    for name, value in known.items():
        if not value.isprintable():
            raise ValueError(f"{name} has characters that cannot be printed")
    return [f"export {name}={shlex.quote(value)}" for name, value in known.items()]
