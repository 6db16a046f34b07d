"""The tests in the guide `testing`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.guides.documents import find_code_blocks, read_document
from tests.testing.project import Project

WEB = "# test_app.py"


def run(programs: list[str], folder: Path) -> int:
    project = Project(folder)
    for program in programs:
        project.write(program.partition("\n")[0].removeprefix("# "), program)
    counts, written = project.run()
    tests = sum(program.count("def test_") for program in programs)
    assert counts == {"passed": tests}, written
    return tests


@pytest.mark.process
def test_examples_pass(tmp_path: Path) -> None:
    assert run([each for each in find_code_blocks("testing") if not each.startswith(WEB)], tmp_path) == 14


@pytest.mark.process
def test_tests_of_a_web_application_pass(tmp_path: Path) -> None:
    programs = [program for program in find_code_blocks("testing") if program.startswith(WEB)]
    application = [each for each in find_code_blocks("web") if each.startswith(("# pdfs.py", "# web_fastapi.py"))]
    assert run([*programs, *application], tmp_path) == 2


def test_table_names_every_fixture() -> None:
    plugin = importlib.import_module("directsuite.testing.plugin")
    fixtures = {name for name in vars(plugin) if name.startswith("directsuite_")}
    assert set(re.findall(r"^\| `(\w+)` \|", read_document("testing"), re.MULTILINE)) == fixtures
