"""Files whose size the system gives as 0, as procfs and some FUSE file systems do, are read to their end."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from directsuite.core.content import Content, make_content
from directsuite.core.files import PIECE_BYTES
from directsuite.errors import InvalidArgumentError, TransportError

SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 7]


@pytest.fixture
def hide_sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    stat = Path.stat

    def hide(size: int) -> None:
        def report(path: Path, **options: Any) -> os.stat_result:
            values = list(stat(path, **options))
            values[6] = size
            return os.stat_result(values)

        monkeypatch.setattr(Path, "stat", report)

    return hide


class ProcFile(io.BytesIO):
    """A file without a size until it is read."""

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0 if whence == io.SEEK_END else super().seek(offset, whence)


async def read(content: Content) -> bytes:
    return b"".join([bytes(piece) async for piece in content.pieces()])


@pytest.mark.parametrize("size", SIZES)
async def test_source_of_unknown_size_is_read_to_its_end(
    size: int, tmp_path: Path, hide_sizes: Callable[[int], None]
) -> None:
    path, text = tmp_path / "file", os.urandom(size)
    path.write_bytes(text)
    hide_sizes(0)
    of_path, of_file = make_content(path, parameter="file"), make_content(ProcFile(text), parameter="file")
    assert of_path.size == (size if size <= PIECE_BYTES else None)
    assert of_file.size == (None if size else 0)
    for content in (of_path, of_file, of_path, of_file):
        assert content.head(5) == text[:5]
        assert await read(content) == text


async def test_file_object_is_read_from_its_position() -> None:
    file = ProcFile(b"0123456789")
    file.seek(4)
    content = make_content(file, parameter="file")
    assert content.size is None
    for _ in range(2):
        assert await read(content) == b"456789"


@pytest.mark.parametrize("file", [ProcFile(b"0123"), io.BytesIO(b"0123"), io.BytesIO(b"")])
def test_file_object_at_its_end_is_rejected(file: io.BytesIO) -> None:
    file.seek(4)
    with pytest.raises(InvalidArgumentError, match="at its end"):
        make_content(file, parameter="file")


@pytest.mark.parametrize("size", [0, 5])
async def test_a_file_that_cannot_be_read_is_an_error(
    size: int, tmp_path: Path, hide_sizes: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "file"
    path.write_bytes(b"text")
    hide_sizes(size)
    monkeypatch.setattr(Path, "open", fail)
    content = make_content(path, parameter="file")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        await read(content)


@pytest.mark.parametrize("reported", [1, 4_096])
async def test_a_small_file_of_a_wrong_size_is_read_to_its_end(
    reported: int, tmp_path: Path, hide_sizes: Callable[[int], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"as in sysfs")
    hide_sizes(reported)
    content = make_content(path, parameter="file")
    assert content.size == 11
    assert await read(content) == b"as in sysfs"


async def test_large_file_may_grow_but_not_become_shorter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * (PIECE_BYTES + 1))
    content = make_content(path, parameter="file")
    path.write_bytes(b"a" * (PIECE_BYTES + 1) + b"b")
    assert await read(content) == b"a" * (PIECE_BYTES + 1)
    path.write_bytes(b"a")
    with pytest.raises(TransportError, match="shorter"):
        await read(content)


def test_a_size_that_cannot_be_checked_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="omit this argument"):
        make_content(ProcFile(b"text"), parameter="file", size=4)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_path_of_a_pipe_is_rejected_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgumentError, match="the path is a pipe or a device: open it"):
        make_content(tmp_path / "pipe", parameter="file")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs procfs")
async def test_a_file_of_procfs_is_read_to_its_end() -> None:
    path = Path("/proc/self/status")
    assert b"Name:" in await read(make_content(path, parameter="file"))
    with io.FileIO(path) as file:
        assert b"Name:" in await read(make_content(file, parameter="file"))
