"""A user's consent as a source of tokens.

code ── exchange, once ──► refresh token ── renewal ──► refresh token, perhaps another ── renewal ──► …
"""

from __future__ import annotations

import asyncio

from directsuite.core.call import Proof
from directsuite.core.tokens import AccessToken
from directsuite.errors import DirectSuiteError, Outcome, TransportError
from directsuite.oauth.endpoint import TokenEndpoint
from directsuite.oauth.exchange import CodeExchange
from directsuite.oauth.grants import AuthorizationCode, Consent
from directsuite.oauth.models import TokenAnswer
from directsuite.oauth.operations import TOKEN
from directsuite.oauth.request import form_of
from directsuite.oauth.rotation import Rotation
from directsuite.secret import Secret

_SHORT = 10.0
"""Seconds that saving may take before a request, so that the cache's patience lasts for both, and for saving again."""

_REFUSED = (
    "the refresh token is not accepted: it was revoked, is too old, or was replaced elsewhere: "
    "send the user through authorization again"
)
_LOST = (
    "the refresh token is not accepted; an earlier renewal, whose answer was lost, may have replaced it: "
    "send the user through authorization again"
)


class ConsentSource:
    """Tokens on a user's behalf: with the refresh token, or, where there is none yet, with the code."""

    renewable = True  # where there is nothing to renew with, fetch says what to do
    spends = True

    def __init__(self, endpoint: TokenEndpoint, grant: Consent) -> None:
        self._endpoint = endpoint
        self._grant = grant
        self._perhaps_spent = False
        """Whether a request whose answer was lost may have spent the refresh token."""
        if isinstance(grant, AuthorizationCode):
            self._exchange: CodeExchange | None = CodeExchange(endpoint, grant)
            self._rotation = Rotation(None, grant.on_rotated)
            self._scope = None
        else:
            self._exchange = None
            self._rotation = Rotation(grant.refresh_token, grant.on_rotated)
            self._scope = grant.scope

    async def fetch(self) -> AccessToken:
        """Ask for a token. Raises AuthenticationError where only the user can help."""
        await self._save()
        answer = await self._ask()
        if answer.refresh_token is not None:
            await self._rotation.replace(answer.refresh_token)
        return AccessToken(answer.access_token, answer.expires_in)

    async def _save(self) -> None:
        """Save what is not saved yet. Where that was slow, the next fetch asks, with the whole time for it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._rotation.save()
        if loop.time() - began > _SHORT:
            text = f"on_rotated took more than {_SHORT:.0f} seconds: the next call asks for a token"
            raise TransportError(text, outcome=Outcome.NOT_SENT)

    async def _ask(self) -> TokenAnswer:
        if self._rotation.token is not None:
            return await self._renew(self._rotation.token)
        if self._exchange is not None:
            return await self._exchange.exchange()
        raise AssertionError("a grant has a code or a refresh token")

    async def _renew(self, token: Secret) -> TokenAnswer:
        body = form_of(self._grant, "refresh_token", refresh_token=token, scope=self._scope)
        try:
            answer = await self._endpoint.ask(TOKEN, body, refused=self._refused, proof=Proof(look=self._look))
        except asyncio.CancelledError:
            self._perhaps_spent = True
            raise
        except DirectSuiteError as error:
            self._perhaps_spent = self._perhaps_spent or error.outcome is Outcome.UNKNOWN
            raise
        self._perhaps_spent = False
        return answer

    async def _look(self) -> None:
        """Asked where a repeat was refused after an attempt without an answer: no proof of it, but a likely reason."""
        self._perhaps_spent = True

    def _refused(self) -> str:
        return _LOST if self._perhaps_spent else _REFUSED
