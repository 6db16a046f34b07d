"""A wrong password, a folder that is deleted, a folder of the sink that can't be written: trouble of one mailbox."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from directsuite.sync import MaildirSink, SqliteSink, SqliteStore, Synchronizer, SyncStatus
from tests.integration.scenario import ALICE, BOB, Scenario, make_raw_message
from tests.sync.scenarios.running_worker import HOUR_SECONDS, PasswordSource, RunningWorker, read_subjects, run_worker
from tests.sync.test_synchronizer import SteppedClock

pytestmark = pytest.mark.wide

SOON = 120.0
"""Seconds after which a mailbox in which nothing is wrong was looked at, whatever the jitter."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sync.db"


async def goes_on(worker: RunningWorker, scenario: Scenario, subject: str) -> None:
    """Bob's mail arrives as ever."""
    await scenario.sandbox.deliver(BOB, make_raw_message(subject))
    before = worker.read_status()[BOB]["since_the_start"]["new"]
    await worker.advance_until(lambda: worker.read_status()[BOB]["since_the_start"]["new"] == before + 1, within=SOON)
    assert worker.get_status(BOB) is SyncStatus.UP_TO_DATE


async def test_a_wrong_password_is_told_and_a_right_one_found_by_itself(scenario: Scenario, path: Path) -> None:
    passwords = PasswordSource(wrong={ALICE})
    await scenario.deliver("hers")

    def make(clock: SteppedClock) -> Synchronizer:
        return Synchronizer(scenario.suite, store, [ALICE, BOB], passwords, clock=clock, now=clock.monotonic)

    async with SqliteStore(path, sink=SqliteSink()) as store, run_worker(scenario, make, path) as worker:
        assert worker.get_status(ALICE) is SyncStatus.FAILING
        assert worker.get_problem(ALICE) == "The service rejected the mailbox's password. Provide the correct one."
        await goes_on(worker, scenario, "his")
        await worker.advance(HOUR_SECONDS)
        assert worker.read_status()[ALICE]["failing_for"] == pytest.approx(worker.clock.now, abs=120)
        await goes_on(worker, scenario, "his second")
        passwords.wrong.clear()
        assert worker.sync.status[ALICE].failures < 10  # it is asked for less and less often
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=1.2 * HOUR_SECONDS)
        assert worker.get_problem(ALICE) == ""
        assert worker.read_status()[ALICE]["failing_for"] is None
    assert read_subjects(path) == ["hers", "his", "his second"]


async def test_a_folder_that_is_deleted_is_told_and_found_again(scenario: Scenario, path: Path) -> None:
    await scenario.box.create_folder("INBOX.Short")
    await scenario.deliver("before", folder="INBOX.Short")

    def make(clock: SteppedClock) -> Synchronizer:
        folders = ("INBOX.Short", "INBOX")
        return Synchronizer(
            scenario.suite, store, [ALICE, BOB], PasswordSource(), folders=folders, clock=clock, now=clock.monotonic
        )

    async with SqliteStore(path, sink=SqliteSink(keep_gone=True)) as store, run_worker(scenario, make, path) as worker:
        await scenario.bob.create_folder("INBOX.Short")
        await worker.advance_until(lambda: worker.get_status(BOB) is SyncStatus.UP_TO_DATE, within=SOON)
        assert worker.get_status(ALICE) is SyncStatus.UP_TO_DATE
        await scenario.box.delete_messages_by_uids("INBOX.Short", [1], forever=True)
        await scenario.box.delete_folder("INBOX.Short")
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.FAILING, within=SOON)
        assert "server has no such folder" in worker.get_problem(ALICE)
        assert worker.list_failing_folders(ALICE) == ["INBOX.Short"]
        await goes_on(worker, scenario, "his")
        await worker.advance(HOUR_SECONDS)
        await scenario.deliver("hers, elsewhere")  # her other folder is looked at as often as before
        await worker.advance_until(lambda: "hers, elsewhere" in read_subjects(path), within=SOON)
        await scenario.box.create_folder("INBOX.Short")
        await scenario.deliver("after", folder="INBOX.Short")
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=2 * SOON)
        assert worker.list_failing_folders(ALICE) == []
    assert read_subjects(path) == ["after", "before", "hers, elsewhere", "his"]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "disk of the sink is full"),
        (errno.EROFS, "folder of the sink can't be written"),
        (errno.EACCES, "folder of the sink can't be written"),
        (errno.EIO, "Input/output error"),
    ],
)
async def test_a_maildir_that_can_not_be_written_is_told_and_written_afterwards(
    number: int, told: str, scenario: Scenario, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, broken, opens = tmp_path / "mail", True, os.open

    def fails_for_alice(name: Any, flags: int, *more: Any, **others: Any) -> int:
        if broken and flags & os.O_CREAT and str(name).startswith(str(root)) and "alice" in str(name):
            raise OSError(number, os.strerror(number))
        return opens(name, flags, *more, **others)

    def make(clock: SteppedClock) -> Synchronizer:
        return Synchronizer(
            scenario.suite,
            store,
            [ALICE, BOB],
            PasswordSource(),
            deliver=MaildirSink(root, keep_gone=True),
            clock=clock,
            now=clock.monotonic,
        )

    await scenario.deliver("one", "two")
    monkeypatch.setattr(os, "open", fails_for_alice)
    async with SqliteStore(path) as store, run_worker(scenario, make, path) as worker:
        assert worker.get_status(ALICE) is SyncStatus.FAILING
        assert told in worker.get_problem(ALICE)
        await goes_on(worker, scenario, "his")
        broken = False
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=2 * SOON)
        await scenario.deliver("three")
        await worker.advance_until(lambda: len(list(root.glob("alice*/new/*.eml"))) == 3, within=SOON)
    assert len(list(root.glob("bob*/new/*.eml"))) == 1
    assert list(root.glob("*/tmp/*")) == []
