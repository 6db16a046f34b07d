"""The service in trouble: how long it is waited for, and whether the trouble is with one document alone."""

from __future__ import annotations

import attrs

from directsuite.core.clock import Clock
from directsuite.errors import DirectSuiteError, PermissionDeniedError, RateLimitedError

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_SUSPECT = 8  # failures of the service with one document, while others come through
_DENIED = 3  # times that one may not be signed, while others are; or that nothing is signed in between


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

    def left(self, error: DirectSuiteError) -> float:
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
    _alike: int = attrs.field(default=0, init=False)  # failures between which the service has signed nothing

    def begin(self, signed: int) -> None:
        """Another try.

        Only what the service has signed since the last failure that counts tells of it as it is: an outage adds one
        failure at most, whatever was before it.
        """
        self._is_alone = self._last is None or signed > self._last

    def may_be_its_own(self, error: DirectSuiteError, signed: int) -> bool:
        """Whether what denies this document lets others through: in this run, and of late."""
        return isinstance(error, PermissionDeniedError) and signed > 0 and self._alike < _DENIED

    def fail(self, error: DirectSuiteError, signed: int) -> bool:
        """It failed so. Whether the document is to be given up: the service fails with it, and not with others."""
        if self._first is None:
            self._first = signed
        if isinstance(error, RateLimitedError):
            return False
        self._alike = 0 if self._is_alone else self._alike + 1
        if self._is_alone:
            self._last = signed
            self._failures += 1
        if self._failures >= (_DENIED if isinstance(error, PermissionDeniedError) else _SUSPECT):
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

    def pause(self, error: DirectSuiteError) -> float:
        """Seconds until the next try: longer and longer, and as long as the service wants at least."""
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, 2 * self._pause)
        return max(pause, error.retry_after or 0.0)

    def end(self, *, is_done: bool) -> None:
        """The document has come to its end, after which the service is well, if it was asked."""
        if is_done or self._first is not None:
            self.trouble.kind = None
