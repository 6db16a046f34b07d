"""The sandbox, the suite, the faults and the time of the storm.

Time advances in the event loop and in the sandbox together, whenever a few actions have ended. If all actions wait, and
no socket is ready, it leaps.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

import directsuite as ds
from directsuite.core.events import Event
from directsuite.sandbox import Sandbox
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.server import DEMO_LOGIN
from tests.core.virtual_time import LoopClock

from .matrix_rows import ALICE, DOMAIN, PASSWORD, TUSER, make_raw_message, populate
from .matrix_time import get_leaping_loop

CONNECTIONS = 16
"""The connections to each service for 64 callers, some of which must wait."""
FAX_NUMBER = "15550100100"
FAX_COUNT = 23
SHELF_FOLDER = "INBOX.Shelf"
SHELF_MESSAGES = 30
CREDENTIAL_SECONDS = 600.0
"""The lifetime of tokens and sessions in seconds."""
PATIENT = "ada"
_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
_ACTIONS_PER_TICK = 8  # actions
_SECONDS_PER_TICK = 0.8
_IDLE_SECONDS, _LEAP_SECONDS = 0.1, 5.0  # real seconds without input or output; virtual seconds that then pass
_REQUESTS_PER_SECOND = 10**6

FAULTS: tuple[tuple[float, str, Mapping[str, Any]], ...] = (
    (0.012, "reset_before", {}),
    (0.012, "reset_after", {}),
    (0.012, "truncate", {}),
    (0.012, "malformed", {}),
    (0.006, "status", {"status": 500}),
    (0.006, "status", {"status": 500, "processed": True, "body": {"error": "server_error"}}),
    (0.006, "status", {"status": 502, "body": "<h1>Bad Gateway</h1>", "processed": True}),
    (0.005, "status", {"status": 504}),
    (0.003, "status", {"status": 503}),
    (0.004, "status", {"status": 503, "retry_after": 1}),
    (0.003, "status", {"status": 429, "retry_after": 1}),
    (0.003, "hang", {}),
    (0.003, "hang", {"processed": True}),
    (0.005, "latency", {"seconds": 1.0}),
    (0.006, "expire_token", {}),
    (0.006, "expire_session", {}),
)
"""The probability, kind and options of each fault. A tenth of all requests has one."""


@attrs.define(eq=False)
class TokenFetcher:
    """A source of tokens of the sandbox, which counts its calls."""

    sandbox: Sandbox
    fetches: int = 0

    async def fetch(self) -> ds.AccessToken:
        self.fetches += 1
        token = await self.sandbox.issue_token(lifetime=timedelta(seconds=CREDENTIAL_SECONDS))
        return ds.AccessToken(token, CREDENTIAL_SECONDS)


@attrs.define
class EventCounter:
    """The events of the suite, counted: by class, and by operation."""

    counts: dict[tuple[str, str], int] = attrs.Factory(dict[tuple[str, str], int])

    def __call__(self, event: Event) -> None:
        key = (type(event).__name__, getattr(event, "operation", ""))
        self.counts[key] = self.counts.get(key, 0) + 1

    def count(self, kind: type[Event], operation: str | None = None) -> int:
        return sum(
            count
            for (name, of_operation), count in self.counts.items()
            if name == kind.__name__ and operation in (None, of_operation)
        )


@attrs.define(eq=False)
class StormContext:
    """The objects that all actions of the storm share."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    events: EventCounter
    tokens: TokenFetcher
    _ended_actions: int = 0

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, PASSWORD)

    @property
    def tuser(self) -> ds.TUser:
        return self.suite.tuser(TUSER, PASSWORD, ALICE)

    def note_action_ended(self) -> None:
        self._ended_actions += 1
        if self._ended_actions % _ACTIONS_PER_TICK == 0:
            self._advance(_SECONDS_PER_TICK)

    async def run_clock(self) -> None:
        loop = get_leaping_loop()
        while True:
            await asyncio.sleep(_IDLE_SECONDS / 2)
            if not loop.threads and time.monotonic() - loop.last_io_time > _IDLE_SECONDS:
                loop.last_io_time = time.monotonic()
                self._advance(_LEAP_SECONDS)

    def inject_faults(self, seed: int) -> None:
        for number, (probability, kind, more) in enumerate(FAULTS):
            self.sandbox.inject_fault("*", kind, probability=probability, seed=seed + number, times=None, **more)

    def _advance(self, seconds: float) -> None:
        get_leaping_loop().leap(seconds)
        self.sandbox.clock.advance(timedelta(seconds=seconds))


@contextlib.asynccontextmanager
async def open_context() -> AsyncGenerator[StormContext]:
    """Open a populated sandbox and a suite, without faults."""
    clock = Clock()
    clock.freeze(_NOON)
    async with Sandbox(clock=clock) as sandbox:
        await populate(sandbox)
        for number in range(FAX_COUNT):
            await sandbox.add_fax(FAX_NUMBER, description=f"fax {number}")
        tokens, heard = TokenFetcher(sandbox), EventCounter()
        settings = attrs.evolve(
            ds.Settings.from_env(sandbox.environment),
            max_connections=CONNECTIONS,
            requests_per_second=_REQUESTS_PER_SECOND,
            burst=_REQUESTS_PER_SECOND,
        )
        suite = ds.DirectSuite(settings, tokens.fetch, ds.Login(*DEMO_LOGIN), listeners=[heard], clock=LoopClock())
        async with suite:
            storm = StormContext(sandbox, suite, heard, tokens)
            await storm.box.create_folder(SHELF_FOLDER)
            for number in range(SHELF_MESSAGES):
                await sandbox.deliver(ALICE, make_raw_message(f"shelved {number}"), SHELF_FOLDER)
            individual = ds.IDProofedIndividualRESTful(id=7, direct_username=PATIENT)
            await suite.registration.provision_id_proofed_patient(DOMAIN, individual)
            yield storm
