"""The service in trouble: how long it is waited for, and whether the trouble is with one document alone."""

from __future__ import annotations

import enum

import attrs

from directsuite.core.clock import Clock
from directsuite.errors import DirectSuiteError, PermissionDeniedError, RateLimitedError
from directsuite.jobs.signing.blame import is_hopeless

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_SUSPECT = 8  # failures of the service with one document, while others come through
_DENIED = 4  # times that one may not be signed, though others were
_UNREAD = 4  # times that one can't be read, while others can


class Verdict(enum.Enum):
    """What becomes of a document that could not be brought to its end."""

    WAIT = enum.auto()
    """It is tried again."""
    FAIL = enum.auto()
    """It is its own failure."""
    STOP = enum.auto()
    """It would meet all others, too."""


@attrs.define(kw_only=True)
class Trouble:
    """What the documents of a run find. patience: seconds for which it may last. kind: an error's type meanwhile."""

    clock: Clock
    patience: float
    kind: str | None = None
    _since: float = attrs.field(default=0.0, init=False)

    def begin(self) -> Tries:
        """For another document."""
        return Tries(trouble=self)

    def left(self, error: Exception) -> float:
        """Seconds of patience that are left, where it may have begun with this."""
        now = self.clock.monotonic()
        if self.kind is None:
            self.kind, self._since = type(error).__name__, now
        return self.patience - (now - self._since)


@attrs.define(kw_only=True)
class Tries:
    """One document's, of which each may fail. signed: how often the service has signed in this run."""

    trouble: Trouble
    _pause: float = attrs.field(default=_FIRST_PAUSE, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _first: int | None = attrs.field(default=None, init=False)  # how often it had signed when it failed at first
    _last: int | None = attrs.field(default=None, init=False)  # and when it failed at last, of the failures that count
    _is_alone: bool = attrs.field(default=False, init=False)
    _denials: list[int] = attrs.field(factory=list[int], init=False)  # how often it had signed at each of them
    _unread: list[int] = attrs.field(factory=list[int], init=False)  # how many others had been read at each time

    def begin(self, signed: int) -> None:
        """Another try.

        Only what the service has signed since the last failure that counts tells of it as it is: an outage adds one
        failure at most, whatever was before it.
        """
        self._is_alone = self._last is None or signed > self._last

    def judge(self, error: DirectSuiteError, signed: int, *, others: bool) -> Verdict:
        """What becomes of it after this. others: whether other documents are under way, which may tell."""
        if isinstance(error, PermissionDeniedError) and signed:
            self._denials.append(signed)
            if len(self._denials) < _DENIED:
                return Verdict.WAIT
            return Verdict.STOP if others and signed == self._denials[-2] else Verdict.FAIL
        if is_hopeless(error):
            return Verdict.STOP
        if self.fail(error, signed):
            return Verdict.FAIL
        return Verdict.WAIT if self.why_over(error) is None else Verdict.STOP

    def why_stopped(self, error: DirectSuiteError) -> str:
        """Why the job can't go on, in words."""
        over = None if is_hopeless(error) else self.why_over(error)
        return over or error.explanation.rstrip(".")

    def is_unreadable(self, error: Exception, read: int) -> bool:
        """It can't be read now. Whether it is to be given up: others can be read, or patience is over."""
        self._unread.append(read)
        return self.trouble.left(error) < 0 or (len(self._unread) >= _UNREAD and read > self._unread[0])

    def fail(self, error: DirectSuiteError, signed: int) -> bool:
        """It failed so. Whether the document is to be given up: the service fails with it, and not with others."""
        if self._first is None:
            self._first = signed
        if isinstance(error, RateLimitedError):
            return False
        if self._is_alone:
            self._last = signed
            self._failures += 1
        if self._failures >= _SUSPECT:
            return True
        # At the end of a source no others are left to tell: those that came through since its first failure have.
        return self.trouble.left(error) < 0 and signed > self._first

    def why_over(self, error: DirectSuiteError) -> str | None:
        """Why there is no more waiting for the service, in words; None where there is."""
        left = self.trouble.left(error)
        if left < 0:
            return "the service is in trouble, and has been for too long"
        if error.retry_after is not None and error.retry_after > left:
            return f"the service wants to be left alone for {error.retry_after:.0f} s, longer than it is waited for"
        return None

    def pause(self, wanted: float | None = None) -> float:
        """Seconds until the next try: longer and longer, and as long as the service wants at least."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, 2 * self._pause)
        return max(pause, wanted or 0.0)

    def end(self, *, is_done: bool) -> None:
        """The document has come to its end, after which the service is well, if it was asked."""
        if is_done or self._first is not None:
            self.trouble.kind = None
