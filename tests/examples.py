"""The number of hypothesis's examples of a property."""

from __future__ import annotations

from hypothesis import settings


def scale_examples(number: int) -> int:
    return max(2, number * settings().max_examples // 100)
