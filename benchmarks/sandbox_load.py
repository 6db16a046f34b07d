"""`python -m benchmarks sandbox`: the sandbox, in a separate process, with 200 clients. It writes sandbox-load.md.

All clients send the same kind of request for a second. Before and after it they request the health of the sandbox, and
the page compares the rates.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from benchmarks.gauges import read_peak_bytes, read_resident_bytes
from benchmarks.processes import RESULTS, format_machine
from benchmarks.soak.sandbox_process import run_sandbox
from directsuite.sandbox.samples import ALICE, BOB, FAX_NUMBER, MAILBOX_LOGIN, TUSER
from tests.consent_form import build_consent_form

CLIENTS = 200
_TIMEOUT = 240
_LOGIN = {"username": ALICE, "password": MAILBOX_LOGIN}
_RECIPIENTS = [{"email": BOB, "type": "TO"}]
_MESSAGE = {"subject": "load", "sender": ALICE, "recipients": _RECIPIENTS, "body": "text", "htmlBody": False}

Request = tuple[str, str, Any]
"""Method, URL, and body: bytes, or an object that is sent as JSON."""


@attrs.frozen
class Load:
    """The seconds of each request, their total time, and the number of failures."""

    seconds: list[float]
    elapsed: float
    failures: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.elapsed


async def make_requests(http: aiohttp.ClientSession, urls: Mapping[str, str], count: int) -> dict[str, list[Request]]:
    """Return requests by operation. Each Sign has a separate document, because a field can be signed only once."""
    message, pdf = urls["message"], f"{urls['signing']}/pdf"
    form = base64.b64encode(build_consent_form(1))
    stored = [json.loads((await send(http, ("POST", pdf, form)))[1])["identifier"] for _ in range(count)]
    user = {"username": TUSER[0], "password": TUSER[1]}
    return {
        "health": [("GET", f"{urls['control']}/_sandbox/health", None)],
        "GetMessageCount": [("POST", f"{message}/GetMessageCount/INBOX", _LOGIN)],
        "GetMessages": [("POST", f"{message}/GetMessages/INBOX", _LOGIN)],
        "Send": [("PUT", f"{message}/Send", {"authentication": _LOGIN, "message": _MESSAGE})],
        "Save": [("POST", pdf, form)],
        "GetDoc": [("GET", f"{pdf}/{stored[0]}", None)],
        "Sign": [("PATCH", f"{pdf}/{each}/sign", {"name": "PatientSignature"}) for each in stored],
        "getMultipleMessageInfo": [("GET", f"{urls['fax']}/api/fax/getMessageList/{FAX_NUMBER}/0", None)],
        "login": [("POST", f"{urls['registration']}/login", user)],
    }


async def send(http: aiohttp.ClientSession, request: Request) -> tuple[bool, bytes]:
    """Send a request. Return True if it succeeded, and the body of the response."""
    method, url, body = request
    content: dict[str, Any] = {"json": body} if isinstance(body, dict) else {"data": body}
    headers = {"Content-Type": "text/plain"} if isinstance(body, bytes) else {}
    async with http.request(method, url, headers=headers, **content) as response:
        received = await response.read()
        return response.status == 200 and b'"success":false' not in received.replace(b" ", b""), received


async def run_load(http: aiohttp.ClientSession, requests: Sequence[Request], clients: int, seconds: float) -> Load:
    """Let clients send requests for the given time: each at least one, or each request once if there are several."""
    waiting = iter(requests) if len(requests) > 1 else itertools.repeat(requests[0])
    taken, failures, start = list[float](), list[bytes](), time.perf_counter()

    async def client() -> None:
        for request in waiting:
            sent = time.perf_counter()
            succeeded, received = await send(http, request)
            taken.append(time.perf_counter() - sent)
            if not succeeded:
                failures.append(received)
            if time.perf_counter() >= start + seconds:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return Load(taken, time.perf_counter() - start, len(failures))


async def measure_sandbox(folder: Path, clients: int, seconds: float) -> tuple[str, list[str]]:
    """Run a sandbox with its state in a folder, and measure it. Return the page, and the problems."""
    start, rows, problems = time.perf_counter(), list[str](), list[str]()
    with (folder / "log").open("wb") as log:
        async with asyncio.timeout(_TIMEOUT), run_sandbox(folder / "state", log) as sandbox:
            startup, memory = time.perf_counter() - start, read_resident_bytes(sandbox.pid)
            environment, connector = await sandbox.control.environment(), aiohttp.TCPConnector(limit=clients)
            headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}"}
            async with aiohttp.ClientSession(connector=connector, headers=headers) as http:
                requests = await make_requests(http, sandbox.urls, clients)
                health = requests.pop("health")
                before = await run_load(http, health, clients, seconds / 4)
                for operation, each in requests.items():
                    load = await run_load(http, each, clients, seconds)
                    after = await run_load(http, health, clients, seconds / 4)
                    ratio, used = 2 * load.rate / (before.rate + after.rate), read_resident_bytes(sandbox.pid) / 1e6
                    cuts = statistics.quantiles(load.seconds, n=100)
                    times = f"{1000 * cuts[49]:.0f} | {1000 * cuts[98]:.0f} | {used:.0f}"
                    rows.append(f"| {operation} | {len(load.seconds)} | {ratio:.3f} | {load.rate:.0f} | {times} |")
                    if load.failures or after.failures:
                        problems.append(f"{operation}: {load.failures + after.failures} requests failed.")
                    before = after
            peak = read_peak_bytes(sandbox.pid)
    if locked := (folder / "log").read_bytes().count(b"database is locked"):
        problems.append(f"The log has {locked} lines about a locked database.")
    sizes = {"memory": memory / 1e6, "peak": peak / 1e6}
    page = _PAGE.format(clients=clients, startup=startup, **sizes, rows="\n".join(rows), machine=format_machine())
    return page, problems


def run_sandbox_load(_: Sequence[str]) -> int:
    """Measure, and write the page. Return 1 if a request failed."""
    with tempfile.TemporaryDirectory() as folder:
        page, problems = asyncio.run(measure_sandbox(Path(folder), CLIENTS, 1.0))
    (RESULTS / "sandbox-load.md").write_text(page, "utf-8")
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return int(bool(problems))


_PAGE = """# The sandbox with {clients} clients

Written by `python -m benchmarks sandbox`. The sandbox runs in a separate process, with its state in a folder. The
clients share the cores of the machine with it. PDFs are the forms of the demo. "Ratio" is the rate divided by the rate
of requests for `/_sandbox/health`, which the same clients sent before and after. Compare ratios, because rates and
times are only valid for this run.

The sandbox was ready after {startup:.1f} seconds, with {memory:.0f} MB of memory. Its peak was {peak:.0f} MB.

| operation | requests | ratio | per second | p50, ms | p99, ms | memory after, MB |
|---|---:|---:|---:|---:|---:|---:|
{rows}

{machine}"""
