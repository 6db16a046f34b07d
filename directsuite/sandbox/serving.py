"""The sandbox as a server with sample content, until SIGINT or SIGTERM: what both command lines run.

It prints the environment of the demo account, ready to paste, and then a line for each call. For programs it prints
one line of JSON, {"ready": true, "urls": {…}}, and nothing else. A token that it has made is printed too.
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
from directsuite.sandbox.imitation import read_report
from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.samples import FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, MAILBOXES, TUSER, add_sample_content
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox, has_pdf_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from directsuite.sandbox.messaging.service import Profiles
    from directsuite.sandbox.signing.token import TokenKeyStore

MAX_PIN_BYTES = 1_000
MAX_DECODED_BYTES = 64 * 2**20
"""The bytes that a compressed stream of a PDF may have when it is decoded."""
MAX_LOG_RECORDS_PER_MINUTE = 60
"""What is logged at most: a client that sends nonsense must not fill a disk."""
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
"""The variables with which a client finds a sandbox and the demo account; others are not printed for a shell."""
PIN_VARIABLE = "DIRECTSUITE_PKCS11_PIN"


class CannotStartError(Exception):
    """The sandbox did not open; the text says why, and what to do."""


@attrs.frozen(kw_only=True)
class ServingOptions:
    """What is served, and what is printed."""

    folder: Path | None = DEFAULT_FOLDER
    """Where the state is kept; None for memory."""
    host: str = DEFAULT_HOST
    allow_remote: bool = False
    """Listen beyond this machine, with a token: what DIRECTSUITE_SANDBOX_TOKEN holds, or one that is printed."""
    port: int = DEFAULT_PORT
    profile: Profiles = "strict"
    imitate: Path | None = None
    """A report of `directsuite doctor --deep`, whose differences the answers are to have."""
    max_body: int | None = None
    """Bytes that a request may have; None for 1 GiB of document in Save, and of attachments in Send, its variants and
    SaveRawMessages, and for 64 MiB in other operations."""
    quiet: bool = False
    """Print no calls."""
    json: bool = False
    """Print for programs."""
    pkcs11_module: Path | None = None
    """The library of the token that signs; None for a key in the folder."""
    pkcs11_token: str = ""
    """The token's label."""
    pkcs11_key: str = DEFAULT_KEY_LABEL
    """The label of the key in it."""
    pkcs11_pin_file: Path | None = None
    """What holds the token's PIN; None for the variable."""


def parse_size(text: str) -> int:
    """Bytes: a number alone, or with K, M or G for powers of 1024. Raises ValueError for what is no size."""
    found = re.fullmatch(r"([1-9][0-9]{0,14})([kmg]?)", text.strip().lower())
    if found is None:
        raise ValueError("give a size such as 500M or 2G, or a number of bytes")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


def run(options: ServingOptions) -> int:
    """Serve until a signal comes. The exit status: 0 after that, 1 where it can't start."""
    try:
        asyncio.run(serve(options))
    except CannotStartError as error:
        sys.stderr.write(f"the sandbox cannot start: {error}\n")
        return 1
    return 0


@contextlib.contextmanager
def limit_pdf_streams() -> Generator[None]:
    """Limit the memory that qpdf takes for a compressed stream: a PDF of 2 kB can have one of a gigabyte.

    The limits are those of the process, so only the process that serves sets them. qpdf decodes just the streams that
    hold other objects, and those have one filter.
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
    """Serve until SIGINT or SIGTERM comes. Raises CannotStartError, for a port in use or a damaged state."""
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
                _print(f"export {TOKEN_VARIABLE}={token}  # for the page, and for programs that drive it")
            if not options.quiet:
                sandbox.calls.listeners.append(_print_call)
        await stop.wait()


class _LogLimit(logging.Filter):
    """Pass at most RECORDS_PER_MINUTE records a minute. The first one after that says how many were left out."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._minute, self._passed_count, self._dropped_count = now(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for a record to log."""
        if self._now() - self._minute >= 60:
            self._minute, self._passed_count = self._now(), 0
        self._passed_count += 1
        if self._passed_count > MAX_LOG_RECORDS_PER_MINUTE:
            self._dropped_count += 1
            return False
        if self._dropped_count:
            record.msg, record.args = (
                f"{record.getMessage()} ({self._dropped_count} messages before it were left out)",
                (),
            )
            self._dropped_count = 0
        return True


