"""The journal beside an output: what stands in it, and of which signatures it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from directsuite.cli.errors import RefusedError, in_own_words
from directsuite.core.failures import reason_of
from directsuite.jobs.signing import Entry, Journal, JournalError, State
from directsuite.jobs.signing.keeping import digest_of
from directsuite.signing.models import Signature

_OTHER_SIGNATURES = (
    "--output has PDFs that were signed in another way (--name, --widget, --image and so on): "
    "name another --output, or sign as before"
)


class JournalOfRun(Journal):
    """A journal that knows what has failed since it was opened, by the names: a source may be gone by then."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failed = set[str]()

    async def abandon(self, entry: Entry, *, at: float, then: State = State.NEW, problem: str | None = None) -> Entry:
        """As a journal, and note what fails."""
        if then is State.FAILED:
            self.failed.add(entry.name)
        return await super().abandon(entry, at=at, then=then, problem=problem)


def journal_of(output: Path) -> Path:
    """Beside the output, a path without links, so that the same command finds it."""
    return output.with_name(f"{output.name}.signing.db")


def is_there(path: Path) -> bool:
    """Whether there is a journal. Raises RefusedError where that can't be."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        why = reason_of(error)
        raise RefusedError(
            f"the journal beside --output, OUTPUT.signing.db, can't be made ({why}): name another --output"
        ) from None
    return True


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[JournalOfRun]:
    """A journal. Raises RefusedError where it can't be opened."""
    async with AsyncExitStack() as stack:
        try:
            journal = await stack.enter_async_context(JournalOfRun(path))
        except JournalError as error:
            said = in_own_words(error.explanation.rstrip("."))
            said = said.replace("give the journal another path", "name another --output")
            raise RefusedError(f"the journal beside --output, OUTPUT.signing.db, can't be opened. {said}") from None
        yield journal


async def is_vain(path: Path, signatures: Sequence[Signature]) -> bool:
    """Whether a journal is of other signatures, with which nothing was signed.

    It is for nobody then: who finds that --widget was wrong corrects it. Raises RefusedError where something was
    signed, or is under way.
    """
    if not await asyncio.to_thread(is_there, path):
        return False
    async with opened(path) as journal:
        if await journal.claimed() in (None, digest_of(signatures)):
            return False
        states = (await journal.tally()).states
    if any(count for state, count in states.items() if state not in (State.NEW, State.FAILED)):
        raise RefusedError(_OTHER_SIGNATURES)
    return True


def remove(journal: Path) -> None:
    """With the files that SQLite keeps beside it."""
    for end in ("", "-wal", "-shm"):
        journal.with_name(f"{journal.name}{end}").unlink(missing_ok=True)
