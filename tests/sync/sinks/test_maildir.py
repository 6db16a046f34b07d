"""The Maildir sink: each message is one complete file."""

from __future__ import annotations

import asyncio
import mailbox
import os
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.sync.model import Change, Kind
from directsuite.sync.sinks import maildir
from directsuite.sync.sinks.eml import iter_eml
from directsuite.sync.sinks.maildir import MaildirSink
from tests.sync.sinks.maildirs import (
    compose,
    find_only_file,
    list_files,
    list_temporaries,
    make_expected,
    read_contents,
    read_files,
)
from tests.sync.sinks.sample_changes import (
    RECEIVED_AT,
    make_gone,
    make_key,
    make_message,
    make_moved,
    make_new,
    make_restored,
)

A, B, C = make_key(1), make_key(2), make_key(3)
SENT = make_key(7, "INBOX.Sent")


async def test_a_message_is_one_file_that_mail_programs_read(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path / "mail")
    for _ in range(2):
        await sink([make_new(A), make_new(SENT, 2)])
    assert read_files(tmp_path / "mail") == make_expected(inbox=[1], sent=[2])
    box = mailbox.Maildir(tmp_path / "mail" / "nurse@direct.test", create=False)
    assert box.list_folders() == ["Sent"]
    assert [each["Message-ID"] for each in box] == ["<1@direct.test>"]
    assert (tmp_path / "mail/nurse@direct.test/.Sent/maildirfolder").exists()


async def test_files_are_private_and_have_the_date_of_the_message(tmp_path: Path) -> None:
    await MaildirSink(tmp_path / "mail")([make_new(SENT)])
    for path in (tmp_path / "mail").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert find_only_file(tmp_path).stat().st_mtime == RECEIVED_AT.timestamp()


async def test_a_file_name_reveals_nothing_about_the_message(tmp_path: Path) -> None:
    await MaildirSink(tmp_path)([make_new(A)])
    seconds, rest = find_only_file(tmp_path).name.split(".", 1)
    assert int(seconds) == RECEIVED_AT.timestamp()
    assert set(rest) <= set("0123456789abcdef-.eml")


@pytest.mark.parametrize("whole", [False, True])
async def test_a_move_takes_the_file_along_with_its_marks(tmp_path: Path, whole: bool) -> None:
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    path = find_only_file(tmp_path)
    path.rename(path.parent.parent / "cur" / f"{path.name}:2,FS")
    for _ in range(2):
        await sink([make_moved(A, SENT, with_message=whole)])
        assert read_files(tmp_path) == make_expected(sent=[1])
    assert find_only_file(tmp_path).name.endswith(".eml:2,FS")
    assert find_only_file(tmp_path).parent.name == "cur"


@pytest.mark.parametrize(("is_read", "place"), [(True, "cur"), (False, "new"), (None, "new")])
async def test_a_read_message_is_not_delivered_as_new(tmp_path: Path, is_read: bool | None, place: str) -> None:
    change = attrs.evolve(make_new(A), is_read=is_read)
    for _ in range(2):
        await MaildirSink(tmp_path)([change])
        path = find_only_file(tmp_path)
        assert path.parent.name == place
        assert path.name.endswith(":2,S" if is_read else ".eml")
    (message,) = mailbox.Maildir(tmp_path / "nurse@direct.test", create=False)
    assert (message.get_subdir(), message.get_flags()) == (place, "S" if is_read else "")
    assert read_contents(tmp_path) == compose(1)


async def test_a_delivery_again_leaves_the_flags_of_a_mail_program(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path)
    await sink([attrs.evolve(make_new(A), is_read=True)])
    path = find_only_file(tmp_path)
    path.rename(path.with_name(path.name.replace(":2,S", ":2,")))  # marked as unread
    await sink([attrs.evolve(make_new(A), is_read=True)])
    assert find_only_file(tmp_path).name.endswith(":2,")


