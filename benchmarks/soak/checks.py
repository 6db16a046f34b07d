"""What has to hold, and whether it did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from benchmarks.soak.census import MEGABYTE, Sample
from tests.operations import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.soak.soak_run import OpenResources
    from benchmarks.soak.tally import Tally

WARM_UP_SECONDS = 300.0
"""Seconds that are left out of the fit: caches fill, and the allocator takes what the largest answers need."""

MAX_ALLOCATED_MB_PER_MINUTE = 0.1
"""Megabytes a minute by which memory that is given out may grow, as fitted: 1 MB in 10 minutes."""

MAX_RESIDENT_RATIO = 1.1
"""The highest resident memory of the last third, beside that of the first after the warm-up."""

MAX_BLOCKS_PER_MINUTE = 500.0
"""Blocks of memory a minute by which Python's objects may grow: one for every dozen calls."""

_MIN_FIT_SECONDS = 600.0  # seconds; on less, the noise of the allocator is as large as the bound
_MAX_LIVE_CREDENTIALS = 2  # a bearer token and a session, of the suite that stays
_MIN_PACE_RATIO = 0.7  # of the calls a second at the beginning, that there must be at the end
_MIN_SUCCESS_SHARE = 0.7  # of the actions: trouble and cancellations are made so that they spoil about a tenth


@attrs.frozen(kw_only=True)
class Line:
    """Least squares: growth a second and its standard error."""

    slope: float
    error: float


@attrs.frozen(kw_only=True)
class SoakCheck:
    """One thing that has to hold. holds: None where the run was too short to tell."""

    name: str
    found: str
    bound: str
    holds: bool | None


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """The line through at least three points of different times."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return Line(slope=slope, error=math.sqrt(rest / (count - 2) / spread))


def compute_warm_up(samples: Sequence[Sample]) -> float:
    """Seconds that are left out: five minutes, of a short run a third."""
    return min(WARM_UP_SECONDS, samples[-1].seconds / 3)


def compute_growth(samples: Sequence[Sample]) -> Line:
    """Memory that is given out, after the warm-up, in megabytes a minute: in quiet moments, when no call has any.

    Resident memory is no measure of that: it rises by steps, to what the largest answers that came at once needed, and
    a line through steps has a slope by chance.
    """
    begin = compute_warm_up(samples)
    points = [(s.seconds / 60, s.held / MEGABYTE) for s in samples if s.seconds >= begin and s.quiet and s.held]
    return fit_line(points) if len(points) > 2 else Line(slope=math.nan, error=math.nan)


def compute_resident_rise(samples: Sequence[Sample]) -> float:
    """The highest resident memory of the last third, beside that of the first third after the warm-up."""
    begin, end = compute_warm_up(samples), samples[-1].seconds
    third = (end - begin) / 3
    first = max((s.rss for s in samples if begin <= s.seconds <= begin + third), default=0)
    last = max((s.rss for s in samples if s.seconds >= end - third), default=0)
    return last / first if first else math.nan


def compute_block_growth(samples: Sequence[Sample]) -> Line:
    """Blocks of memory a minute that Python's objects take more, after the warm-up, in quiet moments."""
    begin = compute_warm_up(samples)
    points = [(s.seconds / 60, float(s.blocks)) for s in samples if s.seconds >= begin and s.quiet]
    return fit_line(points) if len(points) > 2 else Line(slope=math.nan, error=math.nan)


