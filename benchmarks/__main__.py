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
            from benchmarks.soak.command import run_soak

            return run_soak(options)
        case ["sync"]:
            from benchmarks.sync.command import measure_sync

            return measure_sync()
        case ["sandbox"]:
            from benchmarks.sandbox_load import run_sandbox_load

            return run_sandbox_load()
        case ["counts"]:
            from benchmarks.counts import write

            return write()
        case ["growth", *names]:
            from benchmarks.growth import measure_growth

            return measure_growth(names)
        case ["latency"]:
            from benchmarks.sync.latency import measure_latency

            return measure_latency()
        case ["mailbox-tools"]:
            from benchmarks.sync.mailbox_tools import measure_mailbox_tools

            return measure_mailbox_tools()
        case ["walks"]:
            from benchmarks.walks import format_page

            print(format_page())
            return 0
        case ["signing-job", *names]:
            from benchmarks.signing_job.command import run_signing_job

            return run_signing_job(names)
        case _:
            from benchmarks.measuring.command import measure

            return measure(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
