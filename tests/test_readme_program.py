"""README's first program, run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

README = Path(__file__).parent.parent / "README.md"


def test_the_first_program_prints_the_message_it_sent(tmp_path: Path) -> None:
    program = re.search(r"## A first program\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert program is not None
    script = tmp_path / "program.py"
    script.write_text(program[1], encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 Hello\n", "")
