"""What keeps a command from doing what it should: a sentence on stderr, and its exit status."""

from __future__ import annotations

import os
from collections.abc import Callable

from directsuite.cli.exit_status import ending_of
from directsuite.cli.refusal import RefusedError
from directsuite.cli.running import say
from directsuite.errors import DirectSuiteError
from directsuite.secret import Secret

CONNINFO = "DIRECTSUITE_POSTGRES"
_OPTIONS = {"folder": "--maildir"}


def carefully(command: Callable[[], int]) -> int:
    """The exit status of a command, or of what kept it from running."""
    try:
        return command()
    except (RefusedError, DirectSuiteError) as error:
        status, sentence = ending_of(error, options=_OPTIONS)
        say(sentence)
        return status


def conninfo() -> Secret:
    """Where PostgreSQL is, from the environment: in an argument other users could read it. Raises RefusedError."""
    text = os.environ.get(CONNINFO)
    if not text:
        raise RefusedError(f"set {CONNINFO} to where PostgreSQL is: postgresql://user@host/database")
    return Secret(text)
