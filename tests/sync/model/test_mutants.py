"""Deliberate faults of the engine that chance finds. Each one is also seen in a sequence, for which see there."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .mutation_table import find_detection

EXAMPLES = 3000
"""The most that are played of a mutant; most are seen in the first hundred, and some in the first thousand."""

RARE = {
    "a round that failed is remembered",
    "a suspect folder counts as done",
    "any message may come back under a uid",
    "gone although its own folder is incomplete",
    "no second listing",
    "nothing says which keys a sink may take for gone",
    "poison never asked for again",
    "what has left is gone at once",
    "what is quarantined has no content",
}
"""Those that chance finds late, and may not find in so many: only their sequences are sure to see them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE))
def test_mutant_is_seen_by_chance(name: str) -> None:
    assert find_detection(name, EXAMPLES) is not None
