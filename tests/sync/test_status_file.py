"""The status file of a worker."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sync import Kind, MailboxProgress, SyncStatus
from directsuite.sync.status import WorkerStatus, build_status_path, read_status, write_status

seconds = st.floats(0, 2**33)
progress = st.builds(
    MailboxProgress,
    name=st.just("?"),
    status=st.sampled_from(SyncStatus),
    up_to_date_at=st.none() | seconds,
    rounds=st.integers(0, 9),
    changes=st.dictionaries(st.sampled_from(Kind), st.integers(0, 9)).map(Counter[Kind]),
    quarantined=st.integers(0, 9),
    failures=st.integers(0, 9),
    problem=st.none() | st.text(max_size=9),
    failing_since=st.none() | seconds,
    folders=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2),
)


def status(mailboxes: dict[str, MailboxProgress], **more: Any) -> WorkerStatus:
    for name, each in mailboxes.items():
        each.name = name
    about: dict[str, Any] = {"pid": 7, "started": 1.0, "written_at": 2.0, **more}
    return WorkerStatus(**about, mailboxes=mailboxes)


ONE = status({"jane@direct.example": MailboxProgress(name="", problem="x" * 100)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build_status_path(tmp_path / "sync.db")


@given(mailboxes=st.dictionaries(st.text(max_size=9), progress, max_size=3), ended=st.booleans())
def test_a_report_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, mailboxes: Any, ended: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "report.json"
    written = status(mailboxes, ended=ended)
    write_status(path, written)
    assert read_status(path) == written


def test_the_file_is_private_and_no_other_file_remains(path: Path) -> None:
    for _ in range(2):
        write_status(path, ONE)
        for name in (path, path.with_name(f"{path.name}.new")):  # as a back-up may be restored
            name.touch()
            name.chmod(0o644)
    write_status(path, ONE)
    assert [each.name for each in path.parent.iterdir()] == ["sync.db.status.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_age_of_a_report_is_never_negative() -> None:
    assert ONE.age(12.0) == 10.0
    assert ONE.age(1.0) == 1.0  # a clock that was put back


def test_the_repr_of_a_report_has_no_names() -> None:
    assert "jane" not in repr(ONE)


def test_on_a_full_disk_the_file_is_overwritten_in_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(path, ONE)
    room, opens = path.stat().st_size, os.open

    def full(name: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "full")
        return opens(name, flags, *more, **others)

    monkeypatch.setattr(os, "open", full)
    path.chmod(0o644)
    longer = status({"jane@direct.example": MailboxProgress(name="", problem="x" * 500)}, written_at=3.0)
    write_status(path, longer)
    assert read_status(path) == longer
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == room


def test_an_unwritable_path_raises_the_error_of_the_system(path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_status(path.parent / "gone" / path.name, ONE)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 2}', '{"version": 1}', '{"version": 1, "mailboxes": {"a": {"new": 1}}}'],
)
def test_an_invalid_report_is_none(path: Path, text: str) -> None:
    assert read_status(path) is None
    path.write_text(text)
    assert read_status(path) is None


def test_a_report_of_a_later_release_is_none(path: Path) -> None:
    write_status(path, ONE)
    document = json.loads(path.read_bytes())
    document["mailboxes"]["jane@direct.example"]["more"] = 1
    path.write_text(json.dumps(document))
    assert read_status(path) is None
