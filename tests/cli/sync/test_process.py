"""`directsuite sync run` as a process: signals end it gracefully, and finished work is kept."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process

import pytest

from tests.cli.conftest import start_process
from tests.cli.sync.conftest import BOTH, SyncRunner, list_subjects
from tests.integration.scenario import ALICE, BOB
from tests.waiting import poll_until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")]


async def line_with(process: Process, word: str) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if word in line:
            return line
    assert process.stderr is not None
    raise AssertionError((await process.stderr.read()).decode())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_signal_ends_it_gracefully(cli: SyncRunner, number: signal.Signals) -> None:
    await cli.deliver_to(ALICE, "one")
    options = (*BOTH, "--passwords", cli.write_passwords(bob="wrong"), "--interval", "0.2")
    async with start_process("sync", "run", *options) as process:
        await line_with(process, "1 new")
        await poll_until(lambda: (cli.folder / "directsuite-sync.db.status.json").exists())
        assert (await cli.run("status", "--max-age", "60")).status == 0
        second = await cli.run("run", *options, "--once")
        assert (second.status, second.err) == (
            2,
            "directsuite: The store is already open, in this program or in another. Close it there first\n",
        )
        cli.write_passwords()  # the correct passwords: the file is read again
        assert (await cli.run("retry")).status == 0
        await cli.deliver_to(BOB, "his")
        await line_with(process, "1 new")
        process.send_signal(number)
        async with asyncio.timeout(20):  # less than the grace period, because nothing is in progress
            out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"stopping: work in progress has 30 s to finish" in out
    assert b"the same command continues from here" in out
    assert list_subjects() == ["his", "one"]
    result = await cli.run("status")
    assert result.status == 0
    assert result.out.startswith("No worker is running. The last one stopped")


async def test_worker_outlasts_whoever_reads_its_lines(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one")
    options = ("--mailbox", ALICE, "--passwords", cli.write_passwords(), "--interval", "0.2", "--json")
    reading, writing = os.pipe()
    os.close(reading)
    async with start_process("sync", "run", *options, stdout=writing) as process:
        os.close(writing)
        path = cli.folder / "directsuite-sync.db.status.json"  # the store is ready
        await cli.deliver_to(ALICE, "two")
        await poll_until(lambda: path.exists() and list_subjects() == ["one", "two"])
        await cli.deliver_to(ALICE, "three")
        await poll_until(lambda: "three" in list_subjects())
        before = path.stat().st_mtime_ns
        await poll_until(lambda: path.stat().st_mtime_ns > before)  # it reports every five seconds
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            _, err = await process.communicate()
    assert process.returncode == 0
    (line,) = err.decode().splitlines()
    assert line.endswith("WARNING stdout can't be written (BrokenPipeError): the worker continues")
    assert (await cli.run("status")).status == 0


async def test_round_longer_than_grace_is_cancelled(cli: SyncRunner) -> None:
    cli.sandbox.inject_fault("GetMessagesByUIDs", "hang", times=None)
    await cli.deliver_to(ALICE, "one")
    options = ("--mailbox", ALICE, "--passwords", cli.write_passwords(), "--once", "--grace", "0.2", "--json")
    async with start_process("sync", "run", *options) as process:
        await poll_until(lambda: any(rule["applied"] for rule in cli.sandbox.faults()))
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, err) == (128 + signal.SIGTERM, b"")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["started", "stopping", "stopped"]
    cli.sandbox.clear_faults()
    assert (await cli.run("run", *options)).status == 0
    assert list_subjects() == ["one"]


async def test_second_signal_breaks_it_off_immediately(cli: SyncRunner) -> None:
    cli.sandbox.inject_fault("GetMessagesByUIDs", "hang", times=None)
    await cli.deliver_to(ALICE, "one")
    async with start_process("sync", "run", "--mailbox", ALICE, "--passwords", cli.write_passwords()) as process:
        await poll_until(lambda: any(rule["applied"] for rule in cli.sandbox.faults()))
        process.send_signal(signal.SIGINT)
        await line_with(process, "stopping")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.postgres
async def test_one_of_a_fleet(cli: SyncRunner, conninfo: str) -> None:
    pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
    cli.set_env("DIRECTSUITE_POSTGRES", conninfo)
    await cli.deliver_to(ALICE, "one")
    mailboxes = ("--mailbox", ALICE, "--mailbox", BOB)
    options = ("--postgres", "--passwords", cli.write_passwords(bob="wrong"), "--status-file", "report.json")
    async with start_process("sync", "run", *mailboxes, *options, "--grace", "5") as process:
        await line_with(process, "1 new")
        await poll_until(lambda: b"rejected" in (cli.folder / "report.json").read_bytes())
        result = await cli.run("status", "--postgres")
        assert result.status == 1
        assert result.out.startswith("1 worker synchronises 2 mailboxes.\n")
        assert "The service rejected the mailbox's password. Provide the correct one." in result.out
        assert (await cli.run("status", "--max-age", "60", "--status-file", "report.json")).status == 0
        cli.write_passwords()
        result = await cli.run("retry", "--postgres", "--mailbox", BOB)
        assert (result.status, result.out.startswith("Requested for 1 mailbox:")) == (0, True)
        await cli.deliver_to(BOB, "his")
        await line_with(process, "1 new")
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    document = (await cli.run("status", "--postgres", "--json")).document
    assert [(each["mailbox"], each["status"], each["messages"]) for each in document["mailboxes"]] == [
        (ALICE, "up to date", 1),
        (BOB, "up to date", 1),
    ]
    assert document["worker"]["workers"] == 0
