"""Every command of README and of the guides that installs the package works in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guides.documents import DOCUMENTS, ROOT, read_document

_COMMAND = re.compile(r"(?<![/\w])pip install [^`\n&|#]+")
_NEEDED = ("pyproject.toml", "README.md", "CHANGELOG.md", "directsuite")
COMMANDS = sorted({each.strip() for name in DOCUMENTS for each in _COMMAND.findall(read_document(name))})


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a package is built from, with an empty virtual environment."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in _NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    return folder


def test_commands_install_from_the_checkout() -> None:
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        assert "directsuite" not in command, f"{command}: the package is in no index"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_command_installs(command: str, checkout: Path) -> None:
    path = f"{checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=checkout,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr
