"""The cases of an exhaustive test that run by default, and the check of processes in unmarked tests."""

from __future__ import annotations

import subprocess
from itertools import product

import pytest

from tests.conftest import DEFAULT_OPERATIONS, select_cases

OPERATIONS = ["GetUIDs", *sorted(DEFAULT_OPERATIONS), "GetFolders"]


def test_only_default_operations_are_kept() -> None:
    kept = select_cases([{name} for name in OPERATIONS], OPERATIONS)
    assert {OPERATIONS[number] for number in kept} == DEFAULT_OPERATIONS


def test_all_operations_are_kept_if_none_is_a_default_operation() -> None:
    names = [f"Get{number}" for number in range(20)]
    assert select_cases([{name} for name in names], names) == [*range(20)]


def test_each_value_of_a_product_is_kept() -> None:
    cases = list(product("abcdefghi", range(4), [True, False]))
    kept = [cases[number] for number in select_cases([{*enumerate(case)} for case in cases], [None] * len(cases))]
    assert len(kept) == 9 + 3 + 1
    assert [set(values) for values in zip(*kept, strict=True)] == [set("abcdefghi"), set(range(4)), {True, False}]


def test_each_code_is_kept_with_a_default_operation() -> None:
    cases = list(product(range(9), OPERATIONS))
    kept = [cases[number] for number in select_cases([set(case) for case in cases], [name for _, name in cases])]
    assert {code for code, _ in kept} == set(range(9))
    assert {name for _, name in kept} == DEFAULT_OPERATIONS


def test_limit_spreads_the_cases() -> None:
    assert select_cases([{number} for number in range(30)], [None] * 30, limit=3) == [0, 10, 20]


@pytest.mark.parametrize("options", [{}, {"shell": True}])
def test_unmarked_test_that_starts_a_process_fails(options: dict[str, bool]) -> None:
    with pytest.raises(RuntimeError, match=r"pytest\.mark\.process"):
        subprocess.run(["true"], check=False, **options)  # type: ignore[call-overload]
