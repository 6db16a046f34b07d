"""Separate processes for measurements, the description of the machine, and statistics of repeated measurements."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import attrs

from benchmarks.gauges import read_peak_bytes, read_resident_bytes

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CLIENTS_CORE, SERVER_CORE = 0, 1
PEAK = "peak memory above the start, MB"
_FORMATS = ((0.1, ".2g"), (10, ".2f"), (100, ".1f"), (math.inf, ",.0f"))
_PACKAGES = ("aiohttp", "attrs", "cattrs", "msgspec", "pybase64", "tenacity", "yarl")

Figures = dict[str, float]
Work = Callable[..., Coroutine[Any, Any, Figures]]
T = TypeVar("T")


def run_in_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a new interpreter, and return its result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def run_work(work: Work, *arguments: Any) -> Figures:
    """Do a work in a new interpreter, and return its figures and its peak memory."""
    return run_in_process(_do, work, arguments)


def run_work_in_folder(work: Work, url: str, *arguments: Any) -> Figures:
    """Do a work in a new interpreter, with a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        return run_work(work, url, folder, *arguments)


def _do(work: Work, arguments: Sequence[Any]) -> Figures:
    before = read_resident_bytes()
    return asyncio.run(work(*arguments)) | {PEAK: (read_peak_bytes() - before) / 1e6}


def write_page(name: str, page: str, folder: Path | None = None) -> int:
    """Write and print a page of results. Return 0, the exit status of the command."""
    folder = folder or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(page, encoding="utf-8")
    print(page)
    return 0


def pin_to_core(core: int) -> None:
    """Run this process only on the given core: clients and server use different cores. Do nothing on one core."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # resets the affinity that was inherited
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def describe_machine() -> dict[str, str]:
    """Return the versions of Python and packages, system, cores and load, without the name of the machine."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load average": f"{os.getloadavg()[2]:.1f}, including this run; above 2, other processes disturbed it",
        **{name: metadata.version(name) for name in _PACKAGES},
    }


def format_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (columns, ["---"] * len(columns), *rows))


def format_machine() -> str:
    """Return the description of the machine as a folded table in Markdown."""
    table = format_table(["", ""], describe_machine().items())
    return f"<details><summary>Measured on</summary>\n\n{table}\n\n</details>\n"


@attrs.frozen
class Spread:
    """The median of several values with the lower and upper quartile."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        median, low, high = (
            format(value, next(form for bound, form in _FORMATS if value < bound))
            for value in (self.median, self.low, self.high)
        )
        return f"{median} [{low}-{high}]"


def compute_spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def compute_ratios(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Divide each value by the base of the same round, so that a slow round does not matter. Skip a base of zero."""
    return [value / other for value, other in zip(values, base, strict=True) if other > 0]
