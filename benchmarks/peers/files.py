"""Files read and written whole, as the programs around such clients do it: on the event loop, no thread between."""

from __future__ import annotations

from io import FileIO
from pathlib import Path


def read_bytes(path: Path) -> bytes:
    """All of it."""
    return path.read_bytes()


def write_bytes(path: Path, content: bytes) -> int:
    """Write all of it; how many bytes that were."""
    return path.write_bytes(content)


def open_unbuffered(path: Path) -> FileIO:
    """To be written piece by piece, each of which goes to the system at once."""
    return path.open("wb", buffering=0)


def get_size(path: Path) -> int:
    """Its length in bytes."""
    return path.stat().st_size
