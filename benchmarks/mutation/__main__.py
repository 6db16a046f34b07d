"""`python -m benchmarks.mutation FOLDER [MODULE ...]`: copy the repository there, once a module, and run mutmut."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS: dict[str, tuple[str, ...]] = {
    "outcome": ("outcome", "outcome_words", "outcomes_table", "odd_answers", "refusals", "decoding_order"),
    "retry": ("retry", "retry_after", "retry_policy", "backoff"),
    "credentials": ("credentials", "token_renewal", "token_life", "renewal_ahead", "keep_alive", "closing_drains"),
}
"""Modules of the core, and the tests in tests/core that are theirs: few and quick, since each mutant runs them."""

_SETTINGS = """\
[mutmut]
source_paths = directsuite
only_mutate = directsuite/core/{module}.py
also_copy = benchmarks
pytest_add_cli_args =
    -p
    no:cacheprovider
    -m
    not slow
    -x
pytest_add_cli_args_test_selection =
    {tests}
timeout_multiplier = 8
use_git_change_detection = false
"""
_ROOT = Path(__file__).parents[2]


def prepare(folder: Path, module: str) -> None:
    """A copy of the repository that mutmut will work in."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("directsuite", "tests", "benchmarks"):
        shutil.copytree(_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    shutil.copy(_ROOT / "pyproject.toml", folder)
    files = [_ROOT / "tests" / "core" / f"test_{name}.py" for name in TESTS[module]]
    tests = "\n    ".join(str(file.relative_to(_ROOT)) for file in files)
    (folder / "setup.cfg").write_text(_SETTINGS.format(module=module, tests=tests))


def main(arguments: list[str]) -> int:
    """Mutate the modules named, or all; the exit status is mutmut's."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    folder, *modules = arguments
    failed = 0
    for module in modules or TESTS:
        prepare(Path(folder) / module, module)
        failed |= subprocess.call(["mutmut", "run", "--max-children", "2"], cwd=Path(folder) / module)  # noqa: S607
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
