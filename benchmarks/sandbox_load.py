"""`python -m benchmarks sandbox`: all operations of the sandbox, in a process of its own, under many callers at a time.

Each operation is called by all callers, of whom each gives its next request once it has the answer. Before and after it
they do the same with the sandbox's health answer, which the operation's requests a second are compared with.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import aiohttp
import attrs
from yarl import URL

from benchmarks.measuring.machine import describe_machine
from benchmarks.sandbox_requests import OPERATIONS, PREPARATIONS, Caller, Request, SandboxResponse
from benchmarks.soak.census import MEGABYTE, read_resident_bytes
from benchmarks.soak.server import run_server

RESULTS = Path(__file__).parent / "results" / "sandbox-load.md"
CALLERS = 200
_MAX_SECONDS = 240  # seconds, after which the whole run is given up
_LOCKED_MESSAGE = b"database is locked"


@attrs.frozen
class Load:
    """The seconds of each request, those of all together, and what failed, by kind."""

    seconds: list[float]
    elapsed: float
    failures: Counter[str]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.elapsed

    def get_percentile_ms(self, percent: int) -> float:
        """The milliseconds within which so many of 100 were answered."""
        return sorted(self.seconds)[len(self.seconds) * percent // 100] * 1000


@attrs.frozen
class OperationLoad:
    """An operation's load, those of the health answer around it, and the sandbox's memory after it, in bytes."""

    operation: str
    load: Load
    health: tuple[Load, Load]
    memory: int

    @property
    def ratio(self) -> float:
        """The operation's requests a second to the health answer's."""
        return self.load.rate * len(self.health) / sum(each.rate for each in self.health)


@attrs.frozen(kw_only=True)
class RunningSandbox:
    """A sandbox that runs, and what calls it. log: what the sandbox writes to its standard error."""

    caller: Caller
    health: Request
    process: int
    log: Path
    startup_seconds: float
    """Seconds from the start of the process to its being ready."""
    memory: int
    """Bytes that it had then."""

    def read_peak_bytes(self) -> int:
        """The most memory that the process has had, in bytes."""
        lines = Path(f"/proc/{self.process}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def count_locked_lines(self) -> int:
        """How many lines of the log tell of a locked database."""
        return self.log.read_bytes().count(_LOCKED_MESSAGE)


@asynccontextmanager
async def run_sandbox(folder: Path) -> AsyncGenerator[RunningSandbox]:
    """A sandbox with its state and its log in `folder`."""
    path, begun = folder / "log", time.perf_counter()
    with path.open("wb") as log:
        async with run_server(folder / "state", log) as server:
            started_in, memory = time.perf_counter() - begun, read_resident_bytes(server.pid)
            connector, timeout = aiohttp.TCPConnector(limit=CALLERS), aiohttp.ClientTimeout(total=_MAX_SECONDS)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
                yield RunningSandbox(
                    caller=await Caller.create(http, server),
                    health=Request("GET", URL(f"{server.urls['control']}/_sandbox/health")),
                    process=server.pid,
                    log=path,
                    startup_seconds=started_in,
                    memory=memory,
                )


async def measure_operations(
    sandbox: RunningSandbox, *, callers: int = CALLERS, lasting: float = 1.0
) -> list[OperationLoad]:
    """Have so many callers call each operation for `lasting` seconds, or less where its requests come to an end first.

    Each caller gives one request at least. What the requests use up is made before the time is taken.
    """

    async def health() -> Load:
        return await run_load(sandbox.caller, itertools.repeat(sandbox.health), callers, lasting / 4)

    found, after = list[OperationLoad](), await health()
    for operation in OPERATIONS:
        requests, before = iter(await sandbox.caller.make_requests(operation, callers)), after
        measured = await run_load(sandbox.caller, requests, callers, lasting)
        after, memory = await health(), read_resident_bytes(sandbox.process)
        found.append(OperationLoad(operation, measured, (before, after), memory))
    return found


async def run_load(caller: Caller, requests: Iterator[Request], callers: int, lasting: float) -> Load:
    """Have so many callers share the requests for `lasting` seconds."""
    seconds, failures = list[float](), Counter[str]()
    begun = time.perf_counter()

    async def call_again_and_again() -> None:
        for request in requests:
            sent = time.perf_counter()
            answer = await caller.send(request)
            answered = time.perf_counter()
            seconds.append(answered - sent)
            failures.update(find_failures(answer))
            if answered >= begun + lasting:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call_again_and_again())
    return Load(seconds, time.perf_counter() - begun, failures)


def find_failures(answer: SandboxResponse) -> Iterable[str]:
    """The kinds of failure that an answer tells of: none where the operation was carried out."""
    if not answer.is_success:
        yield "5xx" if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"
        if _LOCKED_MESSAGE in answer.content:
            yield "locked"


def list_problems(found: Sequence[OperationLoad], locked: int) -> list[str]:
    """What must not be, a line each. locked: lines of the sandbox's log that tell of a locked database."""
    lines = [
        f"{each.operation}: {kind}: {number} of {len(each.load.seconds)} requests"
        for each in found
        for kind, number in (each.load.failures + each.health[1].failures).items()
    ]
    return [*lines, *([f"the sandbox's log: {locked} lines of a locked database"] if locked else [])]


