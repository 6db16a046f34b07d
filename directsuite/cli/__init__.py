"""The command `directsuite`: a sandbox to try things on, a demo of all four services, and mailboxes kept in step.

    main ──► app ──► sandbox   serves until a signal comes
              ├────► demo      uses all four services, checks what they did, and reports
              └────► sync      runs a worker, and looks after it

What a command needs is imported when it runs, so that `--help` is quick and a missing extra can be named.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from directsuite.cli.extras import MissingExtraError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells count it: 128 and the number of SIGINT."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; without `arguments`, the process's own."""
    try:
        require("cli")
        from directsuite.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except MissingExtraError as missing:
        sys.stderr.write(f"directsuite: {missing}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ndirectsuite: interrupted\n")
        return INTERRUPTED
