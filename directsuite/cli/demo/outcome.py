"""What a step of the demo gives back when all that it checked came out as it should."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class Done:
    """count: of how many of a `thing`. checked: what held, a short sentence each. files: what it wrote."""

    count: int
    thing: str
    checked: tuple[str, ...]
    files: tuple[Path, ...] = ()
