"""One process at a time has a file that it locked, whichever way it ends; and a file appears whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from directsuite.durable.files import create, open_locked, replacing, sync_folder

_LOCK = """
import sys
from pathlib import Path
from directsuite.durable.files import open_locked
open_locked(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_locked_file_is_refused_to_others_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = open_locked(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"
    with pytest.raises(BlockingIOError):
        open_locked(path)
    os.close(first)
    os.close(open_locked(path))


@pytest.mark.process
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError):
            open_locked(path)
        child.kill()
    os.close(open_locked(path))


def test_the_names_of_a_missing_folder_are_not_on_the_disk(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    if os.name != "nt":
        with pytest.raises(FileNotFoundError):
            sync_folder(tmp_path / "missing")


@pytest.mark.parametrize("synced", [True, False])
def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path, synced: bool) -> None:
    path, temporary = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"before")
    with replacing(path, temporary=temporary, synced=synced) as file:
        file.write(b"whole")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_was_not_written_to_its_end_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def interrupt() -> None:
        with replacing(path, temporary=tmp_path / "new", synced=True) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_new_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()
