"""A command from its beginning to its exit status, whatever ends it.

Command(resume=…).run(begin)
    begin()        reads options, settings and secrets; may ask on the terminal; gives a coroutine
    the coroutine  runs until it gives an exit status, or until Ctrl-C or SIGTERM cancels it
    an error       becomes a sentence on stderr and an exit status
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from directsuite import cli
from directsuite.cli.exit_status import ExitStatus, ending_of
from directsuite.cli.refusal import NotThereError, RefusedError
from directsuite.cli.signals import told_to
from directsuite.core.events import Event, OutcomeLeftUnknown
from directsuite.errors import DirectSuiteError
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.suite import DirectSuite


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came, which ends a command as Ctrl-C does."""


@attrs.define(kw_only=True)
class Command:
    """One run of a command.

    resume: how to go on after Ctrl-C. find_out: how to find out, with commands, what became of a change whose answer
    was lost. options: the option of each parameter that an InvalidArgumentError may name. advice: what to do about a
    kind of error, where the command knows better than the table of all.
    """

    resume: str = cli.AGAIN
    find_out: str = ""
    options: Mapping[str, str] = attrs.field(factory=dict[str, str])
    advice: Mapping[type[BaseException], str] = attrs.field(factory=dict[type[BaseException], str])
    _is_unknown: bool = attrs.field(default=False, init=False)

    def run(self, begin: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """The exit status, when all has been said."""
        cli.begun = True
        try:
            return int(asyncio.run(_cancelled_by_sigterm(begin())))
        except KeyboardInterrupt as signalled:
            status = ExitStatus.TERMINATED if isinstance(signalled, TerminatedError) else ExitStatus.INTERRUPTED
            unknown = f"what was being sent may or may not have arrived: {self.find_out}" if self._is_unknown else ""
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # the terminal stands behind ^C, or behind a question
            say(f"stopped; {unknown or self.resume}")
            return status
        except BrokenPipeError:
            raise
        except (RefusedError, NotThereError, DirectSuiteError, OSError) as error:
            status, sentence = ending_of(error, options=self.options, find_out=self.find_out, advice=self.advice)
            say(sentence)
            return status

    def suite(self, settings: Settings, *, token: Secret | None = None, login: Login | None = None) -> DirectSuite:
        """The suite that this command works with."""
        return DirectSuite(settings, token=token, login=login, listeners=[self._listen])

    def _listen(self, event: Event) -> None:
        self._is_unknown = self._is_unknown or isinstance(event, OutcomeLeftUnknown)


def say(sentence: str) -> None:
    """A sentence for people, on stderr."""
    sys.stderr.write(f"directsuite: {sentence}\n")


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, int]) -> int:
    """Ctrl-C cancels the task by asyncio.run's own doing; a second one doesn't wait for it."""
    task, came = asyncio.ensure_future(work), False

    def terminate(_: int) -> None:
        nonlocal came
        came = True
        task.cancel()

    with told_to(terminate, [signal.SIGTERM]):
        try:
            return await task
        except asyncio.CancelledError:
            if came:
                raise TerminatedError from None
            raise
