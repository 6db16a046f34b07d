"""What a job asks of its journal, wherever that is kept."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import msgspec

from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.jobs.signing.entry import Entry, State
from directsuite.signing.models import Signature

ANOTHER_JOBS = "this journal is of a job with other signatures: give this one a journal of its own, or sign as before"


class JournalError(DirectSuiteError):
    """The journal could not be read or written. What was to be written is not."""


@attrs.frozen(kw_only=True)
class Tally:
    """A job in numbers. abandoned: stored documents; asked: how many of those may have been signed, in vain."""

    states: Mapping[State, int]
    abandoned: int
    asked: int


class Keeping(Protocol):
    """Knows how far each document is. Each method raises JournalError, and has written when it returns."""

    @property
    def turn(self) -> int:
        """Which turn of its documents this is: a later one takes away what an earlier one had in the making."""
        ...

    async def part(self) -> str:
        """The part of a target's workshop that is this job's, or this chunk's: no other journal gives the same."""
        ...

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""
        ...

    async def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entry of each of these documents."""
        ...

    async def known(self, names: Sequence[str]) -> Mapping[str, Entry]:
        """The entries of those of these documents that have one."""
        ...

    async def put(self, entry: Entry) -> Entry:
        """Write how far a document is; the entry itself, for whoever goes on with it."""
        ...

    async def abandon(self, entry: Entry, *, at: float, then: State = State.NEW, problem: str | None = None) -> Entry:
        """Have nothing to do any more with what is stored for a document. at: Unix time."""
        ...

    async def abandoned(self, *, after: str = "", most: int | None = None) -> Sequence[str]:
        """Identifiers of stored documents that are to be deleted, in their order: so many at most, after this one."""
        ...

    async def forget(self, identifiers: Iterable[str]) -> None:
        """These stored documents are deleted, or have expired."""
        ...

    async def forget_before(self, at: float) -> None:
        """What was abandoned before this, in Unix time, by others of the job too, has expired."""
        ...


_IN_USE = weakref.WeakSet[Keeping]()


@contextlib.contextmanager
def alone(journal: Keeping) -> Generator[None]:
    """Keep other runs from a journal: each would take what the other has under way for left by an earlier one.

    Raises ConfigurationError where one goes on with it.
    """
    if journal in _IN_USE:
        raise ConfigurationError("another run goes on with this journal: wait for its end, or give this one its own")
    _IN_USE.add(journal)
    try:
        yield
    finally:
        _IN_USE.discard(journal)


def digest_of(signatures: Sequence[Signature]) -> str:
    """What a journal knows a job by: SHA-256, in hex, of what it signs with."""
    given = [attrs.asdict(each, filter=lambda _, value: value is not None) for each in signatures]
    return hashlib.sha256(msgspec.msgpack.encode(given, order="sorted")).hexdigest()


def left(entry: Entry, then: State, problem: str | None) -> Entry:
    """An entry whose stored document is abandoned."""
    tries = entry.tries + (then is State.NEW)
    output = entry.output_sha if then is State.DONE else None
    problem = entry.problem if then is State.NEW else problem
    return attrs.evolve(
        entry, state=then, identifier=None, saved_at=None, tries=tries, problem=problem, output_sha=output
    )
