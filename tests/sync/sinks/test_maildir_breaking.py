"""Maildirs if the process dies, the disk is full or the folder is read-only, between any two steps."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sync.model import Change, Kind
from directsuite.sync.sinks.maildir import MaildirError, MaildirSink
from tests.sync.sinks.maildirs import compose, list_temporaries, make_expected, read_contents, read_files
from tests.sync.sinks.sample_changes import make_gone, make_key, make_message, make_moved, make_new, make_restored

pytestmark = pytest.mark.wide

A, B, C = make_key(1), make_key(2), make_key(3)
SENT = make_key(7, "INBOX.Sent")

_STEPS = ("open", "close", "fsync", "rename", "replace", "unlink", "mkdir", "utime", "scandir")
_HISTORY = [make_new(A, 1), make_new(B, 2), make_new(C, 3)]
_BATCHES: dict[str, tuple[list[Change], dict[str, list[bytes]]]] = {
    "new": ([make_new(make_key(4), 4), make_new(SENT, 5)], make_expected(inbox=[1, 2, 3, 4], sent=[5])),
    "all": (
        [
            make_moved(A, SENT, 1),
            make_gone(B, 2),
            make_new(B, 4),
            make_moved(C, make_key(3, uid_validity=2), 3, with_message=True),
        ],
        make_expected(inbox=[3, 4], sent=[1]),
    ),
    "again": ([make_gone(A, 1), make_restored(A, SENT, 1)], make_expected(inbox=[2, 3], sent=[1])),
}


class _DiedError(BaseException):
    pass


def _breaking(monkeypatch: pytest.MonkeyPatch, at: int, failure: BaseException, *, dead: bool) -> list[str]:
    tried: list[str] = []

    def patched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **options: Any) -> Any:
            tried.append(name)
            if len(tried) - 1 == at or (dead and len(tried) > at):
                raise failure
            return real(*given, **options)

        return step

    for name in _STEPS:
        monkeypatch.setattr(os, name, patched(name, getattr(os, name)))
    return tried


def _failure_of(sink: MaildirSink, batch: list[Change]) -> BaseException | None:
    try:
        sink._deliver(batch, threading.Event())
    except (MaildirError, _DiedError) as failure:
        return failure
    return None


@pytest.mark.parametrize("name", _BATCHES)
@pytest.mark.parametrize("kind", ["death", "full disk", "read-only"])
def test_any_interruption_is_repaired_by_redelivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(os, "fsync", id)  # here no power is lost, and it takes most of the time
    batch, outcome = _BATCHES[name]
    at, done = 0, False
    known = set(compose(*range(1, 6)))
    while not done:
        root = tmp_path / str(at)
        MaildirSink(root)._deliver(_HISTORY, threading.Event())
        sink = MaildirSink(root)
        with monkeypatch.context() as patch:
            number = errno.ENOSPC if kind == "full disk" else errno.EROFS
            reason = OSError(number, "a name", "nurse@direct.test")
            tried = _breaking(patch, at, _DiedError() if kind == "death" else reason, dead=kind == "death")
            failure = _failure_of(sink, batch)
        done = failure is None and len(tried) <= at
        if isinstance(failure, MaildirError):
            assert (failure.errno, os.strerror(number) in str(failure)) == (number, True)
            assert "nurse" not in repr(failure)
            assert failure.__cause__ is failure.__context__ is None
        assert set(read_contents(root)) <= known
        again = sink if kind != "death" else MaildirSink(root)
        again._deliver(batch, threading.Event())
        assert (read_files(root), list_temporaries(root)) == (outcome, [])
        at += 1
    assert at > 15


def test_file_is_synced_before_rename_and_directory_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MaildirSink(tmp_path)
    tried = _breaking(monkeypatch, -1, _DiedError(), dead=False)
    sink._deliver([make_new(A)], threading.Event())
    steps = [step for step in tried if step in ("fsync", "replace")]
    assert steps == ["fsync", "replace", *["fsync"] * 5]  # the file; new, cur, the Maildir, its parent, the root


async def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = make_message(2, attachments=[ds.Attachment(content=bytes(3_000_000))])
    change = Change(kind=Kind.NEW, key=B, message=large, digest="2")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(MaildirError, match=r"can't be written \(File too large\)"):
            await sink([change])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (read_files(tmp_path), list_temporaries(tmp_path)) == (make_expected(inbox=[1]), [])
    await sink([change])
    assert len(read_files(tmp_path)["nurse@direct.test"]) == 2
