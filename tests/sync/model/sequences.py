"""What happens step by step: what the machine and its readers found, and what each mutant fails at, in few steps.

A step is something that happens to the world, or a rule of the machine, or one of these: "fault" and "disturbance", a
round with one; "die", another process goes on; "days", time passes and all is compared; "sure", what happened must be
seen without an audit; "metadata", how metadata differ from messages; "same numbers", no folder was numbered again.
"""

from __future__ import annotations

from typing import Any

from .machine import DeliveringMachine, SyncMachine

I, A, S = "INBOX", "Archive", "Sent"  # noqa: E741
NO_ACT = ("mend", ())
"""An act, for rules that want one."""
CONVERGE_STEP = ("converge", 900)
REDELIVERED = ("told again",)
FOLDERS_LISTED = ("listed",)
SINGLE_FOLDER = ("alone",)
"""First of all: the sink is a callable, and may be told twice; the process asks for the names of folders; there is one.
"""

Steps = list[tuple[Any, ...]]

SEQUENCES: dict[str, Steps] = {
    "wiped": [("deliver", I, 1), CONVERGE_STEP, ("wipe", I), CONVERGE_STEP],
    "recreated": [("deliver", I, 1), CONVERGE_STEP, ("recreate", I, 1, "strong"), CONVERGE_STEP],
    "second listing lost": [("deliver", I, 4), CONVERGE_STEP, ("delete", I, 1), ("fault", 3, "lost"), CONVERGE_STEP],
    "known one spoilt": [("deliver", I, 1, "weak"), CONVERGE_STEP, ("spoil", I, 0), ("deliver", I, 1), CONVERGE_STEP],
    "spoilt copy mended": [
        *[
            ("deliver", I, 4),
            CONVERGE_STEP,
            ("copy", I, I, 3),
            ("spoil", I, 4),
            ("round", False),
            ("mend",),
            CONVERGE_STEP,
        ],
    ],
    "renumbered by one": [
        *[
            ("deliver", I, 3),
            ("round", False),
            ("copy", I, I, 2),
            ("round", False),
            ("renumber", I, 2, False),
            CONVERGE_STEP,
        ],
    ],
    "moved from a folder made anew": [
        *[("deliver", S, 1), CONVERGE_STEP, ("move", S, I, 0), ("recreate", S, 1, "strong"), CONVERGE_STEP],
    ],
    "moved behind the back": [("deliver", A, 1), CONVERGE_STEP, ("disturbance", 1, "move", A, I, 0), CONVERGE_STEP],
    "last of them moved behind the back": [
        *[("deliver", A, 3), CONVERGE_STEP, ("deliver", A, 1), ("move", A, S, 0), ("move", A, S, 0)],
        *[("disturbance", 1, "move", A, I, 0), CONVERGE_STEP],
    ],
    "copied from a folder that isn't there": [
        *[("deliver", A, 1), CONVERGE_STEP, ("copy", A, I, 0), ("hide", A), ("round", False), CONVERGE_STEP],
    ],
    "copy gone and another moved to its folder": [
        *[("twins", I), ("copy", I, A, 0), ("round", False), ("move", I, A, 0), ("delete", A, 0), CONVERGE_STEP],
    ],
    "emptied again before all was fetched": [
        *[CONVERGE_STEP, ("deliver", I, 2, "dateless"), ("disturbance", 3, "delete", I, 1), ("wipe", I), CONVERGE_STEP],
    ],
    "round ends after it began a uid_validity": [
        *[("round_with_a_full_disk", ("twins", (I,)), 1), ("round_that_ends", ("recreate", (I, 1, "strong")), 4, True)],
        CONVERGE_STEP,
    ],
    "disk full, and not all fetched then": [
        *[
            CONVERGE_STEP,
            ("round_with_a_full_disk", ("deliver", (I, 2, "dateless")), 0),
            ("disturbance", 3, "delete", I, 1),
        ],
        *[("die",), ("wipe", I), CONVERGE_STEP],
    ],
    "moved to where the listing is short": [
        *[
            ("deliver", I, 2),
            CONVERGE_STEP,
            ("move", I, A, 0),
            ("fault", 1, "short"),
            ("fault", 1, "short"),
            CONVERGE_STEP,
        ],
    ],
    "back twice, and spoilt between": [
        *[
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("delete", I, 0),
            CONVERGE_STEP,
            ("undelete",),
            ("spoil", I, 0),
            CONVERGE_STEP,
        ],
        *[("delete", I, 0), CONVERGE_STEP, ("undelete",), ("mend",), CONVERGE_STEP],
    ],
    "back after a process told that it is gone, and ended": [
        *[REDELIVERED, ("deliver", I, 1), CONVERGE_STEP, ("delete", I, 0), ("round", False)],
        *[("round_that_ends", NO_ACT, 6, False), ("undelete",), CONVERGE_STEP],
    ],
    "deleted after a process told that it is new, and ended": [
        *[
            REDELIVERED,
            CONVERGE_STEP,
            ("round_that_ends", ("deliver", (I, 1, "strong")), 7, False),
            ("delete", I, 0),
            CONVERGE_STEP,
        ],
    ],
    "not there for a round": [
        FOLDERS_LISTED,
        ("deliver", I, 1),
        CONVERGE_STEP,
        ("hide", I),
        ("round", False),
        CONVERGE_STEP,
    ],
    "taken over": [("zombie", ("deliver", (I, 1, "strong")), 0)],
    "killed after a commit": [("round_that_ends", ("deliver", (I, 1, "strong")), 6, False), CONVERGE_STEP],
    "replaced": [("deliver", I, 2), CONVERGE_STEP, ("replace", I), CONVERGE_STEP],
    "exchanged": [("deliver", I, 2), CONVERGE_STEP, ("permute", I, None), CONVERGE_STEP],
    "twins exchanged": [("twins", I), CONVERGE_STEP, ("permute", I, None), CONVERGE_STEP],
    "recreated below what is known": [
        *[("renumber", I, 5, False), ("deliver", I, 2), CONVERGE_STEP, ("recreate", I, 2, "strong"), CONVERGE_STEP],
    ],
    "recreated after it was empty": [
        ("deliver", I, 1),
        CONVERGE_STEP,
        ("wipe", I),
        CONVERGE_STEP,
        ("recreate", I, 1, "strong"),
        CONVERGE_STEP,
    ],
    "moved": [("deliver", I, 1), CONVERGE_STEP, ("move", I, A, 0), CONVERGE_STEP],
    "copied": [("deliver", I, 1), CONVERGE_STEP, ("copy", I, A, 0), CONVERGE_STEP],
    "partial answer": [("deliver", I, 3), ("fault", 0, "partial"), CONVERGE_STEP],
    "short listing": [("deliver", I, 3), ("fault", 0, "short"), CONVERGE_STEP],
    "short listing, twice": [
        ("deliver", I, 3),
        CONVERGE_STEP,
        ("fault", 0, "short"),
        ("fault", 0, "short"),
        CONVERGE_STEP,
    ],
    "moved within its folder, and not fetched twice": [
        *[
            ("deliver", I, 2),
            CONVERGE_STEP,
            ("move", I, I, 0),
            ("fault", 0, "partial"),
            ("fault", 0, "partial"),
            CONVERGE_STEP,
        ],
    ],
    "moved within its folder while the listing is short": [
        *[
            SINGLE_FOLDER,
            ("deliver", I, 2),
            ("fault", 0, "partial"),
            ("move", I, I, 0),
            ("fault", 0, "short"),
            CONVERGE_STEP,
        ],
    ],
    "exchanged, spoilt and moved, and nobody knows their dates": [
        *[
            ("deliver", A, 4, "dateless"),
            CONVERGE_STEP,
            ("spoil", A, 1),
            ("permute", A, None),
            ("move", A, I, 1),
            CONVERGE_STEP,
        ],
    ],
    "made anew below what is known, and no metadata": [
        *[SINGLE_FOLDER, ("renumber", I, 2, False), ("deliver", I, 1), CONVERGE_STEP, ("recreate", I, 1, "strong")],
        *[("fault", 0, "vague"), CONVERGE_STEP],
    ],
    "made anew under a uid that moved, and no metadata": [
        *[
            SINGLE_FOLDER,
            ("deliver", I, 2),
            CONVERGE_STEP,
            ("move", I, I, 0),
            CONVERGE_STEP,
            ("recreate", I, 1, "strong"),
        ],
        *[("fault", 0, "vague"), CONVERGE_STEP],
    ],
    "one copy deleted while another moves": [
        *[
            SINGLE_FOLDER,
            ("twins", I),
            ("copy", I, I, 0),
            CONVERGE_STEP,
            ("move", I, I, 2),
            ("disturbance", 2, "delete", I, 0),
            CONVERGE_STEP,
        ],
    ],
    "told gone, back and not fetched, and moved meanwhile": [
        *[
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("delete", I, 0),
            CONVERGE_STEP,
            ("undelete",),
            ("spoil", I, 0),
            CONVERGE_STEP,
        ],
        *[("mend",), ("disturbance", 1, "move", I, A, 0), CONVERGE_STEP],
    ],
    "one copy moved, and the folder of the other not there amid": [
        *[("deliver", S, 1), ("copy", S, S, 0), CONVERGE_STEP, ("deliver", I, 1), CONVERGE_STEP],
        *[("move", S, I, 0), ("disturbance", 6, "hide", S), CONVERGE_STEP],
    ],
    "there again, and a short listing": [
        *[
            FOLDERS_LISTED,
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("hide", I),
            ("round", False),
            ("show",),
            ("fault", 0, "short"),
            CONVERGE_STEP,
        ],
    ],
    "back again": [("deliver", I, 1), CONVERGE_STEP, ("delete", I, 0), CONVERGE_STEP, ("undelete",), CONVERGE_STEP],
    "spoilt, and mended later": [("deliver", I, 2), ("spoil", I, 0), CONVERGE_STEP, ("mend",), ("days",)],
    "back, not fetched, and made anew": [
        *[
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("delete", I, 0),
            CONVERGE_STEP,
            ("undelete",),
            ("disturbance", 2, "recreate", I, 1, "strong"),
        ],
        CONVERGE_STEP,
    ],
    "told of a move, and all compared": [
        *[REDELIVERED, ("deliver", I, 1), CONVERGE_STEP, ("renumber", I, 2, False), ("deliver", I, 1)],
        *[("round_with_a_full_disk", NO_ACT, 3), ("days",)],
    ],
    "exchanged while it is fetched, and then killed": [
        *[
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("deliver", I, 1),
            ("disturbance", 4, "permute", I, None),
            ("die",),
            ("sure",),
        ],
        CONVERGE_STEP,
    ],
    "listed without uids for a while": [
        *[
            FOLDERS_LISTED,
            ("deliver", I, 4),
            CONVERGE_STEP,
            ("rounds_with_a_glitch", NO_ACT, "empty", I, 3),
            CONVERGE_STEP,
        ],
    ],
    "moved from a folder that is listed without uids for a while": [
        *[
            ("deliver", I, 4),
            CONVERGE_STEP,
            ("move", I, S, 1),
            ("rounds_with_a_glitch", NO_ACT, "empty", I, 3),
            CONVERGE_STEP,
        ],
        ("same numbers",),
    ],
    "exchanged, and then listed without uids for a while": [
        *[("deliver", I, 3), CONVERGE_STEP, ("deliver", I, 1), ("disturbance", 4, "permute", I, None)],
        *[("rounds_with_a_glitch", NO_ACT, "empty", I, 3), CONVERGE_STEP],
    ],
    "missing from the list of folders for a while": [
        *[
            FOLDERS_LISTED,
            ("deliver", I, 4),
            CONVERGE_STEP,
            ("rounds_with_a_glitch", NO_ACT, "unlisted", I, 3),
            CONVERGE_STEP,
        ],
    ],
    "a name that no folder can have": [
        *[
            FOLDERS_LISTED,
            ("deliver", A, 1),
            ("rounds_with_a_glitch", ("deliver", (I, 1, "strong")), "impossible", I, 3),
        ],
        *[("same numbers",), CONVERGE_STEP],
    ],
    "metadata without sizes": [
        *[
            ("metadata", "size of -1"),
            ("deliver", I, 3),
            CONVERGE_STEP,
            ("deliver", I, 1),
            CONVERGE_STEP,
            ("same numbers",),
        ],
    ],
    "metadata without a Message-ID": [
        *[("metadata", "no Message-ID"), ("deliver", I, 3), CONVERGE_STEP, ("deliver", I, 1), CONVERGE_STEP, ("days",)],
        *[("same numbers",)],
    ],
    "spoilt while the clock was ahead": [
        *[
            ("deliver", I, 2),
            ("spoil", I, 0),
            ("clock_that_jumps", 17_520, ("hide", (S,)), 2, True),
            ("mend",),
            ("days",),
        ],
    ],
}

