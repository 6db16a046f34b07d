"""Folders of numbered files: those of an earlier run make way, so that a folder holds one run's and no other's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def cleared(folder: Path, names: str) -> Path:
    """The folder, made where it is missing, without the files whose whole name the pattern `names` matches."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if re.fullmatch(names, file.name) and file.is_file():
            file.unlink()
    return folder
