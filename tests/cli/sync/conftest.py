"""A sandbox with two mailboxes, and a folder of its own for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from directsuite.cli import main
from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import Ended
from tests.integration.conftest import sandbox as sandbox
from tests.integration.world import ALICE, BOB, PASSWORD, raw_message


@attrs.frozen
class Desk:
    """Where an operator sits. folder: where the commands run."""

    sandbox: Sandbox
    folder: Path
    _run: Callable[[tuple[str, ...]], Awaitable[Ended]]

    async def run(self, *arguments: str) -> Ended:
        """Run `directsuite sync` with these arguments."""
        return await self._run(arguments)

    def passwords(self, name: str = "passwords.toml", **of: str) -> str:
        """A file with Alice's and Bob's passwords, or others that are given; its name."""
        known = {ALICE: of.get("alice", PASSWORD), BOB: of.get("bob", PASSWORD)}
        path = self.folder / name
        path.write_text("".join(f'"{address}" = "{password}"\n' for address, password in known.items()))
        path.chmod(0o600)
        return name

    async def deliver(self, address: str, *subjects: str) -> None:
        """Mail for somebody."""
        for subject in subjects:
            await self.sandbox.deliver(address, raw_message(subject))


@pytest.fixture
def desk(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIRECTSUITE_MESSAGE_URL", sandbox.message_url)
    for name in ("MAILBOX", "MAILBOX_PASSWORD", "CONFIG", "POSTGRES"):
        monkeypatch.delenv(f"DIRECTSUITE_{name}", raising=False)

    async def run(arguments: tuple[str, ...]) -> Ended:
        """In a thread, for a command has a loop of its own."""
        capsys.readouterr()
        status = await asyncio.to_thread(main, ["sync", *arguments])
        told = capsys.readouterr()
        return Ended(status, told.out, told.err)

    return Desk(sandbox, tmp_path, run)
