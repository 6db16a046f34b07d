"""A full stdout: the result is reported on stderr, and not repeated."""

from __future__ import annotations

import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from typing import BinaryIO

import pytest

from tests.cli.conftest import CliRunner
from tests.integration.scenario import BOB

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("send", "--to", BOB, "--body", "Dear Bob"), "The message was sent as <"),
        (("send", "--to", BOB, "--body", "Dear Bob", "--json"), "The message was sent as <"),
        (("inbox", "save", "1", "--eml", "--into", "saved"), "1 file saved into the folder of --into, but stdout"),
        (("inbox", "list"), "The disk is full"),
        (("sandbox", "fax", "15550100100"), "The fax was added with the handle "),
        (("sandbox", "individual", "Ada", "Byron", "4321", "1980-12-10"), "The individual was added with the id "),
        (("sandbox", "clock", "--advance", "10m"), "The time of the sandbox is "),
    ],
)
async def test_effect_is_reported_if_stdout_is_full(
    cli: CliRunner, full_disk: BinaryIO, arguments: tuple[str, ...], sentence: str
) -> None:
    await cli.deliver("Referral")
    cli.monkeypatch.setenv("DIRECTSUITE_SANDBOX", cli.sandbox.root_url)
    command = (sys.executable, "-m", "directsuite", *arguments)
    process = await create_subprocess_exec(*command, stdout=full_disk, stderr=PIPE)
    _, err = await process.communicate()
    assert process.returncode == 1
    [line] = err.decode().splitlines()
    assert line.startswith(f"directsuite: {sentence}")
    assert line.endswith("Don't repeat the command.") is (arguments[:2] != ("inbox", "list"))
    assert len(await cli.sandbox.ledger("Send")) == (arguments[0] == "send")


async def test_message_that_was_not_shown_is_not_marked_as_read(cli: CliRunner, full_disk: BinaryIO) -> None:
    uid = await cli.deliver("Referral")
    command = (sys.executable, "-m", "directsuite", "inbox", "read", str(uid), "--mark-read")
    process = await create_subprocess_exec(*command, stdout=full_disk)
    assert await process.wait() == 1
    unread = (await cli.run("inbox", "list", "--unread", "--json")).document
    assert [each["uid"] for each in unread] == [uid]
