"""Run one storm of 10,000 calls and write the results as a table: `python -m tests.chaos.storm_table`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from pathlib import Path

from directsuite.core.events import AttemptFailed, AttemptStarted, CallStarted, SessionRenewed, TokenRefreshed

from .matrix_time import LeapingLoop
from .storm_actions import CALLERS, RETURNED, Storm, run_calls
from .storm_context import open_context
from .storm_evidence import (
    NON_IDEMPOTENT_OPERATIONS,
    Effects,
    find_false_reports,
    find_lost_or_duplicate_messages,
    find_untyped_errors,
    group_effects,
)

RESULTS = Path("benchmarks/results/storm.md")
_CALLS, _SEED = 10_000, 2


async def _run_storm(calls: int, seed: int) -> tuple[str, int]:
    async with open_context() as context:
        storm = Storm(context, seed)
        await run_calls(storm, calls, seed)
        rules = context.sandbox.faults()
        context.sandbox.clear_faults()
        effects = await group_effects(context)
        wrong = [*find_untyped_errors(storm.claims), *storm.wrong, *find_false_reports(storm.claims, effects)]
        wrong += await find_lost_or_duplicate_messages(context, storm.claims)
    return _format_page(storm, effects, sum(int(rule["applied"]) for rule in rules), wrong), len(wrong)


def _format_page(storm: Storm, effects: Effects, faults: int, wrong: list[str]) -> str:
    heard = storm.context.events
    reported = Counter(
        (claim.operation, RETURNED if claim.error is None else type(claim.error).__name__) for claim in storm.claims
    )
    doubled = Counter(
        operation
        for (operation, _), found in effects.items()
        if operation in NON_IDEMPOTENT_OPERATIONS and len(found) > 1
    )
    columns = [
        RETURNED,
        "OutcomeUnknownError",
        *sorted({name for _, name in reported} - {RETURNED, "OutcomeUnknownError"}),
    ]
    lines = [f"| operation | {' | '.join(columns)} | duplicates |", "|---" + "|---:" * (len(columns) + 1) + "|"]
    for operation in sorted({operation for operation, _ in reported}):
        figures = [*(reported[operation, name] for name in columns), doubled[operation]]
        lines.append(f"| {operation} | {' | '.join(map(str, figures))} |")
    return f"""# Concurrent calls under random faults

Written by `python -m tests.chaos.storm_table`: {heard.count(CallStarted):,} calls of all four services, {CALLERS} at
a time, with {heard.count(AttemptStarted):,} requests. The sandbox applied a fault to {faults:,} of them, and
{heard.count(AttemptFailed):,} attempts failed. {heard.count(TokenRefreshed)} tokens and
{heard.count(SessionRenewed)} sessions expired, and each was renewed once. After the run, the results of all calls were
compared with the sandbox's ledger and mailboxes: {len(wrong)} did not agree.

{chr(10).join(lines)}
"""


def main() -> int:
    """Run the storm and write the page. Return 0 if nothing was wrong, else 1."""
    logging.getLogger("directsuite").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        page, wrong = runner.run(_run_storm(_CALLS, _SEED))
    RESULTS.write_text(page, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
