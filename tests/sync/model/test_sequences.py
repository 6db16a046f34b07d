"""Each sequence is told as it is, and each deliberate fault of the engine is seen in one of them."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .sequences import DETECTING_SEQUENCES, SEQUENCES, run_sequence


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_is_told_as_it_is(name: str) -> None:
    run_sequence(SEQUENCES[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_seen_in_its_sequence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        run_sequence(SEQUENCES[DETECTING_SEQUENCES[name]])
