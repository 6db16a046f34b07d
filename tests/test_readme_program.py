"""README's first program, run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import blocks

pytestmark = pytest.mark.process


def test_the_first_program_prints_the_message_it_sent(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(blocks("A first program")[0], encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 Hello\n", "")
