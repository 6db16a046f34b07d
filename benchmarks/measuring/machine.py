"""What the figures were measured on: nothing by which the machine could be found."""

from __future__ import annotations

import os
import platform
from importlib import metadata

PACKAGES = ("aiohttp", "attrs", "cattrs", "msgspec", "pybase64", "tenacity", "yarl")


def described() -> dict[str, str]:
    """Python, system, cores and the versions of what a call goes through."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load average": f"{os.getloadavg()[2]:.1f}, this run included: beyond 2 others disturbed it",
        **{name: metadata.version(name) for name in PACKAGES},
    }
