"""The fonts of drawings."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from directsuite.sandbox.signing import appearance

from .caller import require_font_for

pytestmark = pytest.mark.wide


def test_a_font_with_damaged_outlines_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_font_for("\u017b")
    sound: Any = appearance.find_font("\u017b")
    path = sound.removeprefix("directsuite:")
    font, content = appearance._load_font(path), Path(path).read_bytes()
    offset, length = font.face.get_table_pos("glyf")
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(content[:offset] + b"\xff" * length + content[offset + length :])
    monkeypatch.setattr(appearance, "FONT_PATHS", (str(damaged), path))
    assert appearance.find_font("\u017b") == sound


def test_a_font_of_the_program_is_not_used() -> None:
    require_font_for("\u017b")
    name: Any = appearance.find_font("\u017b")
    metrics: Any = import_module("reportlab.pdfbase.pdfmetrics")
    fonts: Any = import_module("reportlab.pdfbase.ttfonts")
    font = fonts.TTFont("the program's", name.removeprefix("directsuite:"))
    metrics.registerFont(font)
    try:
        assert metrics.getFont("the program's") is font
        assert metrics.getFont(name) is not font
    finally:
        font.unregister()


@pytest.mark.process
def test_the_settings_of_reportlab_are_not_changed() -> None:
    program = (
        "from reportlab import rl_config; before = rl_config.useA85;"
        " import directsuite.sandbox.signing.engine; assert rl_config.useA85 == before == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
