"""The sandbox as a server with sample content, until SIGINT or SIGTERM: what both command lines run.

It prints the environment of the demo account, ready to paste, and then one JSON line, {"ready": true, "urls": {…}}.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sqlite3
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from directsuite.sandbox.samples import FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, MAILBOXES, TUSER, add_sample_content
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox

if TYPE_CHECKING:
    from directsuite.sandbox.messaging.service import Profiles

DEFAULT_PORT = 8025
DEFAULT_HOST = "127.0.0.1"
DEFAULT_FOLDER = Path("directsuite-sandbox")


class CannotStartError(Exception):
    """The sandbox did not open; the text says why, and what to do."""


def run(
    folder: Path | None = None, *, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, profile: Profiles = "strict"
) -> int:
    """Serve until a signal comes. The exit status: 0 after that, 1 where it can't start.

    folder: where the state is kept; None for memory.
    """
    try:
        asyncio.run(serve(folder, host=host, port=port, profile=profile))
    except CannotStartError as error:
        sys.stderr.write(f"the sandbox cannot start: {error}\n")
        return 1
    return 0


async def serve(folder: Path | None, *, host: str, port: int, profile: Profiles = "strict") -> None:
    """Serve until SIGINT or SIGTERM comes. Raises CannotStartError, for a port in use or a damaged state."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as running:
        sandbox = await _opened(running, folder, host, port, profile)
        ready = json.dumps({"ready": True, "urls": sandbox.urls})
        sys.stdout.write(f"{summary(sandbox)}\n{ready}\n")
        sys.stdout.flush()
        await stop.wait()


async def _opened(running: AsyncExitStack, folder: Path | None, host: str, port: int, profile: Profiles) -> Sandbox:
    try:
        sandbox = Sandbox(folder, host=host, port=port, seed=add_sample_content, profile=profile)
        return await running.enter_async_context(sandbox)
    except sqlite3.Error as error:
        where = "in memory" if folder is None else f"in {folder}"
        raise CannotStartError(
            f"the state {where} cannot be used ({error}); move it away, or choose another folder"
        ) from None
    except OSError as error:
        raise CannotStartError(_explained(error, folder, host, port)) from None
    except ValueError as error:
        raise CannotStartError(str(error)) from None


def _explained(error: OSError, folder: Path | None, host: str, port: int) -> str:
    """What has failed tells by itself whether it was a file: it names that."""
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


def summary(sandbox: Sandbox) -> str:
    """The environment as lines to paste into a shell, and the logins as comments."""
    exports = [f"export {name}={value}" for name, value in sandbox.environment.items()]
    return "\n".join(
        [
            "# the four services on loopback, with the demo account",
            *exports,
            f"# mailboxes {' and '.join(MAILBOXES)}, password {MAILBOX_LOGIN}; the first one has messages",
            f"# T-User {TUSER[0]}, password {TUSER[1]}; fax number {FAX_NUMBER}",
            f"# to provision: {'; '.join(' '.join(each[:4]) for each in INDIVIDUALS)}",
            f"# OAuth 2.0 client {DEMO_CLIENT[0]}, secret {DEMO_CLIENT[1]}, at {sandbox.token_url}",
            f"# control API {sandbox.control_url}; OpenAPI document {sandbox.root_url}/openapi.json",
        ]
    )
