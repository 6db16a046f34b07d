"""A sandbox with people in it, and a client of it: what every test of this folder starts from."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import directsuite as ds
from directsuite.sandbox.clock import Clock as SandboxClock
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.core.virtual_time import ManualClock
from tests.waiting import notify_waiters

from .documents import make_consent_form

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

DOMAIN = "direct.example.test"
ALICE = f"alice@{DOMAIN}"
BOB = f"bob@{DOMAIN}"
PASSWORD = "correct horse"
FAX_NUMBER = "15550100100"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ADA = ds.IDProofedIndividualRESTful(
    first_name="Ada",
    last_name="Example",
    ssn4="1234",
    dob=date(1980, 2, 29),
    direct_username="ada",
    direct_password="first",
)


class SleepDrivenClock(ManualClock):
    """The client's time, which passes only while the client sleeps."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        notify_waiters()
        await asyncio.sleep(0)


class LoopTime:
    """Moves the time of the running event loop, which all deadlines use. Must be created before the suite opens."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        time = loop.time
        self._advanced = 0.0
        vars(loop)["time"] = lambda: time() + self._advanced

    def advance(self, seconds: float) -> None:
        self._advanced += seconds


@dataclass(frozen=True, slots=True)
class Scenario:
    """The sandbox, the client's suite and its clock, and a folder for files."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    clock: SleepDrivenClock
    folder: Path

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, PASSWORD)

    @property
    def bob(self) -> ds.Mailbox:
        return self.suite.mailbox(BOB, PASSWORD)

    @property
    def tuser(self) -> ds.TUser:
        return self.suite.tuser("front-desk", PASSWORD, ALICE)

    async def save(self) -> ds.StoredDocument:
        return await self.suite.signing.save(make_consent_form())

    async def deliver(self, *subjects: str, sender: str = "carol@elsewhere.test", folder: str = "INBOX") -> list[int]:
        return [await self.sandbox.deliver(ALICE, make_raw_message(subject, sender), folder) for subject in subjects]

    async def list_effects(self, operation: str) -> list[dict[str, Any]]:
        return [dict(effect) for effect in await self.sandbox.ledger(operation)]


def make_raw_message(subject: str, sender: str = "carol@elsewhere.test") -> bytes:
    return (
        f"From: {sender}\r\nTo: {ALICE}\r\nSubject: {subject}\r\nMessage-ID: <{subject}@elsewhere.test>\r\n"
        f"Date: Fri, 01 May 2026 11:00:00 +0000\r\n\r\nAbout {subject}.\r\n"
    ).encode()


def make_message(subject: str = "Referral", *recipients: str) -> ds.Message:
    return ds.Message(
        subject=subject, body="Please see her.", recipients=[ds.Recipient(address) for address in recipients or (BOB,)]
    )


def make_settings(sandbox: Sandbox, **limits: Any) -> ds.Settings:
    """Return settings with the sandbox's URLs, and a timeout for every wait of the default policy."""
    members: dict[str, Any] = {"timeout": 600.0, **limits}
    return ds.Settings(
        signing_url=sandbox.signing_url,
        fax_url=sandbox.fax_url,
        message_url=sandbox.message_url,
        registration_url=sandbox.registration_url,
        **members,
    )


@asynccontextmanager
async def open_scenario(sandbox: Sandbox, folder: Path, **limits: Any) -> AsyncGenerator[Scenario]:
    clock = SleepDrivenClock()
    suite = ds.DirectSuite(
        make_settings(sandbox, **limits),
        token=sandbox.environment["DIRECTSUITE_TOKEN"],
        login=ds.Login(*DEMO_LOGIN),
        clock=clock,
    )
    async with suite:
        yield Scenario(sandbox, suite, clock, folder)


@asynccontextmanager
async def open_populated_sandbox(**options: Any) -> AsyncGenerator[Sandbox]:
    """Open a sandbox at noon, with two mailboxes, a T-User and an identity-proofed individual."""
    clock = SandboxClock()
    clock.freeze(NOON)
    async with Sandbox(clock=clock, **options) as sandbox:
        for address in (ALICE, BOB):
            await sandbox.add_account(address, PASSWORD)
        await sandbox.add_tuser("front-desk", PASSWORD, [ALICE])
        await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
        yield sandbox
