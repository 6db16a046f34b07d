"""Each deliberate fault of the engine is seen by the machine."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .mutation_table import seen

RARE = {
    "canaries not looked at": 1500,
    "late uids are not odd": 3000,
    "resets ignored": 500,
    "uids that come back are not odd": 1000,
    "weak identities trusted": 2000,
    "poison never asked for again": 1000,
    "poison blocks what follows": 1000,
}
"""Mutants that few examples show, and how many are played for them."""

SURVIVORS = {
    "what has left is gone at once",
    "gone although its own folder is incomplete",
    "canaries compared by uid and date alone",
}
"""Those that chance does not find; test_sequences.py sees the first."""


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE.keys() - SURVIVORS))
def test_mutant_is_seen_soon(name: str) -> None:
    assert seen(name, 100) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RARE))
def test_rare_mutant_is_seen(name: str) -> None:
    assert seen(name, RARE[name]) is not None
