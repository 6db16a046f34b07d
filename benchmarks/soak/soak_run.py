"""The run: epochs of load, and between them a quiet moment in which nothing may be left of it.

gate open ─► load and trouble ─► gate closed, all calls at their end ─► audit, sample ─► server starts over ─┐
    ▲                                                                                                       │
    └───────────────────────────────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from tenacity.wait import wait_random

import directsuite as ds
from benchmarks.soak import fault_injection
from benchmarks.soak.action_context import ALICE, SUBJECT_PREFIX, SentMessages
from benchmarks.soak.census import SampleRecorder, count_open_descriptors, count_open_sockets
from benchmarks.soak.server import CONTROL_CONNECTIONS, SoakServer, make_consent_form, run_server
from benchmarks.soak.tally import Tally
from benchmarks.soak.workers import EpochGate, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Generator

RESIDENT_TASKS = 13
"""Tasks on the suite that stays; three more, one after the other, on suites that come and go."""

CONNECTIONS_PER_SERVICE = 4
"""Connections that a suite may have to one service."""

MAX_KEPT_ALIVE_SOCKETS = 4 * CONNECTIONS_PER_SERVICE
"""The most sockets of one suite, and so those that it may keep alive when no call is under way."""

MAX_SOCKETS = 2 * MAX_KEPT_ALIVE_SOCKETS + 3 + CONTROL_CONNECTIONS
"""The most sockets that there may be at once: two suites', their logins and the one by hand, which wait for no
connection, and the control API's."""

_EPOCH_SECONDS = 60.0  # seconds
_DELIVERED_MESSAGES = 15  # messages in Alice's inbox
_LOOP_PASSES = 20  # of the event loop, for what has been closed to be gone
_AUDIT_TIMEOUT = 30.0  # seconds


@attrs.frozen(kw_only=True)
class SoakPlan:
    """What to run. pause: seconds between two actions of a task, on the average."""

    minutes: float
    seed: int
    pause: float
    samples: Path


@attrs.frozen(kw_only=True)
class OpenResources:
    """What is left when all is closed, beside what was there before anything was opened."""

    sockets: int
    descriptors: int
    tasks: int


