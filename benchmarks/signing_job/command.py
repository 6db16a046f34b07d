"""`python -m benchmarks signing-job`: every work in a process of its own, and the page of what they gave."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.measuring.machine import describe_machine, run_for_figures
from benchmarks.measuring.spread import compute_ratios, compute_spread
from benchmarks.server import run_server
from benchmarks.signing_job.works import CONCURRENCY, DOCUMENT_BYTES, DOCUMENT_COUNT, LATENCY_SECONDS, make_documents

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 9
_KILLED_DOCUMENTS, _KILL_AFTER_SECONDS = 2_000, (2.0, 6.0)
_JSON, _PAGE = "signing-job.json", "signing-job.md"

WorkFigures = dict[str, Any]


def run_signing_job(names: Sequence[str], out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure those of these names, or all, and write signing-job.json and signing-job.md; the exit status.

    `page` only writes the page anew.
    """
    if unknown := [name for name in names if name not in (*_PARTS, "page")]:
        print(f"There is no {unknown[0]}: name some of {', '.join(_PARTS)}.", file=sys.stderr)
        return 2
    kept = out / _JSON
    found: WorkFigures = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    for name in () if "page" in names else names or _PARTS:
        found[name] = {**_PARTS[name](), "machine": describe_machine()}
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = "\n".join(["# The signing job", "", *(_TEXTS[name](found[name]) for name in _PARTS if name in found)])
    (out / _PAGE).write_text(page, encoding="utf-8")
    print(page)
    return 0


def _run(name: str, url: str, folder: Path) -> dict[str, float]:
    return run_for_figures("benchmarks.signing_job.works", name, url, str(folder))


def _measure_rate() -> WorkFigures:
    names = ("job", "floor", "bare", "job_waiting", "floor_waiting", "bare_waiting")
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with run_server() as url, tempfile.TemporaryDirectory() as top:
        (Path(top) / "in").mkdir()
        make_documents(Path(top) / "in")
        for number in range(_ROUNDS):
            for name in names if number % 2 else reversed(names):
                with tempfile.TemporaryDirectory(dir=top) as folder:
                    rounds[name].append(_run(name, url, Path(folder)))
    return {"rounds": rounds}


def _measure_killed() -> WorkFigures:
    from tests.jobs.signing.killing.experiment import sign_despite_kills

    with tempfile.TemporaryDirectory() as folder:
        return attrs.asdict(asyncio.run(sign_despite_kills(_KILLED_DOCUMENTS, _KILL_AFTER_SECONDS, Path(folder))))


def _format_rate(found: WorkFigures) -> str:
    rounds, lines = found["rounds"], list[str]()
    for title, suffix in (("at once", ""), (f"after {LATENCY_SECONDS * 1000:.0f} ms", "_waiting")):
        for name in ("documents a second", "CPU of a document, ms", "peak memory above the start, MB"):
            job, floor, bare = ([each[name] for each in rounds[f"{who}{suffix}"]] for who in ("job", "floor", "bare"))
            found_of = " | ".join(f"{compute_spread(each).median:.1f}" for each in (job, floor, bare))
            lines.append(
                f"| {title} | {name} | {found_of} | {_format_ratio(job, floor)} | {_format_ratio(job, bare)} |"
            )
    table = "\n".join(lines)
    return f"""## Documents a second

`python -m benchmarks signing-job rate`, against the server of canned answers on the same machine: {DOCUMENT_COUNT}
documents of {DOCUMENT_BYTES // 1000} KB from a folder, {CONCURRENCY} at a time, each saved, signed and pulled, and
deleted. The job notes each step in its journal before the next begins, digests source and output, counts their
signatures, and has each output on the disk before it counts as signed. Bare aiohttp reads, makes the three calls, and
writes; it knows nothing after a crash. The floor is bare aiohttp that does know: both digests, a commit of SQLite after
each step, and each output on the disk, by the plainest code.
By turns, {len(rounds["job"])} times; medians, and of the ratios within a round the quartiles, too. A service that
signs at once leaves nothing but the price of all that, on the one core that the client has; one that needs its time, as
a key in an HSM does, hides a part of it. A client may make 100 requests a second, which are 33 documents.

| signed | | job | floor | bare aiohttp | job / floor | job / bare |
|---|---|---|---|---|---|---|
{table}

{_format_machine(found)}"""


def _format_ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    ratio = compute_spread(compute_ratios(ours, theirs))
    return f"{ratio.median:.2f} [{ratio.low:.2f}-{ratio.high:.2f}] x"


def _format_killed(found: WorkFigures) -> str:
    documents, abandoned = found["documents"], found["abandoned"]
    (low, high) = _KILL_AFTER_SECONDS
    signatures = ", ".join(f"{count:,} with {number}" for number, count in found["signatures"].items())
    asked = ", ".join(f"{count:,} asked {number} time" for number, count in found["asked"].items())
    states = ", ".join(f"{count:,} {_name_state(number)}" for number, count in found["states"].items())
    return f"""## Killed

`python -m benchmarks signing-job killed`: {documents:,} documents with two signatures each, signed by the sandbox; the
job's process gets SIGKILL after {low:.0f} to {high:.0f} seconds, and another one goes on, until one comes to its end.

| | |
|---|---|
| kills | {found["kills"]} |
| seconds | {found["seconds"]:.0f} |
| documents in the journal | {states} |
| outputs | {found["outputs"]:,} |
| outputs with the digest that the journal has | {found["as_noted"]:,} |
| valid signatures in an output, by pdfsig (two asked for) | {signatures} |
| outputs with a signature that pdfsig finds invalid | {found["invalid"]} |
| stored documents that the service was asked to sign | {asked} |
| stored documents that were abandoned, by the journal | {abandoned} |
| of these, perhaps signed | {found["perhaps_signed"]} |
| stored, of which a kill left the journal nothing: unsigned, they expire | {found["saved"] - documents - abandoned} |

{_format_machine(found)}"""


def _name_state(number: str) -> str:
    from directsuite.jobs.signing import DocumentState

    return DocumentState(int(number)).name


def _format_machine(found: WorkFigures) -> str:
    about = "\n".join(f"| {name} | {value} |" for name, value in found["machine"].items())
    return f"<details><summary>Measured on</summary>\n\n| | |\n|---|---|\n{about}\n\n</details>\n"


_PARTS = {"rate": _measure_rate, "killed": _measure_killed}
_TEXTS = {"rate": _format_rate, "killed": _format_killed}
