"""The refresh token of the moment, and its way to where the next run of the program finds it."""

from __future__ import annotations

import asyncio
import inspect

from directsuite.errors import Outcome, TransportError
from directsuite.oauth.grants import OnRotated
from directsuite.secret import Secret

_GRACE = 5.0
"""Seconds from its beginning in which `on_rotated` may finish where the suite is closed meanwhile."""


class Rotation:
    """A refresh token that may be replaced; `on_rotated` gets each new one, until it has taken it."""

    def __init__(self, token: Secret | None, on_rotated: OnRotated | None) -> None:
        self.token = token
        self._on_rotated = on_rotated
        self._unsaved = False

    async def replace(self, token: Secret) -> None:
        """Use another token from here on, and save it; it is kept here whatever becomes of that."""
        if token == self.token:
            return
        self.token, self._unsaved = token, self._on_rotated is not None
        await self.save()

    async def save(self) -> None:
        """Return when `on_rotated` has every new token. Raises TransportError where it fails.

        It runs in a task of its own: closing the suite must not tear it in the middle of its work, since the token that
        it had before may be worthless by now.
        """
        if not self._unsaved:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + _GRACE
        saving = loop.create_task(self._save(), name="directsuite-on-rotated")
        try:
            failure = await asyncio.shield(saving)
        except asyncio.CancelledError:
            try:
                await asyncio.wait([saving], timeout=max(0.0, end - loop.time()))
            finally:
                saving.cancel()
            raise
        if failure is not None:
            raise TransportError(
                f"on_rotated raised {failure}: the new refresh token is kept in memory only, "
                "and is given to it again before the next request for a token",
                outcome=Outcome.NOT_SENT,
            )

    async def _save(self) -> str | None:
        """Call `on_rotated`; the type of what it raises. The exception itself may hold the token, as SQL's do."""
        token = self.token
        if self._on_rotated is None or token is None:
            return None
        try:
            given = self._on_rotated(token)
            if inspect.isawaitable(given):
                await given
        except Exception as error:  # noqa: BLE001  a user's function may raise anything
            return type(error).__name__
        if token == self.token:  # else it took so long that there is another by now
            self._unsaved = False
        return None
