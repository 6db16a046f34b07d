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
_ODD = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, also those that turn or hide text, and broken characters
_BLANK = re.compile(r"\A[\s.]+|[\s.]+\Z")
_DEVICES = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)")


def safe_name(name: str | None, fallback: str) -> str:
    """A file's name on any system: no folder, no device, not hidden, no control character, not too long.

    fallback: a name that is safe already, where nothing is left of this one.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name or ""))[-1]
    marked = "".join("\0" if letter in '<>:"|?*' or unicodedata.category(letter) in _ODD else letter for letter in last)
    safe, before = re.sub("\0+", "_", marked), None
    while safe != before:  # what is cut may leave a name that is not safe
        before, safe = safe, _shortened(_no_word_of_a_system(_BLANK.sub("", safe)))
    return safe if safe.strip("_") else fallback


def _no_word_of_a_system(name: str) -> str:
    """Not a device of Windows, and nothing that commands would take for an option."""
    return f"_{name}" if _DEVICES.match(name) or name.startswith("-") else name


def _shortened(name: str) -> str:
    stem, ending = _parted(name)
    cut = stem.encode()[: _LONGEST - _LONGEST_ENDING].decode(errors="ignore")
    return (stem if cut == stem else _BLANK.sub("", cut)) + ending


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
