"""The lines that a worker prints."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from directsuite.cli.sync import LineDisplay, format_status_counts
from directsuite.cli.sync_status import format_duration
from directsuite.core.events import Event
from directsuite.sync import Kind, MailboxProgress, RoundFinished, SyncStatus


def mailbox(number: int, status: SyncStatus = SyncStatus.UP_TO_DATE, **more: object) -> MailboxProgress:
    progress = MailboxProgress(name=f"nurse{number}@direct.example", status=status)
    for name, value in more.items():
        setattr(progress, name, value)
    return progress


def named(*mailboxes: MailboxProgress) -> dict[str, MailboxProgress]:
    return {each.name: each for each in mailboxes}


FAILING = mailbox(9, SyncStatus.FAILING, problem="The password is [b]refused[/b].", failing_since=40.0)
FETCHED = mailbox(1, up_to_date_at=90.0, changes=Counter({Kind.NEW: 7, Kind.MOVED: 2, Kind.RESTORED: 1}), quarantined=4)


def test_as_lines_it_names_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(as_json=False)
    for event in (
        RoundFinished(new=3, quarantined=1),
        RoundFinished(problem="The password is refused."),
        RoundFinished(idle_folders=2),
        Event(),
    ):
        lines.handle_event(event)
    for now in (100.0, 130.0, 160.0, 161.0):
        lines.show_progress(named(FAILING, FETCHED), now)
    told = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "a mailbox: 3 new, 1 quarantined",
        "a mailbox: The password is refused.",
        "1 up to date, 1 failing; longest lag 70 s",
    ]


def test_as_json_a_summary_counts(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(as_json=True)
    for now in (100.0, 160.0):
        lines.show_progress(named(FAILING, FETCHED), now)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    del line["at"]
    assert line == {
        "event": "summary",
        "waiting": 0,
        "catching_up": 0,
        "up_to_date": 1,
        "failing": 1,
        "longest_lag": 70.0,
    }


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_span_of_time_is_reported_in_one_unit(seconds: float | None, told: str) -> None:
    assert format_duration(seconds) == told


def test_no_mailboxes_have_a_word_of_their_own() -> None:
    assert format_status_counts({}) == "no mailboxes"
