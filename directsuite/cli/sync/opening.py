"""What a command needs before it begins: where PostgreSQL is, and a store that can be used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

from directsuite.cli.errors import RefusedError, ending_of
from directsuite.durable.postgres import Connections
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from directsuite.sync.store import StoreError

CONNINFO = "DIRECTSUITE_POSTGRES"

_LATER = "the next call connects again"
_NOW = f"check {CONNINFO}, and whether PostgreSQL runs"


def conninfo() -> Secret:
    """Where PostgreSQL is, from the environment: in an argument other users could read it. Raises RefusedError."""
    text = os.environ.get(CONNINFO)
    if not text:
        raise RefusedError(f"set {CONNINFO} to where PostgreSQL is: postgresql://user@host/database")
    secret = Secret(text)
    del text  # this frame may stand in a traceback
    try:
        Connections(secret, error=StoreError)
    except ConfigurationError as error:
        raise RefusedError(error.explanation.rstrip(".").replace("conninfo", CONNINFO)) from None
    return secret


@contextlib.contextmanager
def usable() -> Generator[None]:
    """Have a store that can't be used refuse the command, which has done nothing by then. Raises RefusedError."""
    try:
        yield
    except (StoreError, OSError) as error:
        raise refusal_of(error) from None


def refusal_of(error: StoreError | OSError) -> RefusedError:
    """What is said of a store that can't be used."""
    return RefusedError(ending_of(error)[1].replace(_LATER, _NOW))
