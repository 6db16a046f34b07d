"""The guide `operations`: its commands, its files, and its rules for backups."""

from __future__ import annotations

import asyncio
import configparser
import importlib
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.cli import main
from directsuite.cli.app import build_app
from directsuite.sandbox import Sandbox
from tests.guides.documents import ROOT, find_code_blocks, read_document

GUIDE = read_document("operations")


def commands() -> list[list[str]]:
    lines = [
        match
        for block in find_code_blocks("operations", "sh")
        for match in re.findall(r"^directsuite (.*)$", block, re.MULTILINE)
    ]
    lines += re.findall(r"`directsuite (sync \w+[^`]*)`", GUIDE)
    lines += re.findall(r"/bin/directsuite (.*)$", GUIDE, re.MULTILINE)
    listed = re.findall(r"command: \[directsuite, ([^\]]*)\]", GUIDE)
    return [shlex.split(line) for line in lines] + [
        [shlex.split(each)[0] for each in line.split(", ")] for line in listed
    ]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_each_command_has_options_that_there_are(command: list[str]) -> None:
    build_app().parse_args(command, exit_on_error=False, print_error=False)


def test_guide_has_all_of_them() -> None:
    assert len(commands()) >= 9
    assert tuple(len(find_code_blocks("operations", language)) for language in ("sh", "ini", "yaml")) == (2, 1, 2)


def test_unit_is_one_that_stops_gracefully() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(find_code_blocks("operations", "ini")[0])
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    assert int(unit["Service"]["TimeoutStopSec"]) > 30  # the default of --grace
    store = shlex.split(unit["Service"]["ExecStart"])[-1]
    assert store.startswith(f"/var/lib/{unit['Service']['StateDirectory']}/")


def test_deployments_are_yaml() -> None:
    yaml = importlib.import_module("yaml")  # which has no types
    alone, fleet = (yaml.safe_load(block)["spec"] for block in find_code_blocks("operations", "yaml"))
    assert (alone["replicas"], alone["strategy"]["type"], fleet["replicas"]) == (1, "Recreate", 4)
    assert alone["template"]["spec"]["terminationGracePeriodSeconds"] > 30
    volume = alone["template"]["spec"]["volumes"][1]["secret"]
    assert not volume["defaultMode"] & 0o007  # or the passwords would be rejected
    (worker,) = fleet["template"]["spec"]["containers"]
    assert worker["name"] == alone["template"]["spec"]["containers"][0]["name"]


ALICE = ("alice@direct.example.test", "secret")
BOB = ("bob@direct.example.test", "secret")


def letter(subject: str) -> bytes:
    return (
        f"From: dr@elsewhere.test\r\nSubject: {subject}\r\nMessage-ID: <{subject}@elsewhere.test>\r\n"
        f"\r\nAbout {subject}.\r\n"
    ).encode()


def kept(path: str) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute("SELECT subject, folder, uid FROM message").fetchall())


async def there(box: ds.Mailbox) -> list[tuple[str | None, str, int | None]]:
    folders = ["INBOX", *await box.get_folders()]
    found = [(each.subject, name, each.uid) for name in folders async for each in box.iter_metadata(name)]
    return sorted(found, key=str)


async def bash(script: str, folder: Path) -> None:
    bin_folder = folder / "bin"
    command = ["bash", "-ec", f"PATH={bin_folder}:$PATH PYTHONPATH={ROOT}; export PATH PYTHONPATH\n{script}"]
    ended = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mailboxes.txt").write_text(f"{ALICE[0]}\n{BOB[0]}\n")
    (tmp_path / "passwords.toml").touch(0o600)
    (tmp_path / "passwords.toml").write_text("".join(f'"{name}" = "{password}"\n' for name, password in (ALICE, BOB)))
    (tmp_path / "bin").mkdir()
    for name, python in (("directsuite", f"{sys.executable} -m directsuite"), ("python3", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def restore(folder: Path) -> None:
    assert (folder / "backup.db").stat().st_mode & 0o077 == 0
    for name in ("sync.db-wal", "sync.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "backup.db").replace(folder / "sync.db")


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a shell of POSIX")
async def test_commands_work_and_restored_backup_is_complete(folder: Path) -> None:
    run, back_up = find_code_blocks("operations", "sh")
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        run = re.sub(r"https://\S+", sandbox.message_url, run).replace("--store", "--once --store")
        for address, password in (ALICE, BOB):
            await sandbox.add_account(address, password)
            for subject in ("one", "two", "three", "four"):
                await sandbox.deliver(address, letter(subject))
        box = suite.mailbox(*ALICE)
        await box.create_folder("INBOX.Archive")
        await bash(run, folder)
        for command in ("status", "audit", "retry"):
            assert await asyncio.to_thread(main, ["sync", command, "--store", "sync.db"]) == 0
        await bash(back_up, folder)

        await sandbox.deliver(ALICE[0], letter("five"))
        await box.delete_messages_by_uids("INBOX", [2], forever=True)
        await box.move_messages_by_uids("INBOX", "INBOX.Archive", [3])
        await bash(run, folder)
        before = kept("sync.db")
        await sandbox.deliver(ALICE[0], letter("six"))

        restore(folder)
        assert await asyncio.to_thread(main, ["sync", "audit", "--store", "sync.db"]) == 0
        for _ in range(2):
            await bash(run, folder)
        on_the_server = [*await there(box), *await there(suite.mailbox(*BOB))]
    assert kept("sync.db") == sorted(on_the_server, key=str)
    assert [each for each in kept("sync.db") if each[0] != "six"] == before
