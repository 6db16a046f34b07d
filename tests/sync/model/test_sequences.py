"""Short sequences of events, most of which the state machine or a reader has found to be difficult.

A step is a method of `SimulatedMailbox`, a rule of the machine, or a special step:

told_again, listed, alone    first of all: the sink is a callable that may receive changes twice; the process asks for
                             the names of folders; there is one folder
fault, disturbance           a round with a fault of the server, or with an event in the middle of it
die                          another process continues
converge, days               rounds until nothing happens; rounds until time has passed and everything was compared
sure                         the next rounds must detect what happened without an audit
metadata                     how metadata differ from messages
same_numbers                 no folder was renumbered
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from .machine import DeliveringMachine, SyncMachine

SEQUENCES = {
    "wiped": "deliver INBOX 1; converge; wipe INBOX; converge",
    "recreated": "deliver INBOX 1; converge; recreate INBOX 1 strong; converge",
    "second listing lost": "deliver INBOX 4; converge; delete INBOX 1; fault 3 lost; converge",
    "known one spoilt": "deliver INBOX 1 weak; converge; spoil INBOX 0; deliver INBOX 1; converge",
    "spoilt copy mended": "deliver INBOX 4; converge; copy INBOX INBOX 3; spoil INBOX 4; round False; mend; converge",
    "renumbered by one": (
        "deliver INBOX 3; round False; copy INBOX INBOX 2; round False; renumber INBOX 2 False; converge"
    ),
    "moved from a folder made anew": "deliver Sent 1; converge; move Sent INBOX 0; recreate Sent 1 strong; converge",
    "moved behind the back": "deliver Archive 1; converge; disturbance 1 move Archive INBOX 0; converge",
    "last of them moved behind the back": (
        "deliver Archive 3; converge; deliver Archive 1; move Archive Sent 0; move Archive Sent 0; "
        "disturbance 1 move Archive INBOX 0; converge"
    ),
    "copied from a folder that isn't there": (
        "deliver Archive 1; converge; copy Archive INBOX 0; hide Archive; round False; converge"
    ),
    "copy gone and another moved to its folder": (
        "twins INBOX; copy INBOX Archive 0; round False; move INBOX Archive 0; delete Archive 0; converge"
    ),
    "emptied again before all was fetched": (
        "converge; deliver INBOX 2 dateless; disturbance 3 delete INBOX 1; wipe INBOX; converge"
    ),
    "round ends after it began a uid_validity": (
        "round_with_a_full_disk (twins INBOX) 1; round_that_ends (recreate INBOX 1 strong) 4 True; converge"
    ),
    "disk full, and not all fetched then": (
        "converge; round_with_a_full_disk (deliver INBOX 2 dateless) 0; disturbance 3 delete INBOX 1; die; "
        "wipe INBOX; converge"
    ),
    "moved to where the listing is short": (
        "deliver INBOX 2; converge; move INBOX Archive 0; fault 1 short; fault 1 short; converge"
    ),
    "back twice, and spoilt between": (
        "deliver INBOX 1; converge; delete INBOX 0; converge; undelete; spoil INBOX 0; converge; delete INBOX 0; "
        "converge; undelete; mend; converge"
    ),
    "back after a process told that it is gone, and ended": (
        "told_again; deliver INBOX 1; converge; delete INBOX 0; round False; round_that_ends (mend) 6 False; "
        "undelete; converge"
    ),
    "deleted after a process told that it is new, and ended": (
        "told_again; converge; round_that_ends (deliver INBOX 1 strong) 7 False; delete INBOX 0; converge"
    ),
    "not there for a round": "listed; deliver INBOX 1; converge; hide INBOX; round False; converge",
    "taken over": "zombie (deliver INBOX 1 strong) 0",
    "killed after a commit": "round_that_ends (deliver INBOX 1 strong) 6 False; converge",
    "replaced": "deliver INBOX 2; converge; replace INBOX; converge",
    "exchanged": "deliver INBOX 2; converge; permute INBOX None; converge",
    "twins exchanged": "twins INBOX; converge; permute INBOX None; converge",
    "recreated below what is known": (
        "renumber INBOX 5 False; deliver INBOX 2; converge; recreate INBOX 2 strong; converge"
    ),
    "recreated after it was empty": (
        "deliver INBOX 1; converge; wipe INBOX; converge; recreate INBOX 1 strong; converge"
    ),
    "moved": "deliver INBOX 1; converge; move INBOX Archive 0; converge",
    "copied": "deliver INBOX 1; converge; copy INBOX Archive 0; converge",
    "partial answer": "deliver INBOX 3; fault 0 partial; converge",
    "short listing": "deliver INBOX 3; fault 0 short; converge",
    "short listing, twice": "deliver INBOX 3; converge; fault 0 short; fault 0 short; converge",
    "moved within its folder, and not fetched twice": (
        "deliver INBOX 2; converge; move INBOX INBOX 0; fault 0 partial; fault 0 partial; converge"
    ),
    "moved within its folder while the listing is short": (
        "alone; deliver INBOX 2; fault 0 partial; move INBOX INBOX 0; fault 0 short; converge"
    ),
    "exchanged, spoilt and moved, and nobody knows their dates": (
        "deliver Archive 4 dateless; converge; spoil Archive 1; permute Archive None; move Archive INBOX 1; converge"
    ),
    "made anew below what is known, and no metadata": (
        "alone; renumber INBOX 2 False; deliver INBOX 1; converge; recreate INBOX 1 strong; fault 0 vague; converge"
    ),
    "made anew under a uid that moved, and no metadata": (
        "alone; deliver INBOX 2; converge; move INBOX INBOX 0; converge; recreate INBOX 1 strong; fault 0 vague; "
        "converge"
    ),
    "one copy deleted while another moves": (
        "alone; twins INBOX; copy INBOX INBOX 0; converge; move INBOX INBOX 2; disturbance 2 delete INBOX 0; converge"
    ),
    "told gone, back and not fetched, and moved meanwhile": (
        "deliver INBOX 1; converge; delete INBOX 0; converge; undelete; spoil INBOX 0; converge; mend; "
        "disturbance 1 move INBOX Archive 0; converge"
    ),
    "one copy moved, and the folder of the other not there amid": (
        "deliver Sent 1; copy Sent Sent 0; converge; deliver INBOX 1; converge; move Sent INBOX 0; "
        "disturbance 6 hide Sent; converge"
    ),
    "there again, and a short listing": (
        "listed; deliver INBOX 1; converge; hide INBOX; round False; show; fault 0 short; converge"
    ),
    "back again": "deliver INBOX 1; converge; delete INBOX 0; converge; undelete; converge",
    "spoilt, and mended later": "deliver INBOX 2; spoil INBOX 0; converge; mend; days",
    "back, not fetched, and made anew": (
        "deliver INBOX 1; converge; delete INBOX 0; converge; undelete; disturbance 2 recreate INBOX 1 strong; converge"
    ),
    "told of a move, and all compared": (
        "told_again; deliver INBOX 1; converge; renumber INBOX 2 False; deliver INBOX 1; "
        "round_with_a_full_disk (mend) 3; days"
    ),
    "exchanged while it is fetched, and then killed": (
        "deliver INBOX 1; converge; deliver INBOX 1; disturbance 4 permute INBOX None; die; sure; converge"
    ),
    "listed without uids for a while": (
        "listed; deliver INBOX 4; converge; rounds_with_a_glitch (mend) empty INBOX 3; converge"
    ),
    "moved from a folder that is listed without uids for a while": (
        "deliver INBOX 4; converge; move INBOX Sent 1; rounds_with_a_glitch (mend) empty INBOX 3; converge; "
        "same_numbers"
    ),
    "exchanged, and then listed without uids for a while": (
        "deliver INBOX 3; converge; deliver INBOX 1; disturbance 4 permute INBOX None; "
        "rounds_with_a_glitch (mend) empty INBOX 3; converge"
    ),
    "missing from the list of folders for a while": (
        "listed; deliver INBOX 4; converge; rounds_with_a_glitch (mend) unlisted INBOX 3; converge"
    ),
    "a name that no folder can have": (
        "listed; deliver Archive 1; rounds_with_a_glitch (deliver INBOX 1 strong) impossible INBOX 3; "
        "same_numbers; converge"
    ),
    "metadata without sizes": (
        "metadata size_of_-1; deliver INBOX 3; converge; deliver INBOX 1; converge; same_numbers"
    ),
    "metadata without a Message-ID": (
        "metadata no_Message-ID; deliver INBOX 3; converge; deliver INBOX 1; converge; days; same_numbers"
    ),
    "spoilt while the clock was ahead": (
        "deliver INBOX 2; spoil INBOX 0; clock_that_jumps 17520 (hide Sent) 2 True; mend; days"
    ),
}


_ACT = re.compile(r"\(([^)]*)\)|(\S+)")
_CONSTANTS = {"True": True, "False": False, "None": None}


def _parse_step(text: str) -> list[Any]:
    def parse_word(word: str) -> Any:
        return _CONSTANTS[word] if word in _CONSTANTS else int(word) if word.isdigit() else word.replace("_", " ")

    def parse_act(text: str) -> tuple[str, tuple[Any, ...]]:
        name, *arguments = text.split()
        return name, tuple(map(parse_word, arguments))

    (_, name), *words = _ACT.findall(text)
    return [name, *(parse_act(act) if act else parse_word(word) for act, word in words)]


def run_sequence(text: str) -> None:
    steps = [_parse_step(each) for each in text.split("; ")]
    machine = DeliveringMachine() if ["told_again"] in steps else SyncMachine()
    try:
        machine.begin(folders=1 if ["alone"] in steps else 3, named=["listed"] not in steps)
        for name, *arguments in steps:
            if name in ("told_again", "listed", "alone"):
                continue
            if name == "converge":
                machine.converge(900)
            elif name == "fault":
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
            elif name == "same_numbers":
                assert {key.uid_validity for key in machine.mirror.messages} == {1}, "numbered again"
            elif name == "sure":
                machine.world.audit_only_folders.clear()
            elif hasattr(machine.world, name):
                machine.world.act((name, tuple(arguments)))
            else:
                getattr(machine, name)(*arguments)
    finally:
        machine.teardown()


@pytest.mark.exhaustive(limit=9)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sink_has_the_mailbox_after_the_sequence(name: str) -> None:
    run_sequence(SEQUENCES[name])
