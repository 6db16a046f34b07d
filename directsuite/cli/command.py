"""A command from its beginning to its exit status, whatever ends it.

Command(resume=…).run(begin)
    begin()        reads options, settings and secrets; may ask on the terminal; gives a coroutine
    the coroutine  runs until it gives an exit status, or until Ctrl-C or SIGTERM cancels it
    an error       becomes a sentence on stderr and an exit status
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any

import attrs

from directsuite.cli import process
from directsuite.cli.credentials import is_interactive
from directsuite.cli.errors import Advice, ItemNotFoundError, UsageError, exit_for_error
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.core.events import (
    AttemptFailed,
    AttemptSucceeded,
    Event,
    Listener,
    OutcomeLeftUnknown,
    RetryScheduled,
)
from directsuite.errors import DirectSuiteError
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.suite import DirectSuite

_SILENT_FAILURE_SECONDS = 5.0  # seconds of failing that somebody at a terminal waits for without a word


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came, which ends a command as Ctrl-C does."""


@attrs.define(kw_only=True)
class Command:
    """One run of a command."""

    resume_hint: str = process.NOTHING_CHANGED
    """How to go on after Ctrl-C."""
    recovery_hint: str = ""
    """How to find out, with commands, what became of a change whose answer was lost."""
    unknown_status: process.ExitStatus = process.ExitStatus.UNKNOWN
    """How the command ends where a change's answer was lost."""
    option_names: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The option of each parameter that an InvalidArgumentError may name."""
    advice: Advice = attrs.field(factory=dict[type[BaseException] | int | str, str])
    """What to do about an error, where the command knows better than the table of all."""
    _is_outcome_unknown: bool = attrs.field(default=False, init=False)
    _failing_seconds: dict[int, float] = attrs.field(factory=dict[int, float], init=False)
    """Seconds of failed attempts and of the waits after them, by the number of the call."""
    _is_delay_reported: bool = attrs.field(default=False, init=False)

    def run(self, begin: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run the coroutine that `begin` gives, and return the exit status when all has been said."""
        process.has_begun = True
        try:
            work = begin()
            with contextlib.closing(work), contextlib.closing(_run_until_sigterm(work)) as main:
                return int(asyncio.run(main))  # which Ctrl-C may keep from beginning either
        except KeyboardInterrupt as signalled:
            unknown = (
                f"what was being sent may or may not have arrived: {self.recovery_hint}"
                if self._is_outcome_unknown
                else ""
            )
            process.end_line()
            echo_err(f"stopped; {unknown or self.resume_hint}")
            return ExitStatus.TERMINATED if isinstance(signalled, TerminatedError) else ExitStatus.INTERRUPTED
        except BrokenPipeError:
            raise
        except (UsageError, ItemNotFoundError, DirectSuiteError, OSError) as error:
            status, sentence = exit_for_error(
                error, option_names=self.option_names, recovery_hint=self.recovery_hint, advice=self.advice
            )
            echo_err(sentence)
            return self.unknown_status if status is process.ExitStatus.UNKNOWN else status

    def make_suite(
        self,
        settings: Settings,
        *,
        token: Secret | None = None,
        login: Login | None = None,
        listeners: Sequence[Listener] = (),
    ) -> DirectSuite:
        """The suite that this command works with."""
        listeners = [self._handle_event, *make_request_listeners(), *listeners]
        return DirectSuite(settings, token=token, login=login, listeners=listeners)

    def _handle_event(self, event: Event) -> None:
        self._is_outcome_unknown = self._is_outcome_unknown or isinstance(event, OutcomeLeftUnknown)
        if isinstance(event, AttemptFailed | RetryScheduled):
            seconds = event.elapsed if isinstance(event, AttemptFailed) else event.wait
            self._failing_seconds[event.call] = seconds = self._failing_seconds.get(event.call, 0.0) + seconds
            if isinstance(event, RetryScheduled) and seconds >= _SILENT_FAILURE_SECONDS:
                self._report_delay(event)

    def _report_delay(self, event: RetryScheduled) -> None:
        """Say once, to somebody at a terminal, why the command takes so long."""
        if not self._is_delay_reported and process.is_verbose():
            self._is_delay_reported = True
            echo_err(f"{event.operation}: the service gives no usable answer; it is tried again in {event.wait:.0f} s")


def make_request_listeners() -> list[Listener]:
    """A listener that reports each request on stderr, where --verbose was given twice."""
    return [_report_request] if process.get_verbosity() > 1 else []


def _report_request(event: Event) -> None:
    if isinstance(event, AttemptSucceeded | AttemptFailed):
        result = _NO_RESPONSE_TEXTS.get(event.error, "failed") if event.status is None else f"HTTP {event.status}"
        echo_err(f"{event.operation}: {result}, {event.elapsed * 1000:.0f} ms")


_NO_RESPONSE_TEXTS = {
    "CancelledError": "stopped",
    "CircuitOpenError": "not sent, the service is down",
    "ConnectFailedError": "no connection",
    "ConnectionLostError": "the connection was lost",
    "DeadlineExceededError": "no answer in time",
    "AuthenticationError": "not sent, the login was refused",
}
"""What -vv says of an attempt that got no HTTP status, by the name of the error's class."""


def confirm(question: str, *, no_terminal_message: str, declined_message: str) -> None:
    """Raise RefusedError unless somebody says yes. unasked: its text where nobody can be asked. declined: else."""
    _ask_question(question, no_terminal_message)
    _require_yes(declined_message)


async def confirm_in_coroutine(question: str, *, no_terminal_message: str, declined_message: str) -> None:
    """Do as `confirm` does within a coroutine, which Ctrl-C and SIGTERM end while nobody answers."""
    _ask_question(question, no_terminal_message)
    loop, is_typed = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), is_typed.set)
    except (NotImplementedError, OSError, ValueError):  # Windows, and what only looks like a terminal
        is_typed.set()
    else:
        try:
            await is_typed.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
    _require_yes(declined_message)


def _ask_question(question: str, no_terminal_message: str) -> None:
    if not is_interactive():
        raise UsageError(no_terminal_message)
    sys.stderr.write(f"{process.make_printable(question)} [y/N] ")
    sys.stderr.flush()


def _require_yes(declined_message: str) -> None:
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(declined_message)


@contextlib.contextmanager
def handle_signals(handler: Callable[[int], None], signals: Iterable[int]) -> Generator[None]:
    """Have each of these signals call `came` with its number in the event loop, and do nothing else.

    Windows has no such signals, nor do threads other than the main one: there each does what it does by itself.
    """
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in signals:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, handler, number)
                stack.callback(loop.remove_signal_handler, number)
        yield


async def _run_until_sigterm(coroutine: Coroutine[Any, Any, int]) -> int:
    """Await `work`, which SIGTERM cancels; Ctrl-C does by asyncio.run's own doing, and a second one doesn't wait."""
    task, is_terminated = asyncio.ensure_future(coroutine), False

    def terminate(_: int) -> None:
        nonlocal is_terminated
        is_terminated = True
        task.cancel()

    with handle_signals(terminate, [signal.SIGTERM]):
        try:
            return await task
        except asyncio.CancelledError:
            if is_terminated:
                raise TerminatedError from None
            raise
