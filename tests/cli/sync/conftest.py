"""A sandbox with two mailboxes, and a folder for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from directsuite.cli import main
from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import CliResult
from tests.integration.conftest import sandbox as sandbox
from tests.integration.scenario import ALICE, BOB, PASSWORD, make_raw_message


@attrs.frozen
class SyncRunner:
    """Runs the commands. folder: the current folder."""

    sandbox: Sandbox
    folder: Path
    _run: Callable[[tuple[str, ...]], Awaitable[CliResult]]

    async def run(self, *arguments: str) -> CliResult:
        return await self._run(arguments)

    def write_passwords(self, name: str = "passwords.toml", **of: str) -> str:
        """Write a file with Alice's and Bob's passwords, or the given ones. Return its name."""
        known = {ALICE: of.get("alice", PASSWORD), BOB: of.get("bob", PASSWORD)}
        path = self.folder / name
        path.write_text("".join(f'"{address}" = "{password}"\n' for address, password in known.items()))
        path.chmod(0o600)
        return name

    async def deliver(self, address: str, *subjects: str) -> None:
        for subject in subjects:
            await self.sandbox.deliver(address, make_raw_message(subject))


@pytest.fixture
def sync_runner(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> SyncRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIRECTSUITE_MESSAGE_URL", sandbox.message_url)
    for name in ("MAILBOX", "MAILBOX_PASSWORD", "CONFIG", "POSTGRES"):
        monkeypatch.delenv(f"DIRECTSUITE_{name}", raising=False)

    async def run(arguments: tuple[str, ...]) -> CliResult:
        """Run the command in a thread, because it has its own event loop."""
        capsys.readouterr()
        status = await asyncio.to_thread(main, ["sync", *arguments])
        told = capsys.readouterr()
        return CliResult(status, told.out, told.err)

    return SyncRunner(sandbox, tmp_path, run)
