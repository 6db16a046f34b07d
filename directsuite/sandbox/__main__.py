"""`python -m directsuite.sandbox`: the sandbox as a server, where the extra `directsuite[cli]` is not installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from directsuite.sandbox.serving import DEFAULT_FOLDER, DEFAULT_HOST, DEFAULT_PORT, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: --port, --host, and --data DIR or --memory."""
    parser = argparse.ArgumentParser(prog="python -m directsuite.sandbox", description="The four services on loopback.")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--host", default=DEFAULT_HOST, help="a loopback address (default: %(default)s)")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--data", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="default: %(default)s")
    kept.add_argument("--memory", action="store_true", help="forget everything at the end")
    chosen = parser.parse_args(arguments)
    return run(None if chosen.memory else chosen.data, host=chosen.host, port=chosen.port)


if __name__ == "__main__":
    sys.exit(main())
