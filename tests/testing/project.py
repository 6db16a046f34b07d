"""A user's project with tests, run by pytest in a separate process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent.parent


@attrs.frozen
class Project:
    """A folder with tests. python: the interpreter that runs them."""

    folder: Path
    python: str = sys.executable

    def write(self, name: str, text: str) -> None:
        """Add a file."""
        (self.folder / name).write_text(text, "utf-8")

    def run(self, *plugins: str, options: Sequence[str] = ()) -> tuple[dict[str, int], str]:
        loaded = [option for plugin in ("directsuite.testing.plugin", *plugins) for option in ("-p", plugin)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
        return self.run_and_count([*loaded, "-W", "error", *options], environment)

    def run_and_count(self, options: Sequence[str], environment: dict[str, str]) -> tuple[dict[str, int], str]:
        """Run the tests with these options, and count."""
        ran = subprocess.run(
            [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        last = ran.stdout.strip().rpartition("\n")[2]
        return {kind: int(count) for count, kind in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}, ran.stdout
