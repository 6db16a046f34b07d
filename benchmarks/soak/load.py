"""The load: epochs of actions and faults. After each epoch all actions end, and a quiet sample is taken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import psutil
from tenacity.wait import wait_random

import directsuite as ds
from benchmarks.soak.actions import ACTIONS, ALICE, Action, ActionContext
from directsuite.core.call import Call
from directsuite.core.events import CallFinished, Event
from directsuite.core.session import ResponseStream
from directsuite.core.upload import RequestPayload
from directsuite.sandbox.client import Control

FAULTS: tuple[tuple[float, str, Mapping[str, Any]], ...] = (
    (0.004, "reset_before", {}),
    (0.004, "reset_after", {}),
    (0.004, "truncate", {}),
    (0.004, "malformed", {}),
    (0.001, "hang", {}),
    (0.001, "hang", {"processed": True}),
    (0.010, "latency", {"seconds": 0.3}),
    (0.003, "status", {"status": 500}),
    (0.003, "status", {"status": 502, "body": "<h1>Bad Gateway</h1>"}),
    (0.002, "status", {"status": 503}),
    (0.0003, "status", {"status": 503, "retry_after": 1}),
    (0.0003, "status", {"status": 429, "retry_after": 1}),
    (0.001, "status", {"status": 504, "processed": True}),
    (0.003, "expire_token", {}),
    (0.003, "expire_session", {}),
)
"""The probability for each request, the kind of the fault, and its other members."""

CONNECTIONS_PER_SERVICE = 4
MAX_KEPT_ALIVE_SOCKETS = 4 * CONNECTIONS_PER_SERVICE
"""The maximum of sockets of one suite, which it may keep open while there are no calls."""
MAX_SOCKETS = 2 * MAX_KEPT_ALIVE_SOCKETS + 4
"""The maximum of sockets: those of two suites, their logins, which need no free connection, and the control API."""

_TASKS, _TASKS_PER_VISITOR = 13, 3  # tasks on the permanent suite, and on each suite that is opened and closed
_EPOCH_SECONDS, _SAMPLE_SECONDS = 60.0, 2.0
_CANCELLED_SHARE, _CANCEL_AFTER_SECONDS = 0.04, 0.03  # share of the actions that are cancelled; mean delay
_GRACE_SECONDS = (0.0, 0.1, 5.0)  # how long a suite waits for its calls when it is closed
_TROUBLE_AFTER_SECONDS, _OUTAGE_SECONDS, _PAUSE_SECONDS = (4.0, 10.0), 2.5, 0.25
_CLOCK_LEAP = timedelta(minutes=11)  # longer than the lifetime of a session
_DELIVERED_MESSAGES = 15  # messages in Alice's inbox
_LOOP_PASSES = 20  # passes of the event loop until closed objects are finalized
_TOKEN_SECONDS = 40
_WEIGHTS = [weight for weight, _ in ACTIONS]


@attrs.frozen
class SandboxProcess:
    """A running sandbox: the environment variables of its clients, and its control API."""

    environment: Mapping[str, str]
    control: Control

    async def issue_token(self) -> ds.AccessToken:
        """Return a new access token, as the token source of a suite."""
        response = await self.control._request("POST", "tokens", {"seconds": _TOKEN_SECONDS})
        return ds.AccessToken(response["created"], _TOKEN_SECONDS)


@contextlib.asynccontextmanager
async def run_sandbox() -> AsyncGenerator[SandboxProcess]:
    """Run a sandbox with sample content, which it keeps in memory."""
    command = (sys.executable, "-m", "directsuite", "sandbox", "--memory", "--port", "0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603, ASYNC220
        try:
            assert process.stdout is not None
            urls = json.loads(process.stdout.readline())["urls"]
            async with Control(urls["control"]) as control:
                yield SandboxProcess(await control.environment(), control)
        finally:
            process.terminate()


@attrs.frozen(kw_only=True)
class Sample:
    """A sample of this process. quiet: True if it was taken between two epochs, with no call in progress.

    blocks: memory blocks that Python has allocated. live: calls, responses and request bodies that exist.
    """

    quiet: bool
    seconds: float
    rss: int
    sockets: int
    tasks: int
    blocks: int
    live: int
    calls: int


@attrs.define
class SoakRun:
    """Counters of events by class and of results of the actions, and samples.

    problems: errors that are not of the client's types, messages of the event loop, and warnings.
    left: sockets, file descriptors and tasks that remained after everything was closed.
    """

    events: Counter[str] = attrs.Factory(Counter[str])
    results: Counter[str] = attrs.Factory(Counter[str])
    suites: int = 0
    problems: list[str] = attrs.Factory(list[str])
    samples: list[Sample] = attrs.Factory(list[Sample])
    left: Mapping[str, int] = attrs.Factory(dict[str, int])

    def __call__(self, event: Event) -> None:
        """Count an event, as a listener of a suite."""
        self.events[type(event).__name__] += 1
        self.events["cancelled"] += isinstance(event, CallFinished) and event.cancelled

    def count_result(self, error: BaseException | None) -> None:
        """Count the result of an action."""
        self.results["done" if error is None else type(error).__name__] += 1
        if error is not None and not isinstance(error, ds.DirectSuiteError):
            self.problems.append("".join(traceback.format_exception(error)))


async def run(form: bytes, *, minutes: float, seed: int) -> SoakRun:
    """Run the load. form: the demo's form."""
    found = SoakRun()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.problems.append(repr(context)))
    process = psutil.Process()
    before = process.num_fds(), len(asyncio.all_tasks())
    logging.getLogger("directsuite").addHandler(logging.NullHandler())
    with warnings.catch_warnings(record=True) as caught, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        (form_file := Path(folder, "consent.pdf")).write_bytes(form)
        async with run_sandbox() as sandbox:
            await _Load(sandbox, found, random.Random(seed), form, form_file).run(minutes)
        await _collect_garbage()
        found.left = {
            "sockets": len(process.net_connections(kind="inet")),
            "file descriptors": process.num_fds() - before[0],
            "tasks": len(asyncio.all_tasks()) - before[1],
        }
    found.problems += [str(warning) for warning in caught]
    return found


