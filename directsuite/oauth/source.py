"""Token sources for grants, and their requests to the token endpoint (RFC 6749 section 3.2).

client_auth     secret    Authorization header    in the form
─────────────   ───────   ─────────────────────   ──────────────────────────
basic           yes       id and secret
body            yes                               client_id, client_secret
either          none                              client_id: a public client
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote_plus

import attrs
import pybase64

from directsuite.core.call import Confirmation, Options
from directsuite.core.credentials import AccessToken, TokenSource
from directsuite.core.operation import Auth, Code, FaultFormat, MediaType, Operation, Semantics, Service, ServiceFault
from directsuite.core.outcome import make_decode_error
from directsuite.core.session import ResponseStream
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectFailedError,
    DirectSuiteError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
    TransportError,
)
from directsuite.oauth.grants import AuthorizationCode, ClientCredentials, Consent, Grant, OnRotated, RefreshToken
from directsuite.wire.models import Secret
from directsuite.wire.parsing import MismatchError, parse

MAX_RESPONSE_BYTES = 1_048_576
"""The maximum size of a response."""

_MAX_LIFETIME_SECONDS = 315_360_000.0  # ten years: larger values mean no expiry
_TIMEOUT_SECONDS = 45.0
"""Shorter than the token cache's timeout, so that the error of the request is raised."""
_HINT_SETTING = "check the setting token_url"
_HINT_CLIENT = "check client_id and client_secret"
_MAX_SAVE_SECONDS = 10.0
"""Maximum time to save a token before a request. The token cache's timeout covers both, and another save."""
_SAVE_GRACE_SECONDS = 5.0
"""How long after its start `on_rotated` may run if the suite is closed."""

INVALID_CLIENT, INVALID_GRANT = "invalid_client", "invalid_grant"

