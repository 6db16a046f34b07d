"""Files read and written whole, as the programs around such clients do it: on the event loop, no thread between."""

from __future__ import annotations

from io import FileIO
from pathlib import Path


def content_of(path: Path) -> bytes:
    """All of it."""
    return path.read_bytes()


def written(path: Path, content: bytes) -> int:
    """Write all of it; how many bytes that were."""
    return path.write_bytes(content)


def opened(path: Path) -> FileIO:
    """To be written piece by piece, each of which goes to the system at once."""
    return path.open("wb", buffering=0)


def size_of(path: Path) -> int:
    """Its length in bytes."""
    return path.stat().st_size
