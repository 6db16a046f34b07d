"""What every step of the demo works with."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from directsuite.sandbox.server import Sandbox
from directsuite.suite import DirectSuite

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from directsuite.cli.demo.progress import Progress

DOMAIN = "direct.example.test"
CLINIC = f"clinic@{DOMAIN}"
PATIENT_USERNAME = "ada"
PATIENT = f"{PATIENT_USERNAME}@{DOMAIN}"
MAILBOX_PASSWORD = "sandbox"  # noqa: S105  of a mailbox that lives as long as the demo


class NotHeldError(Exception):
    """Something did not come out as it should; the text says what."""


def hold(condition: object, otherwise: str) -> None:
    """Raise NotHeldError unless the condition holds."""
    if not condition:
        raise NotHeldError(otherwise)


@attrs.frozen(kw_only=True)
class Sizes:
    """How much the demo does."""

    messages: int = 300
    documents: int = 12
    faxes: int = 35


@attrs.frozen(kw_only=True)
class Scene:
    """A sandbox of the demo's own, and a suite that finds it through the sandbox's environment."""

    sandbox: Sandbox
    suite: DirectSuite
    output: Path
    sizes: Sizes
    progress: Progress

    def pass_time(self, **span: float) -> None:
        """Let time pass in the sandbox, given as for timedelta, in place of waiting."""
        self.sandbox.clock.advance(timedelta(**span))

    def return_to_present(self) -> None:
        """Give the sandbox the machine's own time again, so that what is signed next bears no future date."""
        self.sandbox.clock.set(datetime.now(UTC))


@asynccontextmanager
async def scene(output: Path, sizes: Sizes, progress: Progress) -> AsyncGenerator[Scene]:
    """A sandbox with a clinic's mailbox, in a folder that is gone afterwards, and a suite for it."""
    with tempfile.TemporaryDirectory(prefix="directsuite-demo-") as folder:
        async with Sandbox(Path(folder)) as sandbox, DirectSuite.from_env(sandbox.environment) as suite:
            await sandbox.add_reseller(
                sandbox.environment["DIRECTSUITE_LOGIN_USERNAME"],
                sandbox.environment["DIRECTSUITE_LOGIN_PASSWORD"],
                [DOMAIN],
            )
            await sandbox.add_account(CLINIC, MAILBOX_PASSWORD)
            yield Scene(sandbox=sandbox, suite=suite, output=output, sizes=sizes, progress=progress)