@attrs.define
class _Load:
    sandbox: SandboxProcess
    found: SoakRun
    rng: random.Random
    form: bytes
    form_file: Path
    _process: psutil.Process = attrs.Factory(psutil.Process)
    _start: float = attrs.Factory(time.monotonic)

    async def run(self, minutes: float) -> None:
        end = time.monotonic() + 60 * minutes
        async with self._make_suite() as suite:
            while (seconds := min(_EPOCH_SECONDS, end - time.monotonic())) > 0:
                await self._reset_sandbox()
                await self._run_epoch(suite, seconds)
                await _collect_garbage()
                self._take_sample(quiet=True)

    async def _run_epoch(self, suite: ds.DirectSuite, seconds: float) -> None:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(self._cause_troubles()), group.create_task(self._sample())]
            for _ in range(_TASKS):
                group.create_task(self._act_until(over, suite))
            group.create_task(self._open_suites_until(over))
            await asyncio.sleep(seconds)
            over.set()
            for task in background:
                task.cancel()

    def _make_suite(self, *, keep_alive: bool = False) -> ds.DirectSuite:
        self.found.suites += 1
        return ds.DirectSuite.from_env(
            self.sandbox.environment,
            token=self.sandbox.issue_token,
            listeners=[self.found],
            timeout=15.0,
            attempt_timeout=2.0,
            max_connections=CONNECTIONS_PER_SERVICE,
            circuit_pause=1.0,
            retry=ds.RetryPolicy(wait=wait_random(0, 0.2)),
            keep_alive=keep_alive,
        )

    async def _act_until(self, over: asyncio.Event, suite: ds.DirectSuite) -> None:
        rng = random.Random(self.rng.random())
        context = ActionContext(suite=suite, rng=rng, form=self.form, form_file=self.form_file)
        while not over.is_set():
            [(_, action)] = context.rng.choices(ACTIONS, _WEIGHTS)
            await self._perform(action, context)
            await asyncio.sleep(context.rng.uniform(0, 2 * _PAUSE_SECONDS))

    async def _open_suites_until(self, over: asyncio.Event) -> None:
        """Open and close suites, most of them while calls are in progress."""
        while not over.is_set():
            suite = self._make_suite(keep_alive=self.rng.random() < 0.5)
            await suite.__aenter__()
            closing = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(_TASKS_PER_VISITOR):
                    group.create_task(self._act_until(closing, suite))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), self.rng.uniform(0.5, 5.0))
                closing.set()
                await suite.aclose(grace=self.rng.choice(_GRACE_SECONDS))

    async def _perform(self, action: Action, context: ActionContext) -> None:
        task = asyncio.ensure_future(action(context))
        is_cancelled = context.rng.random() < _CANCELLED_SHARE
        delay = context.rng.expovariate(1 / _CANCEL_AFTER_SECONDS) if is_cancelled else None
        try:
            await asyncio.wait([task], timeout=delay)
        finally:
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            self.found.results["cancelled"] += 1
        else:
            self.found.count_result(task.exception())

    async def _cause_troubles(self) -> None:
        control = self.sandbox.control
        while True:
            await asyncio.sleep(self.rng.uniform(*_TROUBLE_AFTER_SECONDS))
            if self.rng.random() < 0.75:
                await control.clock.advance(_CLOCK_LEAP)
            else:  # an outage that is long enough to open the circuits
                await control.inject_fault("*", "reset_before", times=None)
                await asyncio.sleep(_OUTAGE_SECONDS)
                await self._inject_faults()

    async def _inject_faults(self) -> None:
        await self.sandbox.control.clear_faults()
        for probability, kind, more in FAULTS:
            seed = self.rng.getrandbits(31)
            await self.sandbox.control.inject_fault("*", kind, probability=probability, times=None, seed=seed, **more)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            self._take_sample(quiet=False)

    def _take_sample(self, *, quiet: bool) -> None:
        self.found.samples.append(
            Sample(
                quiet=quiet,
                seconds=time.monotonic() - self._start,
                rss=self._process.memory_info().rss,
                sockets=len(self._process.net_connections(kind="inet")),
                tasks=len(asyncio.all_tasks()),
                blocks=sys.getallocatedblocks(),
                live=_count_live() if quiet else 0,
                calls=self.found.events["CallFinished"],
            )
        )

    async def _reset_sandbox(self) -> None:
        await self.sandbox.control.reset()
        await self.sandbox.control.clock.set(datetime.now(UTC))
        for number in range(_DELIVERED_MESSAGES):
            lines = "\r\n".join(self.rng.randbytes(38).hex() for _ in range(520))
            raw = f"From: carol@elsewhere.test\r\nTo: {ALICE}\r\nSubject: Letter {number}\r\n\r\n{lines}\r\n"
            await self.sandbox.control.deliver(ALICE, raw.encode())
        await self._inject_faults()


async def _collect_garbage() -> None:
    """Collect garbage until no call is left, for at most 2 seconds: a socket that is closed first sends its buffer."""
    for _ in range(40):
        for _ in range(_LOOP_PASSES):
            await asyncio.sleep(0)
        gc.collect()
        if not _count_live():
            break
        await asyncio.sleep(0.05)


def _count_live() -> int:
    return sum(isinstance(each, Call | ResponseStream | RequestPayload) for each in gc.get_objects())
