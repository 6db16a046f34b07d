"""What is said where a folder isn't there, for the service has no code of its own for that."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from directsuite.cli.errors import NotThereError
from directsuite.errors import (
    AuthenticationError,
    DirectSuiteError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    ServiceError,
)
from directsuite.messaging.service import Mailbox


@asynccontextmanager
async def told_of_folders(box: Mailbox, folder: str) -> AsyncGenerator[None]:
    """Have a refusal looked into: raises NotThereError where the mailbox has no such folder."""
    try:
        yield
    except (AuthenticationError, PermissionDeniedError, RateLimitedError, ServerError):
        raise  # which would only come again
    except ServiceError:
        if await _is_missing(box, folder):
            raise NotThereError(
                "the mailbox has no such folder: give --folder INBOX, or another as INBOX.Sent; names begin with INBOX"
            ) from None
        raise


async def _is_missing(box: Mailbox, folder: str) -> bool:
    try:
        there = await box.get_folders()
    except DirectSuiteError:
        return False
    return folder.casefold() != "inbox" and folder.casefold() not in (name.casefold() for name in there)
