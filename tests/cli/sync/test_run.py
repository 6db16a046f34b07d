"""`directsuite sync run --once`: destinations, output, and rejected input."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from directsuite.cli import process
from directsuite.cli.sync import LineDisplay, format_status_counts, parse_folders
from directsuite.cli.sync_status import format_duration
from directsuite.core.events import Event
from directsuite.sync import Kind, MailboxProgress, RoundFinished, SqliteStore, StoreError, Synchronizer, SyncStatus
from tests.cli.sync.conftest import BOTH, HERS, SyncRunner, list_subjects
from tests.integration.scenario import ALICE, BOB, PASSWORD
from tests.statements import query_file


async def test_messages_go_into_the_store_once(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one", "two")
    await cli.deliver_to(BOB, "three")
    for delivered in ("four", None):
        result = await cli.run_once(*BOTH)
        assert (result.status, result.err) == (0, "")
        assert result.out.endswith("2 up to date\n")
        if delivered:
            assert list_subjects() == ["one", "three", "two"]
            await cli.deliver_to(BOB, delivered)
    assert list_subjects() == ["four", "one", "three", "two"]
    assert "direct.example" not in result.out


async def test_messages_go_into_maildirs(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one")
    assert (await cli.run_once(*HERS, "--maildir", "mail")).status == 0
    assert len(list(cli.folder.glob("mail/alice*/new/*.eml"))) == 1


async def test_all_folders_or_some_of_them(cli: SyncRunner) -> None:
    sent = ("--folder", "INBOX.Sent", "--folder", "INBOX")
    for options, store in ((sent, "some.db"), (("--all-folders",), "all.db")):
        assert (await cli.run_once(*HERS, "--store", store, *options)).status == 0
        found = {name for (name,) in query_file(store, "SELECT name FROM folder")}
        assert {"INBOX", "INBOX.Sent"} <= found
        assert (len(found) > 2) == (store == "all.db")


async def test_mailboxes_from_a_file_and_a_password_from_the_environment(cli: SyncRunner) -> None:
    cli.folder.joinpath("addresses").write_text(f"# the ward\n\n  {ALICE}  \n{ALICE}\n")
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", PASSWORD)
    result = await cli.run("run", "--mailboxes", "addresses", "--once")
    assert (result.status, result.out.split()[-4:]) == (0, ["1", "up", "to", "date"])


async def test_mailbox_of_the_environment_where_none_is_given(cli: SyncRunner) -> None:
    cli.set_env("DIRECTSUITE_MAILBOX", ALICE)
    for options, known in (((), [ALICE]), (("--mailbox", BOB), [ALICE, BOB])):
        result = await cli.run_once(*options)
        assert (result.status, result.err) == (0, "")
        rows = query_file("directsuite-sync.db", "SELECT name FROM mailbox ORDER BY name")
        assert [name for (name,) in rows] == known


async def test_duplicate_folder_is_polled_once_and_inbox_ignores_case(cli: SyncRunner) -> None:
    folders = ("--folder", "inbox", "--folder", "Inbox", "--folder", "INBOX.Sent", "--folder", "INBOX.Sent")
    result = await cli.run_once(*HERS, *folders)
    assert (result.status, result.err) == (0, "")
    assert parse_folders(folders[1::2]) == ["INBOX", "INBOX.Sent"]
    assert sorted(query_file("directsuite-sync.db", "SELECT name FROM folder")) == [("INBOX",), ("INBOX.Sent",)]


async def test_mistyped_folder_is_reported_in_words_that_fit(cli: SyncRunner) -> None:
    result = await cli.run_once(*HERS, "--folder", "INBOX.Snet")
    assert result.status == 1
    assert "The server has no such folder. Create it there, or remove it from the folders to synchronise." in result.out


async def test_failed_mailbox_is_reported_by_number_and_others_continue(cli: SyncRunner) -> None:
    await cli.deliver_to(BOB, "his")
    result = await cli.run_once(*BOTH, alice="wrong")
    assert result.status == 1
    assert "The service rejected the mailbox's password. Provide the correct one." in result.out
    assert result.out.endswith("1 up to date, 1 failing\n")
    assert "alice" not in result.out + result.err
    assert list_subjects() == ["his"]


async def test_as_json_each_round_is_a_line(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one", "two")
    result = await cli.run_once(*BOTH, "--json", bob="wrong")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert {line.pop("at")[-1] for line in lines} == {"Z"}
    document = (await cli.run("status", "--json")).document
    numbers = {each["mailbox"]: each["number"] for each in document["mailboxes"]}
    assert {"event": "round", "mailbox": numbers[ALICE], "new": 2, "more": False, "problem": None} in lines
    assert [each["mailbox"] for each in lines if each.get("problem")] == [numbers[BOB]]
    assert lines[-1] == {"event": "done", "words": "1 up to date, 1 failing"}
    assert lines[0] == {"event": "started", "words": f"messages are written into {cli.folder / 'directsuite-sync.db'}"}
    (problem,) = [line["problem"] for line in lines[1:-1] if line["problem"]]
    assert problem == "The service rejected the mailbox's password. Provide the correct one."
    assert result.status == 1


async def test_log_lines_name_mailboxes_where_that_is_wanted(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one")
    result = await cli.run_once(*HERS, "--log-names")
    assert f" mailbox 1 ({ALICE}): 1 new\n" in result.out
    await cli.deliver_to(ALICE, "two")
    result = await cli.run_once(*HERS, "--log-names", "--json")
    assert json.loads(result.out.splitlines()[1])["name"] == ALICE


@pytest.mark.parametrize(
    ("owner", "method", "status"),
    [
        (SqliteStore, "bind", 2),
        *(
            pytest.param(owner, name, 1, marks=pytest.mark.wide)
            for owner, name in ((Synchronizer, "once"), (SqliteStore, "aclose"))
        ),
    ],
)
async def test_failing_store_is_reported(owner: type, method: str, status: int, cli: SyncRunner) -> None:
    call = getattr(owner, method)

    async def fail(*arguments: object) -> None:
        await call(*arguments)
        raise StoreError("The disk of the store is full.")

    cli.monkeypatch.setattr(owner, method, fail)
    result = await cli.run_once(*BOTH)
    assert result.status == status
    assert result.err.endswith("directsuite: The disk of the store is full\n")


def mailbox(nurse: int, status: SyncStatus = SyncStatus.UP_TO_DATE, **more: object) -> MailboxProgress:
    progress = MailboxProgress(name=f"nurse{nurse}@direct.example", status=status)
    for name, value in more.items():
        setattr(progress, name, value)
    return progress


def named(*mailboxes: MailboxProgress) -> dict[str, MailboxProgress]:
    return {each.name: each for each in mailboxes}


FAILING = mailbox(9, SyncStatus.FAILING, problem="The password is [b]refused[/b].", failing_since=40.0)
FETCHED = mailbox(1, up_to_date_at=90.0, changes=Counter({Kind.NEW: 7, Kind.MOVED: 2, Kind.RESTORED: 1}), quarantined=4)


def test_as_lines_it_names_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(as_json=False)
    refused = RoundFinished(problem="The password is refused.")
    for event in (RoundFinished(new=3, quarantined=1), refused, RoundFinished(idle_folders=2), Event()):
        lines.handle_event(event)
    for now in (100.0, 130.0, 160.0, 161.0):
        lines.show_progress(named(FAILING, FETCHED), now)
    told = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "a mailbox: 3 new, 1 quarantined",
        "a mailbox: The password is refused.",
        "1 up to date, 1 failing; longest lag 70 s",
    ]


@pytest.mark.parametrize(
    ("progress", "event", "line"),
    [
        (
            mailbox(1, number=7, folders={"INBOX.Sent": "No such folder.", "A": "Denied."}),
            RoundFinished(mailbox=7, problem="No such folder."),
            "mailbox 7 (nurse1@direct.example): INBOX.Sent: No such folder.; A: Denied.",
        ),
        (
            mailbox(1, number=7, problem="It is rejected."),
            RoundFinished(mailbox=7, problem="It is rejected.", failure="AuthenticationError"),
            "mailbox 7 (nurse1@direct.example): It is rejected. It is from DIRECTSUITE_MAILBOX_PASSWORD.",
        ),
    ],
    ids=["folders", "password"],
)
def test_with_names_a_line_has_the_folders_and_the_source_of_the_password(
    progress: MailboxProgress,
    event: RoundFinished,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(process.state.secret_sources, "mailbox_password", "DIRECTSUITE_MAILBOX_PASSWORD")
    LineDisplay(as_json=False, get_mailboxes=lambda: named(progress)).handle_event(event)
    assert capsys.readouterr().out.split(" ", 1)[1] == f"{line}\n"


def test_as_json_a_summary_counts(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(as_json=True)
    for now in (100.0, 160.0):
        lines.show_progress(named(FAILING, FETCHED), now)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    del line["at"]
    counts = {"waiting": 0, "catching_up": 0, "up_to_date": 1, "failing": 1}
    assert line == {"event": "summary", "longest_lag": 70.0, **counts}


def test_summaries_continue_after_the_clock_is_set_back(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(as_json=False)
    for now in (10_000.0, 100.0, 150.0, 160.0):
        lines.show_progress(named(FAILING), now)
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_span_of_time_is_reported_in_one_unit(seconds: float | None, told: str) -> None:
    assert format_duration(seconds) == told


def test_no_mailboxes_have_a_word_of_their_own() -> None:
    assert format_status_counts({}) == "no mailboxes"


async def test_address_in_another_case_than_in_the_store_is_rejected(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one")
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", PASSWORD)
    results = [await cli.run("run", "--once", "--mailbox", address) for address in (ALICE, ALICE.title(), ALICE)]
    assert [result.status for result in results] == [0, 2, 0]
    assert "`directsuite sync status` shows" in results[1].err
    assert ALICE.title() not in results[1].err
    assert list_subjects() == ["one"]


async def test_address_can_be_corrected_after_a_run_in_another_case_without_a_password(cli: SyncRunner) -> None:
    await cli.deliver_to(ALICE, "one")
    passwords = cli.write_passwords()
    wrong, right = [
        await cli.run("run", "--once", "--passwords", passwords, "--mailbox", address)
        for address in (ALICE.title(), ALICE)
    ]
    assert (wrong.status, right.status) == (1, 0)
    assert list_subjects() == ["one"]
