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
from directsuite.cli.credentials import is_somebody_there
from directsuite.cli.errors import Advice, NotThereError, RefusedError, ending_of
from directsuite.cli.process import ExitStatus, say
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

_SILENT = 5.0  # seconds of failing that somebody at a terminal waits for without a word


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came, which ends a command as Ctrl-C does."""


@attrs.define(kw_only=True)
class Command:
    """One run of a command."""

    resume: str = process.NOTHING_CHANGED
    """How to go on after Ctrl-C."""
    find_out: str = ""
    """How to find out, with commands, what became of a change whose answer was lost."""
    unknown: process.ExitStatus = process.ExitStatus.UNKNOWN
    """How the command ends where a change's answer was lost."""
    options: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The option of each parameter that an InvalidArgumentError may name."""
    advice: Advice = attrs.field(factory=dict[type[BaseException] | int | str, str])
    """What to do about an error, where the command knows better than the table of all."""
    _is_unknown: bool = attrs.field(default=False, init=False)
    _unanswered: dict[int, float] = attrs.field(factory=dict[int, float], init=False)
    """Seconds of failed attempts and of the waits after them, by the number of the call."""
    _is_trouble_told: bool = attrs.field(default=False, init=False)

    def run(self, begin: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run the coroutine that `begin` gives, and return the exit status when all has been said."""
        process.has_begun = True
        try:
            work = begin()
            with contextlib.closing(work), contextlib.closing(_cancelled_by_sigterm(work)) as main:
                return int(asyncio.run(main))  # which Ctrl-C may keep from beginning either
        except KeyboardInterrupt as signalled:
            unknown = f"what was being sent may or may not have arrived: {self.find_out}" if self._is_unknown else ""
            process.end_line()
            say(f"stopped; {unknown or self.resume}")
            return ExitStatus.TERMINATED if isinstance(signalled, TerminatedError) else ExitStatus.INTERRUPTED
        except BrokenPipeError:
            raise
        except (RefusedError, NotThereError, DirectSuiteError, OSError) as error:
            status, sentence = ending_of(error, options=self.options, find_out=self.find_out, advice=self.advice)
            say(sentence)
            return self.unknown if status is process.ExitStatus.UNKNOWN else status

    def suite(
        self,
        settings: Settings,
        *,
        token: Secret | None = None,
        login: Login | None = None,
        listeners: Sequence[Listener] = (),
    ) -> DirectSuite:
        """The suite that this command works with."""
        listeners = [self._listen, *request_listeners(), *listeners]
        return DirectSuite(settings, token=token, login=login, listeners=listeners)

    def _listen(self, event: Event) -> None:
        self._is_unknown = self._is_unknown or isinstance(event, OutcomeLeftUnknown)
        if isinstance(event, AttemptFailed | RetryScheduled):
            seconds = event.elapsed if isinstance(event, AttemptFailed) else event.wait
            self._unanswered[event.call] = seconds = self._unanswered.get(event.call, 0.0) + seconds
            if isinstance(event, RetryScheduled) and seconds >= _SILENT:
                self._tell_of_trouble(event)

    def _tell_of_trouble(self, event: RetryScheduled) -> None:
        """Say once, to somebody at a terminal, why the command takes so long."""
        if not self._is_trouble_told and process.shows_details():
            self._is_trouble_told = True
            say(f"{event.operation}: the service gives no usable answer; it is tried again in {event.wait:.0f} s")


def request_listeners() -> list[Listener]:
    """A listener that reports each request on stderr, where --verbose was given twice."""
    return [_report] if process.verbosity() > 1 else []


def _report(event: Event) -> None:
    if isinstance(event, AttemptSucceeded | AttemptFailed):
        result = _WITHOUT_ANSWER.get(event.error, "failed") if event.status is None else f"HTTP {event.status}"
        say(f"{event.operation}: {result}, {event.elapsed * 1000:.0f} ms")


_WITHOUT_ANSWER = {
    "CancelledError": "stopped",
    "CircuitOpenError": "not sent, the service is down",
    "ConnectFailedError": "no connection",
    "ConnectionLostError": "the connection was lost",
    "DeadlineExceededError": "no answer in time",
    "AuthenticationError": "not sent, the login was refused",
}
"""What -vv says of an attempt that got no HTTP status, by the name of the error's class."""


def confirm(question: str, *, unasked: str, declined: str) -> None:
    """Raise RefusedError unless somebody says yes. unasked: its text where nobody can be asked. declined: else."""
    _ask(question, unasked)
    _refuse_unless_yes(declined)


async def confirm_while_running(question: str, *, unasked: str, declined: str) -> None:
    """Do as `confirm` does within a coroutine, which Ctrl-C and SIGTERM end while nobody answers."""
    _ask(question, unasked)
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
    _refuse_unless_yes(declined)


def _ask(question: str, unasked: str) -> None:
    if not is_somebody_there():
        raise RefusedError(unasked)
    sys.stderr.write(f"{process.printable(question)} [y/N] ")
    sys.stderr.flush()


def _refuse_unless_yes(declined: str) -> None:
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError(declined)


@contextlib.contextmanager
def signals_call(came: Callable[[int], None], signals: Iterable[int]) -> Generator[None]:
    """Have each of these signals call `came` with its number in the event loop, and do nothing else.

    Windows has no such signals, nor do threads other than the main one: there each does what it does by itself.
    """
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in signals:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, came, number)
                stack.callback(loop.remove_signal_handler, number)
        yield


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, int]) -> int:
    """Await `work`, which SIGTERM cancels; Ctrl-C does by asyncio.run's own doing, and a second one doesn't wait."""
    task, came = asyncio.ensure_future(work), False

    def terminate(_: int) -> None:
        nonlocal came
        came = True
        task.cancel()

    with signals_call(terminate, [signal.SIGTERM]):
        try:
            return await task
        except asyncio.CancelledError:
            if came:
                raise TerminatedError from None
            raise
