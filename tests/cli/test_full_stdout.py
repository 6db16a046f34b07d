"""A full stdout: the result is reported on stderr, and not repeated."""

from __future__ import annotations

import json
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from typing import BinaryIO

import pytest

from tests.cli.conftest import CliRunner
from tests.integration.scenario import BOB

pytestmark = pytest.mark.process


@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_what_was_sent_is_reported_where_stdout_takes_nothing(
    cli_runner: CliRunner, full_disk: BinaryIO, form: tuple[str, ...]
) -> None:
    process = await create_subprocess_exec(
        sys.executable,
        "-m",
        "directsuite",
        "send",
        "--to",
        BOB,
        "--body",
        "Dear Bob",
        *form,
        stdout=full_disk,
        stderr=PIPE,
    )
    _, told = await process.communicate()
    assert process.returncode == 1
    [line] = told.decode().splitlines()
    assert line.startswith("directsuite: The message was sent as <")
    assert line.endswith("Don't repeat the command.")
    assert len(await cli_runner.sandbox.ledger("Send")) == 1


@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_what_was_saved_is_reported_where_stdout_takes_nothing(
    cli_runner: CliRunner, full_disk: BinaryIO, form: tuple[str, ...]
) -> None:
    uid = await cli_runner.deliver("Referral")
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "directsuite", "inbox", "save", str(uid), "--eml", "--into", "saved", *form),
        stdout=full_disk,
        stderr=PIPE,
    )
    _, told = await process.communicate()
    assert process.returncode == 1
    [line] = told.decode().splitlines()
    assert line.startswith("directsuite: 1 file saved into the folder of --into, but stdout can't be written")
    assert line.endswith("Don't repeat the command.")
    assert len(list(cli_runner.folder.joinpath("saved").iterdir())) == 1


async def test_what_stdout_did_not_take_is_not_marked_as_read(cli_runner: CliRunner, full_disk: BinaryIO) -> None:
    uid = await cli_runner.deliver("Referral")
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "directsuite", "inbox", "read", str(uid), "--mark-read"), stdout=full_disk
    )
    assert await process.wait() == 1
    unread = json.loads((await cli_runner.run("inbox", "list", "--unread", "--json")).out)
    assert [each["uid"] for each in unread] == [uid]


async def test_listing_that_stdout_does_not_take_has_the_documented_status(
    cli_runner: CliRunner, full_disk: BinaryIO
) -> None:
    await cli_runner.deliver("Referral")
    process = await create_subprocess_exec(
        sys.executable, "-m", "directsuite", "inbox", "list", stdout=full_disk, stderr=PIPE
    )
    _, told = await process.communicate()
    assert process.returncode == 1
    assert len(told.decode().splitlines()) == 1
    assert "The disk is full" in told.decode()


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (("fax", "15550100100"), "The fax was added with the handle "),
        (("individual", "Ada", "Byron", "4321", "1980-12-10"), "The individual was added with the id "),
        (("clock", "--advance", "10m"), "The time of the sandbox is "),
    ],
)
async def test_what_was_done_to_a_sandbox_is_reported_if_stdout_takes_nothing(
    cli_runner: CliRunner, full_disk: BinaryIO, arguments: tuple[str, ...], done: str
) -> None:
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "directsuite", "sandbox", *arguments, "--at", cli_runner.sandbox.root_url),
        stdout=full_disk,
        stderr=PIPE,
    )
    _, told = await process.communicate()
    [line] = told.decode().splitlines()
    assert process.returncode == 1
    assert line.startswith(f"directsuite: {done}")
    assert line.endswith("Don't repeat the command.")
