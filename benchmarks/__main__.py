"""`python -m benchmarks`: compare directsuite with other clients, or run one of the commands in COMMANDS."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "soak": "benchmarks.soak.report:run_soak",  # half an hour of mixed load and faults
    "sync": "benchmarks.sync.works:measure_sync",  # synchronisation
    "fleet": "benchmarks.sync.fleet:measure_fleet",  # workers of a fleet on PostgreSQL
    "latency": "benchmarks.sync.latency:measure_latency",  # time from arrival to commit, simulated
    "mailbox-tools": "benchmarks.sync.mailbox_tools:measure_mailbox_tools",  # mbsync and imap_tools
    "calls": "benchmarks.calls:write_calls",  # a small call, beside bare aiohttp in one process and in separate ones
    "growth": "benchmarks.growth:measure_growth",  # costs at growing sizes
    "counts": "benchmarks.counts:write_counts",  # requests, statements and memory, which a test compares
    "walks": "benchmarks.walks:print_walks",  # files that a piece of work passes through
}


def main(arguments: Sequence[str]) -> int:
    """Run a command with its arguments, and return its exit status."""
    name, *rest = arguments or [""]
    module, _, function = COMMANDS.get(name, "benchmarks.rows.command:run_command").partition(":")
    status: int = getattr(importlib.import_module(module), function)(rest if name in COMMANDS else arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
