"""Locks of files, and files that appear completely or not at all."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from directsuite.durable.files import FileLock, create_file, lock_file, replace_file

NOT_ON_WINDOWS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

_LOCK = """
import os, sys
from pathlib import Path
from directsuite.durable.files import lock_file
lock_file(Path(sys.argv[1]))
if sys.argv[2:] and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("locked", flush=True)
sys.stdin.read()
"""


def test_locked_file_is_not_available_until_its_release(tmp_path: Path) -> None:
    path, link = tmp_path / "lock", tmp_path / "link"
    first = lock_file(path)
    link.hardlink_to(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"
    for name in (path, path, link):
        with pytest.raises(BlockingIOError):
            lock_file(name)
    first.release()
    lock_file(link).release()


async def test_one_of_many_threads_locks_a_file(tmp_path: Path) -> None:
    def lock(_: int) -> FileLock | None:
        try:
            return lock_file(tmp_path / "lock")
        except BlockingIOError:
            return None

    locks = list(filter(None, await asyncio.gather(*(asyncio.to_thread(lock, number) for number in range(50)))))
    assert len(locks) == 1
    assert held_elsewhere(tmp_path / "lock") or os.name == "nt"
    locks[0].release()
    lock_file(tmp_path / "lock").release()


def test_file_cannot_be_locked_while_it_is_being_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, close, refused = tmp_path / "lock", os.close, list[int]()
    first = lock_file(path)

    def lock_and_close(descriptor: int) -> None:
        if not refused:
            refused.append(descriptor)
            with pytest.raises(BlockingIOError):
                lock_file(path)  # as another thread might: the lock would end with this descriptor
        close(descriptor)

    monkeypatch.setattr(os, "close", lock_and_close)
    first.release()
    monkeypatch.undo()
    second = lock_file(path)
    assert refused == [first.descriptor]
    assert held_elsewhere(path)
    second.release()


def test_second_release_does_not_end_the_lock_of_another_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = lock_file(path)
    first.release()
    second = lock_file(path)
    first.release()
    assert held_elsewhere(path)
    with pytest.raises(BlockingIOError):
        lock_file(path)
    second.release()


def held_elsewhere(path: Path) -> bool:
    if sys.platform != "linux":
        return True
    inode = f":{path.stat().st_ino} "
    return any(inode in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.process
@pytest.mark.parametrize("child", [[], pytest.param(["with a child"], marks=NOT_ON_WINDOWS)], ids=["alone", "forked"])
def test_lock_of_a_killed_process_is_free(child: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _LOCK, str(path), *child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError):
            lock_file(path)
        process.kill()
        process.wait()
        lock_file(path).release()  # its child is still there, with the open file


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_is_renamed_when_it_is_complete(tmp_path: Path, synced: bool) -> None:
    path, temporary = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"before")
    with replace_file(path, temporary=temporary, synced=synced) as file:
        file.write(b"whole")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_was_not_written_to_its_end_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def interrupt() -> None:
        with replace_file(path, temporary=tmp_path / "new", synced=True) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_new_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
