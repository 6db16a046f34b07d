"""Rotating refresh tokens against a model: no access token is returned before its refresh token is saved.

The state machine lets the server and the disk fail. The client's source is the real one.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import directsuite as ds
from directsuite.core.clock import SystemClock
from directsuite.core.credentials import AccessToken, TokenCache
from directsuite.oauth.source import ConsentSource
from tests.core.token_fetches import close_cache
from tests.examples import scale_examples

REFUSED = ds.AuthenticationError("refused", status=400, code="invalid_grant", outcome=ds.Outcome.FAILED)
LOST = ds.ConnectionLostError("lost", outcome=ds.Outcome.UNKNOWN)
BUSY = ds.RateLimitedError("busy", status=429, outcome=ds.Outcome.REJECTED)


class Server:
    """A token endpoint whose refresh tokens work once.

    behaviour: the handling of the next request. taken, answers: for a slow request, True if it has arrived, and if it
    may get a response.
    """

    def __init__(self) -> None:
        self.current = "refresh-0"
        self.issued = 0
        self.behaviour = "answered"
        self.refused: list[str] = []
        self.taken = asyncio.Event()
        self.answers = asyncio.Event()

    async def request_token(self, source: ConsentSource, refresh_token: str) -> AccessToken:
        if self.behaviour == "busy":
            raise BUSY.copy()
        if self.behaviour == "lost on the way":
            raise LOST.copy()
        if self.behaviour == "cancelled on the way":
            raise asyncio.CancelledError
        if refresh_token != self.current:
            self.refused.append(source._explain_invalid_grant())
            raise REFUSED.copy()
        self.issued += 1
        if self.behaviour != "kept":
            self.current = f"refresh-{self.issued}"
        if self.behaviour == "answer lost":
            raise LOST.copy()
        if self.behaviour == "answer cancelled":
            raise asyncio.CancelledError
        if self.behaviour == "slow":
            self.taken.set()
            await self.answers.wait()
        source._store_refresh_token(ds.Secret(self.current))
        return AccessToken(f"access-{self.issued}")


class Source(ConsentSource):
    """The real source, whose requests go to the server of the model."""

    def __init__(self, server: Server, grant: ds.RefreshToken) -> None:
        super().__init__(mock.Mock(environment=mock.Mock(timeout=60.0)), grant)
        self._server = server

    async def _request_token(self, *_: Any, refresh_token: Any = None, **__: Any) -> AccessToken:
        return await self._server.request_token(self, refresh_token.reveal())


FATES = ["answered", "kept", "busy", "lost on the way", "answer lost", "cancelled on the way", "answer cancelled"]


class RotationMachine(RuleBasedStateMachine):
    """Successive sources of one suite, with one server and one disk."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.disk = "refresh-0"
        self.disk_works = True
        self.answer_lost = False
        self.unsaved = False
        self.start()

    def start(self) -> None:
        grant = ds.RefreshToken("https://login.example.test/", "me", "s", self.disk, on_rotated=self.save)
        self.source = Source(self.server, grant)

    async def save(self, token: ds.Secret) -> None:
        await asyncio.sleep(0)
        if not self.disk_works:
            raise OSError
        self.disk = token.reveal()

    @rule(behaviour=st.sampled_from(FATES), disk_works=st.booleans())
    def renew(self, behaviour: str, disk_works: bool) -> None:
        self.server.behaviour, self.disk_works = behaviour, disk_works
        before = self.server.issued
        try:
            token = asyncio.run(self.source.fetch())
        except ds.AuthenticationError:
            assert self.answer_lost, "refused, though no answer was ever lost"
            assert "may have replaced it" in self.server.refused[-1]
        except asyncio.CancelledError:
            assert behaviour in ("cancelled on the way", "answer cancelled")
        except ds.DirectSuiteError:
            pass
        else:
            assert token.token.reveal() == f"access-{self.server.issued}"
            assert self.disk == self.server.current, "an access token was handed out before its refresh token was saved"
        lost = behaviour in ("answer lost", "answer cancelled") and self.server.issued > before
        self.answer_lost = self.answer_lost or lost
        self.unsaved = self.disk != self.server.current

    @precondition(lambda self: not self.answer_lost)
    @rule(answers=st.booleans(), disk_works=st.booleans())
    def close_within_a_renewal(self, answers: bool, disk_works: bool) -> None:
        self.server.behaviour, self.disk_works = "slow", True if self.unsaved else disk_works
        before = self.server.issued
        asyncio.run(self._close(answers=answers))
        assert self.server.issued == before + 1
        self.answer_lost = not answers
        self.unsaved = self.disk != self.server.current
        assert self.unsaved == (not answers or not self.disk_works)
        self.restart()

    async def _close(self, *, answers: bool) -> None:
        self.server.taken, self.server.answers = asyncio.Event(), asyncio.Event()
        cache = TokenCache(self.source, SystemClock())
        caller = asyncio.ensure_future(asyncio.gather(cache.get_current(), return_exceptions=True))
        await self.server.taken.wait()
        if answers:
            asyncio.get_running_loop().call_soon(self.server.answers.set)
        await cache.wait_for_single_use_fetch(5 if answers else 0)
        await close_cache(cache)
        [reported] = await caller
        assert isinstance(reported, ds.DirectSuiteError) == (not answers or not self.disk_works)

    @rule()
    def restart(self) -> None:
        """Restart the program with the saved refresh token, and without the state in memory."""
        if not self.unsaved:
            self.start()

    @invariant()
    def memory_or_disk_has_the_way_on(self) -> None:
        token = self.source._rotation.token
        if not self.answer_lost:
            assert token is not None
            assert token.reveal() == self.server.current


TestRotation = RotationMachine.TestCase
TestRotation.settings = settings(max_examples=scale_examples(40), stateful_step_count=20)
