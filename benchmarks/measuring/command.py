"""`python -m benchmarks`: from its options to its exit status."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring.profiling import profile
from benchmarks.measuring.run import run
from benchmarks.report.comparison import has_regression, list_changes
from benchmarks.report.drawings import make_drawings
from benchmarks.report.page import format_page
from benchmarks.report.results import Results, read_results, to_json
from benchmarks.scenarios.table import TABLE, choose_rows

_BENCHMARKS_DIR = Path(__file__).resolve().parents[1]
_RESULTS_DIR = _BENCHMARKS_DIR / "results"
_PAGE_NAME = "RESULTS.md"


def measure(arguments: Sequence[str]) -> int:
    """Measure and report: 0, or 1 where `--compare` found something worse, or 2 where the arguments are no use."""
    try:
        return _measure(_make_parser(), arguments)
    except SystemExit as ended:  # argparse's way of saying so
        return int(ended.code or 0)


def _measure(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    options = parser.parse_args(arguments)
    if options.list:
        for row in TABLE:
            print(f"{row.name:<26} {row.title}")
        return 0
    try:
        rows = choose_rows([options.profile] if options.profile else options.only)
    except ValueError as error:
        parser.error(f"there is no row {error}: see --list")
    try:
        then = read_results(options.compare) if options.compare else None
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.profile:
        for row in rows:
            profile(row.make_quick() if options.quick else row)
        return 0
    results = run(rows, quick=options.quick, peers=options.peers)
    out: Path | None = options.out or (None if options.quick or options.only else _RESULTS_DIR)
    if out is not None:
        write(results, out, _BENCHMARKS_DIR / _PAGE_NAME if out.resolve() == _RESULTS_DIR else out / _PAGE_NAME)
    print(format_page(results, {}))
    if then is None:
        return 0
    found = list_changes(then, results)
    for change in found:
        print(change)
    return 1 if has_regression(found) else 0


def write(results: Results, folder: Path, sheet: Path) -> None:
    """results.json and the drawings, into a folder that is made where it is missing; the page, which links to them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(to_json(results), encoding="utf-8")
    links: dict[str, str] = {}
    for name, (title, drawn) in make_drawings(results).items():
        (folder / name).write_text(drawn, encoding="utf-8")
        links[title] = os.path.relpath(folder / name, sheet.parent)
    sheet.write_text(format_page(results, links), encoding="utf-8")


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="%(prog)s [options], or %(prog)s soak [options]",
        description="directsuite beside bare aiohttp and generated clients, in one run; `soak --help` for the soak.",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these rows, or groups such as growth")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute: small sizes, two rounds")
    parser.add_argument("--out", type=Path, help="folder for results.json, drawings and page (a full run's: results)")
    parser.add_argument("--compare", type=Path, metavar="EARLIER.json", help="1 where a figure became worse")
    parser.add_argument("--peers", type=Path, help="folder in which the generated clients are kept")
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    parser.add_argument("--profile", metavar="NAME", help="run this row of ours under cProfile instead")
    return parser