def format_page(found: Sequence[OperationLoad], sandbox: RunningSandbox) -> str:
    """The results as a page."""
    machine = describe_machine()
    failures = sum((each.load.failures for each in found), Counter[str]())
    lines = [
        "| operation | requests | to the health answer | a second | p50, ms | p99, ms | memory after, MB | each has |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for each in found:
        calls, row = each.load, PREPARATIONS.get(each.operation)
        lines.append(
            f"| {each.operation} | {len(calls.seconds)} | {each.ratio:.3f} | {calls.rate:.0f} "
            f"| {calls.get_percentile_ms(50):.0f} | {calls.get_percentile_ms(99):.0f} "
            f"| {each.memory / MEGABYTE:.0f} | {'' if row is None else row.resource} |"
        )
    health = statistics.quantiles([each.health[1].rate for each in found], n=4)
    before, after, peak = (size / MEGABYTE for size in (sandbox.memory, found[-1].memory, sandbox.read_peak_bytes()))
    return f"""# The sandbox under load

Written by `python -m benchmarks sandbox`. The sandbox runs in a process of its own, with its state in a folder.
{CALLERS} callers call one operation after the other at the same time; they share the machine's cores with it. PDFs are
the demo's forms. The last column names what a request uses up: each has its own, made before the time is taken.

"To the health answer" is the operation's requests a second over those of `/_sandbox/health`, taken before and after it
by the same callers: compare these. What is a second or in milliseconds describes this run alone. The health answer came
{health[1]:.0f} times a second (half of all measurements: {health[0]:.0f} to {health[2]:.0f}).

{len(found)} operations; answers of 5xx: {failures["5xx"]}; refused: {failures["refused"]}; with a locked database:
{failures["locked"]}, and {sandbox.count_locked_lines()} in the sandbox's log.

From the start of the process to its being ready it took {sandbox.startup_seconds:.1f} seconds.
Its memory was {before:.0f} MB then, {after:.0f} MB at the end, {peak:.0f} MB at its peak.
{machine["python"]}, {machine["system"]}, {machine["cores"]} cores; load average {machine["load average"]}.

{chr(10).join(lines)}
"""


def run_sandbox_load() -> int:
    """Measure, write the page, and return 1 where a request failed or it took too long."""

    async def measured() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            async with asyncio.timeout(_MAX_SECONDS), run_sandbox(Path(folder)) as sandbox:
                found = await measure_operations(sandbox)
                RESULTS.write_text(format_page(found, sandbox), "utf-8")
                return list_problems(found, sandbox.count_locked_lines())

    try:
        lines = asyncio.run(measured())
    except TimeoutError:
        lines = [f"the measurement did not end within {_MAX_SECONDS} seconds"]
    sys.stderr.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0
