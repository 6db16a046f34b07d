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
from benchmarks.server import at, served
from benchmarks.sync.remotes import CannedRemote
from benchmarks.sync.works import Requests, rounds_of
from directsuite.durable import sqlite
from directsuite.jobs.signing import Journal, Pdf, SigningJob, TargetFolder
from directsuite.sync import SqliteSink, SqliteStore

KEPT = Path(__file__).parent / "results" / "counts.json"
VERSION = ".".join(map(str, sys.version_info[:2]))
"""Of Python, for which memory is compared."""
MORE = 1.25
"""Times the memory that is no worse."""
_MESSAGES, _PAGE, _DOCUMENTS, _SIZE = 1_000, 50, 20, 20_000

Counts = dict[str, int]


@attrs.frozen
class Gauge:
    """Counts requests of a suite and statements of SQLite."""

    requests: Requests = attrs.field(factory=Requests)
    statements: Counter[str] = attrs.field(factory=Counter[str])

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Count the statements of files that are opened in the block, by their first words."""
        connected = sqlite._connected

        def watched(path: Path | None) -> sqlite3.Connection:
            """Open a file, and count what is done with it."""
            connection = connected(path)
            connection.set_trace_callback(lambda text: self.statements.update([text.split(None, 1)[0]]))
            return connection

        with mock.patch.object(sqlite, "_connected", watched):
            yield

    async def counted(self, do: Callable[[], Awaitable[object]]) -> Counts:
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


async def _counts(url: str, folder: Path) -> dict[str, Counts]:
    gauge = Gauge()
    settings = ds.Settings(
        message_url=at(url) + work.MESSAGING, signing_url=f"{at(url, document=_SIZE)}/signing", requests_per_second=1e9
    )
    found = dict[str, Counts]()
    with gauge.watching():
        async with ds.DirectSuite(settings, token=work.TOKEN, listeners=[gauge.requests]) as suite:
            box = suite.mailbox(work.USERNAME, work.PASSWORD)
            await box.get_message_count()
            found["a small call"] = await gauge.counted(box.get_message_count)
            await box.get_message_metadata(f"INBOX.{_PAGE}")
            found[f"a page of {_PAGE} metadata"] = await gauge.counted(
                lambda: box.get_message_metadata(f"INBOX.{_PAGE}")
            )
            for run in ("first", "counted"):  # the first one imports what the work needs
                async with SqliteStore(folder / f"{run}.db", sink=SqliteSink()) as store:
                    rounds = rounds_of(CannedRemote(box, _MESSAGES), store)
                    found[f"the first round of {_MESSAGES} messages"] = await gauge.counted(rounds.round)
                    await rounds.round()
                    found[f"an idle round of {_MESSAGES} messages"] = await gauge.counted(rounds.round)
                async with Journal(folder / f"{run}.journal.db") as journal:
                    job = SigningJob(
                        suite.signing,
                        _documents(b"%PDF-1.7\n".ljust(_SIZE)),
                        TargetFolder(folder / run),
                        [ds.Signature(name=work.SIGNATURE["name"])],
                        journal=journal,
                        concurrency=1,
                    )
                    found[f"a job of {_DOCUMENTS} documents"] = await gauge.counted(job.run)
    return found


async def _documents(pdf: bytes) -> AsyncGenerator[Pdf]:
    for number in range(_DOCUMENTS):
        yield Pdf(f"{number}.pdf", pdf)


def counts() -> dict[str, Counts]:
    """The counts of every piece of work."""
    with served() as url, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_counts(url, Path(folder)))


def worse(kept: Mapping[str, Counts], found: Mapping[str, Counts], *, memory: bool) -> list[str]:
    """What takes more than it did, in words. memory: whether that is compared."""
    return [
        f"{name}: {now[what]:,} {what}, {then[what]:,} before"
        for name, now in found.items()
        for then in [kept.get(name, now)]
        for what in now
        if now[what] > then[what] * (MORE if what == "peak" else 1) and (memory or what != "peak")
    ]


def write() -> int:
    """Count, show it, and keep it for the next comparison."""
    found = counts()
    KEPT.write_text(json.dumps({"python": VERSION, "counts": found}, indent=1) + "\n", encoding="utf-8")
    for name, each in found.items():
        print(f"{name}: " + ", ".join(f"{value:,} {what}" for what, value in each.items()))
    return 0
