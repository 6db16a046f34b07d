"""A display whose output may break: a worker outlasts whoever reads what it tells."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Generator, Mapping
from typing import Self

from directsuite.cli.process import discard_stdout
from directsuite.cli.sync.displays import Display
from directsuite.core.events import Event
from directsuite.sync.progress import MailboxProgress

_LOGGER = logging.getLogger("directsuite")


class Unbroken:
    """Another display, without what can't be written: of a reader that has gone for good, of a full disk for a while.

    Either way the worker goes on: mail matters more than lines about it, and `status` tells how it stands.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        self._fails = False

    def __enter__(self) -> Self:
        with self._outlasted():
            self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with self._outlasted():
            self._display.__exit__(*error)
        try:
            sys.stdout.flush()
        except OSError:
            discard_stdout()  # else the interpreter tries once more when it ends, and complains

    def round(self, event: Event) -> None:
        """A listener of the suite."""
        with self._outlasted():
            self._display.round(event)

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """How the mailboxes stand. now: Unix time."""
        with self._outlasted():
            self._display.show(mailboxes, now)

    def say(self, event: str, words: str) -> None:
        """Something happened to the worker itself."""
        with self._outlasted():
            self._display.say(event, words)

    @contextlib.contextmanager
    def _outlasted(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                discard_stdout()
            if not self._fails:
                self._fails = True
                _LOGGER.warning("stdout can't be written (%s): the worker goes on", type(error).__name__)
