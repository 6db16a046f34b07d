"""Files that appear completely or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from directsuite.core.files import create_file, replace_file


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
