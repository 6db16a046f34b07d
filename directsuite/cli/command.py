"""The run of a command from its start to its exit status.

Command().run(begin)
    begin()        reads options, settings and secrets; may ask on the terminal; returns an exit status or a coroutine
    the coroutine  runs until it returns an exit status, or until Ctrl-C or SIGTERM cancels it
    an error       becomes a sentence on stderr and an exit status

Instead of the exit status 0, both can return None.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import process
from directsuite.cli.credentials import MailboxAccess, is_interactive
from directsuite.cli.errors import Advice, ItemNotFoundError, UsageError, exit_for_error
from directsuite.cli.process import ExitStatus, echo_err

Work = Coroutine[Any, Any, int | None]
"""The work of a command, which returns the exit status. None: 0."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM was received. It ends a command like Ctrl-C."""


@attrs.define(kw_only=True)
class Command:
    """One run of a command. A command's function gets it as the argument `command`, and changes its attributes."""

    resume_hint: str = process.NOTHING_CHANGED
    """How to continue after Ctrl-C."""
    recovery_hint: str = ""
    """What to do if the response to a change was lost."""
    unknown_status: process.ExitStatus = process.ExitStatus.UNKNOWN
    """The exit status if the response to a change was lost."""
    option_names: dict[str, str] = attrs.field(factory=dict[str, str])
    """The option of each parameter that an InvalidArgumentError may name."""
    advice: Advice = attrs.field(factory=dict[type[BaseException] | int | str, str])
    """What to do about an error, instead of the text in `errors`."""
    _is_outcome_unknown: bool = attrs.field(default=False, init=False)

    def run(self, begin: Callable[[], Work | int | None]) -> int:
        """Run the coroutine that `begin` returns, if any. Return the exit status.

        A UsageError, ItemNotFoundError, DirectSuiteError, OSError or Ctrl-C is reported on stderr, but a
        BrokenPipeError and other errors are raised.
        """
        process.state.has_begun = True
        try:
            work = begin()
            if not isinstance(work, Coroutine):
                return int(work or 0)
            with contextlib.closing(work), contextlib.closing(_run_until_sigterm(work)) as main:
                return int(asyncio.run(main) or 0)  # after Ctrl-C, it may not have started either
        except KeyboardInterrupt as signalled:
            unknown = f"the last request may or may not have taken effect: {self.recovery_hint}"
            process.end_line()
            echo_err(f"stopped; {unknown if self._is_outcome_unknown else self.resume_hint}")
            return ExitStatus.TERMINATED if isinstance(signalled, TerminatedError) else ExitStatus.INTERRUPTED
        except BrokenPipeError:
            raise
        except (UsageError, ItemNotFoundError, ds.DirectSuiteError, OSError) as error:
            status, sentence = exit_for_error(
                error, option_names=self.option_names, recovery_hint=self.recovery_hint, advice=self.advice
            )
            echo_err(sentence)
            return self.unknown_status if status is process.ExitStatus.UNKNOWN else status

    def make_suite(
        self,
        settings: ds.Settings,
        *,
        token: ds.Secret | ds.ClientCredentials | ds.RefreshToken | None = None,
        login: ds.Login | None = None,
        listeners: Sequence[ds.Listener] = (),
    ) -> ds.DirectSuite:
        """Create the command's suite. listeners: called after those of the command."""
        listeners = [self._handle_event, *make_request_listeners(), *listeners]
        return ds.DirectSuite(settings, token=token, login=login, listeners=listeners)

    @contextlib.asynccontextmanager
    async def open_mailbox(self, access: MailboxAccess) -> AsyncGenerator[ds.Mailbox]:
        """Open the command's suite, and yield the mailbox."""
        async with self.make_suite(access.settings) as suite:
            yield suite.mailbox(access.address, access.password)

    def _handle_event(self, event: ds.Event) -> None:
        self._is_outcome_unknown = self._is_outcome_unknown or isinstance(event, ds.OutcomeLeftUnknown)


CommandParameter = Annotated[Command, Parameter(parse=False)]
"""A parameter that gets the `Command`, not an argument of the command line."""


def make_request_listeners() -> list[ds.Listener]:
    """Return a listener that reports each request on stderr, or none unless --verbose was given twice."""
    return [_report_request] if process.get_verbosity() > 1 else []


def _report_request(event: ds.Event) -> None:
    if isinstance(event, ds.AttemptSucceeded | ds.AttemptFailed):
        result = event.error if event.status is None else f"HTTP {event.status}"
        echo_err(f"{event.operation}: {result}, {event.elapsed * 1000:.0f} ms")


def require_terminal(explanation: str = "") -> None:
    """Raise UsageError if there is no terminal for a question. explanation: a sentence that precedes the error's text.

    `confirm` calls it. Call it before, if requests precede the question.
    """
    if not is_interactive():
        raise UsageError(f"{explanation} There is no terminal to ask for confirmation. Give --yes to confirm.".lstrip())


async def confirm(plan: str, *, declined_message: str, explanation: str = "") -> None:
    """Describe a plan on the terminal, and ask whether to continue. Raise UsageError unless the answer is yes.

    declined_message: the error's text after another answer. explanation: see `require_terminal`.
    """
    require_terminal(explanation)
    sys.stderr.write(f"{process.wrap_on_terminal(f'{plan} Continue? [y/N]')} ")
    sys.stderr.flush()
    loop, is_typed = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), is_typed.set)
    except (NotImplementedError, OSError, ValueError):  # Windows, or a stdin that can't be polled
        is_typed.set()
    else:
        try:
            await is_typed.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(declined_message)


@contextlib.contextmanager
def handle_signals(handler: Callable[[int], None], signals: Iterable[int]) -> Generator[None]:
    """Call `handler` in the event loop with the number of each received signal, instead of the default action.

    On Windows and outside the main thread, signals keep their default action.
    """
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in signals:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, handler, number)
                stack.callback(loop.remove_signal_handler, number)
        yield


class _PrivateFormatter(logging.Formatter):
    """Formats the first line of a message, and the traceback and type of an exception, without its text.

    The text of an exception may quote a request, and the other lines of asyncio's messages quote exceptions.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        return super().formatMessage(record).partition("\n")[0]

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's name
        kind, _, trace = ei
        return "".join((*traceback.format_tb(trace), kind.__name__))


@contextlib.contextmanager
def log_to_stderr() -> Generator[None]:
    """Log warnings and errors of the package and of asyncio to stderr, without the texts of exceptions."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrivateFormatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = logging.getLogger("directsuite"), logging.getLogger("asyncio")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


async def _run_until_sigterm(coroutine: Work) -> int | None:
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
