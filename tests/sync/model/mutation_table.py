"""How soon the machine sees each mutant, and in which sequence: `python -m tests.sync.model.mutation_table 3000`."""

from __future__ import annotations

import sys
import time

import attrs
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import DeliveringMachine, SyncMachine
from .mutants import MUTANTS
from .sequences import DETECTING_SEQUENCES, REDELIVERED, SEQUENCES
from .test_machine import LONG_SETTINGS


@attrs.frozen
class Detection:
    """Which example it took, how many seconds, and what the machine said."""

    examples: int
    seconds: float
    message: str


def find_detection(name: str, examples: int) -> Detection | None:
    """The first example that shows a mutant; None where so many don't."""
    count = 0
    machine = DeliveringMachine if REDELIVERED in SEQUENCES[DETECTING_SEQUENCES[name]] else SyncMachine

    begin = SyncMachine.__init__

    def counted(self: SyncMachine) -> None:
        """One more example."""
        nonlocal count
        count += 1
        begin(self)

    chosen = settings(
        LONG_SETTINGS, max_examples=examples, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False
    )
    began = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        patch.setattr(SyncMachine, "__init__", counted)
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except AssertionError as error:
            said = str(error).partition("\n")[0]
            return Detection(count - 1, time.perf_counter() - began, said)  # the last one shows it once more
    return None


def main() -> None:
    """Print the table."""
    for name in sys.argv[2:] or MUTANTS:
        result = find_detection(name, int(sys.argv[1]))
        row = "not seen | |" if result is None else f"{result.examples} | {result.seconds:.1f} | {result.message}"
        print(f"| {name} | {DETECTING_SEQUENCES[name]} | {row} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