CODES: dict[Code, tuple[type[ServiceError], str]] = {
    INVALID_CLIENT: (AuthenticationError, "the client's id, secret or authentication method is not accepted"),
    INVALID_GRANT: (AuthenticationError, "the grant is not accepted"),
    "unauthorized_client": (AuthenticationError, "this client may not use this type of grant"),
    "invalid_scope": (BadRequestError, "the scope is unknown or exceeds what was granted"),
    "invalid_request": (BadRequestError, "the token endpoint rejects the request, although it follows RFC 6749"),
    "unsupported_grant_type": (BadRequestError, "the token endpoint does not support this type of grant"),
    "server_error": (ServerError, "the token endpoint failed"),
    "temporarily_unavailable": (ServerError, "the token endpoint is overloaded or in maintenance"),
}
"""The codes of RFC 6749 section 5.2, and two of section 4.1.2.1 that token endpoints also use."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class OAuthFaultFormat(FaultFormat):
    """Errors like `{"error": "invalid_grant", "error_description": ...}`. Codes outside CODES are dropped."""

    def read(self, document: Any) -> ServiceFault | None:
        """Return the error in a JSON document, or None if it has none."""
        if not isinstance(document, dict):
            return None
        body = cast("dict[str, Any]", document)
        error, text = body.get("error"), body.get("error_description")
        if not isinstance(error, str):
            return None
        return ServiceFault(error if error in self.codes else None, text if isinstance(text, str) else None)


TOKEN: Operation[AccessToken] = Operation(
    name="token",
    service=Service.OAUTH,
    method="POST",
    path="",
    semantics=Semantics.REPEATABLE,
    auth=Auth.NONE,  # the options of the request contain the client's authentication
    response=AccessToken,
    fault_format=OAuthFaultFormat(message_keys=("error_description",), codes=CODES),
    content_type=MediaType.FORM,
)
"""Request with client credentials or a refresh token. A retry after a lost response may find the refresh token used."""

ERROR_CONTEXT: dict[str, Any] = {"operation": TOKEN.name, "service": TOKEN.service}

EXCHANGE: Operation[AccessToken] = attrs.evolve(
    TOKEN,
    semantics=Semantics.NON_IDEMPOTENT,
    how_to_find_out="send the user through authorization again, because the code may have been used.",
)
"""Request with an authorization code. Servers must reject a second use, which may revoke the first tokens (4.1.2)."""

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
    if isinstance(grant, ClientCredentials):
        return ClientCredentialsSource(transport, grant)
    return ConsentSource(transport, grant)


class GrantSource:
    """A token source that sends the requests of a grant to the token endpoint."""

    renewable = True
    is_builtin = True

    def __init__(self, transport: Transport, grant: Grant) -> None:
        self._transport = transport
        self._grant = grant
        self._options = Options(
            timeout=min(transport.environment.timeout, _TIMEOUT_SECONDS), essential=True, headers=make_headers(grant)
        )

    async def _request_token(
        self,
        operation: Operation[AccessToken],
        grant_type: str,
        *,
        confirm: Confirmation[AccessToken] | None = None,
        **parameters: str | Secret | None,
    ) -> AccessToken:
        """Request a token, and return it. Raises a DirectSuiteError if this fails."""
        body = make_form(self._grant, grant_type, **parameters)
        try:
            return await self._transport.call(
                operation, body=body, options=self._options, receive=self._receive, confirm=confirm
            )
        except ServiceError as error:
            failure: DirectSuiteError = _reword_error(error, self._explain_invalid_grant())
        except ConnectFailedError as error:
            failure = error
            failure.advice = failure.advice or _HINT_SETTING  # the circuit may be open
        raise failure

    def _explain_invalid_grant(self) -> str:
        return CODES[INVALID_GRANT][1]

    def _store_refresh_token(self, token: Secret) -> bool:
        """Use a refresh token that a response contains. Return True if it replaces another one."""
        return False

    async def _receive(self, incoming: ResponseStream, _alive: Callable[[], None]) -> AccessToken:
        """Return the token of a response.

        Raises the response's error, ResponseDecodeError if it is too large or the token's type is unusable, and
        MismatchError if it is malformed.
        """
        response = await incoming.read(MAX_RESPONSE_BYTES)
        if response.too_large:
            text = f"the token endpoint's response is larger than {MAX_RESPONSE_BYTES} bytes: check token_url"
            raise ResponseDecodeError(text, too_large=True, **ERROR_CONTEXT)
        read = self._read_token(parse(response.body), incoming)
        if isinstance(read, AccessToken):
            return read
        raise read

    def _read_token(self, document: Any, incoming: ResponseStream) -> AccessToken | DirectSuiteError:
        """Return the token, or the error, because tracebacks would expose local variables."""
        if not isinstance(document, dict):
            raise MismatchError("an object")
        body = {name: member for name, member in cast("dict[str, Any]", document).items() if member is not None}
        if "error" in body:  # some servers send errors with status 200
            code = str(body["error"])
            cls, text = CODES.get(code, (ServiceError, "the token endpoint responded with an unknown error"))
            known = code if code in CODES else None
            return cls(text, status=incoming.status, code=known, outcome=Outcome.FAILED, **ERROR_CONTEXT)
        # Stored first, because the previous one may be invalid now.
        is_rotated = bool(body.get("refresh_token")) and self._store_refresh_token(_read_secret(body, "refresh_token"))
        kind = body.get("token_type", "Bearer")  # required, but some servers omit it for Bearer
        accepted = ("bearer", (self._grant.token_type or "bearer").lower())
        if isinstance(kind, str) and kind.lower() in accepted:
            try:
                return AccessToken(_read_secret(body, "access_token"), _read_lifetime(body.get("expires_in")))
            except MismatchError as mismatch:
                if not is_rotated:
                    raise
                failure = make_decode_error(TOKEN, mismatch, incoming.headers)
        else:
            text = (
                "the token endpoint returned a token whose type is not Bearer, and the services accept only Bearer "
                "tokens: if the server uses another name for Bearer, pass that name to the grant as token_type"
            )
            failure = ResponseDecodeError(text, path="$.token_type", **ERROR_CONTEXT)
        failure.outcome = Outcome.FAILED  # a retry would get the same type, or send the previous refresh token
        return failure


class ClientCredentialsSource(GrantSource):
    """Tokens for the program itself."""

    def __init__(self, transport: Transport, grant: ClientCredentials) -> None:
        super().__init__(transport, grant)
        self._scope = grant.scope

    async def fetch(self) -> AccessToken:
        """Request a token. A refresh token is ignored (4.4.3)."""
        return await self._request_token(TOKEN, "client_credentials", scope=self._scope)


class ConsentSource(GrantSource):
    """Tokens on behalf of a user, requested with the refresh token, or with the code if there is none."""

    # `renewable` is True also without a refresh token: `fetch` raises an error with advice
    single_use = True  # a refresh token may be usable only once

    def __init__(self, transport: Transport, grant: Consent) -> None:
        super().__init__(transport, grant)
        self._rotation = Rotation(grant.refresh_token if isinstance(grant, RefreshToken) else None, grant.on_rotated)
        self._scope = grant.scope if isinstance(grant, RefreshToken) else None
        self._may_be_used = False
        """True if a lost request may have used the refresh token."""

    async def fetch(self) -> AccessToken:
        """Request a token.

        Raises AuthenticationError if the user must consent again, and TransportError if a refresh token cannot be
        saved.
        """
        await self._save()
        try:
            if self._rotation.token is None:
                token = await self._exchange_code(cast("AuthorizationCode", self._grant))
            else:
                token = await self._renew(self._rotation.token)
        except DirectSuiteError:
            await self._rotation.save()  # a response may have a refresh token, but no usable access token
            raise
        await self._rotation.save()
        return token

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

    async def _renew(self, refresh_token: Secret) -> AccessToken:
        try:
            token = await self._request_token(
                TOKEN,
                "refresh_token",
                refresh_token=refresh_token,
                scope=self._scope,
                confirm=Confirmation(verify=self._record_possible_use),
            )
        except asyncio.CancelledError:
            self._may_be_used = True
            raise
        except DirectSuiteError as error:
            self._may_be_used = self._may_be_used or error.outcome is Outcome.UNKNOWN
            raise
        self._may_be_used = False
        return token

    async def _record_possible_use(self) -> None:
        self._may_be_used = True

    async def _exchange_code(self, grant: AuthorizationCode) -> AccessToken:
        """Exchange the code for tokens. It is sent again, also by another suite, only if it cannot have been used.

        Sends no request if an earlier exchange may have used the code. Raises AuthenticationError if that exchange
        succeeded, otherwise its error.
        """
        if grant.use.blocking_error is not None:
            raise grant.use.blocking_error.copy()
        # This remains if the exchange is cancelled.
        grant.use.blocking_error = OutcomeUnknownError(
            _CODE_MAY_BE_USED, how_to_find_out=EXCHANGE.how_to_find_out, **ERROR_CONTEXT
        )
        try:
            token = await self._request_token(
                EXCHANGE,
                "authorization_code",
                code=grant.code,
                redirect_uri=grant.redirect_uri,
                code_verifier=grant.code_verifier,
            )
        except DirectSuiteError as error:
            may_be_used = error.outcome is Outcome.UNKNOWN or (
                error.code == INVALID_GRANT if isinstance(error, ServiceError) else error.outcome is Outcome.FAILED
            )
            grant.use.blocking_error = error.copy() if may_be_used else None
            raise
        grant.use.blocking_error = AuthenticationError(
            _CODE_USED, status=0, code=INVALID_GRANT, outcome=Outcome.FAILED, **ERROR_CONTEXT
        )
        return token

    def _explain_invalid_grant(self) -> str:
        if self._rotation.token is None:
            return _CODE_REJECTED
        return _REFRESH_MAY_BE_REPLACED if self._may_be_used else _REFRESH_REJECTED

    def _store_refresh_token(self, token: Secret) -> bool:
        return self._rotation.store(token)


class Rotation:
    """The current refresh token, and the calls of `on_rotated` that save new ones."""

    def __init__(self, token: Secret | None, on_rotated: OnRotated | None) -> None:
        self.token = token
        self._on_rotated = on_rotated
        self._unsaved = False

    def store(self, token: Secret) -> bool:
        """Use this token from now on. `save` will save it. Return False if it is the current one."""
        if token == self.token:
            return False
        self.token, self._unsaved = token, self._on_rotated is not None
        return True

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


def _reword_error(error: ServiceError, invalid_grant: str) -> ServiceError:
    if error.advice:  # a redirect, or not found
        error.advice = _HINT_SETTING
    if error.code in CODES:
        meaning = invalid_grant if error.code == INVALID_GRANT else CODES[error.code][1]
        text = f"{meaning} ({error.code})"
    elif isinstance(error, AuthenticationError):
        text = f"{CODES[INVALID_CLIENT][1]} (HTTP {error.status})"
    else:
        if not isinstance(error, NotFoundError):
            return error
        text = error.explanation
    if isinstance(error, AuthenticationError) and error.code in (INVALID_CLIENT, None):
        error.advice = _HINT_CLIENT
    # A NotFoundError would look like a missing document.
    cls = ServiceError if isinstance(error, NotFoundError) else type(error)
    about: dict[str, Any] = {**ERROR_CONTEXT, "outcome": error.outcome, "retry_after": error.retry_after}
    reworded = cls(text, status=error.status, code=error.code, message=error.message, body=error.body, **about)
    reworded.advice = error.advice
    return reworded.set_call(error.call, error.group, error.attempts, error.elapsed)


def make_headers(grant: Grant) -> dict[str, str]:
    """Return the headers of a token request, with the client's secret if it is sent by HTTP Basic."""
    headers = {"Accept": "application/json"}  # some servers use other formats by default
    if grant.client_secret is not None and grant.client_auth == "basic":
        # Both parts are form-encoded first, so that colons and non-ASCII characters are allowed.
        parts = f"{quote_plus(grant.client_id)}:{quote_plus(grant.client_secret.reveal())}"
        headers["Authorization"] = f"Basic {pybase64.b64encode_as_string(parts.encode())}"
    return headers


def make_form(grant: Grant, grant_type: str, **parameters: str | Secret | None) -> RequestBody:
    """Return the body of a token request. Parameters that are None are omitted."""
    from oauthlib.common import add_params_to_qs

    named = {"grant_type": grant_type, **parameters}
    if grant.client_secret is None or grant.client_auth == "body":
        named |= {"client_id": grant.client_id, "client_secret": grant.client_secret}
    pairs = [
        (name, value.reveal() if isinstance(value, Secret) else value)
        for name, value in named.items()
        if value is not None
    ]
    return RequestBody.from_bytes(add_params_to_qs("", pairs).encode())


def _read_secret(body: dict[str, Any], name: str) -> Secret:
    if name not in body:
        raise MismatchError("present", f"$.{name}")
    text = body[name]
    if type(text) is not str or not text:  # a text with broken characters has another type
        raise MismatchError("a string", f"$.{name}")
    return Secret(text)


def _read_lifetime(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds <= _MAX_LIFETIME_SECONDS else None
