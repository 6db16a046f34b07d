"""`python -m benchmarks`: directsuite beside other clients; `… soak`: half an hour of load; `… sync`: mailboxes.

`… signing-job`: many PDFs; `… sandbox`: the sandbox under load; `… walks`: how many files a piece of work passes;
`… counts`: requests, statements and memory, which tests compare; `… latency`: from arrival to commit, simulated;
`… mailbox-tools`: mbsync and others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the soak where it is asked for, or else the measurements, and return the exit status."""
    match arguments:
        case ["soak", *options]:
            from benchmarks.soak.command import soak

            return soak(options)
        case ["sync"]:
            from benchmarks.sync.command import sync

            return sync()
        case ["sandbox"]:
            from benchmarks.sandbox_load import sandbox_load

            return sandbox_load()
        case ["counts"]:
            from benchmarks.counts import write

            return write()
        case ["growth", *names]:
            from benchmarks.growth import growth

            return growth(names)
        case ["latency"]:
            from benchmarks.sync.latency import latency

            return latency()
        case ["mailbox-tools"]:
            from benchmarks.sync.mailbox_tools import mailbox_tools

            return mailbox_tools()
        case ["walks"]:
            from benchmarks.walks import page

            print(page())
            return 0
        case ["signing-job", *names]:
            from benchmarks.signing_job.command import signing_job

            return signing_job(names)
        case _:
            from benchmarks.measuring.command import measure

            return measure(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
