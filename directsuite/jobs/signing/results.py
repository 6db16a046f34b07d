"""The results of documents, which a job passes to a loop that reads them."""

from __future__ import annotations

import asyncio
from collections import deque

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.jobs.signing.documents import Target
from directsuite.jobs.signing.workflow import DocumentProblem, DocumentState, SigningEntry


@scrub_class
@attrs.frozen(kw_only=True, repr=False)
class SigningResult:
    """The result of a document that was signed or failed."""

    number: int
    """The number of the document in the journal: `document` in log lines, `number` of its SigningEntry."""
    name: str
    group: int | None = None
    """The number that its calls have as `group` in logs, events and errors. None if no call was made."""
    state: DocumentState
    """DONE if the target has the signed PDF, otherwise FAILED."""
    reason: DocumentProblem | str | None = None
    """Why the document failed, as in SigningEntry: a problem, or another text. None if it was signed."""
    problem: str | None
    """The text of `reason`; None if there is none."""
    service_message: str | None
    """The service's reason to reject the document. It may name patients: do not log it unread."""
    target: str | None
    """The signed PDF: a path in a `TargetFolder`, a URL in a `StorageTarget`.

    None if the document failed, or if a custom target has no attribute `place`, a URL that ends with a slash.
    """

    def __repr__(self) -> str:
        return f"SigningResult(number={self.number}, state={self.state.name}, group={self.group})"


def make_result(entry: SigningEntry, target: Target, group: int | None) -> SigningResult:
    """Return the result of a document that is DONE or FAILED. group: the group of its calls, if there were any."""
    place: str | None = getattr(target, "place", None)
    has_output = place is not None and entry.state is DocumentState.DONE
    return SigningResult(
        number=entry.number,
        name=entry.name,
        group=group,
        state=entry.state,
        reason=entry.reason,
        problem=entry.problem,
        service_message=entry.service_message,
        target=f"{place}{entry.name}".removeprefix("file://") if has_output else None,
    )


class ResultStream:
    """Passes results from the workers of a job to one loop."""

    def __init__(self) -> None:
        self._results = deque[tuple[SigningResult, asyncio.Event]]()  # the event is set when the loop has the result
        self._has_news = asyncio.Event()
        self._is_ended = False

    async def put(self, result: SigningResult) -> None:
        """Add a result, and wait until the loop has received it, or has ended."""
        if not self._is_ended:
            is_received = asyncio.Event()
            self._results.append((result, is_received))
            self._has_news.set()
            await is_received.wait()

    async def next(self) -> SigningResult | None:
        """Return the next result, or None at the end."""
        while not self._results and not self._is_ended:
            self._has_news.clear()
            await self._has_news.wait()
        if not self._results:
            return None
        result, is_received = self._results.popleft()
        is_received.set()
        return result

    def end(self) -> None:
        """Let `put` return, and let the loop end after the results that were added."""
        self._is_ended = True
        self._has_news.set()
        for _, is_received in self._results:
            is_received.set()
