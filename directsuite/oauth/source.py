"""Token sources for grants."""

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
"""Maximum time to save a token before a request. The token cache's timeout covers both, and another save."""
_SAVE_GRACE_SECONDS = 5.0
"""How long after its start `on_rotated` may run if the suite is closed."""

_REFRESH_REJECTED = (
    "the refresh token is not accepted, because it was revoked, has expired or was replaced elsewhere: "
    "send the user through authorization again"
)
_REFRESH_MAY_BE_REPLACED = (
    "the refresh token is not accepted. An earlier renewal, whose response was lost, may have replaced it: "
    "send the user through authorization again"
)
_CODE_REJECTED = (
    "the authorization code is not accepted, because it was already used, has expired, or belongs to another client, "
    "redirect_uri or code_verifier: send the user through authorization again"
)
_CODE_USED = (
    "the authorization code was already exchanged, and this suite has no refresh token from that: "
    "open it with a stored RefreshToken, or send the user through authorization again"
)
_CODE_MAY_BE_USED = (
    "the authorization code may already have been used: an earlier exchange of it was interrupted, or another suite is "
    "exchanging it now"
)


def make_source(transport: Transport, grant: Grant) -> TokenSource:
    """Return the token source of a grant."""
    endpoint = TokenEndpoint(transport, grant)
    if isinstance(grant, ClientCredentials):
        return ClientCredentialsSource(endpoint, grant)
    return ConsentSource(endpoint, grant)


class ClientCredentialsSource:
    """Tokens for the program itself."""

    renewable = True
    is_builtin = True

    def __init__(self, endpoint: TokenEndpoint, grant: ClientCredentials) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def fetch(self) -> AccessToken:
        """Request a token."""
        body = make_form(self._grant, "client_credentials", scope=self._grant.scope)
        response = await self._endpoint.request_tokens(
            TOKEN, body, explain_invalid_grant=lambda: CODES[INVALID_GRANT][1]
        )
        return AccessToken(response.access_token, response.expires_in)  # no refresh token (4.4.3)


class ConsentSource:
    """Tokens on behalf of a user, requested with the refresh token, or with the code if there is none."""

    renewable = True  # without a refresh token, `fetch` raises an error with advice
    is_builtin = True
    single_use = True  # a refresh token may be usable only once

    def __init__(self, endpoint: TokenEndpoint, grant: Consent) -> None:
        self._endpoint = endpoint
        self._grant = grant
        self._may_be_used = False
        """True if a lost request may have used the refresh token."""
        if isinstance(grant, AuthorizationCode):
            self._exchange: CodeExchange | None = CodeExchange(endpoint, grant)
            self._rotation = Rotation(None, grant.on_rotated)
            self._scope = None
        else:
            self._exchange = None
            self._rotation = Rotation(grant.refresh_token, grant.on_rotated)
            self._scope = grant.scope

    async def fetch(self) -> AccessToken:
        """Request a token.

        Raises AuthenticationError if the user must consent again, and TransportError if a refresh token cannot be
        saved.
        """
        await self._save()
        try:
            response = await self._request_tokens()
        except ResponseDecodeError:
            await self._rotation.save()  # the response had a refresh token, but an access token of another type
            raise
        if response.refresh_token is not None:
            await self._rotation.replace(response.refresh_token)
        return AccessToken(response.access_token, response.expires_in)

    async def _save(self) -> None:
        """Save an unsaved refresh token. Raises TransportError if this fails or takes too long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._rotation.save()
        if loop.time() - began > _MAX_SAVE_SECONDS:
            text = (
                "saving the last refresh token with on_rotated took more than "
                f"{_MAX_SAVE_SECONDS:.0f} seconds, so no token was requested: repeat the call"
            )
            raise TransportError(text, outcome=Outcome.NOT_SENT)

    async def _request_tokens(self) -> TokenResponse:
        if self._rotation.token is not None:
            return await self._renew(self._rotation.token)
        if self._exchange is not None:
            return await self._exchange.exchange(self._rotation.store)
        raise AssertionError("a grant must contain a code or a refresh token")

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
        self._may_be_used = True

    def _explain_invalid_grant(self) -> str:
        return _REFRESH_MAY_BE_REPLACED if self._may_be_used else _REFRESH_REJECTED


class CodeExchange:
    """Exchanges a code for tokens. The code is sent again, also by another suite, only if it cannot have been used."""

    def __init__(self, endpoint: TokenEndpoint, grant: AuthorizationCode) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def exchange(self, store_refresh_token: Callable[[Secret], None]) -> TokenResponse:
        """Exchange the code for tokens.

        Sends no request if an earlier exchange may have used the code. Raises AuthenticationError if that exchange
        succeeded, otherwise its error.

        store_refresh_token: see `TokenEndpoint.request_tokens`.
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
        # This remains if the exchange is cancelled.
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
    """The current refresh token, and the calls of `on_rotated` that save new ones."""

    def __init__(self, token: Secret | None, on_rotated: OnRotated | None) -> None:
        self.token = token
        self._on_rotated = on_rotated
        self._unsaved = False

    def store(self, token: Secret) -> None:
        """Use this token from now on. `save` will save it."""
        if token != self.token:
            self.token, self._unsaved = token, self._on_rotated is not None

    async def replace(self, token: Secret) -> None:
        """Use this token from now on, and save it. Raises TransportError if saving fails."""
        if token != self.token:
            self.store(token)
            await self.save()

    async def save(self) -> None:
        """Call `on_rotated` if the token is unsaved. Raises TransportError if it fails.

        It runs in a separate task. If the caller is cancelled, it may finish within _SAVE_GRACE_SECONDS of its start.
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
                f"on_rotated raised {failure}: the new refresh token is in memory only. "
                "on_rotated is called with it again before the next request for a token",
                outcome=Outcome.NOT_SENT,
            )

    async def _save(self) -> str | None:
        """Call `on_rotated`. Return the class name of its exception, whose text may contain the token, or None."""
        token = self.token
        if self._on_rotated is None or token is None:
            return None
        try:
            result = self._on_rotated(token)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001  a user's function may raise anything
            return type(error).__name__
        if token == self.token:
            self._unsaved = False
        return None
