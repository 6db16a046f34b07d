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
from .sequences import SEEN_IN, SEQUENCES, TOLD_AGAIN
from .test_machine import LONG


@attrs.frozen
class Seen:
    """Which example it took, how many seconds, and what the machine said."""

    examples: int
    seconds: float
    said: str


def seen(name: str, examples: int) -> Seen | None:
    """The first example that shows a mutant; None where so many don't."""
    count = 0
    machine = DeliveringMachine if TOLD_AGAIN in SEQUENCES[SEEN_IN[name]] else SyncMachine

    begin = SyncMachine.__init__

    def counted(self: SyncMachine) -> None:
        """One more example."""
        nonlocal count
        count += 1
        begin(self)

    chosen = settings(
        LONG, max_examples=examples, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False
    )
    began = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        patch.setattr(SyncMachine, "__init__", counted)
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except AssertionError as error:
            said = str(error).partition("\n")[0]
            return Seen(count - 1, time.perf_counter() - began, said)  # the last one shows it once more
    return None


def main() -> None:
    """Print the table."""
    for name in sys.argv[2:] or MUTANTS:
        result = seen(name, int(sys.argv[1]))
        row = "not seen | |" if result is None else f"{result.examples} | {result.seconds:.1f} | {result.said}"
        print(f"| {name} | {SEEN_IN[name]} | {row} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