def compute_pace(samples: Sequence[Sample]) -> float:
    """Calls a second in the last third beside those in the first: a client that loses connections gets slower."""
    first, last, end = samples[len(samples) // 3], samples[2 * len(samples) // 3], samples[-1]
    seconds = end.seconds - last.seconds
    if not (first.calls and seconds):
        return math.nan
    return (end.calls - last.calls) / seconds / (first.calls / first.seconds)


def run_checks(
    samples: Sequence[Sample], tally: Tally, ending: OpenResources, *, sockets: int, kept: int
) -> list[SoakCheck]:
    """Everything that has to hold. sockets: the most that there may be at once; kept: where no call is under way."""
    line, blocks = compute_growth(samples), compute_block_growth(samples)
    long_enough = samples[-1].seconds - compute_warm_up(samples) >= _MIN_FIT_SECONDS
    quiet = [sample for sample in samples if sample.quiet]
    left = max((s.live_calls + s.live_incoming + s.live_outgoing for s in quiet), default=0)
    credentials = max((s.live_credentials for s in quiet), default=0)
    kept_alive = max((s.sockets for s in quiet), default=0)
    tasks = {sample.tasks for sample in quiet}
    peak = max(sample.sockets_peak for sample in samples)
    ratio, higher = compute_pace(samples), compute_resident_rise(samples)
    done = tally.endings["done"] / max(1, tally.endings.total())
    never = sorted(METHODS.keys() - tally.calls.keys())
    return [
        SoakCheck(
            name="operations that were never called",
            found=", ".join(never) or "none",
            bound="none",
            holds=not never if long_enough else None,
        ),
        SoakCheck(
            name="memory given out in quiet moments grows, MB a minute",
            found=f"{line.slope:+.3f} ± {line.error:.3f}",
            bound=f"< {MAX_ALLOCATED_MB_PER_MINUTE}",
            holds=line.slope < MAX_ALLOCATED_MB_PER_MINUTE if long_enough and not math.isnan(line.slope) else None,
        ),
        SoakCheck(
            name="highest resident memory, last third beside the first after the warm-up",
            found=f"{higher:.3f}",
            bound=f"< {MAX_RESIDENT_RATIO}",
            holds=higher < MAX_RESIDENT_RATIO if long_enough else None,
        ),
        SoakCheck(
            name="blocks of memory that Python's objects take in quiet moments grow, a minute",
            found=f"{blocks.slope:+.0f} ± {blocks.error:.0f}",
            bound=f"< {MAX_BLOCKS_PER_MINUTE:.0f}",
            holds=blocks.slope < MAX_BLOCKS_PER_MINUTE if long_enough else None,
        ),
        SoakCheck(name="sockets at the most", found=str(peak), bound=f"≤ {sockets}", holds=peak <= sockets),
        SoakCheck(
            name="sockets in quiet moments, kept alive",
            found=str(kept_alive),
            bound=f"≤ {kept}",
            holds=kept_alive <= kept,
        ),
        _check_none("sockets left after closing", ending.sockets),
        _check_none("file descriptors left after closing", ending.descriptors),
        _check_none("tasks left after closing", ending.tasks),
        _check_none("calls, answers and bodies alive in quiet moments", left),
        SoakCheck(
            name="credentials alive in quiet moments",
            found=str(credentials),
            bound=f"≤ {_MAX_LIVE_CREDENTIALS}",
            holds=credentials <= _MAX_LIVE_CREDENTIALS,
        ),
        SoakCheck(
            name="tasks in quiet moments",
            found=" or ".join(map(str, sorted(tasks))),
            bound="always as many",
            holds=len(tasks) <= 1,
        ),
        SoakCheck(
            name="calls a second, last third beside the first",
            found=f"{ratio:.2f}",
            bound=f"> {_MIN_PACE_RATIO}",
            holds=ratio > _MIN_PACE_RATIO if long_enough else None,
        ),
        SoakCheck(
            name="actions done, of all",
            found=f"{done:.2f}",
            bound=f"> {_MIN_SUCCESS_SHARE}",
            holds=done > _MIN_SUCCESS_SHARE,
        ),
        _check_none("messages sent twice", tally.doubled),
        _check_none("acknowledged messages that are not there", tally.lost),
        _check_none("errors of other than the client's types", tally.untyped),
        _check_none("complaints of the event loop, warnings", tally.complaints),
    ]


def _check_none(name: str, found: int) -> SoakCheck:
    return SoakCheck(name=name, found=str(found), bound="0", holds=found == 0)
