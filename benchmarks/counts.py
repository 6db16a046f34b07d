"""`python -m benchmarks counts`: counts that are the same on each machine. They are stored, and a test compares them.

These are requests, statements and commits of a piece of work, and the peak of memory that Python allocates, which
differs by a few per cent with the same version of Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
from benchmarks.processes import RESULTS
from benchmarks.server import make_scenario_url, run_server
from benchmarks.sync.canned import CannedRemote, make_rounds
from directsuite.core.events import AttemptStarted, Event
from directsuite.durable import sqlite
from directsuite.jobs.signing import Pdf, SigningJob, SigningJournal, TargetFolder
from directsuite.sync import SqliteSink, SqliteStore

COUNTS_PATH = RESULTS / "counts.json"
VERSION = ".".join(map(str, sys.version_info[:2]))
MAX_MEMORY_GROWTH = 1.25
_MESSAGES, _PAGE, _DOCUMENTS, _SIZE = 1_000, 50, 20, 20_000

Counts = dict[str, int]


@attrs.frozen(eq=False)
class Gauge:
    """Counts statements of SQLite, and requests by operation, as a listener of a suite."""

    requests: Counter[str] = attrs.field(factory=Counter[str])
    statements: Counter[str] = attrs.field(factory=Counter[str])

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            self.requests[event.operation] += 1

    @contextlib.contextmanager
    def count_statements(self) -> Generator[None]:
        """Count the statements of databases that are opened within the block, by their first words."""
        connect = sqlite._connect

        def connect_and_count(path: Path | None, **options: float) -> sqlite3.Connection:
            connection = connect(path, **options)
            connection.set_trace_callback(lambda text: self.statements.update([text.split(None, 1)[0]]))
            return connection

        with mock.patch.object(sqlite, "_connect", connect_and_count):
            yield

    async def measure(self, do: Callable[[], Awaitable[object]]) -> Counts:
        """Return the counts of a piece of work that was done once before."""
        self.requests.clear()
        self.statements.clear()
        tracemalloc.start()
        try:
            await do()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        statements, commits = self.statements.total(), self.statements["COMMIT"]
        return {"requests": self.requests.total(), "statements": statements, "commits": commits, "peak": peak}


async def _measure_counts(url: str, folder: Path) -> dict[str, Counts]:
    gauge, found = Gauge(), dict[str, Counts]()
    settings = ds.Settings(
        message_url=make_scenario_url(url) + work.MESSAGING,
        signing_url=f"{make_scenario_url(url, document=_SIZE)}/signing",
        requests_per_second=1e9,
    )
    with gauge.count_statements():
        async with ds.DirectSuite(settings, token=work.TOKEN, listeners=[gauge]) as suite:
            box = suite.mailbox(work.USERNAME, work.PASSWORD)
            for _ in ("first", "counted"):  # the first run imports modules
                found["a small call"] = await gauge.measure(box.get_message_count)
                read_page = functools.partial(box.get_message_metadata, f"INBOX.{_PAGE}")
                found[f"a page of {_PAGE} metadata"] = await gauge.measure(read_page)
            for run in ("first", "counted"):
                async with SqliteStore(folder / f"{run}.db", sink=SqliteSink()) as store:
                    rounds = await make_rounds(CannedRemote(box, _MESSAGES), store)
                    found[f"the first round of {_MESSAGES} messages"] = await gauge.measure(rounds.run_round)
                    await rounds.run_round()
                    found[f"an idle round of {_MESSAGES} messages"] = await gauge.measure(rounds.run_round)
                async with SigningJournal(folder / f"{run}.journal.db") as journal:
                    target, signatures = TargetFolder(folder / run), [ds.Signature(name=work.SIGNATURE["name"])]
                    job = SigningJob(
                        suite.signing, _yield_documents(), target, signatures, journal=journal, concurrency=1
                    )
                    found[f"a job of {_DOCUMENTS} documents"] = await gauge.measure(job.run)
                    assert job.progress.done == _DOCUMENTS
    return found


async def _yield_documents() -> AsyncGenerator[Pdf]:
    for number in range(_DOCUMENTS):
        yield Pdf(f"{number}.pdf", b"%PDF-1.7\n".ljust(_SIZE) + b"\n%%EOF\n")


def measure_counts() -> dict[str, Counts]:
    """Return the counts of each piece of work."""
    with run_server() as url, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure_counts(url, Path(folder)))


def find_regressions(recorded: Mapping[str, Counts], found: Mapping[str, Counts], *, memory: bool) -> list[str]:
    """Return a text for each count that is higher than before. memory: True to compare memory."""
    return [
        f"{name}: {now[what]:,} {what}, {then[what]:,} before"
        for name, now in found.items()
        for then in [recorded.get(name, now)]
        for what in now
        if now[what] > then[what] * (MAX_MEMORY_GROWTH if what == "peak" else 1) and (memory or what != "peak")
    ]


def write_counts(_: object) -> int:
    """Count, print the counts, and store them for the test."""
    found = measure_counts()
    COUNTS_PATH.write_text(json.dumps({"python": VERSION, "counts": found}, indent=1) + "\n", encoding="utf-8")
    for name, counts in found.items():
        print(f"{name}: " + ", ".join(f"{value:,} {what}" for what, value in counts.items()))
    return 0
