"""Ctrl-C and SIGTERM: a command ends immediately, with its own exit status and advice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from tests.cli.conftest import CliRunner, start_process
from tests.integration.scenario import BOB
from tests.waiting import poll_until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")]

SEND = ("send", "--to", BOB, "--subject", "Referral", "--body", "Please see her.")


async def stopped(runner: CliRunner, number: signal.Signals, *arguments: str) -> tuple[int | None, str]:
    """Return the exit status and stderr of a command that gets a signal while it waits for a response."""
    async with start_process(*arguments) as process:
        await poll_until(lambda: all(rule["applied"] for rule in runner.sandbox.faults()))
        process.send_signal(number)
        out, err = await process.communicate()
    assert out == b""
    return process.returncode, err.decode()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
async def test_command_that_reads_is_given_again(cli: CliRunner, number: signal.Signals, status: int) -> None:
    cli.sandbox.inject_fault("GetMessageMetaData", "hang")
    result = await stopped(cli, number, "inbox", "list")
    assert result == (status, "directsuite: stopped; nothing was changed: run the same command again\n")


async def test_what_is_known_of_watched_messages_is_shown(cli: CliRunner) -> None:
    sent = await cli.run("send", "--to", "nomdn@elsewhere.test", "--body", "x")
    cli.sandbox.inject_fault("GetMessageStatus", "hang", skip=1)
    async with start_process("status", sent.out.strip(), "--watch") as process:
        await poll_until(lambda: all(rule["applied"] for rule in cli.sandbox.faults()))
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert process.returncode == 130
    assert out.decode().splitlines()[1].split()[:2] == ["nomdn@elsewhere.test", "Waiting"]


async def test_send_that_was_in_progress_is_searched_first(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("Send", "hang", processed=True)
    status, err = await stopped(cli, signal.SIGINT, *SEND)
    assert status == 130
    assert err.startswith("directsuite: stopped; the last request may or may not have taken effect: check whether")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
async def test_send_with_a_key_is_given_again_and_goes_once(cli: CliRunner, number: signal.Signals) -> None:
    cli.sandbox.inject_fault("SendWithHeader", "hang", processed=True)
    status, err = await stopped(cli, number, *SEND, "--key", "k")
    assert status == (130 if number == signal.SIGINT else -9)
    assert ("run the same command again with the same --key" in err) == (number == signal.SIGINT)
    again = await cli.run(*SEND, "--key", "k")
    assert (again.status, again.out.startswith("<")) == (0, True)
    assert len(await cli.sandbox.ledger("SendWithHeader")) == 1


async def test_provisioning_whose_response_was_lost_is_not_said_to_be_none(cli: CliRunner) -> None:
    cli.write_private_file("ada.toml", 'id = 7\nfirst_name = "Ada"\nlast_name = "Example"\ndirect_username = "ada"\n')
    cli.sandbox.inject_fault("GetPatientAddressByMeta", "hang", skip=1, times=None)  # the search before it
    cli.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_after")
    arguments = ("patient", "add", "ada.toml", "--domain", "direct.example.test", "--yes")
    status, err = await stopped(cli, signal.SIGINT, *arguments)
    assert (status, "may or may not have taken effect" in err) == (130, True)


async def test_two_sends_with_one_key_do_not_meet(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("SendWithHeader", "hang")
    async with start_process(*SEND, "--key", "k"):
        await poll_until(lambda: all(rule["applied"] for rule in cli.sandbox.faults()))
        second = await cli.run(*SEND, "--key", "k")
    assert (second.status, second.out) == (2, "")
    assert second.err.endswith("Wait until the other command or program has ended.\n")


async def test_reader_of_output_may_close_pipe(cli: CliRunner) -> None:
    await cli.deliver("one")
    reading, writing = os.pipe()
    os.close(reading)
    async with start_process("inbox", "list", stdout=writing) as process:
        os.close(writing)
        _, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")


async def test_question_that_is_broken_off_provisions_nothing(cli: CliRunner) -> None:
    import pty  # only POSIX has it

    ours, theirs = pty.openpty()
    cli.write_private_file("ada.toml", 'id = 7\ndirect_username = "ada"\n')
    try:
        async with start_process(
            "patient", "add", "ada.toml", "--domain", "direct.example.test", stdin=theirs
        ) as process:
            assert process.stderr is not None
            asked = await process.stderr.readuntil(b"[y/N] ")
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"debits" in asked
    assert process.returncode == 130
    words = "directsuite: stopped; nothing was provisioned or debited: run the same command again"
    assert err.decode().strip() == words
    assert await cli.sandbox.ledger("ProvisionIDProofedPatient") == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_streams_are_not_errors(cli: CliRunner, closed: str) -> None:
    command = f"'{sys.executable}' -m directsuite send --to {BOB} --body-file - {closed}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    process = await asyncio.create_subprocess_shell(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cli.folder, env=environment
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate(b"Dear Bob")
    is_empty = "<&-" in closed  # and no empty message is sent
    assert (process.returncode, b"Traceback" in out + err) == (2 if is_empty else 0, False)
    assert len(await cli.sandbox.ledger("Send")) == (0 if is_empty else 1)
