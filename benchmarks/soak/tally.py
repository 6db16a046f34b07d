"""What calls and actions came to: counters only, so that counting takes no memory of its own."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from directsuite.core import events

if TYPE_CHECKING:
    import asyncio

_MAX_SHOWN = 5  # tracebacks and complaints that are kept whole


@attrs.define
class Tally:
    """Counters of calls by operation, of events, and of what the actions came to.

    complaints: of the event loop and of the interpreter, about what was forgotten or left open. shown: the first of
    these, and of untyped errors, whole.
    """

    calls: Counter[str] = attrs.Factory(Counter[str])
    actions: Counter[str] = attrs.Factory(Counter[str])
    endings: Counter[str] = attrs.Factory(Counter[str])
    attempts: int = 0
    retries: int = 0
    failed: int = 0
    left_unknown: int = 0
    cancelled: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    pauses: int = 0
    circuits_opened: int = 0
    suites: int = 0
    untyped: int = 0
    complaints: int = 0
    sent: int = 0
    doubled: int = 0
    lost: int = 0
    shown: list[str] = attrs.Factory(list[str])

    def __call__(self, event: events.Event) -> None:
        """Count an event: a suite's listener."""
        match event:
            case events.CallFinished():
                self.calls[event.operation] += 1
                self.failed += event.error is not None
                self.cancelled += event.cancelled
            case events.AttemptStarted():
                self.attempts += 1
            case events.RetryScheduled():
                self.retries += 1
            case events.OutcomeLeftUnknown():
                self.left_unknown += 1
            case events.Renewed():
                self.renewals += 1
            case events.RenewalFailed():
                self.renewals_failed += 1
            case events.ServicePaused():
                self.pauses += 1
            case events.CircuitOpened():
                self.circuits_opened += 1
            case _:
                pass

    def count_untyped(self, error: BaseException) -> None:
        """Count an error that is none of the client's types: there should be none."""
        self.untyped += 1
        self._show("".join(traceback.format_exception(error)))

    def count_complaint(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count what the event loop complains of: its exception handler."""
        self.complaints += 1
        error = context.get("exception")
        self._show(str(context.get("message")))
        if isinstance(error, BaseException):
            self._show("".join(traceback.format_exception(error)))

    def count_warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
    ) -> None:
        """Count a warning, such as of something left open: `warnings.showwarning`."""
        self.complaints += 1
        self._show(warnings.formatwarning(message, category, filename, lineno))

    def _show(self, text: str) -> None:
        if len(self.shown) < _MAX_SHOWN:
            self.shown.append(text)
