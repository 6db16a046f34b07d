"""What happens step by step: what the machine and its readers found, and what each mutant fails at, in few steps.

A step is something that happens to the world, or a rule of the machine, or one of these: "fault" and "disturbance", a
round with one; "die", another process goes on; "days", time passes and all is compared; "sure", what happened must be
seen without an audit; "metadata", how metadata differ from messages; "same numbers", no folder was numbered again.
"""

from __future__ import annotations

from typing import Any

from .machine import DeliveringMachine, SyncMachine

I, A, S = "INBOX", "Archive", "Sent"  # noqa: E741
NOTHING = ("mend", ())
"""An act, for rules that want one."""
QUIET = ("converge", 900)
TOLD_AGAIN = ("told again",)
LISTED = ("listed",)
ALONE = ("alone",)
"""First of all: the sink is a callable, and may be told twice; the process asks for the names of folders; there is one.
"""

Steps = list[tuple[Any, ...]]

SEQUENCES: dict[str, Steps] = {
    "wiped": [("deliver", I, 1), QUIET, ("wipe", I), QUIET],
    "recreated": [("deliver", I, 1), QUIET, ("recreate", I, 1, "strong"), QUIET],
    "second listing lost": [("deliver", I, 4), QUIET, ("delete", I, 1), ("fault", 3, "lost"), QUIET],
    "known one spoilt": [("deliver", I, 1, "weak"), QUIET, ("spoil", I, 0), ("deliver", I, 1), QUIET],
    "spoilt copy mended": [
        *[("deliver", I, 4), QUIET, ("copy", I, I, 3), ("spoil", I, 4), ("round", False), ("mend",), QUIET],
    ],
    "renumbered by one": [
        *[("deliver", I, 3), ("round", False), ("copy", I, I, 2), ("round", False), ("renumber", I, 2, False), QUIET],
    ],
    "moved from a folder made anew": [
        *[("deliver", S, 1), QUIET, ("move", S, I, 0), ("recreate", S, 1, "strong"), QUIET],
    ],
    "moved behind the back": [("deliver", A, 1), QUIET, ("disturbance", 1, "move", A, I, 0), QUIET],
    "last of them moved behind the back": [
        *[("deliver", A, 3), QUIET, ("deliver", A, 1), ("move", A, S, 0), ("move", A, S, 0)],
        *[("disturbance", 1, "move", A, I, 0), QUIET],
    ],
    "copied from a folder that isn't there": [
        *[("deliver", A, 1), QUIET, ("copy", A, I, 0), ("hide", A), ("round", False), QUIET],
    ],
    "copy gone and another moved to its folder": [
        *[("twins", I), ("copy", I, A, 0), ("round", False), ("move", I, A, 0), ("delete", A, 0), QUIET],
    ],
    "emptied again before all was fetched": [
        *[QUIET, ("deliver", I, 2, "dateless"), ("disturbance", 3, "delete", I, 1), ("wipe", I), QUIET],
    ],
    "round ends after it began a uid_validity": [
        *[("round_with_a_full_disk", ("twins", (I,)), 1), ("round_that_ends", ("recreate", (I, 1, "strong")), 4, True)],
        QUIET,
    ],
    "disk full, and not all fetched then": [
        *[QUIET, ("round_with_a_full_disk", ("deliver", (I, 2, "dateless")), 0), ("disturbance", 3, "delete", I, 1)],
        *[("die",), ("wipe", I), QUIET],
    ],
    "moved to where the listing is short": [
        *[("deliver", I, 2), QUIET, ("move", I, A, 0), ("fault", 1, "short"), ("fault", 1, "short"), QUIET],
    ],
    "back twice, and spoilt between": [
        *[("deliver", I, 1), QUIET, ("delete", I, 0), QUIET, ("undelete",), ("spoil", I, 0), QUIET],
        *[("delete", I, 0), QUIET, ("undelete",), ("mend",), QUIET],
    ],
    "back after a process told that it is gone, and ended": [
        *[TOLD_AGAIN, ("deliver", I, 1), QUIET, ("delete", I, 0), ("round", False)],
        *[("round_that_ends", NOTHING, 6, False), ("undelete",), QUIET],
    ],
    "deleted after a process told that it is new, and ended": [
        *[TOLD_AGAIN, QUIET, ("round_that_ends", ("deliver", (I, 1, "strong")), 7, False), ("delete", I, 0), QUIET],
    ],
    "not there for a round": [LISTED, ("deliver", I, 1), QUIET, ("hide", I), ("round", False), QUIET],
    "taken over": [("zombie", ("deliver", (I, 1, "strong")), 0)],
    "killed after a commit": [("round_that_ends", ("deliver", (I, 1, "strong")), 6, False), QUIET],
    "replaced": [("deliver", I, 2), QUIET, ("replace", I), QUIET],
    "exchanged": [("deliver", I, 2), QUIET, ("permute", I, None), QUIET],
    "twins exchanged": [("twins", I), QUIET, ("permute", I, None), QUIET],
    "recreated below what is known": [
        *[("renumber", I, 5, False), ("deliver", I, 2), QUIET, ("recreate", I, 2, "strong"), QUIET],
    ],
    "recreated after it was empty": [("deliver", I, 1), QUIET, ("wipe", I), QUIET, ("recreate", I, 1, "strong"), QUIET],
    "moved": [("deliver", I, 1), QUIET, ("move", I, A, 0), QUIET],
    "copied": [("deliver", I, 1), QUIET, ("copy", I, A, 0), QUIET],
    "partial answer": [("deliver", I, 3), ("fault", 0, "partial"), QUIET],
    "short listing": [("deliver", I, 3), ("fault", 0, "short"), QUIET],
    "short listing, twice": [("deliver", I, 3), QUIET, ("fault", 0, "short"), ("fault", 0, "short"), QUIET],
    "moved within its folder, and not fetched twice": [
        *[("deliver", I, 2), QUIET, ("move", I, I, 0), ("fault", 0, "partial"), ("fault", 0, "partial"), QUIET],
    ],
    "moved within its folder while the listing is short": [
        *[ALONE, ("deliver", I, 2), ("fault", 0, "partial"), ("move", I, I, 0), ("fault", 0, "short"), QUIET],
    ],
    "exchanged, spoilt and moved, and nobody knows their dates": [
        *[("deliver", A, 4, "dateless"), QUIET, ("spoil", A, 1), ("permute", A, None), ("move", A, I, 1), QUIET],
    ],
    "made anew below what is known, and no metadata": [
        *[ALONE, ("renumber", I, 2, False), ("deliver", I, 1), QUIET, ("recreate", I, 1, "strong")],
        *[("fault", 0, "vague"), QUIET],
    ],
    "made anew under a uid that moved, and no metadata": [
        *[ALONE, ("deliver", I, 2), QUIET, ("move", I, I, 0), QUIET, ("recreate", I, 1, "strong")],
        *[("fault", 0, "vague"), QUIET],
    ],
    "one copy deleted while another moves": [
        *[ALONE, ("twins", I), ("copy", I, I, 0), QUIET, ("move", I, I, 2), ("disturbance", 2, "delete", I, 0), QUIET],
    ],
    "told gone, back and not fetched, and moved meanwhile": [
        *[("deliver", I, 1), QUIET, ("delete", I, 0), QUIET, ("undelete",), ("spoil", I, 0), QUIET],
        *[("mend",), ("disturbance", 1, "move", I, A, 0), QUIET],
    ],
    "one copy moved, and the folder of the other not there amid": [
        *[("deliver", S, 1), ("copy", S, S, 0), QUIET, ("deliver", I, 1), QUIET],
        *[("move", S, I, 0), ("disturbance", 6, "hide", S), QUIET],
    ],
    "there again, and a short listing": [
        *[LISTED, ("deliver", I, 1), QUIET, ("hide", I), ("round", False), ("show",), ("fault", 0, "short"), QUIET],
    ],
    "back again": [("deliver", I, 1), QUIET, ("delete", I, 0), QUIET, ("undelete",), QUIET],
    "spoilt, and mended later": [("deliver", I, 2), ("spoil", I, 0), QUIET, ("mend",), ("days",)],
    "back, not fetched, and made anew": [
        *[
            ("deliver", I, 1),
            QUIET,
            ("delete", I, 0),
            QUIET,
            ("undelete",),
            ("disturbance", 2, "recreate", I, 1, "strong"),
        ],
        QUIET,
    ],
    "told of a move, and all compared": [
        *[TOLD_AGAIN, ("deliver", I, 1), QUIET, ("renumber", I, 2, False), ("deliver", I, 1)],
        *[("round_with_a_full_disk", NOTHING, 3), ("days",)],
    ],
    "exchanged while it is fetched, and then killed": [
        *[("deliver", I, 1), QUIET, ("deliver", I, 1), ("disturbance", 4, "permute", I, None), ("die",), ("sure",)],
        QUIET,
    ],
    "listed without uids for a while": [
        *[LISTED, ("deliver", I, 4), QUIET, ("rounds_with_a_glitch", NOTHING, "empty", I, 3), QUIET],
    ],
    "moved from a folder that is listed without uids for a while": [
        *[("deliver", I, 4), QUIET, ("move", I, S, 1), ("rounds_with_a_glitch", NOTHING, "empty", I, 3), QUIET],
        ("same numbers",),
    ],
    "exchanged, and then listed without uids for a while": [
        *[("deliver", I, 3), QUIET, ("deliver", I, 1), ("disturbance", 4, "permute", I, None)],
        *[("rounds_with_a_glitch", NOTHING, "empty", I, 3), QUIET],
    ],
    "missing from the list of folders for a while": [
        *[LISTED, ("deliver", I, 4), QUIET, ("rounds_with_a_glitch", NOTHING, "unlisted", I, 3), QUIET],
    ],
    "a name that no folder can have": [
        *[LISTED, ("deliver", A, 1), ("rounds_with_a_glitch", ("deliver", (I, 1, "strong")), "impossible", I, 3)],
        *[("same numbers",), QUIET],
    ],
    "metadata without sizes": [
        *[("metadata", "size of -1"), ("deliver", I, 3), QUIET, ("deliver", I, 1), QUIET, ("same numbers",)],
    ],
    "metadata without a Message-ID": [
        *[("metadata", "no Message-ID"), ("deliver", I, 3), QUIET, ("deliver", I, 1), QUIET, ("days",)],
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

SEEN_IN: dict[str, str] = {
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


def played(steps: Steps) -> None:
    """The machine, step by step, on a mailbox of three folders."""
    machine = DeliveringMachine() if TOLD_AGAIN in steps else SyncMachine()
    try:
        machine.begin(folders=1 if ALONE in steps else 3, named=LISTED not in steps)
        for name, *arguments in (step for step in steps if step not in (TOLD_AGAIN, LISTED, ALONE)):
            if name == "fault":
                machine.remote.fault = (arguments[0], arguments[1])
                machine.one_round()
            elif name == "disturbance":
                machine.remote.disturbance = (arguments[0], (arguments[1], tuple(arguments[2:])))
                machine.one_round()
            elif name == "days":
                machine.converge_for_days()
            elif name == "die":
                machine.rounds = machine.process()
            elif name == "metadata":
                machine.remote.metadata_form = arguments[0]
            elif name == "same numbers":
                assert {key.uid_validity for key in machine.mirror.here} == {1}, "numbered again"
            elif name == "sure":
                machine.world.weird.clear()
            elif hasattr(machine.world, name):
                machine.world.act((name, tuple(arguments)))
            else:
                getattr(machine, name)(*arguments)
    finally:
        machine.teardown()
