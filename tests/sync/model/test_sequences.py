"""Each sequence is told as it is, and each deliberate fault of the engine is seen in one of them."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .sequences import SEEN_IN, SEQUENCES, played


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_is_told_as_it_is(name: str) -> None:
    played(SEQUENCES[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_seen_in_its_sequence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        played(SEQUENCES[SEEN_IN[name]])
