"""What the machine and its readers found, in the fewest steps."""

from __future__ import annotations

from typing import Any

import pytest

from .machine import SyncMachine
from .mutants import MUTANTS

I, A, S = "INBOX", "Archive", "Sent"  # noqa: E741
MOVED_BEHIND_THE_BACK = [("deliver", A, 1), ("quiet",), ("disturbed", 1, "move", A, I, 0), ("quiet",)]

SEQUENCES: dict[str, list[tuple[Any, ...]]] = {
    "wiped": [("deliver", I, 1), ("quiet",), ("wipe", I), ("quiet",)],
    "recreated": [("deliver", I, 1), ("quiet",), ("recreate", I, 1, "strong"), ("quiet",)],
    "second listing lost": [("deliver", I, 4), ("quiet",), ("delete", I, 1), ("lost", 3), ("quiet",)],
    "known one spoilt": [("deliver", I, 1, "weak"), ("quiet",), ("spoil", I, 0), ("deliver", I, 1), ("quiet",)],
    "spoilt copy mended": [
        ("deliver", I, 4),
        ("quiet",),
        ("copy", I, I, 3),
        ("spoil", I, 4),
        ("round",),
        ("mend",),
        ("quiet",),
    ],
    "renumbered by one": [
        ("deliver", I, 3),
        ("round",),
        ("copy", I, I, 2),
        ("round",),
        ("renumber", I, 2, False),
        ("quiet",),
    ],
    "moved from a folder made anew": [
        ("deliver", S, 1),
        ("quiet",),
        ("move", S, I, 0),
        ("recreate", S, 1, "strong"),
        ("quiet",),
    ],
    "moved behind the back": MOVED_BEHIND_THE_BACK,
    "last of them moved behind the back": [
        *[("deliver", A, 3), ("quiet",), ("deliver", A, 1), ("move", A, S, 0), ("move", A, S, 0)],
        *[("disturbed", 1, "move", A, I, 0), ("quiet",)],
    ],
    "copied from a folder that isn't there": [
        *[("deliver", A, 1), ("quiet",), ("copy", A, I, 0), ("hide", A), ("round",), ("quiet",)],
    ],
}


def played(steps: list[tuple[Any, ...]]) -> None:
    """The machine, step by step."""
    machine = SyncMachine()
    try:
        machine.begin(folders=3, named=True)
        for name, *arguments in steps:
            if name == "quiet":
                machine.converge(900)
            elif name in ("round", "lost", "disturbed"):
                machine.remote.fault = (arguments[0], "lost") if name == "lost" else None
                machine.remote.disturbance = (
                    (arguments[0], (arguments[1], tuple(arguments[2:]))) if name == "disturbed" else None
                )
                machine.one_round()
            else:
                machine.world.act((name, tuple(arguments)))
    finally:
        machine.teardown()


@pytest.mark.parametrize("steps", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_sequence_is_told_as_it_is(steps: list[tuple[Any, ...]]) -> None:
    played(steps)


def test_telling_at_once_of_what_has_left_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS["what has left is gone at once"](monkeypatch)
    with pytest.raises(AssertionError, match="told gone, and has moved"):
        played(MOVED_BEHIND_THE_BACK)
