"""The server on one core, the clients on another, where there are two: neither takes the other's time."""

from __future__ import annotations

import os
import sys

CLIENTS_CORE = 0
SERVER_CORE = 1


def pin_to_core(place: int) -> None:
    """Keep this process on one of the machine's cores; does nothing where there is only one, or no Linux."""
    if sys.platform == "linux":
        # All at first, of which the system takes those that are there for us: a pinned parent has left us its one.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[place]})
