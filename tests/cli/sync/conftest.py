"""A sandbox with two mailboxes, and the command `directsuite sync`."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import CliResult, CliRunner
from tests.integration.conftest import sandbox as sandbox
from tests.integration.scenario import ALICE, BOB, PASSWORD, make_raw_message
from tests.statements import query_file

HERS = ("--mailbox", ALICE)
BOTH = (*HERS, "--mailbox", BOB)


def list_subjects(path: str = "directsuite-sync.db") -> list[str]:
    return sorted(subject for (subject,) in query_file(path, "SELECT subject FROM message"))


@attrs.frozen(kw_only=True)
class SyncRunner(CliRunner):
    def write_passwords(self, name: str = "passwords.toml", *, alice: str = PASSWORD, bob: str = PASSWORD) -> str:
        """Write a file with Alice's and Bob's passwords. Return its name."""
        return self.write_private_file(name, f'"{ALICE}" = "{alice}"\n"{BOB}" = "{bob}"\n')

    async def run_once(self, *options: str, alice: str = PASSWORD, bob: str = PASSWORD) -> CliResult:
        """Run `sync run --once` with a file of these passwords."""
        passwords = self.write_passwords(alice=alice, bob=bob)
        return await self.run("run", "--passwords", passwords, "--once", *options)

    async def deliver_to(self, address: str, *subjects: str) -> None:
        for subject in subjects:
            await self.sandbox.deliver(address, make_raw_message(subject))


@pytest.fixture
def cli(sandbox: Sandbox, parts: dict[str, Any]) -> SyncRunner:
    runner = SyncRunner(**parts, prefix=("sync",), sandbox=sandbox)
    runner.set_env("DIRECTSUITE_MESSAGE_URL", sandbox.message_url)
    return runner
