"""`directsuite sync run`, from its plan to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator

import attrs

from directsuite.cli.command import signals_call
from directsuite.cli.sync.displays import Display, standings
from directsuite.cli.sync.opening import refusal_of, usable
from directsuite.cli.sync.worker import Plan, Worker, suite_of, worker_of
from directsuite.sync.progress import Standing
from directsuite.sync.status_file import WorkerStatus, write_status
from directsuite.sync.store import StoreError

FAILED = 1
"""The exit status where, with --once, a mailbox isn't in step at the end."""
BROKEN_OFF = 128
"""With the number of the signal that came: the exit status where --once didn't get to its end."""

_LOOKS = 0.5  # seconds between two looks of the display
_REPORTS = 5.0  # seconds between two reports in the status file
_LOGGER = logging.getLogger("directsuite")


@attrs.define
class _Signals:
    """Signals that came. first: the number of the first. stop, break_off: at the first and the second."""

    first: int | None = None
    stop: asyncio.Event = attrs.field(factory=asyncio.Event)
    break_off: asyncio.Event = attrs.field(factory=asyncio.Event)

    def came(self, number: int) -> None:
        """Note one."""
        if self.first is None:
            self.first = number
            self.stop.set()
        else:
            self.break_off.set()


async def keep_in_step(plan: Plan, display: Display) -> int:
    """Run a worker until it is done or a signal comes; the exit status.

    Raises RefusedError and ConfigurationError if it can't begin.
    """
    async with contextlib.AsyncExitStack() as stack:
        with usable():
            suite = await stack.enter_async_context(suite_of(plan, [display.round]))
            worker = await stack.enter_async_context(worker_of(plan, suite))
        signals = _Signals()
        with display, signals_call(signals.came, (signal.SIGINT, signal.SIGTERM)):
            async with _reported(worker, plan, display):
                await _worked(worker, plan, display, signals)
            if not plan.once:
                display.say("stopped", f"stopped: {standings(worker.mailboxes)}; the same command goes on from here")
                return 0
            if signals.first is not None:
                display.say("stopped", "broken off, nothing is lost: the same command goes on from here")
                return BROKEN_OFF + signals.first
            display.say("done", standings(worker.mailboxes))
            in_step = all(each.standing is Standing.IN_STEP for each in worker.mailboxes.values())
            return 0 if in_step else FAILED


async def _worked(worker: Worker, plan: Plan, display: Display, signals: _Signals) -> None:
    """Return when the work has ended, by itself or since it was told to. Raises what it raised.

    That it can't begin for its store, before the first turn of any mailbox, is a RefusedError.
    """
    work = asyncio.create_task(worker.work())
    try:
        await _first_of(work, signals.stop)
        if not work.done():
            worker.stop()
            display.say("stopping", f"stopping: what is under way gets {plan.grace:g} s; another signal breaks it off")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(plan.grace):
                    await _first_of(work, signals.break_off)
    finally:
        work.cancel()
        await asyncio.wait([work])
    if work.cancelled():
        return
    try:
        work.result()
    except StoreError as error:
        if any(each.standing is not Standing.WAITING for each in worker.mailboxes.values()):
            raise
        raise refusal_of(error) from None


async def _first_of(work: asyncio.Task[None], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


@contextlib.asynccontextmanager
async def _reported(worker: Worker, plan: Plan, display: Display) -> AsyncGenerator[None]:
    """Show and report how it stands, meanwhile and at the end."""
    started = time.time()

    def report(*, ended: bool) -> None:
        """One report, if it can be written: that it can't is no reason to stop."""
        if plan.status_file is None:
            return
        status = WorkerStatus(
            pid=os.getpid(), started=started, written_at=time.time(), ended=ended, mailboxes=worker.mailboxes
        )
        try:
            write_status(plan.status_file, status)
        except OSError as error:
            _LOGGER.warning("the status file can't be written (%s)", type(error).__name__)

    async def look() -> None:
        """Again and again."""
        reported = float("-inf")
        while True:
            if time.monotonic() - reported >= _REPORTS:  # first, for whoever asks whether the worker lives
                report(ended=False)
                reported = time.monotonic()
            display.show(worker.mailboxes, time.time())
            await asyncio.sleep(_LOOKS)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        report(ended=True)
        display.show(worker.mailboxes, time.time())
