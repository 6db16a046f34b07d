"""Files for what came over the wire: names that are names and nothing else, and never over a file that is there."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from pathlib import Path
from typing import BinaryIO

_LONGEST = 150  # bytes of a name; file systems take 255
_LONGEST_ENDING = 20
_ODD = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"/\\|?*\u2028-\u202e\u2066-\u2069\ud800-\udfff]+')
_DEVICES = re.compile(r"(?i:con|prn|aux|nul|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)")


def safe_name(name: str | None, fallback: str) -> str:
    """A file's name on any system: no folder, no device, not hidden, no control character, not too long.

    fallback: where nothing is left of it.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name or ""))[-1]
    kept = _ODD.sub("_", last).strip(" .")
    if not kept.strip("_"):
        kept = fallback
    if _DEVICES.match(kept) or kept.startswith("-"):  # which commands would take for an option
        kept = f"_{kept}"
    stem, ending = _parted(kept)
    return f"{_cut(stem, _LONGEST - _LONGEST_ENDING)}{_cut(ending, _LONGEST_ENDING)}"


def written(folder: Path, name: str, content: bytes) -> Path:
    """A new file of its owner's alone, with this name or one like it. Raises OSError, and leaves no part of a file.

    name: what `safe_name` gave.
    """
    stem, ending = _parted(name)
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{stem}-{number}{ending}")
        try:
            file = _new(path)
        except FileExistsError:
            number += 1
            continue
        try:
            with file:
                file.write(content)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return path


def _new(path: Path) -> BinaryIO:
    """Exclusive, so that neither a file nor a link that is there is written through."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _parted(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    return (stem, f".{ending}") if stem and dot and len(ending.encode()) < _LONGEST_ENDING else (name, "")


def _cut(text: str, longest: int) -> str:
    return text.encode()[:longest].decode(errors="ignore")
