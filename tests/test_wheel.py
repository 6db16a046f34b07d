"""The content of the wheel: every file of the package, including other files than Python."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def test_wheel_holds_every_file_of_the_package() -> None:
    wheel = WheelBuilder(str(ROOT))
    held = {file.distribution_path for file in wheel.recurse_included_files()}
    there = {file.relative_to(ROOT).as_posix() for file in (ROOT / "directsuite").rglob("*.*") if file.is_file()}
    assert {name for name in there if "__pycache__" not in name} == held
    assert {"directsuite/py.typed", "directsuite/sandbox/openapi.yaml", "directsuite/guides/contributing.md"} <= held