async def run(plan: SoakPlan) -> tuple[Tally, OpenResources]:
    """The whole run; its samples go to the plan's file."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tally.count_complaint)
    descriptors, tasks = count_open_descriptors(), len(asyncio.all_tasks())
    with _count_warnings(tally), plan.samples.open("w", encoding="utf-8", newline="") as file:
        with tempfile.TemporaryDirectory() as folder:
            async with run_server() as server:
                await _SoakRun(plan, tally, server, SampleRecorder(file, tally, server.pid), Path(folder)).run()
        gc.collect()  # what was forgotten complains now
        for _ in range(_LOOP_PASSES):
            await asyncio.sleep(0)
        return tally, OpenResources(
            sockets=count_open_sockets(),
            descriptors=count_open_descriptors() - descriptors - 1,  # the file of the samples is still open
            tasks=len(asyncio.all_tasks()) - tasks,
        )


class _SoakRun:
    def __init__(self, plan: SoakPlan, tally: Tally, server: SoakServer, census: SampleRecorder, folder: Path) -> None:
        self._plan = plan
        self._tally = tally
        self._server = server
        self._census = census
        self._folder = folder
        self._dice = random.Random(plan.seed)
        self._gate = EpochGate()
        self._sent = SentMessages()

    async def run(self) -> None:
        """Epoch after epoch on one suite, until the time is up."""
        crew = await self._make_crew()
        async with crew.make_suite() as suite:
            await self._reset_server()
            workers = [
                asyncio.create_task(crew.run_on_shared_suite(suite, self._dice.getrandbits(31)))
                for _ in range(RESIDENT_TASKS)
            ]
            workers.append(asyncio.create_task(crew.run_on_own_suites(self._dice.getrandbits(31))))
            workers.append(asyncio.create_task(self._census.run()))
            try:
                end = time.monotonic() + 60 * self._plan.minutes
                while (left := end - time.monotonic()) > 0:
                    await self._run_epoch(suite, min(left, _EPOCH_SECONDS))
                    for worker in workers:
                        if worker.done():
                            worker.result()  # none ends by itself: it has failed
            finally:
                await _wait_for(workers)

    async def _make_crew(self) -> WorkerPool:
        form = await make_consent_form()
        form_file = self._folder / "consent.pdf"
        form_file.write_bytes(form)
        urls = self._server.urls
        settings = ds.Settings(
            signing_url=urls["signing"],
            fax_url=urls["fax"],
            message_url=urls["message"],
            registration_url=urls["registration"],
            timeout=15.0,
            attempt_timeout=2.0,
            max_connections=CONNECTIONS_PER_SERVICE,
            circuit_pause=1.0,
            retry=ds.RetryPolicy(wait=wait_random(0, 0.2)),
        )
        return WorkerPool(
            server=self._server,
            tally=self._tally,
            gate=self._gate,
            sent=self._sent,
            settings=settings,
            form=form,
            form_file=form_file,
            folder=self._folder,
            pause=self._plan.pause,
        )

    async def _run_epoch(self, suite: ds.DirectSuite, seconds: float) -> None:
        self._gate.open()
        stirring = asyncio.create_task(fault_injection.run_troubles(self._server, self._dice))
        await asyncio.sleep(seconds)
        await _wait_for([stirring])
        await self._gate.close()
        await self._server.call_control("DELETE", "faults")
        await self._audit(suite)
        gc.collect()  # iterators that were dropped are closed by the event loop, once the collector has found them
        for _ in range(_LOOP_PASSES):
            await asyncio.sleep(0)
        self._census.take_sample(quiet=True)
        await self._reset_server()

    async def _reset_server(self) -> None:
        await self._server.reset()
        self._sent.acknowledged.clear()
        for number in range(_DELIVERED_MESSAGES):
            raw = _make_raw_message(number, self._dice.randbytes(20_000).hex())
            await self._server.call_control("POST", f"inbound/{ALICE}", raw)
        await fault_injection.inject_faults(self._server, self._dice)

    async def _audit(self, suite: ds.DirectSuite) -> None:
        """No message may stand twice among the sent ones, and none be missing that was acknowledged."""
        try:
            subjects = await self._sent_subjects(suite)
        except TimeoutError as error:  # with nobody else calling, and no faults: no connection can be had any more
            self._tally.count_untyped(error)
            return
        there = Counter(subject for subject in subjects if subject.startswith(SUBJECT_PREFIX))
        self._tally.sent += there.total()
        self._tally.doubled += sum(times - 1 for times in there.values())
        self._tally.lost += len(self._sent.acknowledged - there.keys())

    async def _sent_subjects(self, suite: ds.DirectSuite) -> list[str]:
        box = suite.mailbox(ALICE, "sandbox")
        async with asyncio.timeout(_AUDIT_TIMEOUT):
            while True:
                try:
                    return [message.subject or "" for message in await box.get_message_metadata("INBOX.Sent")]
                except ds.TransportError:  # the circuit may still be open
                    await asyncio.sleep(0.5)


def _make_raw_message(number: int, filling: str) -> bytes:
    lines = "\r\n".join(filling[start : start + 76] for start in range(0, len(filling), 76))
    return (
        f"From: carol@elsewhere.test\r\nTo: {ALICE}\r\nSubject: Letter {number}\r\n"
        f"Message-ID: <{number}@elsewhere.test>\r\nDate: Fri, 01 May 2026 11:00:00 +0000\r\n\r\n{lines}\r\n"
    ).encode()


async def _wait_for(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


@contextlib.contextmanager
def _count_warnings(tally: Tally) -> Generator[None]:
    """Warnings are counted as complaints; what the client logs of all the failures is not shown."""
    logging.getLogger("directsuite").addHandler(logging.NullHandler())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = tally.count_warning
        yield
