"""The soak for a few seconds; and that its verdict sees what it is there to see."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import xml.etree.ElementTree as ET
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.__main__ import main
from benchmarks.soak import census
from benchmarks.soak.census import MEGABYTE, Sample, SampleRecorder, read_samples
from benchmarks.soak.chart import draw_chart
from benchmarks.soak.checks import compute_pace, fit_line, run_checks
from benchmarks.soak.soak_run import OpenResources
from benchmarks.soak.tally import Tally
from benchmarks.soak.workers import EpochGate
from directsuite.core import events
from tests.specification import METHODS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the soak reads /proc")

ROOT = Path(__file__).resolve().parents[2]
NOTHING_LEFT = OpenResources(sockets=0, descriptors=0, tasks=0)
FEW_SECONDS = 0.06  # minutes


def row(seconds: float, **changed: int) -> Sample:
    """A sample in which nothing is wrong, and ten calls a second were made."""
    values = {field.name: 0 for field in attrs.fields(Sample)}
    values |= {"milliseconds": int(1000 * seconds), "rss": 60 * MEGABYTE, "tasks": 9, "calls": int(10 * seconds)}
    return Sample(**{**values, **changed})


def half_an_hour(mb_a_minute: float = 0.0, noise: float = 0.0) -> list[Sample]:
    """Samples of thirty minutes, every fifth one quiet."""
    dice = random.Random(7)
    held = [int((20 + mb_a_minute * each / 60 + dice.uniform(-noise, noise)) * MEGABYTE) for each in range(5, 1805, 5)]
    return [
        row(5 * number, quiet=int(number % 5 == 0), held=some, rss=some + 40 * MEGABYTE)
        for number, some in enumerate(held, 1)
    ]


def counted(**changed: Any) -> Tally:
    """A tally of actions that nearly all were done."""
    tally = Tally(calls=Counter(METHODS.keys()), endings=Counter(done=95, cancelled=5))
    for name, value in changed.items():
        setattr(tally, name, value)
    return tally


def failing(samples: list[Sample], tally: Tally | None = None, ending: OpenResources = NOTHING_LEFT) -> list[str]:
    """The names of what does not hold."""
    found = run_checks(samples, tally or counted(), ending, sockets=50, kept=16)
    return [check.name for check in found if check.holds is False]


@pytest.mark.process
async def test_few_seconds_hold_and_leave_a_report(tmp_path: Path) -> None:
    options = ("--minutes", str(FEW_SECONDS), "--csv", str(tmp_path / "soak.csv"), "--output", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", "soak", *options), cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    assert errors == b""
    summary = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    assert summary["held"] is True
    assert sum(summary["counted"]["calls"].values()) > 50
    assert summary["counted"]["sent"] > 0
    assert summary["samples"] == len(read_samples(tmp_path / "soak.csv"))
    assert (tmp_path / "soak.md").read_text(encoding="utf-8").strip() in output.decode()
    assert ET.fromstring((tmp_path / "soak.svg").read_text(encoding="utf-8")).tag.endswith("svg")  # noqa: S314  our own


@pytest.mark.parametrize("arguments", [["soap"], ["--minutes", "3"]])
def test_unknown_benchmark_is_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "soak" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--minutes", "0"], ["--pause", "-1"]])
def test_soak_refuses_times_that_are_none(options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["soak", *options])
    assert ended.value.code == 2


@pytest.mark.parametrize("mb_a_minute", [0.0, 0.08])
def test_flat_memory_holds_whatever_its_noise(mb_a_minute: float) -> None:
    assert failing(half_an_hour(mb_a_minute, noise=0.5)) == []


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_slow_leak_is_seen(noise: float) -> None:
    assert failing(half_an_hour(0.15, noise)) == ["memory given out in quiet moments grows, MB a minute"]


def test_resident_memory_that_goes_on_rising_fails() -> None:
    samples = [attrs.evolve(s, rss=int(s.rss * (1 + s.seconds / 5_000))) for s in half_an_hour()]
    assert failing(samples) == ["highest resident memory, last third beside the first after the warm-up"]


def test_step_of_resident_memory_is_no_leak() -> None:
    samples = [attrs.evolve(s, rss=s.rss + 3 * MEGABYTE) if s.seconds > 1000 else s for s in half_an_hour()]
    assert failing(samples) == []


def test_memory_that_is_held_is_counted_and_what_was_given_back_is_not() -> None:
    before = census.read_allocated_bytes()
    if not before:
        pytest.skip("this C library does not tell")
    blocks = [bytes(100_000) for _ in range(100)]
    assert census.read_allocated_bytes() - before > 9_000_000
    blocks.clear()
    assert census.read_allocated_bytes() - before < 1_000_000


def test_growth_while_warming_up_is_none() -> None:
    samples = [attrs.evolve(s, rss=s.rss // 2, held=s.held // 2) if s.seconds < 300 else s for s in half_an_hour()]
    assert failing(samples) == []


def test_short_run_says_nothing_about_growth() -> None:
    samples = [row(each, quiet=1, held=each * MEGABYTE, rss=each * MEGABYTE) for each in range(1, 120, 5)]
    found = run_checks(samples, counted(), NOTHING_LEFT, sockets=50, kept=16)
    assert [check.holds for check in found if "memory" in check.name] == [None, None, None]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"sockets_peak": 51}, "sockets at the most"),
        ({"quiet": 1, "sockets": 17}, "sockets in quiet moments, kept alive"),
        ({"quiet": 1, "live_calls": 1}, "calls, answers and bodies alive in quiet moments"),
        ({"quiet": 1, "live_incoming": 1}, "calls, answers and bodies alive in quiet moments"),
        ({"quiet": 1, "live_outgoing": 1}, "calls, answers and bodies alive in quiet moments"),
        ({"quiet": 1, "live_credentials": 3}, "credentials alive in quiet moments"),
        ({"quiet": 1, "tasks": 10}, "tasks in quiet moments"),
    ],
)
def test_one_bad_sample_is_enough(changed: dict[str, int], name: str) -> None:
    samples = half_an_hour()
    samples[200] = attrs.evolve(samples[200], **changed)
    assert failing(samples) == [name]


@pytest.mark.parametrize(
    ("tally", "name"),
    [
        (counted(doubled=1), "messages sent twice"),
        (counted(lost=1), "acknowledged messages that are not there"),
        (counted(untyped=1), "errors of other than the client's types"),
        (counted(complaints=1), "complaints of the event loop, warnings"),
        (counted(endings=Counter(done=5, DeadlineExceededError=5)), "actions done, of all"),
        (counted(calls=Counter({*METHODS} - {"Forward"})), "operations that were never called"),
    ],
)
def test_what_was_counted_fails(tally: Tally, name: str) -> None:
    assert failing(half_an_hour(), tally) == [name]


@pytest.mark.parametrize(
    ("left", "name"), [("sockets", "sockets"), ("descriptors", "file descriptors"), ("tasks", "tasks")]
)
def test_what_is_left_after_closing_fails(left: str, name: str) -> None:
    assert failing(half_an_hour(), ending=attrs.evolve(NOTHING_LEFT, **{left: 1})) == [f"{name} left after closing"]


def test_client_that_gets_slower_fails() -> None:
    samples = [attrs.evolve(s, calls=s.calls if s.seconds < 900 else 9000) for s in half_an_hour()]
    assert failing(samples) == ["calls a second, last third beside the first"]
    assert compute_pace(half_an_hour()) == pytest.approx(1, abs=0.05)


def test_line_has_its_slope_and_error() -> None:
    exact = fit_line([(x, 3 * x + 1) for x in range(10)])
    assert exact.slope == pytest.approx(3)
    assert exact.error == pytest.approx(0)
    assert fit_line([(0, 0), (1, 1), (2, 0), (3, 1)]).error == pytest.approx(0.08**0.5)


async def test_sample_counts_sockets_tasks_and_what_the_tally_has(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    tally = Tally(attempts=5)
    with path.open("w", encoding="utf-8", newline="") as file:
        taken = SampleRecorder(file, tally, server=0)
        before = taken.take_sample(quiet=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            task = asyncio.create_task(asyncio.Event().wait())
            during = taken.take_sample(quiet=False)
            task.cancel()
    assert (during.sockets - before.sockets, during.tasks - before.tasks) == (1, 1)
    assert (before.attempts, before.server_rss) == (5, 0)
    assert before.rss > MEGABYTE
    assert read_samples(path) == [before, during]


async def test_peak_of_sockets_is_that_since_the_sample_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_now = iter([9, 3, 4, 2])
    monkeypatch.setattr(census, "count_open_sockets", lambda: next(open_now))
    monkeypatch.setattr(census, "INTERVAL", 0.0)
    monkeypatch.setattr(census, "_PEAK_INTERVAL", 0.0)
    path = tmp_path / "samples.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        keeping = asyncio.create_task(SampleRecorder(file, Tally(), server=0).run())
        with pytest.raises(RuntimeError):  # no more numbers
            await keeping
    assert [(sample.sockets, sample.sockets_peak) for sample in read_samples(path)] == [(3, 9), (2, 4)]


async def test_gate_closes_when_the_last_has_left() -> None:
    gate, order = EpochGate(), list[str]()

    async def worker(name: str) -> None:
        async with gate:
            for _ in range(5):
                await asyncio.sleep(0)
            order.append(name)

    first = asyncio.create_task(worker("first"))
    await asyncio.sleep(0)
    assert order == []
    gate.open()
    await asyncio.sleep(0)
    await gate.close()
    late = asyncio.create_task(worker("late"))
    for _ in range(10):
        await asyncio.sleep(0)
    order.append("closed")
    gate.open()
    await asyncio.gather(first, late)
    assert order == ["first", "closed", "late"]


def test_tally_counts_events() -> None:
    tally = Tally()
    about: dict[str, Any] = {
        "call": 1,
        "operation": "Send",
        "service": "messaging",
        "method": "PUT",
        "path": "Send",
        "host": "127.0.0.1",
        "port": 1,
    }
    for event in (
        events.AttemptStarted(attempt=1, **about),
        events.RetryScheduled(attempt=2, wait=0.1, **about),
        events.CallFinished(attempts=2, elapsed=1.0, error="OutcomeUnknownError", cancelled=True, **about),
        events.OutcomeLeftUnknown(cancelled=True, how_to_find_out="", **about),
        events.CircuitOpened(service="fax", failures=20, seconds=1.0),
    ):
        tally(event)
    assert tally.calls == {"Send": 1}
    assert (tally.attempts, tally.retries, tally.failed, tally.cancelled) == (1, 1, 1, 1)
    assert (tally.left_unknown, tally.circuits_opened) == (1, 1)


def test_drawing_is_xml_of_a_committable_size() -> None:
    svg = draw_chart(half_an_hour(noise=1.0), warm_up=300, sockets=50)
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314  our own
    assert len(svg) < 100_000
