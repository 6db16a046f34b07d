"""What the journal knows of one document.

NEW ──► SAVED ──► SIGNING ──► SIGNED ──► DONE
 ▲        │          │                    FAILED: it is listed, and tried again when that is asked for
 └────────┴──────────┘ the stored document is abandoned: it expires, or shows no signature that is ours
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import attrs


class State(enum.IntEnum):
    """How far a document is. The numbers stand in journals."""

    NEW = 1
    """Nothing is stored for it."""
    SAVED = 2
    """The service has it, and was not asked to sign it."""
    SIGNING = 3
    """The service may have been asked to sign it, and may have done so."""
    SIGNED = 4
    """The target has it."""
    DONE = 5
    """And the service has it no more."""
    FAILED = 6
    """The service, or the target, refuses it."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more is to be done by itself."""
        return self in (State.DONE, State.FAILED)


@attrs.frozen(kw_only=True, repr=False)
class Entry:
    """One document of a job. name: unique in the job.

    identifier, saved_at: of the stored document, and when it was stored, in Unix time. source_sha, output_sha: SHA-256
    of what was read and what was written. tries: stored documents that were abandoned for it. problem: why it failed,
    until it is done.
    """

    number: int
    name: str
    state: State = State.NEW
    identifier: str | None = None
    saved_at: float | None = None
    source_sha: str | None = None
    output_sha: str | None = None
    tries: int = 0
    problem: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it failed, and has not been signed since; another try may have begun."""
        return self.state is State.FAILED or (self.problem is not None and self.state < State.SIGNED)

    def renewed(self) -> Entry:
        """As it was before it failed: whatever is in its place then is signed."""
        return Entry(number=self.number, name=self.name, problem=self.problem)

    def __repr__(self) -> str:
        return f"Entry(number={self.number}, state={self.state.name})"


def entry_of(values: Sequence[Any]) -> Entry:
    """The entry of a row, its values in their order. A name stands there as bytes."""
    number, name, state, *rest = values
    identifier, saved_at, source_sha, output_sha, tries, problem = rest
    return Entry(
        number=number,
        name=bytes(name).decode("utf-8", "surrogatepass"),
        state=State(state),
        identifier=identifier,
        saved_at=saved_at,
        source_sha=source_sha,
        output_sha=output_sha,
        tries=tries,
        problem=problem,
    )
