"""The number of examples of a property: few by default, many with `-m slow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy, tuples

from tests.examples import scale_examples

parametrize_examples = pytest.mark.parametrize(
    "examples", [pytest.param(scale_examples(200), id="quick"), pytest.param(20_000, id="long", marks=pytest.mark.slow)]
)
"""Parametrizes a test with the number of its examples."""


def check_property(examples: int, check: Callable[..., object], *inputs: SearchStrategy[Any]) -> None:
    def example(values: tuple[Any, ...]) -> None:
        check(*values)

    calm = settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    calm(given(tuples(*inputs))(example))()
