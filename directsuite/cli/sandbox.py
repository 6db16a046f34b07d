"""`directsuite sandbox`: the four services in the foreground."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from directsuite.cli.exit_status import ExitStatus
from directsuite.cli.extras import REMEDY, missing
from directsuite.cli.running import say
from directsuite.sandbox import serving
from directsuite.sandbox.loopback import is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.messaging.profile import Profiles


def serve(*, host: str, port: int | None, data: Path | None, memory: bool, profile: Profiles = "strict") -> int:
    """Serve until SIGINT or SIGTERM comes, and return the exit status: both end it with 0, as they are meant to."""
    if not is_loopback(host):
        say("--host: the sandbox listens on loopback only: give it 127.0.0.1, ::1 or localhost")
        return ExitStatus.REFUSED
    if missing("sandbox"):
        say(f"the signing service will refuse, for want of PDF libraries: {REMEDY}")
    folder = None if memory else data or serving.DEFAULT_FOLDER
    port = serving.DEFAULT_PORT if port is None else port
    try:
        asyncio.run(serving.serve(folder, host=host, port=port, profile=profile))
    except serving.CannotStartError as error:
        say(f"the sandbox cannot start: {error}")
        return ExitStatus.FAILED
    return ExitStatus.DONE
