"""`python -m directsuite.sandbox`: the sandbox as a server with demo content, until SIGINT or SIGTERM.

It prints the environment of the demo account, ready to paste, and then one JSON line, {"ready": true, "urls": {…}}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from directsuite.sandbox import demo
from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 8025
DEFAULT_FOLDER = Path("directsuite-sandbox")


def run(folder: Path | None = None, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> int:
    """Serve until a signal comes and return the exit status. folder: where the state is kept; None for memory."""
    try:
        asyncio.run(serve(folder, host=host, port=port))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the sandbox cannot start: {error}\n")
        return 1
    return 0


async def serve(folder: Path | None, *, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM comes. Raises OSError for a port in use, ValueError for a host off loopback."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Sandbox(folder, host=host, port=port) as sandbox:
        await demo.seed(sandbox)
        ready = json.dumps({"ready": True, "urls": sandbox.urls})
        sys.stdout.write(f"{demo.summary(sandbox)}\n{ready}\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: --port, --host, and --data DIR or --memory."""
    parser = argparse.ArgumentParser(prog="python -m directsuite.sandbox", description="The four services on loopback.")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default: %(default)s)")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--data", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="default: %(default)s")
    kept.add_argument("--memory", action="store_true", help="forget everything at the end")
    chosen = parser.parse_args(arguments)
    return run(None if chosen.memory else chosen.data, host=chosen.host, port=chosen.port)


if __name__ == "__main__":
    sys.exit(main())
