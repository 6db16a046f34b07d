"""`python -m benchmarks`: compare directsuite with other clients, or run one of the commands in COMMANDS."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def _parse_minutes(text: str) -> float:
    if (minutes := float(text)) <= 0:
        raise ValueError
    return minutes


_OPTIONS: dict[str, dict[str, Any]] = {
    "--only": {"nargs": "+", "default": [], "metavar": "NAME", "help": "only these rows, groups of rows, or curves"},
    "--quick": {"action": "store_true", "help": "small sizes for a short time, as a test"},
    "--out": {"type": Path, "help": "folder for the results (default of a full run: benchmarks/results)"},
    "--peers": {"type": Path, "help": "folder that keeps the generated clients for the next run"},
    "--minutes": {"type": _parse_minutes, "default": 30.0, "help": "duration (default: %(default)s)"},
    "--seed": {"type": int, "default": 1, "help": "seed of all random choices (default: %(default)s)"},
}
COMMANDS = {
    "soak": ("soak.report:run_soak", "half an hour of mixed load and faults", ("--minutes", "--seed", "--out")),
    "sync": ("sync.works:measure_sync", "synchronisation", ("--out",)),
    "fleet": ("sync.fleet:measure_fleet", "workers of a fleet on PostgreSQL", ("--quick", "--out")),
    "latency": ("sync.latency:measure_latency", "time from arrival to commit, simulated", ("--out",)),
    "mailbox-tools": ("sync.mailbox_tools:measure_mailbox_tools", "mbsync and imap_tools", ("--out",)),
    "calls": ("calls:write_calls", "a small call beside bare aiohttp, in one process and in two", ("--quick", "--out")),
    "growth": ("growth:measure_growth", "costs at growing sizes", ("--only", "--out")),
    "counts": ("counts:write_counts", "requests, statements and memory, which a test compares", ()),
    "walks": ("walks:print_walks", "files that a piece of work passes through", ()),
}


def main(arguments: Sequence[str]) -> int:
    """Run a command with its arguments, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare directsuite with bare aiohttp and generated clients."
    )
    commands = parser.add_subparsers(title="other measurements", metavar="COMMAND")
    _add_options(parser, "rows.command:run_command", ("--only", "--quick", "--out", "--peers"))
    for name, (function, description, options) in COMMANDS.items():
        _add_options(commands.add_parser(name, help=description, description=description), function, options)
    chosen = parser.parse_args(arguments)
    module, _, function = chosen.function.partition(":")
    status: int = getattr(importlib.import_module(f"benchmarks.{module}"), function)(chosen)
    return status


def _add_options(parser: argparse.ArgumentParser, function: str, options: Sequence[str]) -> None:
    parser.set_defaults(function=function)
    for option in options:
        parser.add_argument(option, **_OPTIONS[option])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
