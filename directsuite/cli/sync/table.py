"""How mailboxes stand, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs
from rich.table import Table
from rich.text import Text

from directsuite.sync.changes import Kind
from directsuite.sync.progress import MailboxProgress, Standing

_STYLES = {
    Standing.FAILING: "bold red",
    Standing.BEHIND: "yellow",
    Standing.WAITING: "dim",
    Standing.IN_STEP: "green",
}
"""In the order in which they stand in the table: those that need somebody come first."""
_ORDER = list(_STYLES)


@attrs.frozen(kw_only=True, repr=False)
class Shown:
    """A row. lag, failing_for: seconds."""

    name: str
    standing: Standing
    lag: float | None
    new: int
    moved: int
    gone: int
    set_aside: int
    problem: str | None
    failing_for: float | None = None
    messages: int | None = None

    @classmethod
    def of(
        cls, progress: MailboxProgress, now: float, *, messages: int | None = None, aside: int | None = None
    ) -> Self:
        """What a worker says of a mailbox. messages, aside: as the store has them."""
        since = progress.failing_since
        return cls(
            name=progress.name,
            standing=progress.standing,
            lag=progress.lag(now),
            new=progress.changes[Kind.NEW],
            moved=progress.changes[Kind.MOVED] + progress.changes[Kind.RESTORED],
            gone=progress.changes[Kind.GONE],
            set_aside=progress.set_aside if aside is None else aside,
            problem=progress.problem,
            failing_for=None if since is None else max(0.0, now - since),
            messages=messages,
        )


def table_of(rows: Sequence[Shown], *, room: int | None = None) -> Table:
    """A table, of so many rows at the most; how many more there are stands below it."""
    ordered = sorted(rows, key=lambda each: _ORDER.index(each.standing))
    shown = ordered[:room]
    with_messages = any(each.messages is not None for each in rows)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("mailbox", "standing"):
        table.add_column(title, overflow="fold")
    counted = ("lag", *(["messages"] if with_messages else []), "new", "moved", "gone", "set aside")
    for title in counted:
        table.add_column(title, justify="right")
    table.add_column("problem", overflow="fold", ratio=1)
    for each in shown:
        counts = [each.new, each.moved, each.gone, each.set_aside]
        if with_messages:
            counts.insert(0, each.messages or 0)
        table.add_row(
            Text(each.name),
            Text(str(each.standing), style=_STYLES[each.standing]),
            duration(each.lag),
            *(str(count or "") for count in counts),
            Text(_problem(each)),
        )
    if len(shown) < len(rows):
        table.add_row(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    return table


def duration(seconds: float | None) -> str:
    """A span of time for people."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def mailboxes_in_words(count: int) -> str:
    """So many mailboxes."""
    return f"{count} mailbox" if count == 1 else f"{count} mailboxes"


def _problem(row: Shown) -> str:
    if row.problem is None:
        return ""
    return row.problem if row.failing_for is None else f"{row.problem} (for {duration(row.failing_for)})"
