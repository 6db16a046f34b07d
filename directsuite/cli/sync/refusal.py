"""What keeps a command from doing what it should: a sentence on stderr, and its exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from directsuite.cli.exit_status import ExitStatus
from directsuite.cli.refusal import RefusedError
from directsuite.errors import ConfigurationError, DirectSuiteError, InvalidArgumentError
from directsuite.secret import Secret

CONNINFO = "DIRECTSUITE_POSTGRES"


def carefully(command: Callable[[], int]) -> int:
    """The exit status of a command, or of what kept it from running."""
    try:
        return command()
    except (RefusedError, ConfigurationError, InvalidArgumentError) as error:
        return _said(error, ExitStatus.REFUSED)
    except DirectSuiteError as error:
        return _said(error, ExitStatus.FAILED)


def conninfo() -> Secret:
    """Where PostgreSQL is, from the environment: in an argument other users could read it. Raises RefusedError."""
    text = os.environ.get(CONNINFO)
    if not text:
        raise RefusedError(f"set {CONNINFO} to where PostgreSQL is: postgresql://user@host/database")
    return Secret(text)


def _said(error: Exception, status: int) -> int:
    sys.stderr.write(f"directsuite: {error}\n")
    return status
