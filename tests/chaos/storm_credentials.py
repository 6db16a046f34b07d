"""The tokens and sessions of the storm's suite, and the reason for each renewal."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from datetime import timedelta

import attrs

import directsuite as ds
from directsuite.core.credentials import TokenCache
from directsuite.core.events import Event, SessionRenewed, TokenRefreshed
from directsuite.sandbox import Sandbox, credentials

_QUERIES = {
    SessionRenewed: "SELECT 1 FROM registration_session WHERE digest = ? AND expires_at > ?",
    TokenRefreshed: "SELECT 1 FROM access_token WHERE digest = ? AND expires_at > ?",
}
RenewalEventType = type[SessionRenewed] | type[TokenRefreshed]


@attrs.frozen
class CredentialGeneration:
    """One token or session, and the loop's time from which it was used."""

    digest: bytes
    since: float


@attrs.define(eq=False)
class CredentialMonitor:
    """A source of tokens, and a listener that records each token and session of the suite.

    lifetime: seconds of a token. aged: the age in seconds at which a token or session is renewed. in_vain: the needless
    renewals.
    """

    sandbox: Sandbox
    lifetime: float
    renewal_age: float
    fetches: int = 0
    generations: dict[RenewalEventType, list[CredentialGeneration]] = attrs.Factory(
        lambda: {SessionRenewed: [], TokenRefreshed: []}
    )
    needless_renewals: list[str] = attrs.Factory(list[str])
    _judged_counts: dict[RenewalEventType, int] = attrs.Factory(dict[RenewalEventType, int])
    _caches: dict[RenewalEventType, TokenCache] = attrs.Factory(dict[RenewalEventType, TokenCache])

    async def fetch(self) -> ds.AccessToken:
        self.fetches += 1
        token = await self.sandbox.issue_token(lifetime=timedelta(seconds=self.lifetime))
        return ds.AccessToken(token, self.lifetime)

    def watch(self, suite: ds.DirectSuite) -> None:
        self._caches[TokenRefreshed], self._caches[SessionRenewed] = suite._caches

    def __call__(self, event: Event) -> None:
        if not isinstance(event, SessionRenewed | TokenRefreshed):
            return
        credential = self._caches[type(event)]._credential
        assert credential is not None
        digest = credentials.hash_secret(credential.token.reveal())
        self.generations[type(event)].append(CredentialGeneration(digest, asyncio.get_running_loop().time()))

    async def judge(self) -> None:
        """Record generations that were replaced although they were valid and younger than `aged`."""
        now = self.sandbox.clock.milliseconds()
        for kind, generations in self.generations.items():
            first = self._judged_counts.get(kind, 0)
            self._judged_counts[kind] = max(len(generations) - 1, 0)
            for old, new in itertools.pairwise(generations[first : self._judged_counts[kind] + 1]):
                if new.since - old.since < self.renewal_age and await self._was_still_good(kind, old, now):
                    self.needless_renewals.append(kind.__name__)

    async def _was_still_good(self, kind: RenewalEventType, generation: CredentialGeneration, now: int) -> bool:
        def look(connection: sqlite3.Connection) -> bool:
            return connection.execute(_QUERIES[kind], (generation.digest, now)).fetchone() is not None

        return await self.sandbox._database.read(look)
