"""Two runs side by side: a regression is flagged, noise is not; the command's exit status says so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measuring import command
from benchmarks.measuring.spread import Spread, compute_spread
from benchmarks.report.comparison import has_regression, list_changes
from benchmarks.report.results import MeasuredFigure, Results, RowResults, read_results, to_json


def found(name: str = "CPU / bare", unit: str = "x", *, at_least: bool = False, values: list[float]) -> MeasuredFigure:
    """A figure that came out of these rounds."""
    return MeasuredFigure(name=name, unit=unit, at_least=at_least, spread=compute_spread(values))


def results(*figures: MeasuredFigure, row: str = "upload") -> Results:
    """A run of one row."""
    rows = [RowResults(name=row, title=row, unit="call", rounds=5, figures=list(figures), clients={}, absent={})]
    return Results(machine={}, versions={}, seconds=1.0, rows=rows)


def noisy(middle: float, seed: int, width: float = 0.1) -> list[float]:
    """Rounds around a middle."""
    dice = random.Random(seed)
    return [middle * dice.uniform(1 - width, 1 + width) for _ in range(11)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_flagged_and_a_real_regression_is(seed: int) -> None:
    then = results(found(values=noisy(1.0, seed)))
    assert not has_regression(list_changes(then, results(found(values=noisy(1.0, seed + 100)))))
    assert has_regression(list_changes(then, results(found(values=noisy(1.4, seed + 100)))))


@pytest.mark.parametrize(
    ("name", "unit", "at_least", "then", "now", "worse"),
    [
        ("CPU / bare", "x", False, [1.0, 1.0, 1.0], [1.3, 1.3, 1.3], True),
        ("CPU / bare", "x", False, [1.3, 1.3, 1.3], [1.0, 1.0, 1.0], False),
        ("CPU / bare", "x", False, [1.0, 1.0, 1.0], [1.01, 1.01, 1.01], False),
        ("CPU / bare", "x", False, [0.8, 1.0, 1.4], [1.2, 1.2, 1.2], False),
        ("CPU / bare", "x", False, [1.0, 1.0, 1.0], [0.8, 1.2, 1.6], False),
        ("throughput / bare", "x", True, [1.0, 1.0, 1.0], [0.8, 0.8, 0.8], True),
        ("throughput / bare", "x", False, [1.0, 1.0, 1.0], [0.8, 0.8, 0.8], True),
        ("throughput / bare", "x", True, [1.0, 1.0, 1.0], [1.2, 1.2, 1.2], False),
        ("peak memory, MB", "MB", False, [0.1, 0.1, 0.1], [0.4, 0.4, 0.4], False),
        ("peak memory, MB", "MB", False, [0.0, 0.0, 0.0], [3.0, 3.0, 3.0], True),
        ("longest pause, ms", "ms", False, [1.0, 1.0, 1.0], [2.5, 2.5, 2.5], False),
        ("longest pause, ms", "ms", False, [1.0, 1.0, 1.0], [30.0, 30.0, 30.0], True),
    ],
)
def test_worse_is_by_more_than_the_quartiles_lie_apart(
    name: str, unit: str, at_least: bool, then: list[float], now: list[float], worse: bool
) -> None:
    (change,) = list_changes(
        results(found(name, unit, at_least=at_least, values=then)),
        results(found(name, unit, at_least=at_least, values=now)),
    )
    assert change.worse is worse
    assert ("WORSE" in str(change)) is worse


def test_the_ratio_is_now_to_then() -> None:
    (change,) = list_changes(results(found(values=[2.0])), results(found(values=[3.0])))
    assert (change.then, change.now, change.ratio) == (2.0, 3.0, 1.5)


def test_only_what_both_runs_have_is_compared() -> None:
    then, now = results(found(values=[1.0]), row="upload"), results(found(values=[9.0]), row="send")
    assert list_changes(then, now) == []
    both = results(found(values=[1.0]), found("CPU / floor", values=[1.0]))
    assert [change.figure for change in list_changes(then, both)] == ["CPU / bare"]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    row = RowResults(
        name="giant-stream",
        title="A giant",
        unit="message",
        rounds=1,
        figures=[
            found(values=[1.0, 2.0]),
            MeasuredFigure(name="b", unit="MB", spread=Spread(1, 1, 1), bound=2.0, met=True),
        ],
        clients={"ours": {"CPU": Spread(0.1, 0.1, 0.2)}},
        absent={"bare": "can't: no"},
        idle_pause=0.5,
        samples={"ours": [(0.0, 0.0), (0.5, 1.5)]},
    )
    run = Results(machine={"cores": "2"}, versions={"aiohttp": "3"}, seconds=2.5, rows=[row], quick=True)
    path = tmp_path / "results.json"
    path.write_text(to_json(run), encoding="utf-8")
    assert read_results(path) == run


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 1}', "not JSON"])
def test_another_file_is_refused_before_anything_is_measured(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    assert main(["--quick", "--compare", str(path)]) == 2
    assert "results.json" in capsys.readouterr().err


@pytest.mark.parametrize(("now", "status"), [(1.0, 0), (1.5, 1)])
def test_the_exit_status_says_whether_something_became_worse(
    now: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "earlier.json"
    earlier.write_text(to_json(results(found(values=[1.0]))), encoding="utf-8")

    def run(*_: object, **__: object) -> Results:
        return results(found(values=[now]))

    monkeypatch.setattr(command, "run", run)
    assert main(["--quick", "--only", "upload", "--compare", str(earlier)]) == status
    assert ("WORSE" in capsys.readouterr().out) is bool(status)


@pytest.mark.parametrize("options", [["--only", "nothing"], ["--profile", "nothing"]])
def test_a_row_that_is_none_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    assert "--list" in capsys.readouterr().err


def test_the_rows_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"small-64", "upload", "giant-stream"} <= set(names)
