"""The file of the SQLite store: error messages, permissions, locks and durability."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from directsuite.durable import sqlite
from directsuite.errors import ClosedError, ConfigurationError, DirectSuiteError
from directsuite.jobs.delivery import DeliveryJournal
from directsuite.jobs.signing import SigningJournal
from directsuite.sync.model import ChangeSet, Lease, MessageState, StoredFolder, StoreError
from directsuite.sync.store import FILE, SqliteStore
from tests.statements import query_file, sql
from tests.sync.test_sqlite_store import MAILBOX, make_row

_HERE = Path(__file__).parents[2]  # from where a child process imports


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def opened_and_closed(path: Path, ask: Callable[[SqliteStore], Awaitable[object]] | None = None) -> None:
    async with SqliteStore(path) as store:
        if ask is not None:
            await ask(store)


def run_script(script: str, *arguments: str | Path) -> str:
    """Return what a script prints in another process."""
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, cwd=_HERE, check=True, text=True, timeout=60).stdout


async def begun(store: SqliteStore, rows: int) -> tuple[Lease, StoredFolder]:
    lease = await store.claim(MAILBOX)
    inbox = await store.make_folder(lease, "INBOX")
    await store.commit(lease, ChangeSet(rows=[make_row(inbox, uid) for uid in range(rows)]), [])
    return lease, inbox


async def pragma(store: SqliteStore, text: str) -> object:
    found = await store._database.execute(sql(f"PRAGMA {text}"))
    return found[0][0] if found else None


async def test_a_full_disk_is_reported_and_recovered(path: Path) -> None:
    async with SqliteStore(path) as store:
        lease, inbox = await begun(store, 1)
        await pragma(store, "max_page_count = 12")
        many = ChangeSet(rows=[make_row(inbox, uid, digest=b"secret" * 10) for uid in range(1, 5000)])
        with pytest.raises(StoreError, match="Free some disk space") as refused:
            await store.commit(lease, many, [])
        assert "secret" not in repr(refused.value)
        assert await store.states(inbox) == {0: MessageState.LIVE}
        await pragma(store, "max_page_count = 100000")
        await store.commit(lease, many, [])
        assert len(await store.states(inbox)) == 5000


_WITHOUT_MEMORY = """
import asyncio, contextlib, sys
from tests.statements import query_file, sql
from directsuite.sync.store import SqliteStore
from directsuite.sync.model import ChangeSet, MessageRow, MessageState, StoreError

async def commit(store, name):
    lease = await store.claim(name)
    folder = await store.make_folder(lease, "INBOX")
    new = {"folder": folder.id, "uid_validity": 1, "state": MessageState.LIVE, "digest": bytes(5000)}
    rows = [MessageRow(uid=uid, **new) for uid in range(200)]
    await store.commit(lease, ChangeSet(rows=rows), [])
    print("kept", name)

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        for limit in [int(32_000_000 * 0.6 ** n) for n in range(8)]:
            with contextlib.suppress(MemoryError, StoreError):  # it holds all the same
                await store._database.execute(sql(f"PRAGMA hard_heap_limit = {limit}"))
            work = asyncio.gather(*(commit(store, f"{limit}/{number}") for number in range(4)), return_exceptions=True)
            for outcome in await asyncio.wait_for(work, 10):
                if outcome is not None:
                    print(repr(outcome))

asyncio.run(main())
"""


@pytest.mark.process
def test_lack_of_memory_is_reported_and_commits_persist(path: Path) -> None:
    said = run_script(_WITHOUT_MEMORY, path).splitlines()
    kept = {each.removeprefix("kept ") for each in said if each.startswith("kept ")}
    refused = [each for each in said if not each.startswith("kept ")]
    assert kept, said
    assert refused, said
    assert all(each.startswith("StoreError('There is no memory left") for each in refused), said

    async def look(store: SqliteStore) -> None:
        assert await pragma(store, "integrity_check") == "ok"
        for name in kept:
            inbox = await store.make_folder(await store.claim(name), "INBOX")
            assert len(await store.states(inbox)) == 200

    asyncio.run(opened_and_closed(path, look))


async def test_a_read_only_file_is_reported(path: Path) -> None:
    async with SqliteStore(path) as store:
        await pragma(store, "query_only = ON")
        with pytest.raises(StoreError, match="Let this user write"):
            await store.claim(MAILBOX)


_OPEN_AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from directsuite.sync.store import FILE, SqliteStore
if os.getuid() == 0:
    os.setuid(65534)
try:
    if sys.argv[2] == "beside":
        with FILE.open_shared(Path(sys.argv[1])):
            pass
    else:
        asyncio.run(SqliteStore(sys.argv[1]).open())
except Exception as error:
    print(repr(error))
"""


