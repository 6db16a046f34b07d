"""Stored documents that nobody needs any more: some may be signed. The service forgets them by itself, some day."""

from __future__ import annotations

import asyncio

from directsuite.errors import DirectSuiteError
from directsuite.jobs.signing.blame import MISSING
from directsuite.jobs.signing.keeping import Keeping
from directsuite.signing.service import Signing

EXPIRES = 4 * 3600.0
"""Seconds after which the service has forgotten a stored document that nobody asks for."""


async def delete_abandoned(signing: Signing, journal: Keeping, *, now: float, at_a_time: int) -> None:
    """Delete what is abandoned, as far as that goes: what can't be deleted now is tried later. Raises JournalError."""
    await journal.forget_before(now - EXPIRES)
    last = ""
    while some := await journal.abandoned(after=last, most=at_a_time):
        gone = await asyncio.gather(*(_deleted(signing, each) for each in some))
        await journal.forget([each for each, is_gone in zip(some, gone, strict=True) if is_gone])
        if not any(gone):
            return
        last = some[-1]


async def _deleted(signing: Signing, identifier: str) -> bool:
    try:
        await signing.delete(identifier)
    except MISSING:
        return True
    except DirectSuiteError:
        return False
    return True
