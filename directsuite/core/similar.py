"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable

_MIN_SIMILARITY = 0.7  # of 1: about one letter of a short name added, missing or replaced


def find_similar(typed: str, names: Iterable[str], *, limit: int = 1) -> list[str]:
    """Return the other names that were probably meant, the most similar one first. Upper case, - and _ don't count.

    If only one name begins with `typed`, it is the only result.
    """
    from difflib import get_close_matches  # imported only for errors, to start faster

    available = {_normalize(name): name for name in names if name != typed}
    key = _normalize(typed)
    completions = [each for each in available if key and each.startswith(key)]
    found = completions if len(completions) == 1 else get_close_matches(key, available, limit, _MIN_SIMILARITY)
    return [available[each] for each in found]


def _normalize(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
