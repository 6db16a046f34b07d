"""A few seconds of the soak, and the problems that its checks detect."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from benchmarks.__main__ import main
from benchmarks.soak.load import Sample, SoakRun
from benchmarks.soak.report import run_checks
from directsuite.core import events

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the soak reads /proc"),
    pytest.mark.usefixtures("without_coverage"),
]

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1_000_000
RSS = "highest memory, second half / first half"
BLOCKS = "growth of Python's memory blocks per minute"
SPEED = "calls per second, second half / first half"
LIVE = "live calls, responses and request bodies without calls"
PROBLEMS = "errors of other types, messages of the event loop, and warnings"


def make_sample(seconds: float, **changes: Any) -> Sample:
    """A sample without problems, at ten calls per second."""
    calls = int(10 * seconds)
    sample = Sample(
        quiet=False, seconds=seconds, rss=60 * MEGABYTE, sockets=9, tasks=9, blocks=10**6, live=0, calls=calls
    )
    return attrs.evolve(sample, **changes)


def make_samples(minutes: int = 30) -> list[Sample]:
    return [make_sample(5 * number, quiet=number % 12 == 0) for number in range(1, 12 * minutes + 1)]


def find_failures(samples: list[Sample], **changes: Any) -> list[str]:
    soak = SoakRun(results=Counter(done=95, cancelled=5), samples=samples, left={"sockets": 0})
    return [check.name for check in run_checks(attrs.evolve(soak, **changes)) if check.passed is False]


@pytest.mark.process
async def test_few_seconds_pass_and_write_a_report(tmp_path: Path) -> None:
    options = ("--minutes", "0.08", "--out", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", "soak", *options), cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    assert "all checks passed" in (tmp_path / "soak.md").read_text("utf-8")
    assert "Open sockets" in (tmp_path / "soak.svg").read_text("utf-8")


@pytest.mark.parametrize("arguments", [["soap"], ["--minutes", "3"], ["soak", "--minutes", "0"]])
def test_invalid_arguments_are_rejected(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sockets": 38}, "sockets, maximum"),
        ({"quiet": True, "sockets": 17}, "sockets without calls"),
        ({"quiet": True, "live": 1}, LIVE),
        ({"quiet": True, "tasks": 10}, "tasks without calls"),
    ],
)
def test_one_bad_sample_fails(changes: dict[str, Any], name: str) -> None:
    samples = make_samples()
    samples[200] = attrs.evolve(samples[200], **changes)
    assert find_failures(samples) == [name]


SERIES: list[tuple[list[Sample], list[str]]] = [
    (make_samples(), []),
    ([attrs.evolve(each, rss=int(each.rss * (1 + each.seconds / 5_000))) for each in make_samples()], [RSS]),
    ([attrs.evolve(each, blocks=each.blocks + int(10 * each.seconds)) for each in make_samples()], [BLOCKS]),
    ([make_sample(each.seconds, rss=1, blocks=1) if each.seconds < 300 else each for each in make_samples()], []),
    ([attrs.evolve(each, rss=each.rss + int(each.seconds * MEGABYTE)) for each in make_samples(minutes=2)], []),
    ([attrs.evolve(each, calls=min(each.calls, 12_000)) for each in make_samples()], [SPEED]),
]


@pytest.mark.parametrize(
    ("samples", "failures"),
    SERIES,
    ids=["constant", "more memory", "more blocks", "warm-up", "too short to tell", "slower calls"],
)
def test_growth_of_memory_and_slower_calls_fail(samples: list[Sample], failures: list[str]) -> None:
    assert find_failures(samples) == failures


def test_bad_counts_fail() -> None:
    assert find_failures(make_samples(), left={"sockets": 1}) == ["sockets left after closing"]
    assert find_failures(make_samples(), problems=["ValueError"]) == [PROBLEMS]
    results = Counter(done=5, DeadlineExceededError=5)
    assert find_failures(make_samples(), results=results) == ["share of successful actions"]


def test_tally_counts_events_and_errors() -> None:
    tally = SoakRun()
    call: dict[str, Any] = {"call": 1, "operation": "Send", "service": "messaging", "method": "PUT", "path": "Send"}
    call |= {"host": "127.0.0.1", "port": 1}
    tally(events.AttemptStarted(attempt=1, **call))
    tally(events.CallFinished(attempts=2, elapsed=1.0, error="OutcomeUnknownError", cancelled=True, **call))
    tally.count_result(ValueError("x"))
    tally.count_result(ds.ClosedError("x"))
    assert tally.events == {"AttemptStarted": 1, "CallFinished": 1, "cancelled": 1}
    assert tally.results == {"ValueError": 1, "ClosedError": 1}
    assert ["ValueError: x" in problem for problem in tally.problems] == [True]
