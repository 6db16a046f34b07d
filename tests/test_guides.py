"""The guides name files that are there, and commands that run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import directsuite as ds

PACKAGE = Path(ds.__file__).parent
ROOT = Path(__file__).parent.parent
GUIDES = sorted((PACKAGE / "guides").glob("*.md"))
PLACEHOLDERS = ("SERVICE", "COMMAND")


def named_files(text: str) -> list[str]:
    """Files and folders of the project that a text names: whatever has a slash, or the ending of a file."""
    words = [word for quoted in re.findall(r"`([^`\n]+)`", text) for word in quoted.split()]
    words += [word for line in text.splitlines() if line.startswith("$ ") for word in line.split("#")[0].split()]
    words = [word.rstrip(":,") for word in words]
    return [
        word
        for word in words
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]*)+|[\w*-]+\.(py|md|yaml|toml)", word)
        and not any(each in word for each in (*PLACEHOLDERS, ".venv"))
    ]


def is_there(name: str) -> bool:
    return any(True for folder in (ROOT, PACKAGE, *PACKAGE.iterdir()) if folder.is_dir() for _ in folder.glob(name))


def test_there_is_a_guide_for_contributors() -> None:
    assert "contributing" in [guide.stem for guide in GUIDES]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_file_that_a_guide_names_is_there(guide: Path) -> None:
    names = named_files(guide.read_text(encoding="utf-8"))
    assert names
    assert [name for name in names if not is_there(name)] == []