async def test_an_unread_message_is_restored_as_new(tmp_path: Path) -> None:
    await MaildirSink(tmp_path)([make_new(A), make_gone(A), make_restored(A, A)])
    assert find_only_file(tmp_path).parent.name == "new"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the directories that were read."""
    read, list_names = list[str](), maildir._list_names

    def record(directory: Path) -> list[str]:
        read.append(directory.name)
        return list_names(directory)

    monkeypatch.setattr(maildir, "_list_names", record)
    return read


EVERYTHING = ["tmp", "new", "cur"]


async def test_new_messages_do_not_have_the_directories_read_again(tmp_path: Path, read: list[str]) -> None:
    sink = MaildirSink(tmp_path)
    for told, expected_reads in ((A, EVERYTHING), (B, ["tmp"]), (C, ["tmp"]), (A, EVERYTHING), (make_key(4), ["tmp"])):
        await sink([make_new(told)])
        assert read == expected_reads
        read.clear()


async def test_only_the_oldest_mailbox_is_removed_from_a_full_cache(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maildir, "_MAX_CACHED_KEYS", 2)
    sink = MaildirSink(tmp_path)
    for uid in (1, 2, 3):
        await sink([make_new(make_key(uid, f"INBOX.{uid}"))])
    for folder, expected_reads in (("INBOX.2", ["tmp"]), ("INBOX.1", EVERYTHING)):
        read.clear()
        await sink([make_new(make_key(4, folder))])
        assert read == expected_reads


class CacheOfOtherDeliveries(dict[Path, Any]):
    """A cache from which other deliveries take all mailboxes while one examines it."""

    def items(self) -> Any:
        items = list(super().items())
        self.clear()
        return items


async def test_other_deliveries_may_take_mailboxes_from_a_full_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maildir, "_MAX_CACHED_KEYS", 0)
    sink = MaildirSink(tmp_path)
    monkeypatch.setattr(sink, "_cache", CacheOfOtherDeliveries())
    await sink([make_new(A), make_new(SENT, 2)])
    assert read_files(tmp_path) == make_expected(inbox=[1], sent=[2])


@pytest.mark.parametrize("most", [250_000, 1])
async def test_files_of_another_process_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(maildir, "_MAX_CACHED_KEYS", most)
    sink = MaildirSink(tmp_path)
    await sink([make_new(A), make_new(SENT, 2)])
    await MaildirSink(tmp_path)([make_new(B, 3)])
    path = next(path for path in list_files(tmp_path) if b"<3@" in path.read_bytes())
    before = path.parent.stat().st_ctime_ns
    path.rename(path.parent.parent / "cur" / f"{path.name}:2,S")
    while path.parent.stat().st_ctime_ns == before:  # the file system's clock moves every few milliseconds
        path.touch()
        path.unlink()
    await sink([make_new(B, 3)])
    assert read_files(tmp_path) == make_expected(inbox=[1, 3], sent=[2])


async def test_missing_file_is_searched_although_mtimes_are_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(_: maildir._Maildir) -> tuple[tuple[int, int], ...]:
        return ((1, 1), (1, 1))

    monkeypatch.setattr(maildir._Maildir, "_read_change_stamps", unchanged)
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    await MaildirSink(tmp_path)([make_new(B, 3)])
    await sink([make_gone(B, 3)])
    assert read_files(tmp_path) == make_expected(inbox=[1])


async def test_gone_may_keep_it_until_it_is_restored_under_another_key(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path, keep_gone=True)
    await sink([make_new(A), make_gone(A)])
    assert read_files(tmp_path) == make_expected(inbox=[1])
    for _ in range(2):
        await sink([make_restored(A, SENT)])
        assert read_files(tmp_path) == make_expected(sent=[1])


async def test_a_kept_message_stays_when_another_has_its_key(tmp_path: Path) -> None:
    await MaildirSink(tmp_path, keep_gone=True)([make_new(A), make_gone(A), make_new(A, 2)])
    assert read_files(tmp_path) == make_expected(inbox=[1, 2])


async def test_a_moved_message_that_the_reader_deleted_stays_deleted(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    find_only_file(tmp_path).unlink()
    await sink([make_moved(A, SENT)])
    assert read_files(tmp_path) == {}


async def test_a_mail_program_may_rename_files_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    unlink, path = os.unlink, find_only_file(tmp_path)

    def raced(target: Any, **options: Any) -> None:
        if path.exists():
            path.rename(path.parent.parent / "cur" / f"{path.name}:2,S")
        unlink(target, **options)

    monkeypatch.setattr(os, "unlink", raced)
    await sink([make_gone(A)])
    assert read_files(tmp_path) == {}


async def test_temporary_files_of_other_programs_are_kept(tmp_path: Path) -> None:
    sink = MaildirSink(tmp_path)
    await sink([make_new(A)])
    theirs = tmp_path / "nurse@direct.test/tmp/1.P2.host"
    theirs.write_bytes(b"")
    await sink([make_new(B, 2)])
    assert list_temporaries(tmp_path) == [theirs]


async def test_a_cancelled_delivery_writes_no_more_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = MaildirSink(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def slow(message: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return iter_eml(message)

    monkeypatch.setattr(maildir, "iter_eml", slow)
    delivery = asyncio.ensure_future(sink([make_new(A), make_new(B, 2)]))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(3):
        delivery.cancel()
        await asyncio.wait([delivery], timeout=0)
        assert not delivery.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await delivery
    assert read_files(tmp_path) == make_expected(inbox=[1])


async def test_the_event_loop_runs_while_a_large_message_is_written(tmp_path: Path) -> None:
    large = make_message(1, attachments=[ds.Attachment(content=bytes(3_000_000))])
    delivery = asyncio.ensure_future(MaildirSink(tmp_path)([Change(kind=Kind.NEW, key=A, message=large)]))
    turns = 0
    while not delivery.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3


def test_an_impossible_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name, problem in (("file", "it is a file: name a directory"), ("none/mail", "the directory can't be created")):
        with pytest.raises(ds.InvalidArgumentError, match=f"folder: {problem}") as caught:
            MaildirSink(tmp_path / name)
        assert caught.value.__context__ is None
