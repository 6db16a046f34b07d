"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from directsuite.core.similar import find_similar


@pytest.mark.parametrize(
    ("typed", "names", "found"),
    [
        ("timout", ["timeout", "attempt_timeout", "burst"], ["timeout"]),
        ("--boddy", ["--body", "--body-file", "--bcc"], ["--body"]),
        ("--sub", ["--subject", "--to"], ["--subject"]),  # the only one that begins with it
        ("Get_UIDs", ["GetUIDs", "GetFolders"], ["GetUIDs"]),
        ("nothing", ["timeout", "burst"], []),
        ("", ["timeout"], []),
        ("status", ["status"], []),  # it is not misspelt
    ],
)
def test_similar_name_is_found(typed: str, names: list[str], found: list[str]) -> None:
    assert find_similar(typed, names) == found


def test_most_similar_names_come_first() -> None:
    names = ["account", "amount", "count", "counts"]
    assert find_similar("acount", names, limit=2) == ["account", "count"]
