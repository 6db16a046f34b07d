"""What keeps a command from doing what it should: a sentence on stderr, and its exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from directsuite.errors import ConfigurationError, DirectSuiteError, InvalidArgumentError
from directsuite.secret import Secret

CANNOT = 1
"""The exit status where a command can't do what it should."""
REFUSED = 2
"""The exit status for options, files or an environment that can't be."""

CONNINFO = "DIRECTSUITE_POSTGRES"


class RefusedError(Exception):
    """Options, files or the environment are not as they have to be; the text says what to do."""


def carefully(command: Callable[[], int]) -> int:
    """The exit status of a command, or of what kept it from running."""
    try:
        return command()
    except (RefusedError, ConfigurationError, InvalidArgumentError) as error:
        return _said(error, REFUSED)
    except DirectSuiteError as error:
        return _said(error, CANNOT)


def conninfo() -> Secret:
    """Where PostgreSQL is, from the environment: in an argument other users could read it. Raises RefusedError."""
    text = os.environ.get(CONNINFO)
    if not text:
        raise RefusedError(f"set {CONNINFO} to where PostgreSQL is: postgresql://user@host/database")
    return Secret(text)


def _said(error: Exception, status: int) -> int:
    sys.stderr.write(f"directsuite: {error}\n")
    return status
