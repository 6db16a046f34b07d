"""`python -m benchmarks counts`: what does not depend on the machine, kept in a file and compared by a test.

Requests, statements and commits of a piece of work are the same everywhere. The most memory that Python allocates for
it is the same for one version of Python, within a few per cent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from pathlib import Path
from unittest import mock

import attrs

import directsuite as ds
from benchmarks.peers import work
from benchmarks.server import make_scenario_url, run_server
from benchmarks.sync.remotes import CannedRemote
from benchmarks.sync.works import RequestCounter, make_rounds
from directsuite.durable import sqlite
from directsuite.jobs.signing import Pdf, SigningJob, SigningJournal, TargetFolder
from directsuite.sync import SqliteSink, SqliteStore

COUNTS_PATH = Path(__file__).parent / "results" / "counts.json"
VERSION = ".".join(map(str, sys.version_info[:2]))
"""Of Python, for which memory is compared."""
MAX_MEMORY_GROWTH = 1.25
"""Times the memory that is no worse."""
_MESSAGES, _PAGE, _DOCUMENTS, _SIZE = 1_000, 50, 20, 20_000

Counts = dict[str, int]


@attrs.frozen
class Gauge:
    """Counts requests of a suite and statements of SQLite."""

    requests: RequestCounter = attrs.field(factory=RequestCounter)
    statements: Counter[str] = attrs.field(factory=Counter[str])

    @contextlib.contextmanager
    def count_statements(self) -> Generator[None]:
        """Count the statements of files that are opened in the block, by their first words."""
        connected = sqlite._connect

        def watched(path: Path | None) -> sqlite3.Connection:
            """Open a file, and count what is done with it."""
            connection = connected(path)
            connection.set_trace_callback(lambda text: self.statements.update([text.split(None, 1)[0]]))
            return connection

        with mock.patch.object(sqlite, "_connect", watched):
            yield

    async def measure(self, do: Callable[[], Awaitable[object]]) -> Counts:
        """Requests, statements, commits and the peak of memory of a piece of work that was done once before."""
        self.requests.count.clear()
        self.statements.clear()
        tracemalloc.start()
        try:
            await do()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        commits = self.statements["COMMIT"]
        statements = self.statements.total()
        return {"requests": self.requests.count.total(), "statements": statements, "commits": commits, "peak": peak}


async def _measure_counts(url: str, folder: Path) -> dict[str, Counts]:
    gauge = Gauge()
    settings = ds.Settings(
        message_url=make_scenario_url(url) + work.MESSAGING,
        signing_url=f"{make_scenario_url(url, document=_SIZE)}/signing",
        requests_per_second=1e9,
    )
    found = dict[str, Counts]()
    with gauge.count_statements():
        async with ds.DirectSuite(settings, token=work.TOKEN, listeners=[gauge.requests]) as suite:
            box = suite.mailbox(work.USERNAME, work.PASSWORD)
            await box.get_message_count()
            found["a small call"] = await gauge.measure(box.get_message_count)
            await box.get_message_metadata(f"INBOX.{_PAGE}")
            found[f"a page of {_PAGE} metadata"] = await gauge.measure(
                lambda: box.get_message_metadata(f"INBOX.{_PAGE}")
            )
            for run in ("first", "counted"):  # the first one imports what the work needs
                async with SqliteStore(folder / f"{run}.db", sink=SqliteSink()) as store:
                    rounds = make_rounds(CannedRemote(box, _MESSAGES), store)
                    found[f"the first round of {_MESSAGES} messages"] = await gauge.measure(rounds.run_round)
                    await rounds.run_round()
                    found[f"an idle round of {_MESSAGES} messages"] = await gauge.measure(rounds.run_round)
                async with SigningJournal(folder / f"{run}.journal.db") as journal:
                    job = SigningJob(
                        suite.signing,
                        _yield_documents(b"%PDF-1.7\n".ljust(_SIZE)),
                        TargetFolder(folder / run),
                        [ds.Signature(name=work.SIGNATURE["name"])],
                        journal=journal,
                        concurrency=1,
                    )
                    found[f"a job of {_DOCUMENTS} documents"] = await gauge.measure(job.run)
    return found


async def _yield_documents(pdf: bytes) -> AsyncGenerator[Pdf]:
    for number in range(_DOCUMENTS):
        yield Pdf(f"{number}.pdf", pdf)


def measure_counts() -> dict[str, Counts]:
    """The counts of every piece of work."""
    with run_server() as url, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure_counts(url, Path(folder)))


def find_regressions(recorded: Mapping[str, Counts], found: Mapping[str, Counts], *, memory: bool) -> list[str]:
    """What takes more than it did, in words. memory: whether that is compared."""
    return [
        f"{name}: {now[what]:,} {what}, {then[what]:,} before"
        for name, now in found.items()
        for then in [recorded.get(name, now)]
        for what in now
        if now[what] > then[what] * (MAX_MEMORY_GROWTH if what == "peak" else 1) and (memory or what != "peak")
    ]


def write() -> int:
    """Count, show it, and keep it for the next comparison."""
    found = measure_counts()
    COUNTS_PATH.write_text(json.dumps({"python": VERSION, "counts": found}, indent=1) + "\n", encoding="utf-8")
    for name, each in found.items():
        print(f"{name}: " + ", ".join(f"{value:,} {what}" for what, value in each.items()))
    return 0
