"""A wrong password, a folder that is deleted, a folder of the sink that can't be written: trouble of one mailbox."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from directsuite.sync import Kind, MaildirSink, SqliteSink, SqliteStore, Synchronizer, SyncStatus
from tests.integration.world import ALICE, BOB, World, raw_message
from tests.sync.scenes.stage import AN_HOUR, Passwords, Running, running, subjects
from tests.sync.test_synchronizer import HeldClock

pytestmark = pytest.mark.wide

SOON = 120.0
"""Seconds after which a mailbox in which nothing is wrong was looked at, whatever the jitter."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sync.db"


async def goes_on(worker: Running, world: World, subject: str) -> None:
    """Bob's mail arrives as ever."""
    await world.sandbox.deliver(BOB, raw_message(subject))
    before = worker.status()[BOB].progress.changes[Kind.NEW]
    await worker.until(lambda: worker.status()[BOB].progress.changes[Kind.NEW] == before + 1, within=SOON)
    assert worker.status_of(BOB) is SyncStatus.UP_TO_DATE


async def test_a_wrong_password_is_told_and_a_right_one_found_by_itself(world: World, path: Path) -> None:
    passwords = Passwords(wrong={ALICE})
    await world.deliver("hers")

    def make(clock: HeldClock) -> Synchronizer:
        return Synchronizer(world.suite, store, [ALICE, BOB], passwords, clock=clock, now=clock.monotonic)

    async with SqliteStore(path, sink=SqliteSink()) as store, running(world, make, path) as worker:
        assert worker.status_of(ALICE) is SyncStatus.FAILING
        assert worker.problem(ALICE) == "The password is refused: give the right one."
        await goes_on(worker, world, "his")
        await worker.pass_by(AN_HOUR)
        assert worker.status()[ALICE].failing_for == pytest.approx(worker.clock.now, abs=120)
        await goes_on(worker, world, "his second")
        passwords.wrong.clear()
        assert worker.sync.status[ALICE].failures < 10  # it is asked for less and less often
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=1.2 * AN_HOUR)
        assert worker.problem(ALICE) == ""
        assert worker.status()[ALICE].failing_for is None
    assert subjects(path) == ["hers", "his", "his second"]


async def test_a_folder_that_is_deleted_is_told_and_found_again(world: World, path: Path) -> None:
    await world.box.create_folder("INBOX.Short")
    await world.deliver("before", folder="INBOX.Short")

    def make(clock: HeldClock) -> Synchronizer:
        folders = ("INBOX.Short", "INBOX")
        return Synchronizer(
            world.suite, store, [ALICE, BOB], Passwords(), folders=folders, clock=clock, now=clock.monotonic
        )

    async with SqliteStore(path, sink=SqliteSink(keep_gone=True)) as store, running(world, make, path) as worker:
        await world.bob.create_folder("INBOX.Short")
        await worker.until(lambda: worker.status_of(BOB) is SyncStatus.UP_TO_DATE, within=SOON)
        assert worker.status_of(ALICE) is SyncStatus.UP_TO_DATE
        await world.box.delete_messages_by_uids("INBOX.Short", [1], forever=True)
        await world.box.delete_folder("INBOX.Short")
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.FAILING, within=SOON)
        assert "no such folder on the server" in worker.problem(ALICE)
        assert list(worker.status()[ALICE].progress.folders) == ["INBOX.Short"]
        await goes_on(worker, world, "his")
        await worker.pass_by(AN_HOUR)
        await world.deliver("hers, elsewhere")  # her other folder is looked at as often as before
        await worker.until(lambda: "hers, elsewhere" in subjects(path), within=SOON)
        await world.box.create_folder("INBOX.Short")
        await world.deliver("after", folder="INBOX.Short")
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=2 * SOON)
        assert worker.status()[ALICE].progress.folders == {}
    assert subjects(path) == ["after", "before", "hers, elsewhere", "his"]


@pytest.mark.by_default(2)
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
    number: int, told: str, world: World, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, broken, opens = tmp_path / "mail", True, os.open

    def fails_for_alice(name: Any, flags: int, *more: Any, **others: Any) -> int:
        if broken and flags & os.O_CREAT and str(name).startswith(str(root)) and "alice" in str(name):
            raise OSError(number, os.strerror(number))
        return opens(name, flags, *more, **others)

    def make(clock: HeldClock) -> Synchronizer:
        return Synchronizer(
            world.suite,
            store,
            [ALICE, BOB],
            Passwords(),
            deliver=MaildirSink(root, keep_gone=True),
            clock=clock,
            now=clock.monotonic,
        )

    await world.deliver("one", "two")
    monkeypatch.setattr(os, "open", fails_for_alice)
    async with SqliteStore(path) as store, running(world, make, path) as worker:
        assert worker.status_of(ALICE) is SyncStatus.FAILING
        assert told in worker.problem(ALICE)
        await goes_on(worker, world, "his")
        broken = False
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=2 * SOON)
        await world.deliver("three")
        await worker.until(lambda: len(list(root.glob("alice*/new/*.eml"))) == 3, within=SOON)
    assert len(list(root.glob("bob*/new/*.eml"))) == 1
    assert list(root.glob("*/tmp/*")) == []
