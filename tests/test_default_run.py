"""Which cases of a test run by default, and that none of them starts a process unseen."""

from __future__ import annotations

import subprocess
from itertools import product

import pytest

from tests.conftest import DEFAULT_OPERATIONS, select_cases

OPERATIONS = ["GetUIDs", *sorted(DEFAULT_OPERATIONS), "GetFolders"]


def test_of_the_operations_one_of_each_kind_is_kept() -> None:
    kept = select_cases([{name} for name in OPERATIONS], OPERATIONS)
    assert {OPERATIONS[number] for number in kept} == DEFAULT_OPERATIONS


def test_of_operations_that_are_all_of_one_kind_all_are_kept() -> None:
    names = [f"Get{number}" for number in range(20)]
    assert select_cases([{name} for name in names], names) == [*range(20)]


def test_of_a_product_each_row_is_kept_once() -> None:
    cases = list(product("abcdefghi", range(4), [True, False]))
    kept = [
        cases[number] for number in select_cases([frozenset(enumerate(case)) for case in cases], [None] * len(cases))
    ]
    assert len(kept) == 9
    assert [set(rows) for rows in zip(*kept, strict=True)] == [set("abcdefghi"), set(range(4)), {True, False}]


def test_codes_for_all_operations_are_codes_for_one_of_each_kind() -> None:
    cases = list(product(range(9), OPERATIONS))
    kept = [cases[number] for number in select_cases([set(case) for case in cases], [name for _, name in cases])]
    assert len(kept) == 9
    assert {code for code, _ in kept} == set(range(9))
    assert {name for _, name in kept} == DEFAULT_OPERATIONS


def test_the_rows_of_one_table_are_all_kept() -> None:
    assert select_cases([{number, "what all have"} for number in range(30)], [None] * 30) == [*range(30)]


@pytest.mark.parametrize("options", [{}, {"shell": True}])
def test_a_test_that_starts_a_process_without_saying_so_fails(options: dict[str, bool]) -> None:
    with pytest.raises(RuntimeError, match=r"pytest\.mark\.process"):
        subprocess.run(["true"], check=False, **options)  # type: ignore[call-overload]
