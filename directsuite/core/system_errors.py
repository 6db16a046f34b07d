"""What the system says of a file or a connection, fit to be told: its own words, which name nobody's files."""

from __future__ import annotations

import os


def reason_of(error: OSError) -> str:
    """Why something can't be read, written or reached, without its name."""
    kind: str = getattr(error, "kind", type(error).__name__)  # a storage's own, where there is no number
    return kind if error.errno is None else os.strerror(error.errno)
