"""What was signed and what wasn't, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from directsuite.cli.output import show_json, show_table, show_text
from directsuite.cli.sign.admission import Verdict

_MOST = 200  # lines of a table that people read


@attrs.frozen(kw_only=True, repr=False)
class Report:
    """Of one command. failed, refused: names, and why they aren't signed. stopped: why it did not come to its end."""

    output: Path
    signed: int
    signed_before: int
    failed: Sequence[tuple[str, str]]
    refused: Sequence[tuple[str, str]]
    stopped: str | None

    def show(self) -> None:
        """For people."""
        counts = {
            "signed": self.signed,
            "signed before": self.signed_before,
            "failed": len(self.failed),
            "not signed": len(self.refused),
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "signed")
        show_text(f"{told}; into {self.output}")
        _show_rows(("file", "why it isn't signed"), [*self.failed, *self.refused])

    def show_json(self) -> None:
        """For programs."""
        show_json(
            {
                "output": str(self.output),
                "signed": self.signed,
                "signed_before": self.signed_before,
                "failed": [{"name": name, "problem": problem} for name, problem in self.failed],
                "refused": [{"name": name, "problem": problem} for name, problem in self.refused],
                "stopped": self.stopped,
            }
        )


def show_plan(verdicts: Sequence[Verdict], output: Path) -> None:
    """What would become of each file, for people."""
    _show_rows(
        ("file", "would be"),
        [(str(each.candidate.file), _would_be(each, output)) for each in verdicts],
    )


def show_plan_as_json(verdicts: Sequence[Verdict], output: Path) -> None:
    """The same for programs."""
    show_json(
        [
            {
                "source": str(each.candidate.file),
                "output": str(output / each.candidate.name),
                "would_be_signed": each.is_wanted,
                "signed_before": each.signed_before,
                "problem": each.refused or each.failed,
            }
            for each in verdicts
        ]
    )


def _would_be(verdict: Verdict, output: Path) -> str:
    if verdict.is_wanted:
        return f"signed into {output / verdict.candidate.name}"
    if verdict.refused is not None:
        return f"refused: {verdict.refused}"
    if verdict.failed is not None:
        return f"passed over: it failed before ({verdict.failed}); --again tries it again"
    return "passed over: it is signed" if verdict.signed_before else "passed over: it has not failed"


def _show_rows(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        show_table(titles, rows[:_MOST])
    if len(rows) > _MOST:
        show_text(f"and {len(rows) - _MOST} more, which --json has")
