"""The fuzzer itself: `python -m benchmarks.fuzz.decoder CORPUS [libFuzzer's options]`. Ends at the first failure.

Only directsuite is instrumented, so it has to be imported here, by the hook.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer's options end it."""
    atheris: Any = importlib.import_module("atheris")  # without types, and not installed where nobody fuzzes
    with atheris.instrument_imports(include=["directsuite"]):
        inputs = importlib.import_module("benchmarks.fuzz.inputs")
        mutator = importlib.import_module("benchmarks.fuzz.mutator")

    def by_bytes(content: bytes, max_size: int) -> bytes:
        """LibFuzzer's own mutation; Fuzz() puts it in the place of a stand-in, so it is looked up late."""
        changed: bytes = atheris.Mutate(content, max_size)
        return changed

    atheris.Setup(arguments, inputs.run, custom_mutator=mutator.Mutator(by_bytes))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
