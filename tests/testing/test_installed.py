"""A project of a user who installed only directsuite[sandbox] and pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .project import ROOT, Project
from .test_plugin import THREE_LINES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    interpreter = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip: list[str | Path] = [interpreter, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("directsuite-*.whl")
    subprocess.run([*pip, "install", f"{wheel}[sandbox]", "pytest"], check=True)
    return str(interpreter)


UNUSED = 'import sys\n\ndef test_mine():\n    assert "aiohttp" not in sys.modules\n'


@pytest.mark.parametrize("program", [THREE_LINES, UNUSED], ids=["used", "not used"])
def test_installed_plugin_needs_no_configuration(program: str, python: str, tmp_path: Path) -> None:
    project = Project(tmp_path, python)
    project.write("test_mine.py", program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PY", "COV"))}
    counts, written = project.run_and_count(["-W", "error"], environment)
    assert counts == {"passed": 1}, written
