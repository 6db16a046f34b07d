"""No regular expression of the package backtracks: each takes a number of steps that grows as its input does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patterns import SIZE, AppliedPattern, backtracks, list_inputs, list_patterns

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the limit of processor time is of POSIX systems"),
    pytest.mark.usefixtures("without_coverage"),
]


@pytest.mark.wide
def test_patterns_are_found_with_the_methods_that_apply_them() -> None:
    found = {(each.place, each.method) for each in list_patterns()}
    assert ("directsuite.sandbox.calls._NAME", "finditer") in found
    assert ("directsuite.wire.values._DIGITS", "match") in found
    assert len(found) > 100


@pytest.mark.wide
def test_inputs_begin_and_end_the_repeats_of_a_pattern() -> None:
    (applied,) = [each for each in list_patterns() if each.place == "directsuite.sandbox.quirks._STEPS"][:1]
    inputs = [*list_inputs(applied)]
    assert any(text.startswith(".<") and text.endswith("\x00") for text in inputs)
    assert max(map(len, inputs)) <= SIZE + 4


@pytest.mark.wide
def test_quadratic_patterns_are_detected() -> None:
    assert backtracks(AppliedPattern("", "(a|b)+c", 0, "search"), size=1_024)
    assert not backtracks(AppliedPattern("", "(a|b)+c", 0, "match"), size=1_024)


@pytest.mark.process
def test_no_pattern_backtracks() -> None:
    ended = subprocess.run([sys.executable, "-m", "tests.patterns"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
