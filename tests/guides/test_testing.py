"""The tests in the guide `testing` and in README."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.guides.documents import blocks, text_of
from tests.testing.project import Project


@pytest.mark.process
def test_the_examples_pass(tmp_path: Path) -> None:
    project = Project(tmp_path)
    programs = [*blocks("testing"), *(program for program in blocks("README") if program.startswith("# test_"))]
    for program in programs:
        project.write(program.partition("\n")[0].removeprefix("# "), program)
    counts, written = project.run()
    tests = sum(program.count("def test_") for program in programs)
    assert counts == {"passed": tests}, written
    assert tests == 7


def test_the_table_names_every_fixture() -> None:
    plugin = importlib.import_module("directsuite.testing.plugin")
    fixtures = {name for name in vars(plugin) if name.startswith("directsuite_")}
    assert set(re.findall(r"^\| `(\w+)` \|", text_of("testing"), re.MULTILINE)) == fixtures