def open_as_nobody(mode: int, *, kept: bool = True, use: str = "writing") -> str:
    """Return the error of opening a store in a folder with this mode. kept: the store exists, and all may write it."""
    with tempfile.TemporaryDirectory() as made:  # not pytest's: others may not enter that
        folder = Path(made)
        if kept:
            asyncio.run(opened_and_closed(folder / "store.db"))
            for each in folder.iterdir():
                each.chmod(0o666)
        folder.chmod(mode)
        said = run_script(_OPEN_AS_NOBODY, folder / "store.db", use)
        folder.chmod(0o755)
    assert str(folder) not in said
    return said


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="modes of folders are a matter of POSIX")
@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
def test_a_read_only_folder_is_reported(kept: bool) -> None:
    said = open_as_nobody(0o555, kept=kept)
    assert said.startswith("StoreError("), said
    assert "this user" in said


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("use", ["writing", "beside"])
def test_a_readable_file_of_another_user_is_rejected(use: str) -> None:
    said = open_as_nobody(0o777, use=use)
    assert said.startswith("StoreError(\"Other users than its owner may read the store's file"), said


async def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory") as refused:
        await SqliteStore(tmp_path / MAILBOX / "store.db").open()
    assert MAILBOX not in repr(refused.value)
    assert refused.value.__suppress_context__


def test_a_file_of_another_kind_is_unchanged(path: Path) -> None:
    path.write_bytes(b"a letter" * 1000)
    with pytest.raises(StoreError, match="not an SQLite database"):
        asyncio.run(opened_and_closed(path))
    assert path.read_bytes() == b"a letter" * 1000


async def journal_of_signing(path: Path) -> None:
    async with SigningJournal(path):
        pass


async def journal_of_deliveries(path: Path) -> None:
    async with DeliveryJournal(path):
        pass


KINDS = {"store": opened_and_closed, "signing": journal_of_signing, "delivery": journal_of_deliveries}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", [*KINDS, "somebody's"])
def test_a_database_of_another_kind_is_rejected_and_unchanged(kind: str, there: str, path: Path) -> None:
    if there in KINDS:
        asyncio.run(KINDS[there](path))
    else:
        query_file(path, "CREATE TABLE patient (name)")
    before = path.read_bytes()
    if there == kind:
        asyncio.run(KINDS[kind](path))
        return
    with pytest.raises(
        DirectSuiteError, match=r"contains another kind of database. Use another path for the (store|journal)"
    ):
        asyncio.run(KINDS[kind](path))
    assert path.read_bytes() == before


def test_a_damaged_file_is_reported(path: Path) -> None:
    inbox = list[StoredFolder]()

    async def write(store: SqliteStore) -> None:
        inbox.append((await begun(store, 5000))[1])

    asyncio.run(opened_and_closed(path, write))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="damaged"):
        asyncio.run(opened_and_closed(path, lambda store: store.rows(inbox[0])))


