"""A sandbox that kills itself: `python -m tests.sandbox.killing.sandbox MOMENT COUNT WHEN --data FOLDER …`.

MOMENT: a regular expression for a function before or after its call, and for the last operation with a recorded
effect: `before unlink Delete`. COUNT: the number of such moments until the kill. WHEN: count from the start (`now`), or
from SIGUSR1 (`later`).
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from directsuite.cli import main as run_cli
from directsuite.sandbox.messaging.requests import BodyDivider
from directsuite.sandbox.signing.request import Base64Writer


class KillPoints:
    def __init__(self, moment: str, count: int, *, counting: bool) -> None:
        self.operation = ""
        self.counting = counting
        self._moment = re.compile(moment)
        self._remaining = count

    def start_counting(self, *_: object) -> None:
        self.operation, self.counting = "", True

    def wrap(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a moment before and after it."""

        def watched(*arguments: Any, **named: Any) -> Any:
            self._reach(f"before {name}")
            done = work(*arguments, **named)
            self._reach(f"after {name}")
            return done

        return watched

    def _reach(self, moment: str) -> None:
        if self.counting and self._moment.match(f"{moment} {self.operation}"):
            self._remaining -= 1
            if self._remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def watch(moments: KillPoints) -> None:
    """Add moments to the functions that write and delete files, and to COMMIT."""

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO effect"):
                moments.operation = parameters[0][0]
            run = moments.wrap("commit", super().execute) if sql == "COMMIT" else super().execute
            cursor: sqlite3.Cursor = run(sql, *parameters)
            return cursor

    replaced: Any = sqlite3
    replaced.connect = partial(sqlite3.connect, factory=Watched)
    for owner, method in ((Path, "unlink"), (Base64Writer, "write"), (BodyDivider, "feed")):
        setattr(owner, method, moments.wrap(method, getattr(owner, method)))


def main(moment: str, count: str, when: str, *arguments: str) -> int:
    moments = KillPoints(moment, int(count), counting=when == "now")
    signal.signal(signal.SIGUSR1, moments.start_counting)
    watch(moments)
    return run_cli(["sandbox", *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
