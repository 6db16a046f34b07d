"""`python -m benchmarks sandbox`: the sandbox, in a process of its own, under many callers at a time.

Each operation is called by all callers, of whom each gives its next request once it has the answer. An answer that is
no success, such as one for a locked database, ends the measurement.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from benchmarks.measuring.machine import described
from directsuite.cli.demo import documents
from directsuite.sandbox import Control

RESULTS = Path(__file__).parent / "results" / "sandbox-load.md"
CALLERS = 200
_ROUNDS = 3
_LOGIN = {"username": "alice@direct.example.test", "password": "sandbox"}
_MEGABYTE = 1_000_000

Call = Callable[[], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Rate:
    """How many requests of an operation there were, the seconds of each and of all, and the peak of memory after."""

    operation: str
    seconds: list[float]
    elapsed: float
    peak: int

    @property
    def slowest(self) -> float:
        """The milliseconds within which 99 of 100 were answered."""
        return sorted(self.seconds)[len(self.seconds) * 99 // 100] * 1000


@attrs.frozen(kw_only=True)
class Running:
    """A sandbox that runs, and what calls it."""

    http: aiohttp.ClientSession
    urls: dict[str, str]
    headers: dict[str, str]
    process: int
    started_in: float
    """Seconds from the start of the process to its being ready."""

    async def call(self, method: str, url: str, body: object, **headers: str) -> Any:
        """Return the answer. Raises RuntimeError for one that is no success."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        async with self.http.request(method, url, data=content, headers=given) as answer:
            text = await answer.read()
        answered: Any = json.loads(text) if answer.status == HTTPStatus.OK else {}
        if answer.status != HTTPStatus.OK or answered.get("success") is False:
            raise RuntimeError(f"{method} was answered with {answer.status}: {text[:200]!r}")
        return answered

    def peak(self) -> int:
        """The most memory that the process has had, in bytes."""
        lines = Path(f"/proc/{self.process}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    async def calls(self) -> dict[str, Call]:
        """What is measured: one request of each operation."""
        signing, message = f"{self.urls['signing']}/pdf", self.urls["message"]
        pdf = base64.b64encode(documents.consent_form(documents.Form.numbered(1)))
        stored = (await self.call("POST", signing, pdf, **self.headers))["identifier"]
        sent = {
            "subject": "load",
            "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
            "sender": _LOGIN["username"],
            "body": "text",
            "htmlBody": False,
        }

        async def save() -> None:
            await self.call("POST", signing, pdf, **self.headers)

        async def describe() -> None:
            await self.call("GET", f"{signing}/{stored}/info", b"", **self.headers)

        async def save_and_sign() -> None:
            own = (await self.call("POST", signing, pdf, **self.headers))["identifier"]
            await self.call("PATCH", f"{signing}/{own}/sign", {}, **self.headers)

        async def faxes() -> None:
            await self.call("GET", f"{self.urls['fax']}/api/fax/getMessageList/15550100100/10", b"", **self.headers)

        async def count() -> None:
            await self.call("POST", f"{message}/GetMessageCount/INBOX", _LOGIN)

        async def send() -> None:
            await self.call("PUT", f"{message}/Send", {"authentication": _LOGIN, "message": sent})

        async def log_in() -> None:
            body = {"username": "demo-tuser", "password": "demo-login"}
            await self.call("POST", f"{self.urls['registration']}/login", body)

        return {
            "getMessageList (fax)": faxes,
            "GetMessageCount": count,
            "Send": send,
            "login": log_in,
            "Save": save,
            "GetDocInfo": describe,
            "Save, then Sign": save_and_sign,
        }


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[Running]:
    """A sandbox with its state in `folder`."""
    command = ["-m", "directsuite.sandbox", "--port", "0", "--json", "--data", str(folder)]
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE)
    try:
        if process.stdout is None:
            raise RuntimeError("the sandbox has no output")
        urls = json.loads(await process.stdout.readline())["urls"]
        started_in = time.perf_counter() - begun
        async with Control(urls["control"].removesuffix("/_sandbox")) as control:
            headers = {"Authorization": f"Bearer {(await control.environment())['DIRECTSUITE_TOKEN']}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as http:
            yield Running(http=http, urls=urls, headers=headers, process=process.pid, started_in=started_in)
    finally:
        process.terminate()
        await process.communicate()


async def measure(sandbox: Running, *, callers: int = CALLERS, lasting: float = 3.0) -> list[Rate]:
    """Have so many callers call each operation for `lasting` seconds, and once at least.

    Raises RuntimeError for an answer that is no success.
    """
    rates = list[Rate]()
    for operation, call in (await sandbox.calls()).items():
        seconds = list[float]()
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(_call_again_and_again(call, begun + lasting, seconds))
        elapsed = time.perf_counter() - begun
        rates.append(Rate(operation=operation, seconds=seconds, elapsed=elapsed, peak=sandbox.peak()))
    return rates


async def _call_again_and_again(call: Call, until: float, seconds: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await call()
        ended = time.perf_counter()
        seconds.append(ended - begun)
        if ended >= until:
            return


def page(rounds: Sequence[Sequence[Rate]], started_in: float) -> str:
    """The results as a page: of each operation the slowest round and the fastest, by requests a second."""
    machine = described()
    lines = ["| operation | requests | a second | 99 of 100 within, ms | peak of memory since the start, MB |"]
    lines.append("|---|---:|---:|---:|---:|")
    for rates in zip(*rounds, strict=True):
        of_one = sorted(rates, key=lambda rate: len(rate.seconds) / rate.elapsed)
        slowest, fastest = of_one[0], of_one[-1]
        each = [f"{len(rate.seconds) / rate.elapsed:.0f}" for rate in (slowest, fastest)]
        within = f"{fastest.slowest:.0f} to {slowest.slowest:.0f}"
        peak = max(rate.peak for rate in rates) / _MEGABYTE
        number = sum(len(rate.seconds) for rate in rates)
        lines.append(f"| {slowest.operation} | {number} | {' to '.join(each)} | {within} | {peak:.0f} |")
    return f"""# The sandbox under load

Written by `python -m benchmarks sandbox`. The sandbox runs in a process of its own, with its state in a folder.
{CALLERS} callers call one operation after the other at the same time; they share the machine's cores with it. All
requests succeeded: none was answered with a locked database. PDFs are the demo's forms.
Of {_ROUNDS} rounds the table has the slowest and the fastest: where they lie far apart, other work had the cores.

From the start of the process to its first request it takes {started_in:.1f} seconds.
{machine["python"]}, {machine["system"]}, {machine["cores"]} cores; load average {machine["load average"]}.

{chr(10).join(lines)}
"""


def sandbox_load() -> int:
    """Measure, and write the page."""

    async def measured() -> str:
        with tempfile.TemporaryDirectory() as folder:
            async with running(Path(folder)) as sandbox:
                return page([await measure(sandbox) for _ in range(_ROUNDS)], sandbox.started_in)

    RESULTS.write_text(asyncio.run(measured()), "utf-8")
    return 0
