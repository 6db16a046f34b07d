"""How soon the machine sees each mutant: `python -m tests.sync.model.mutation_table 3000` prints a table."""

from __future__ import annotations

import sys
import time

import attrs
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import SyncMachine
from .mutants import MUTANTS
from .test_machine import QUICK


@attrs.frozen
class Seen:
    """Which example it took, how many seconds, and what the machine said."""

    examples: int
    seconds: float
    said: str


def seen(name: str, examples: int) -> Seen | None:
    """The first example that shows a mutant; None where so many don't."""
    count = 0

    class CountedMachine(SyncMachine):
        """Counts its examples."""

        def __init__(self) -> None:
            nonlocal count
            count += 1
            super().__init__()

    chosen = settings(QUICK, max_examples=examples, phases=[Phase.generate], report_multiple_bugs=False)
    began = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        try:
            run_state_machine_as_test(CountedMachine, settings=chosen)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong has seen it
            said = str(error).partition("\n")[0] or type(error).__name__
            return Seen(count - 1, time.perf_counter() - began, said)  # the last one shows it once more
    return None


def main() -> None:
    """Print the table."""
    for name in sys.argv[2:] or MUTANTS:
        result = seen(name, int(sys.argv[1]))
        row = "not seen | |" if result is None else f"{result.examples} | {result.seconds:.1f} | {result.said}"
        print(f"| {name} | {row} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
