"""`directsuite sync status`, `audit` and `retry`: during a run, after it, and without a store."""

from __future__ import annotations

import os
import socket
import sys
import time

import pytest

from directsuite.sync import MailboxProgress, SqliteSink, SqliteStore, SyncStatus
from directsuite.sync.status import WorkerStatus, write_status
from tests.cli.sync.conftest import BOTH, SyncRunner
from tests.integration.scenario import ALICE, BOB
from tests.statements import query_file

pytestmark = pytest.mark.wide


async def ran(runner: SyncRunner, **passwords: str) -> None:
    """Run a worker until both mailboxes are up to date or have failed."""
    await runner.deliver_to(ALICE, "one")
    await runner.run_once(*BOTH, **passwords)


def report(
    runner: SyncRunner, age: float, *mailboxes: MailboxProgress, pid: int | None = None, host: str | None = None
) -> None:
    written = WorkerStatus(
        pid=pid or os.getpid(),
        host=host or socket.gethostname(),
        started=time.time() - 1000,
        written_at=time.time() - age,
        mailboxes={each.name: each for each in mailboxes},
    )
    write_status(runner.folder / "directsuite-sync.db.status.json", written)


@pytest.fixture
def held_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the wall clock, so that a slow machine does not change ages."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


async def test_store_that_is_not_there_is_reported(cli: SyncRunner) -> None:
    for command in ("status", "audit", "retry"):
        await cli.fail(2, "directsuite: There is no store at this path", command)
    assert list(cli.folder.iterdir()) == []


async def test_after_a_worker_it_tells_what_that_left(cli: SyncRunner) -> None:
    await ran(cli)
    result = await cli.run("status")
    assert (result.status, result.err) == (0, "")
    first, header, *rows = result.out.splitlines()
    assert first.startswith("No worker is running. The last one stopped")
    assert header.split()[:3] == ["no.", "mailbox", "status"]
    assert sorted(row.split()[1] for row in rows) == [ALICE, BOB]
    assert all("up to date" in row for row in rows)


async def test_mailbox_that_fails_is_status_1_and_stands_first(cli: SyncRunner) -> None:
    await ran(cli, bob="wrong")
    result = await cli.run("status")
    assert result.status == 1
    row = result.out.splitlines()[2]
    assert row.split()[1] == BOB
    assert "The service rejected the mailbox's password. Provide the correct one." in row
    assert (await cli.run("status", "--mailbox", ALICE)).status == 0
    failing = await cli.run("status", "--failing")
    assert [line.split()[1] for line in failing.out.splitlines()[2:]] == [BOB]
    unknown = ("status", "--mailbox", ALICE, "--mailbox", "nobody@direct.example.test")
    await cli.fail(2, "directsuite: --mailbox number 2 is not in the store", *unknown)


async def test_as_json_it_is_one_document(cli: SyncRunner) -> None:
    await ran(cli, bob="wrong")
    document = (await cli.run("status", "--json")).document
    assert document["worker"]["running"] is False
    bob, alice = document["mailboxes"]
    assert (alice["mailbox"], alice["status"], alice["messages"]) == (ALICE, "up to date", 1)
    assert alice["since_the_start"] == {"new": 1, "moved": 0, "gone": 0}
    assert alice["folders"]["INBOX"]["messages"] == 1
    assert alice["folders"]["INBOX"]["audited_at"].endswith("Z")
    assert alice["lag"] < 60
    assert (bob["status"], bob["lag"], bob["up_to_date_at"]) == ("failing", None, None)
    assert bob["failing_for"] < 60


@pytest.mark.usefixtures("held_clock")
async def test_beside_a_worker_that_has_the_store_open(cli: SyncRunner) -> None:
    failing = MailboxProgress(
        name=ALICE,
        status=SyncStatus.FAILING,
        problem="There is no such folder on the server.",
        failing_since=time.time() - 7300,
        folders={"INBOX.Ward": "There is no such folder on the server."},
    )
    async with SqliteStore("directsuite-sync.db", sink=SqliteSink()):
        report(cli, 2.0, failing, MailboxProgress(name=BOB))
        result = await cli.run("status")
        assert result.status == 1
        assert result.out.startswith(f"The worker (process {os.getpid()}) reported 2 s ago.\n")
        assert "(for 2 h)" in result.out
        assert result.out.endswith(f"{ALICE}, INBOX.Ward: There is no such folder on the server.\n")


@pytest.mark.usefixtures("held_clock")
@pytest.mark.parametrize(("age", "status"), [(2.0, 0), (100.0, 1)])
async def test_worker_that_was_killed_is_status_1_though_no_mailbox_fails(
    cli: SyncRunner, age: float, status: int
) -> None:
    await ran(cli)
    report(cli, age, MailboxProgress(name=ALICE, status=SyncStatus.UP_TO_DATE))
    result = await cli.run("status")
    assert result.status == status
    assert ("was killed. Its last report was 100 s ago" in result.out) == bool(status)
    assert (await cli.run("status", "--json", "--mailbox", BOB)).status == status


async def test_without_a_report_it_tells_what_the_store_knows(cli: SyncRunner) -> None:
    await ran(cli)
    cli.folder.joinpath("directsuite-sync.db.status.json").unlink()
    result = await cli.run("status")
    assert result.status == 0
    assert result.out.startswith(
        "No worker of `directsuite sync run` has reported. The table shows only the content of the store.\n"
    )
    assert [row.split()[2] for row in result.out.splitlines()[2:]] == ["unknown", "unknown"]
    assert ALICE in result.out
    result = await cli.run("status", "--failing")
    assert (result.status, "No worker has reported" in result.err) == (0, True)
    document = (await cli.run("status", "--json")).document
    assert {each["status"] for each in document["mailboxes"]} == {"unknown"}