DETECTING_SEQUENCES: dict[str, str] = {
    "an empty listing is believed": "listed without uids for a while",
    "a list of folders is believed": "missing from the list of folders for a while",
    "metadata decide": "metadata without sizes",
    "a time in the future is waited for": "spoilt while the clock was ahead",
    "no fence check": "taken over",
    "sink outside the transaction": "killed after a commit",
    "resets ignored": "recreated",
    "sentinels not looked at": "replaced",
    "late uids are not odd": "recreated below what is known",
    "uids that come back are not odd": "not there for a round",
    "contents not matched": "moved",
    "fingerprint of an incomplete round": "partial answer",
    "high-water in place of the difference": "short listing",
    "a partial answer counts as done": "partial answer",
    "weak identities trusted": "twins exchanged",
    "what has left is gone at once": "moved behind the back",
    "gone although its own folder is incomplete": "moved within its folder, and not fetched twice",
    "no second listing": "short listing, twice",
    "sentinels compared by uid and date alone": "exchanged",
    "revived without proof": "back again",
    "poison never asked for again": "spoilt, and mended later",
    "poison blocks what follows": "spoilt, and mended later",
    "copies taken for moves": "copied",
    "a uid_validity that ends leaves its rows": "recreated",
    "a round that failed is remembered": "disk full, and not all fetched then",
    "a fingerprint outlives what it stood for": "emptied again before all was fetched",
    "a suspect folder counts as done": "exchanged while it is fetched, and then killed",
    "nothing says that a sink may have been told": "back after a process told that it is gone, and ended",
    "nothing says which keys a sink may have been told of": "deleted after a process told that it is new, and ended",
    "nothing says which keys a sink may take for gone": "back after a process told that it is gone, and ended",
    "what a sink may have been told of leaves without a word": "deleted after a process told that it is new, and ended",
    "any message may come back under a uid": "back, not fetched, and made anew",
    "what is quarantined has no content": "back twice, and spoilt between",
}
"""The sequence that each mutant fails at."""


def run_sequence(steps: Steps) -> None:
    """The machine, step by step, on a mailbox of three folders."""
    machine = DeliveringMachine() if REDELIVERED in steps else SyncMachine()
    try:
        machine.begin(folders=1 if SINGLE_FOLDER in steps else 3, named=FOLDERS_LISTED not in steps)
        for name, *arguments in (step for step in steps if step not in (REDELIVERED, FOLDERS_LISTED, SINGLE_FOLDER)):
            if name == "fault":
                machine.remote.fault = (arguments[0], arguments[1])
                machine.run_round()
            elif name == "disturbance":
                machine.remote.disturbance = (arguments[0], (arguments[1], tuple(arguments[2:])))
                machine.run_round()
            elif name == "days":
                machine.converge_for_days()
            elif name == "die":
                machine.rounds = machine.process()
            elif name == "metadata":
                machine.remote.metadata_form = arguments[0]
            elif name == "same numbers":
                assert {key.uid_validity for key in machine.mirror.messages} == {1}, "numbered again"
            elif name == "sure":
                machine.world.audit_only_folders.clear()
            elif hasattr(machine.world, name):
                machine.world.act((name, tuple(arguments)))
            else:
                getattr(machine, name)(*arguments)
    finally:
        machine.teardown()
