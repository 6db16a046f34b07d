"""What is seen of a worker: a table on a terminal, and elsewhere lines of text or JSON, which name nobody."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live

from directsuite.cli.sync.table import Shown, table_of
from directsuite.core.events import Event
from directsuite.sync.progress import MailboxProgress, RoundFinished, Standing

_SUMMARY = 60.0  # seconds

_COUNTS = ("new", "moved", "restored", "gone", "set_aside")


class Display(Protocol):
    """Told by a worker how it goes. A context, for a terminal is to be left as it was found."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def round(self, event: Event) -> None:
        """A listener of the suite."""
        ...

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """How the mailboxes stand, about every second. now: Unix time."""
        ...

    def say(self, event: str, words: str) -> None:
        """Something happened to the worker itself."""
        ...


class Table:
    """A table that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def round(self, event: Event) -> None:
        """Nothing: the table shows it."""

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """Those that need somebody first, as many as there is room for."""
        rows = [Shown.of(each, now) for each in mailboxes.values()]
        self._live.update(table_of(rows, room=max(3, self._console.height - 6)), refresh=True)

    def say(self, event: str, words: str) -> None:
        """Above the table."""
        self._console.print(words, highlight=False, markup=False)


class Lines:
    """A line for each round that brought something or failed, and one a minute for all mailboxes."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._summarized_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def round(self, event: Event) -> None:
        """One line, unless nothing happened."""
        if not isinstance(event, RoundFinished):
            return
        counts = {name: count for name in _COUNTS if (count := getattr(event, name))}
        if not counts and event.problem is None:
            return
        changed = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        words = "; ".join(part for part in (changed, event.problem) if part)
        self._write("round", f"a mailbox: {words}", {**counts, "more": event.more, "problem": event.problem})

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """A summary, from time to time."""
        if self._summarized_at is not None and now - self._summarized_at < _SUMMARY:
            return
        first, self._summarized_at = self._summarized_at is None, now
        if first:
            return
        lags = [lag for each in mailboxes.values() if (lag := each.lag(now)) is not None]
        counts = Counter(each.standing for each in mailboxes.values())
        about = {str(standing).replace(" ", "_"): counts[standing] for standing in Standing}
        longest = round(max(lags, default=0.0), 1)
        self._write(
            "summary", f"{standings(mailboxes)}; longest lag {longest:.0f} s", {**about, "longest_lag": longest}
        )

    def say(self, event: str, words: str) -> None:
        """One line."""
        self._write(event, words, {"words": words})

    def _write(self, event: str, words: str, about: Mapping[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"at": at, "event": event, **about}) if self._as_json else f"{at} {words}"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def standings(mailboxes: Mapping[str, MailboxProgress]) -> str:
    """How many mailboxes stand how, in words."""
    counts = Counter(each.standing for each in mailboxes.values())
    return ", ".join(f"{counts[standing]} {standing}" for standing in Standing if counts[standing]) or "no mailboxes"


def display_for(*, as_json: bool) -> Display:
    """The display that fits where the output goes."""
    console = Console(highlight=False)
    return Table(console) if console.is_terminal and not as_json else Lines(as_json=as_json)
