"""`directsuite sandbox`: the four services in the foreground."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from directsuite.cli.extras import REMEDY, missing
from directsuite.sandbox.serving import DEFAULT_FOLDER, DEFAULT_PORT, run

if TYPE_CHECKING:
    from pathlib import Path


def serve(*, host: str, port: int | None, data: Path | None, memory: bool) -> int:
    """Serve until SIGINT or SIGTERM comes, and return the exit status: both end it with 0, as they are meant to."""
    if missing("sandbox"):
        sys.stderr.write(f"directsuite: the signing service will refuse, for want of PDF libraries: {REMEDY}\n")
    return run(None if memory else data or DEFAULT_FOLDER, host=host, port=DEFAULT_PORT if port is None else port)
