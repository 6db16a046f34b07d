"""The token endpoint (RFC 6749 section 3.2): operations, request forms, and responses.

client_auth     secret    Authorization header    in the form
─────────────   ───────   ─────────────────────   ──────────────────────────
basic           yes       id and secret
body            yes                               client_id, client_secret
either          none                              client_id: a public client
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote_plus

import attrs

from directsuite.core.call import Confirmation, Options
from directsuite.core.operation import Auth, Code, FaultFormat, MediaType, Operation, Semantics, Service, ServiceFault
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
    ResponseDecodeError,
    ServerError,
    ServiceError,
)
from directsuite.oauth.grants import Grant
from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.parsing import MismatchError, parse_strictly

MAX_RESPONSE_BYTES = 1_048_576
"""The maximum size of a response."""

_MAX_LIFETIME_SECONDS = 315_360_000.0  # ten years: larger values mean no expiry
_TIMEOUT_SECONDS = 45.0
"""Shorter than the token cache's timeout, so that the error of the request is raised."""
_HINT_SETTING = "check the setting token_url"
_HINT_CLIENT = "check client_id and client_secret"

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


@attrs.frozen(kw_only=True)
class TokenResponse:
    """The tokens of a response."""

    access_token: Secret
    expires_in: float | None = None
    """Lifetime in seconds from the request. None: until the token is rejected."""
    refresh_token: Secret | None = None


TOKEN: Operation[TokenResponse] = Operation(
    name="token",
    service=Service.OAUTH,
    method="POST",
    path="",
    semantics=Semantics.REPEATABLE,
    auth=Auth.NONE,  # the options of the request contain the client's authentication
    response=TokenResponse,
    fault_format=OAuthFaultFormat(message_keys=("error_description",), codes=CODES),
    content_type=MediaType.FORM,
)
"""Request with client credentials or a refresh token. A retry after a lost response may find the refresh token used."""

ERROR_CONTEXT: dict[str, Any] = {"operation": TOKEN.name, "service": TOKEN.service}

EXCHANGE: Operation[TokenResponse] = attrs.evolve(
    TOKEN,
    semantics=Semantics.NON_IDEMPOTENT,
    how_to_find_out="send the user through authorization again, because the code may have been used.",
)
"""Request with an authorization code. Servers must reject a second use, which may revoke the first tokens (4.1.2)."""


class TokenEndpoint:
    """Sends the token requests of a grant."""

    def __init__(self, transport: Transport, grant: Grant) -> None:
        self._transport = transport
        self._receive = functools.partial(receive_tokens, token_type=grant.token_type)
        self._options = Options(
            timeout=min(transport.timeout, _TIMEOUT_SECONDS), essential=True, headers=make_headers(grant)
        )

    async def request_tokens(
        self,
        operation: Operation[TokenResponse],
        body: RequestBody,
        *,
        explain_invalid_grant: Callable[[], str],
        store_refresh_token: Callable[[Secret], None] | None = None,
        confirm: Confirmation[TokenResponse] | None = None,
    ) -> TokenResponse:
        """Request tokens, and return them. Raises a DirectSuiteError if this fails.

        explain_invalid_grant: returns the explanation for `invalid_grant`.
        store_refresh_token: called with the refresh token of a response whose access token has an unusable type,
            because the previous refresh token may be invalid.
        """
        receiver = functools.partial(self._receive, store_refresh_token=store_refresh_token)
        try:
            return await self._transport.call(
                operation, body=body, options=self._options, receive=receiver, confirm=confirm
            )
        except ServiceError as error:
            failure: DirectSuiteError = _reword_error(error, explain_invalid_grant)
        except ConnectFailedError as error:
            failure = error
            failure.advice = failure.advice or _HINT_SETTING  # the circuit may be open
        raise failure


def _reword_error(error: ServiceError, explain_invalid_grant: Callable[[], str]) -> ServiceError:
    if error.advice:  # a redirect, or not found
        error.advice = _HINT_SETTING
    if error.code in CODES:
        meaning = explain_invalid_grant() if error.code == INVALID_GRANT else CODES[error.code][1]
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
        headers["Authorization"] = f"Basic {base64.encode(parts.encode()).decode()}"
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


async def receive_tokens(
    incoming: ResponseStream,
    _alive: Callable[[], None],
    *,
    token_type: str | None = None,
    store_refresh_token: Callable[[Secret], None] | None = None,
) -> TokenResponse:
    """Return the tokens of a response.

    Raises the response's error, ResponseDecodeError if it is too large or the token's type is unusable, and
    MismatchError if it is malformed.

    token_type: accepted in addition to Bearer.
    store_refresh_token: see `TokenEndpoint.request_tokens`.
    """
    response = await incoming.read(MAX_RESPONSE_BYTES)
    if response.too_large:
        text = f"the token endpoint's response is larger than {MAX_RESPONSE_BYTES} bytes: check token_url"
        raise ResponseDecodeError(text, too_large=True, **ERROR_CONTEXT)
    read = _read_tokens(parse_strictly(response.body), incoming.status, token_type, store_refresh_token)
    if isinstance(read, TokenResponse):
        return read
    raise read


def _read_tokens(
    document: Any, status: int, token_type: str | None, store_refresh_token: Callable[[Secret], None] | None
) -> TokenResponse | DirectSuiteError:
    """Return the tokens, or the error, because tracebacks would expose local variables."""
    if not isinstance(document, dict):
        raise MismatchError("an object")
    body = {name: member for name, member in cast("dict[str, Any]", document).items() if member is not None}
    error = _find_error(body)
    if error in CODES:  # some servers send errors with status 200
        cls, meaning = CODES[error]
        return cls(f"{meaning} ({error})", status=status, code=error, outcome=Outcome.FAILED, **ERROR_CONTEXT)
    if error is not None:
        return ServiceError(
            "the token endpoint responded with an unknown error", status=status, outcome=Outcome.FAILED, **ERROR_CONTEXT
        )
    refresh_token = _read_secret(body, "refresh_token") if body.get("refresh_token") else None
    kind = body.get("token_type", "Bearer")  # required, but some servers omit it for Bearer
    if not (isinstance(kind, str) and kind.lower() in ("bearer", (token_type or "bearer").lower())):
        text = (
            "the token endpoint returned a token whose type is not Bearer, and the services accept only Bearer tokens: "
            "if the server uses another name for Bearer, pass that name to the grant as token_type"
        )
        if store_refresh_token is not None and refresh_token is not None:
            store_refresh_token(refresh_token)
        unfit = ResponseDecodeError(text, path="$.token_type", **ERROR_CONTEXT)
        unfit.outcome = Outcome.FAILED  # a retry would get the same response
        return unfit
    return TokenResponse(
        access_token=_read_secret(body, "access_token"),
        expires_in=_read_lifetime(body.get("expires_in")),
        refresh_token=refresh_token,
    )


def _find_error(body: dict[str, Any]) -> str | None:
    """Return the error code, or None if there are tokens. Raises MismatchError if there is neither."""
    if "error" in body:
        return str(body["error"])
    if "access_token" not in body:
        raise MismatchError("present", "$.access_token")
    return None


def _read_secret(body: dict[str, Any], name: str) -> Secret:
    text = body[name]
    if not isinstance(text, str) or not text:
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
