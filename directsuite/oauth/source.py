"""Grants as sources of tokens.

ClientCredentials ── each fetch asks anew
RefreshToken      ── renewal ──► refresh token, perhaps another ── renewal ──► …
AuthorizationCode ── exchange, once ──► refresh token, from then on as RefreshToken
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from directsuite.core.call import Confirmation
from directsuite.core.credentials import AccessToken, TokenSource
from directsuite.core.transport import Transport
from directsuite.errors import (
    AuthenticationError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServiceError,
    TransportError,
)
from directsuite.oauth.endpoint import (
    CODES,
    ERROR_CONTEXT,
    EXCHANGE,
    INVALID_GRANT,
    TOKEN,
    TokenEndpoint,
    TokenResponse,
    make_form,
)
from directsuite.oauth.grants import AuthorizationCode, ClientCredentials, Consent, Grant, OnRotated
from directsuite.secret import Secret

_MAX_SAVE_SECONDS = 10.0
"""Seconds that saving may take before a request, so that the cache's patience lasts for both, and for saving again."""
_SAVE_GRACE_SECONDS = 5.0
"""Seconds from its beginning in which `on_rotated` may finish where the suite is closed meanwhile."""

_REFRESH_REJECTED = (
    "the refresh token is not accepted: it was revoked, is too old, or was replaced elsewhere: "
    "send the user through authorization again"
)
_REFRESH_MAY_BE_REPLACED = (
    "the refresh token is not accepted; an earlier renewal, whose answer was lost, may have replaced it: "
    "send the user through authorization again"
)
_CODE_REJECTED = (
    "the authorization code is not accepted: it was used already, is too old, or was given for another client, "
    "redirect_uri or code_verifier: send the user through authorization again"
)
_CODE_USED = (
    "the authorization code was exchanged already, and this suite has no refresh token from that: "
    "open it with a RefreshToken that was kept, or send the user through authorization again"
)
_CODE_MAY_BE_USED = (
    "the exchange of the authorization code was broken off, or is another suite's: it may or may not have happened."
)


def make_source(transport: Transport, grant: Grant) -> TokenSource:
    """The source of the tokens that a grant gives; the transport needs an endpoint for Service.OAUTH."""
    endpoint = TokenEndpoint(transport, grant)
    if isinstance(grant, ClientCredentials):
        return ClientCredentialsSource(endpoint, grant)
    return ConsentSource(endpoint, grant)


class ClientCredentialsSource:
    """Tokens for the program itself: each fetch asks anew."""

    renewable = True

    def __init__(self, endpoint: TokenEndpoint, grant: ClientCredentials) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def fetch(self) -> AccessToken:
        """Ask for a token."""
        body = make_form(self._grant, "client_credentials", scope=self._grant.scope)
        response = await self._endpoint.request_tokens(
            TOKEN, body, explain_invalid_grant=lambda: CODES[INVALID_GRANT][1]
        )
        return AccessToken(response.access_token, response.expires_in)  # renewals ask again (4.4.3: no refresh token)