class _Formatter(logging.Formatter):
    """Format an exception as its type and the lines that raised it: its text may quote a request."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's name
        """Return the lines of the traceback, and the type of the exception."""
        kind, _, trace = ei
        return "".join((*traceback.format_tb(trace), kind.__name__))


@contextlib.contextmanager
def log_to_stderr(now: Callable[[], float] = time.monotonic) -> Generator[None]:
    """Log what fails within the sandbox, or in asyncio, to stderr. now: the time in seconds, for the limit of records.

    asyncio logs a traceback for each connection that it cannot accept because there are too many open files.
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
    """Whoever reads it may be gone by then, which is no reason to stop."""
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
            f"the state {where} cannot be used ({error}); move it away, or choose another folder"
        ) from None
    except OSError as error:
        raise CannotStartError(_explain_start_failure(error, folder, host, port)) from None
    except ValueError as error:
        raise CannotStartError(str(error)) from None


def _validate_report(options: ServingOptions) -> None:
    """Raise CannotStartError if --imitate names no report."""
    try:
        if options.imitate is not None:
            read_report(options.imitate)
    except OSError as error:
        raise CannotStartError(f"--imitate can't be read: {type(error).__name__}") from None
    except ValueError as error:
        raise CannotStartError(f"--imitate: {error}") from None


def _open_token_keys(options: ServingOptions) -> TokenKeyStore | None:
    """The token that is to sign, opened; None where none is. Raises CannotStartError."""
    if options.pkcs11_module is None:
        return None
    if find_spec("pkcs11") is None or not has_pdf_libraries():
        raise CannotStartError("a key in a token needs more libraries: pip install 'directsuite[hsm]'")
    from directsuite.sandbox.signing.token import TokenKeyStore

    pin = os.environ.get(PIN_VARIABLE)
    if options.pkcs11_pin_file is not None:
        try:
            pin = _read_private_file(options.pkcs11_pin_file).decode().strip()
        except PermissionError as error:
            raise CannotStartError(f"--pkcs11-pin-file: {error}") from None
        except (OSError, ValueError) as error:
            raise CannotStartError(f"--pkcs11-pin-file can't be read: {type(error).__name__}") from None
    keys = TokenKeyStore(options.pkcs11_module, options.pkcs11_token, key=options.pkcs11_key, pin=pin)
    try:
        keys.open()
    except KeyUnavailableError as error:
        raise CannotStartError(
            f"{error}; look at --pkcs11-module, --pkcs11-token and the PIN (--pkcs11-pin-file or {PIN_VARIABLE})"
        ) from None
    return keys


def _read_private_file(file: Path) -> bytes:
    """Return the start of a file. Raise PermissionError if others than its owner and its group may read it."""
    with file.open("rb") as opened:
        if sys.platform != "win32" and os.fstat(opened.fileno()).st_mode & stat.S_IRWXO:
            raise PermissionError("others may read the file: take that from them, with chmod o=")
        return opened.read(MAX_PIN_BYTES)


def _explain_start_failure(error: OSError, folder: Path | None, host: str, port: int) -> str:
    """What has failed tells by itself whether it was a file: it names that."""
    if isinstance(error, FolderInUseError):
        return f"another sandbox keeps its state in {folder}: end it, or give --memory, or another folder with --data"
    reason = type(error).__name__ if error.errno is None else os.strerror(error.errno)
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"the state can't be kept in {folder}: it is a file, or within one; choose a folder"
    if error.filename is not None:
        return f"the state in {folder} cannot be kept ({reason}); choose another folder"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: end what listens there, or give --port 0 for a free one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} is not for this user: give another --port, or --port 0 for a free one"
    return f"it cannot listen on {host}, port {port} ({reason}): give another --host, or another --port"


def format_summary(sandbox: Sandbox, options: ServingOptions) -> str:
    """The environment as lines to paste into a shell, and the logins as comments."""
    kept = "in memory, and forgotten at the end" if options.folder is None else f"in {options.folder.absolute()}"
    return "\n".join(
        [
            f"# the four services on loopback; their state is kept {kept}",
            *format_exports(sandbox.environment),
            f"# mailboxes {' and '.join(MAILBOXES)}, password {MAILBOX_LOGIN}; the first one has messages",
            f"# T-User {TUSER[0]}, password {TUSER[1]}; fax number {FAX_NUMBER}",
            f"# to provision: {'; '.join(' '.join(each[:4]) for each in INDIVIDUALS)}",
            f"# OAuth 2.0 client {DEMO_CLIENT[0]}, secret {DEMO_CLIENT[1]}, at {sandbox.token_url}",
            f"# page {sandbox.root_url}/",
            f"# control API {sandbox.control_url}; OpenAPI document {sandbox.root_url}/openapi.json",
            f'# in another terminal: eval "$(directsuite sandbox env --at {sandbox.root_url})"; Ctrl-C ends it',
        ]
    )


def format_exports(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that a client knows as lines for a shell, which reads each value literally.

    Raise ValueError for a value with control characters.
    """
    known = {name: value for name, value in environment.items() if name in CLIENT_VARIABLES}
    for name, value in known.items():
        if not value.isprintable():
            raise ValueError(f"{name} has characters that can't be printed")
    return [f"export {name}={shlex.quote(value)}" for name, value in known.items()]