@pytest.mark.parametrize(("later", "told"), [(1, "Upgrade directsuite"), (-1, "Finish the work with the earlier")])
def test_another_version_is_rejected_and_unchanged(path: Path, later: int, told: str) -> None:
    asyncio.run(opened_and_closed(path))
    query_file(path, f"PRAGMA user_version = {FILE.version + later}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=told):
        asyncio.run(opened_and_closed(path))
    assert path.read_bytes() == before


async def test_files_are_readable_by_their_owner_only(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.claim(MAILBOX)
        names = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert names == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db.lock"], 0o600)


async def look_beside(path: Path) -> None:
    with FILE.open_shared(path, read_only=True):
        pass


async def look_beside_by_another_name(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    await look_beside(link)


@pytest.mark.exhaustive(limit=3)
@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
@pytest.mark.parametrize("use", [*KINDS.values(), look_beside, look_beside_by_another_name])
async def test_permissions_of_other_users_are_removed(
    use: Callable[[Path], Awaitable[None]], mode: int, path: Path, tmp_path: Path
) -> None:
    kind = use if use in KINDS.values() else opened_and_closed
    restored = tmp_path / "restored.db"
    await kind(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:  # preserves the -wal and -shm files
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version}")
        for suffix in ("", "-wal", "-shm"):
            copy = tmp_path / f"restored.db{suffix}"
            copy.write_bytes((tmp_path / f"store.db{suffix}").read_bytes())
            copy.chmod(mode)
    seen = set[int]()
    connected: Callable[..., sqlite3.Connection] = sqlite3.connect

    def watching(*of: Any, **how: Any) -> sqlite3.Connection:
        seen.update(stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob("restored.db*"))
        return connected(*of, **how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", watching)
        await use(restored)
    assert seen == {0o600}
    assert stat.S_IMODE(restored.stat().st_mode) == 0o600


async def test_pragmas_are_set(path: Path) -> None:
    async with SqliteStore(path) as store:
        pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}
        assert {name: await pragma(store, name) for name in pragmas} == pragmas


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("second", ["same path", "link", "hard link", "lock removed"])
async def test_a_second_store_on_the_same_file_is_rejected(second: str, path: Path) -> None:
    link = path.with_name("link.db")
    async with SqliteStore(path):
        if second == "link":
            link.symlink_to(path)
        elif second == "hard link":
            link.hardlink_to(path)
        elif second == "lock removed":
            path.with_name("store.db.lock").unlink()
        with pytest.raises(StoreError, match="already open"):
            await SqliteStore(link if link.exists() else path).open()
    async with SqliteStore(path):
        pass


def test_one_of_many_threads_opens_a_new_file(path: Path) -> None:
    start, end = threading.Barrier(20), threading.Barrier(20)

    def open_file(_: int) -> bool:
        start.wait(10)
        try:
            with FILE.open_writer(path):
                end.wait(10)
        except StoreError:
            end.wait(10)
            return False
        return True

    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(open_file, range(20))) == 1
    asyncio.run(opened_and_closed(path))


@pytest.mark.exhaustive(limit=3)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("use", [*KINDS.values(), look_beside])
@pytest.mark.parametrize("special", ["pipe", "folder", "lock is a folder"])
async def test_a_path_that_is_no_regular_file_is_an_error(
    special: str, use: Callable[[Path], Awaitable[None]], path: Path
) -> None:
    if special == "pipe":
        os.mkfifo(path)
    else:
        (path if special == "folder" else path.with_name("store.db.lock")).mkdir()
    if special == "lock is a folder" and use is look_beside:
        pytest.skip("who looks beside a worker locks nothing")
    modes = {each.name: each.stat().st_mode for each in path.parent.iterdir()}
    with pytest.raises(DirectSuiteError, match=r"not a regular file|Is a directory"):
        await use(path)
    assert {name: (path.parent / name).stat().st_mode for name in modes} == modes


_FORK = """
import asyncio, multiprocessing, os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from directsuite.sync import SqliteStore

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        await store.claim("m@direct.example.org")
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
        print(await asyncio.get_running_loop().run_in_executor(pool, os.getpid), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_store_is_open_again_while_children_of_a_killed_worker_live(path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", _FORK, str(path)], stdout=subprocess.PIPE, cwd=_HERE, text=True)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    try:
        assert worker.wait() == -signal.SIGKILL
        os.kill(child, 0)
        asyncio.run(opened_and_closed(path))
    finally:
        os.kill(child, signal.SIGKILL)
        worker.stdout.close()


async def test_a_store_that_was_open_before_a_fork_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SqliteStore(path) as store:
        with monkeypatch.context() as forked:
            forked.setattr(sqlite, "os", SimpleNamespace(getpid=lambda: -1))
            with pytest.raises(ConfigurationError, match="before a fork"):
                await store.claim(MAILBOX)
            await store.aclose()  # as in the child, it leaves the parent's store open
        await store.claim(MAILBOX)


_OPEN = "import asyncio,sys; from directsuite.sync.store import *; asyncio.run(SqliteStore(sys.argv[1]).open())"


@pytest.mark.process
async def test_a_second_process_is_rejected(path: Path) -> None:
    def open_there() -> str:
        command = [sys.executable, "-c", _OPEN, str(path)]
        return subprocess.run(command, capture_output=True, cwd=_HERE, check=False, text=True).stderr

    async with SqliteStore(path):
        assert "StoreError: The store is already open" in await asyncio.to_thread(open_there)
    assert not await asyncio.to_thread(open_there)


async def test_a_reopened_store_has_all_rows(path: Path) -> None:
    async with SqliteStore(path) as store:
        lease, inbox = await begun(store, 2)
    assert sorted(each.name for each in path.parent.iterdir()) == ["store.db", "store.db.lock"]
    with pytest.raises(ClosedError):
        await store.rows(inbox)
    async with SqliteStore(path) as store:
        assert await store.rows(inbox) == [make_row(inbox, 0), make_row(inbox, 1)]
        assert (await store.claim(MAILBOX)).lease_number == lease.lease_number + 1


def test_error_of_the_disk_names_a_full_disk() -> None:
    # SQLite reports a full disk as an I/O error if it cannot extend its shared memory or write-ahead log.
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert "Check whether the disk is full" in FILE.explain(error).explanation
