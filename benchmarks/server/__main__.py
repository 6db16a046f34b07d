"""The server's process: prints its port, and ends when its standard input does."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys

from benchmarks.server.pinning import SERVER_CORE, pin_to_core
from benchmarks.server.protocol import Connection


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The end of the input is awaited in a thread: pipes that a loop watches are not the same everywhere. The server is
    # not closed then, since that would wait for its clients to go.
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Serve, on uvloop's event loop where that is installed."""
    pin_to_core(SERVER_CORE)
    factory = None
    with contextlib.suppress(ImportError):
        factory = importlib.import_module("uvloop").new_event_loop
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
