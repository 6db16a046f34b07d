"""What the figures were measured on, and nothing by which the machine could be found; a process for each figure."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("aiohttp", "attrs", "cattrs", "msgspec", "pybase64", "tenacity", "yarl")


def describe_machine() -> dict[str, str]:
    """Python, system, cores and the versions of what a call goes through."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load average": f"{os.getloadavg()[2]:.1f}, this run included: beyond 2 others disturbed it",
        **{name: metadata.version(name) for name in PACKAGES},
    }


def run_for_figures(module: str, *arguments: str) -> dict[str, float]:
    """What a module of the benchmarks prints as JSON, run in a process of its own."""
    command = (sys.executable, "-m", module, *arguments)
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603  our own module
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