@pytest.mark.skipif(sys.platform == "win32", reason="nobody can tell there")
@pytest.mark.parametrize(("host", "is_seen"), [(socket.gethostname(), True), ("elsewhere", False)])
async def test_worker_that_was_killed_is_seen_immediately_on_its_machine(
    cli: SyncRunner, host: str, is_seen: bool
) -> None:
    await ran(cli)
    nobody = 2**30  # larger than any process id
    report(cli, 2.0, MailboxProgress(name=ALICE, status=SyncStatus.UP_TO_DATE), pid=nobody, host=host)
    result = await cli.run("status")
    assert result.status == is_seen
    assert (f"The worker (process {nobody}) doesn't respond or was killed" in result.out) is is_seen


@pytest.mark.usefixtures("held_clock")
@pytest.mark.parametrize(("age", "status"), [(1.0, 0), (119.0, 0), (125.0, 1)])
async def test_whether_the_worker_lives_has_nothing_to_do_with_its_mailboxes(
    cli: SyncRunner, age: float, status: int
) -> None:
    report(cli, age, MailboxProgress(name=ALICE, status=SyncStatus.FAILING, problem="It fails."))
    result = await cli.run("status", "--max-age", "120")
    assert result.status == status
    assert result.out == f"The worker reported {age:.0f} s ago.\n"
    result = await cli.run("status", "--max-age", "120", "--json")
    assert (result.status, result.document) == (status, {"age": age})


async def test_age_without_a_worker_is_null(cli: SyncRunner) -> None:
    result = await cli.run("status", "--max-age", "120", "--json")
    assert (result.status, result.document) == (1, {"age": None})


async def test_one_of_a_fleet_is_known_by_its_report(cli: SyncRunner) -> None:
    await cli.fail(2, "--status-file", "status", "--postgres", "--max-age", "120")
    report(cli, 1.0)
    result = await cli.run("status", "--max-age", "120", "--status-file", "directsuite-sync.db.status.json")
    assert result.status == 0


@pytest.mark.parametrize(
    "options",
    [("--max-age", "120", "--failing"), ("--max-age", "120", "--quarantined"), ("--failing", "--quarantined")],
)
async def test_options_that_exclude_each_other_are_rejected(cli: SyncRunner, options: tuple[str, ...]) -> None:
    told = await cli.fail(2, "These options can't be combined: ", "status", *options)
    assert all(each in told for each in options if each.startswith("--"))


async def test_requests_are_left_and_applied_by_the_next_run(cli: SyncRunner) -> None:
    await ran(cli)
    before = (await cli.run("status", "--json")).document["mailboxes"][0]["folders"]["INBOX"]["audited_at"]
    result = await cli.run("audit", "--mailbox", ALICE)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("Requested for 1 mailbox: the running worker or the next one compares all messages")
    result = await cli.run("retry")
    assert result.out.startswith("Requested for 2 mailboxes: the running worker or the next one retries quarantined")
    cli.sandbox.inject_fault("GetMessageMetaData", "latency", seconds=0.001)
    await ran(cli)
    assert [rule["applied"] for rule in cli.sandbox.faults() if rule["operation"] == "GetMessageMetaData"] == [1]
    assert before is not None


async def test_what_is_quarantined_is_reported(cli: SyncRunner) -> None:
    cli.set_env("DIRECTSUITE_RETRY_ATTEMPTS", "1")
    await ran(cli)
    result = await cli.run("status", "--quarantined")
    assert (result.status, result.out) == (0, "No message is quarantined.\n")
    await cli.deliver_to(ALICE, "two")
    cli.sandbox.inject_fault("GetMessagesByUIDs", "status", status=500, times=60)
    for _ in range(2):  # it is not requested again in the second round
        result = await cli.run_once(*BOTH)
        assert (result.status, result.out.endswith(" 2 up to date, 1 message quarantined\n")) == (0, True)
    result = await cli.run("status", "--quarantined")
    assert (result.status, result.err) == (1, "")
    header, row = result.out.splitlines()
    assert header.split() == ["no.", "mailbox", "folder", "uid", "problem", "attempts", "next", "try"]
    assert row.split()[1:6] == [ALICE, "INBOX", "2", "ServerError", "1"]
    result = await cli.run("status", "--quarantined", "--json", "--mailbox", ALICE)
    (told,) = result.document["quarantined"]
    assert (told["mailbox"], told["uid"], told["problem"], told["attempts"]) == (ALICE, 2, "ServerError", 1)
    assert told["next_try_at"] == row.split()[6]
    assert (await cli.run("status", "--quarantined", "--mailbox", BOB)).status == 0
    assert (await cli.run("status")).status == 0


async def test_request_for_somebody_unknown_is_rejected(cli: SyncRunner) -> None:
    await ran(cli)
    for number, known in ((1, ()), (2, ("--mailbox", ALICE))):
        unknown = ("retry", *known, "--mailbox", "nobody@direct.example.test")
        await cli.fail(2, f"--mailbox number {number} is not in the store", *unknown)
    assert query_file("directsuite-sync.db", "SELECT count(*) FROM operator_request") == [(0,)]


async def test_worker_that_has_ended_does_not_live(cli: SyncRunner) -> None:
    for _ in range(2):
        result = await cli.run("status", "--max-age", "120")
        assert (result.status, result.out) == (1, "No worker is running.\n")
        await ran(cli)