class ConsentSource:
    """Tokens on a user's behalf: with the refresh token, or, where there is none yet, with the code."""

    renewable = True  # where there is nothing to renew with, fetch says what to do
    single_use = True  # a refresh token may work once

    def __init__(self, endpoint: TokenEndpoint, grant: Consent) -> None:
        self._endpoint = endpoint
        self._grant = grant
        self._may_be_used = False
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
        try:
            response = await self._request_tokens()
        except ResponseDecodeError:
            await self._rotation.save()  # the refresh token of a response whose access token has another type
            raise
        if response.refresh_token is not None:
            await self._rotation.replace(response.refresh_token)
        return AccessToken(response.access_token, response.expires_in)

    async def _save(self) -> None:
        """Save what is not saved yet. Where that was slow, the next fetch asks, with the whole time for it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._rotation.save()
        if loop.time() - began > _MAX_SAVE_SECONDS:
            text = f"on_rotated took more than {_MAX_SAVE_SECONDS:.0f} seconds: the next call asks for a token"
            raise TransportError(text, outcome=Outcome.NOT_SENT)

    async def _request_tokens(self) -> TokenResponse:
        if self._rotation.token is not None:
            return await self._renew(self._rotation.token)
        if self._exchange is not None:
            return await self._exchange.exchange(self._rotation.store)
        raise AssertionError("a grant has a code or a refresh token")

    async def _renew(self, token: Secret) -> TokenResponse:
        body = make_form(self._grant, "refresh_token", refresh_token=token, scope=self._scope)
        try:
            response = await self._endpoint.request_tokens(
                TOKEN,
                body,
                explain_invalid_grant=self._explain_invalid_grant,
                store_refresh_token=self._rotation.store,
                confirm=Confirmation(verify=self._record_possible_use),
            )
        except asyncio.CancelledError:
            self._may_be_used = True
            raise
        except DirectSuiteError as error:
            self._may_be_used = self._may_be_used or error.outcome is Outcome.UNKNOWN
            raise
        self._may_be_used = False
        return response

    async def _record_possible_use(self) -> None:
        """Prove nothing: a repeat was refused after an attempt without an answer, which probably spent the token."""
        self._may_be_used = True

    def _explain_invalid_grant(self) -> str:
        return _REFRESH_MAY_BE_REPLACED if self._may_be_used else _REFRESH_REJECTED


class CodeExchange:
    """Exchanges a code for tokens. It is sent again, by whichever suite, only where it is certain that nobody took it.

    A second use has to be refused, and may revoke what the first one gave (4.1.2).
    """

    def __init__(self, endpoint: TokenEndpoint, grant: AuthorizationCode) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def exchange(self, store_refresh_token: Callable[[Secret], None]) -> TokenResponse:
        """Exchange the code. Raise OutcomeUnknownError if it may have been used, AuthenticationError if it was.

        keep: see `TokenEndpoint.ask`.
        """
        grant = self._grant
        if grant.use.blocking_error is not None:
            raise grant.use.blocking_error.copy()
        body = make_form(
            grant,
            "authorization_code",
            code=grant.code,
            redirect_uri=grant.redirect_uri,
            code_verifier=grant.code_verifier,
        )
        # So it stays where this is cancelled on the way.
        grant.use.blocking_error = OutcomeUnknownError(
            _CODE_MAY_BE_USED, how_to_find_out=EXCHANGE.how_to_find_out, **ERROR_CONTEXT
        )
        try:
            response = await self._endpoint.request_tokens(
                EXCHANGE, body, explain_invalid_grant=lambda: _CODE_REJECTED, store_refresh_token=store_refresh_token
            )
        except DirectSuiteError as error:
            grant.use.blocking_error = error.copy() if _may_have_used_code(error) else None
            raise
        grant.use.blocking_error = AuthenticationError(
            _CODE_USED, status=0, code=INVALID_GRANT, outcome=Outcome.FAILED, **ERROR_CONTEXT
        )
        return response


def _may_have_used_code(error: DirectSuiteError) -> bool:
    if isinstance(error, ServiceError):
        return error.code == INVALID_GRANT or error.outcome is Outcome.UNKNOWN
    return error.outcome in (Outcome.UNKNOWN, Outcome.FAILED)


class Rotation:
    """A refresh token that may be replaced; `on_rotated` gets each new one, until it has taken it."""

    def __init__(self, token: Secret | None, on_rotated: OnRotated | None) -> None:
        self.token = token
        self._on_rotated = on_rotated
        self._unsaved = False

    def store(self, token: Secret) -> None:
        """Use another token from here on. `save` saves it."""
        if token != self.token:
            self.token, self._unsaved = token, self._on_rotated is not None

    async def replace(self, token: Secret) -> None:
        """Use another token from here on, and save it; it is kept here whatever becomes of that."""
        if token != self.token:
            self.store(token)
            await self.save()

    async def save(self) -> None:
        """Return when `on_rotated` has every new token. Raises TransportError where it fails.

        It runs in a task of its own: closing the suite must not tear it in the middle of its work, since the token that
        it had before may be worthless by now.
        """
        if not self._unsaved:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + _SAVE_GRACE_SECONDS
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
        """Call `on_rotated`. Return the name of its exception, which itself may hold the token, as SQL's do."""
        token = self.token
        if self._on_rotated is None or token is None:
            return None
        try:
            result = self._on_rotated(token)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001  a user's function may raise anything
            return type(error).__name__
        if token == self.token:  # else it took so long that there is another by now
            self._unsaved = False
        return None
