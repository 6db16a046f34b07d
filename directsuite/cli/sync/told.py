"""The status of mailboxes, for people and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from directsuite.cli.sync.gathered import Gathered, Mailbox
from directsuite.cli.sync.table import table_of
from directsuite.sync.status import FolderStatus
from directsuite.sync.store import SET_ASIDE, State

_WIDTH = 200  # columns where nobody says how many there are, so that a line stays a line


def show(gathered: Gathered) -> None:
    """A sentence about the worker, a table of mailboxes, and what is wrong with their folders."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(Text(gathered.worker))
    if gathered.mailboxes:
        console.print(table_of([each.shown for each in gathered.mailboxes]))
    for each in gathered.mailboxes:
        for folder, problem in each.problems.items():
            console.print(Text(f"{each.shown.name}, {folder}: {problem}"))


def document(gathered: Gathered) -> str:
    """One JSON document. Times are in ISO 8601, in UTC; lag and failing_for are seconds."""
    about = {name: _time(value) if name in ("started", "reported") else value for name, value in gathered.about.items()}
    mailboxes = [_mailbox(each) for each in gathered.mailboxes]
    return f"{json.dumps({'worker': about, 'mailboxes': mailboxes}, indent=2, ensure_ascii=False)}\n"


def _mailbox(mailbox: Mailbox) -> dict[str, Any]:
    shown = mailbox.shown
    known = {each.name: _folder(each) for each in mailbox.folders}
    return {
        "mailbox": shown.name,
        "standing": str(shown.standing),
        "in_step_at": _time(mailbox.in_step_at),
        "lag": shown.lag,
        "problem": shown.problem,
        "failing_for": shown.failing_for,
        "since_the_start": {"new": shown.new, "moved": shown.moved, "gone": shown.gone},
        "messages": shown.messages,
        "set_aside": shown.set_aside,
        "folders": {
            name: {**known.get(name, {}), "problem": mailbox.problems.get(name)}
            for name in dict.fromkeys((*known, *mailbox.problems))
        },
    }


def _folder(folder: FolderStatus) -> dict[str, Any]:
    audited = None if not folder.audited_ms else folder.audited_ms / 1000
    return {
        "messages": folder.messages.get(State.LIVE, 0),
        "set_aside": sum(folder.messages.get(state, 0) for state in SET_ASIDE),
        "generation": folder.generation,
        "audited_at": _time(audited),
    }


def _time(seconds: object) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
