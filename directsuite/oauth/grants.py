"""OAuth 2.0 grants for `DirectSuite(token=ClientCredentials(...))`. The suite validates them.

ClientCredentials    a program's own account; each token is requested with them
RefreshToken         a user's earlier consent; each renewal may return a new refresh token
AuthorizationCode    a user's new consent: one exchange, then the same as RefreshToken

An AuthorizationRequest obtains the user's consent (RFC 6749 section 4.1, RFC 7636):

AuthorizationRequest.to(...) ── .url ──► the user's browser ──► redirect ── .redeem(...) ──► AuthorizationCode
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, Self, cast
from urllib.parse import parse_qsl, urlsplit

import attrs
from yarl import URL

from directsuite.core.checks import FLAG, TEXT, find_url_problem
from directsuite.core.credentials import AccessToken, TokenSource
from directsuite.core.operation import Service
from directsuite.core.privacy import scrub_class
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    DirectSuiteError,
    InvalidArgumentError,
    Outcome,
    PermissionDeniedError,
    ServerError,
    ServiceError,
)
from directsuite.wire.models import Secret, as_optional_secret, as_secret

ClientAuth = Literal["basic", "body"]
"""Where the client's secret is sent: in the body, or by HTTP Basic, which every server supports (RFC 6749, 2.3.1)."""

OnRotated = Callable[[Secret], object]
"""A plain or async function that stores a new refresh token for the next run of the program."""


@scrub_class
@attrs.frozen
class ClientCredentials:
    """The grant for a program that acts for itself (RFC 6749 section 4.4).

    DirectSuite raises ConfigurationError if a field is empty, or if token_url is neither https nor on this machine.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret = attrs.field(converter=as_secret)
    scope: str | None = None
    """Names separated by spaces."""
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    """How the id and secret are sent: "basic", in the Authorization header, or "body", in the form."""
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """A `token_type` to accept in addition to Bearer, such as "BearerToken". Tokens are always sent as Bearer."""


@scrub_class
@attrs.frozen
class RefreshToken:
    """The grant for an earlier consent of a user (RFC 6749 section 6).

    Use a refresh token in one suite only: if the server rotates refresh tokens, it rejects the second use.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret | None = attrs.field(converter=as_optional_secret)
    """None for a public client."""
    refresh_token: Secret = attrs.field(converter=as_secret)
    scope: str | None = None
    """Names separated by spaces."""
    on_rotated: OnRotated | None = attrs.field(default=None, repr=False)
    """Called with each new refresh token, before the access token received with it is used.

    If it raises, the token is retained in memory, and `on_rotated` is called again before the next token request. It
    must not use the suite's signing or fax service, because their calls wait for it.
    """
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """See ClientCredentials."""


@attrs.define
class CodeUse:
    """The state of an authorization code."""

    blocking_error: DirectSuiteError | None = None
    """The error to raise instead of sending the code again. None if it may be sent."""


@scrub_class
@attrs.frozen
class AuthorizationCode:
    """The grant for a new consent of a user (RFC 6749 section 4.1), returned by `AuthorizationRequest.redeem`.

    A code can be used once. The next run of the program needs a RefreshToken.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret | None = attrs.field(converter=as_optional_secret)
    """None for a public client."""
    code: Secret = attrs.field(converter=as_secret)
    redirect_uri: str
    """The redirect_uri of the authorization request."""
    code_verifier: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The code_verifier of the authorization request (RFC 7636)."""
    on_rotated: OnRotated | None = attrs.field(default=None, repr=False)
    """As for RefreshToken, and also called with the first refresh token."""
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """See ClientCredentials."""
    use: CodeUse = attrs.field(factory=CodeUse, init=False, repr=False, eq=False)
    """Shared by all suites with this grant."""


Consent = RefreshToken | AuthorizationCode
Grant = ClientCredentials | RefreshToken | AuthorizationCode
Token = str | Secret | Callable[[], Awaitable[str | AccessToken]] | TokenSource | Grant
"""A suite's token: a text, an async function that returns one, a source, or a grant."""

_BODY_ONLY_PARAMETERS = frozenset(
    {"client_id", "client_secret", "code", "code_verifier", "grant_type", "password", "refresh_token", "username"}
)
"""Parameters that a token URL must not contain, because they are sent in the body."""


def validate_grant(grant: Grant, *, allow_insecure_http: bool = False) -> None:
    """Raise ConfigurationError if a field is empty or invalid, or `token_url` is not safe."""
    for problem in _find_problems(grant, allow_insecure_http):
        raise ConfigurationError(f"the grant's {problem}")


def _find_problems(grant: Grant, allow_insecure_http: bool) -> Iterator[str]:
    # They are raised elsewhere, because tracebacks expose local variables.
    if problem := find_url_problem(grant.token_url, allow_insecure_http=allow_insecure_http, query=True):
        yield f"token_url {problem}"
    elif _BODY_ONLY_PARAMETERS & URL(grant.token_url).query.keys():
        yield "token_url must not contain parameters of the grant: pass them to the grant"
    for name, value in _iter_texts(grant):
        text = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(text, str) or not text.strip():
            yield f"{name} must be a string that is neither empty nor blank"
        elif any("\ud800" <= letter <= "\udfff" for letter in text):
            yield f"{name} contains half of a surrogate pair, which cannot be encoded as UTF-8"
    if cast("str", grant.client_auth) not in ("basic", "body"):
        yield "client_auth must be 'basic' or 'body'"
    hook = cast("object", getattr(grant, "on_rotated", None))
    if hook is not None and not callable(hook):
        yield "on_rotated must be a function with the new refresh token as its parameter"


def _iter_texts(grant: Grant) -> Iterator[tuple[str, object]]:
    for field in attrs.fields(type(grant)):
        value = cast("object", getattr(grant, field.name))
        left_out = value is None and "None" in str(field.type)
        if field.name not in ("client_auth", "on_rotated", "use") and not left_out:
            yield field.name, value


_REJECTION_CODES: dict[str, tuple[type[ServiceError], str]] = {
    "access_denied": (PermissionDeniedError, "the user, or the authorization server, denied consent"),
    "unauthorized_client": (AuthenticationError, "this client may not request authorization codes"),
    "invalid_request": (BadRequestError, "the authorization request is incomplete or not valid"),
    "unsupported_response_type": (BadRequestError, "the authorization server does not support authorization codes"),
    "invalid_scope": (BadRequestError, "the scope is unknown or not valid"),
    "server_error": (ServerError, "the authorization server failed"),
    "temporarily_unavailable": (ServerError, "the authorization server is overloaded or in maintenance"),
}
"""The codes of RFC 6749 section 4.1.2.1."""


@scrub_class
@attrs.frozen(kw_only=True)
class AuthorizationRequest:
    """A request for a user's consent, created by `to`.

    If another process handles the redirect, store `state` and `code_verifier` in the user's session, and recreate the
    request with AuthorizationRequest(client_id=..., redirect_uri=..., state=..., code_verifier=...).
    """

    client_id: str
    redirect_uri: str
    state: str = attrs.field(repr=False)
    code_verifier: Secret = attrs.field(converter=as_secret)
    url: str = attrs.field(default="", repr=False)
    """The URL to open in the user's browser."""

    @classmethod
    def to(
        cls,
        authorize_url: str,
        client_id: str,
        redirect_uri: str,
        scope: str | None = None,
        *,
        allow_insecure_http: bool = False,
    ) -> Self:
        """Return a request with a new state and PKCE secret. `authorize_url` may have a query.

        Raises ConfigurationError if an argument is invalid, or the URL is neither https nor on this machine, unless
        `allow_insecure_http` is True.
        """
        from oauthlib.common import add_params_to_uri
        from oauthlib.oauth2 import WebApplicationClient

        TEXT.require("client_id", client_id)
        TEXT.require("redirect_uri", redirect_uri)
        TEXT.allow_none().require("scope", scope)
        FLAG.require("allow_insecure_http", allow_insecure_http)
        if problem := find_url_problem(authorize_url, allow_insecure_http=allow_insecure_http, query=True):
            raise ConfigurationError(f"authorize_url {problem}")
        verifier = Secret(secrets.token_urlsafe(64))
        state = secrets.token_urlsafe(32)
        challenge = WebApplicationClient(client_id).create_code_challenge(verifier.reveal(), "S256")
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_uri,
            "scope": scope,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        url = add_params_to_uri(authorize_url, [(name, text) for name, text in query.items() if text is not None])
        return cls(client_id=client_id, redirect_uri=redirect_uri, state=state, code_verifier=verifier, url=url)

    def redeem(
        self,
        redirected_url: str | Secret,
        *,
        token_url: str,
        client_secret: str | Secret | None = None,
        on_rotated: OnRotated | None = None,
        client_auth: ClientAuth = "basic",
        token_type: str | None = None,
    ) -> AuthorizationCode:
        """Return the grant for DirectSuite's `token`, without a request. Other parameters: see `AuthorizationCode`.

        redirected_url: the URL of the redirect, or its path and query.

        Raises InvalidArgumentError if the redirect does not belong to this request, or the request has no state or
        code_verifier. Raises PermissionDeniedError if consent was denied, and another ServiceError if the authorization
        server rejected the request or failed.
        """
        code = self._read_code(as_secret(redirected_url))
        if isinstance(code, DirectSuiteError):
            raise code
        return AuthorizationCode(
            token_url,
            self.client_id,
            as_optional_secret(client_secret),
            code,
            self.redirect_uri,
            self.code_verifier,
            on_rotated,
            client_auth=client_auth,
            token_type=token_type,
        )

    def _read_code(self, redirected_url: Secret) -> Secret | DirectSuiteError:
        """Return the code, or the error, because tracebacks would expose local variables."""
        for name, value in (("state", self.state), ("code_verifier", self.code_verifier.reveal())):
            if not isinstance(cast("object", value), str) or not value:  # anyone can forge an empty state
                text = "is missing or empty: take it from the user's session, where it was stored with the request"
                return InvalidArgumentError(text, parameter=name)
        try:
            pairs = parse_qsl(urlsplit(redirected_url.reveal()).query, keep_blank_values=True)
        except (ValueError, TypeError, AttributeError):
            return _make_redirect_error("is not a URL: pass the URL to which the browser was redirected")
        parameters = dict(pairs)
        if len(parameters) != len(pairs):
            return _make_redirect_error("contains a parameter twice")
        state = parameters.get("state", "")
        if not hmac.compare_digest(state.encode("utf-8", "replace"), self.state.encode("utf-8", "replace")):
            return _make_redirect_error(
                "belongs to another request or is forged, because its state differs from that of this request: ignore "
                "it, or create a new request"
            )
        if "error" in parameters:
            return _make_rejection(parameters["error"], parameters.get("error_description"))
        return (
            Secret(parameters["code"])
            if parameters.get("code")
            else _make_redirect_error("contains neither a code nor an error: pass the complete URL of the redirect")
        )


def _make_redirect_error(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(reason, parameter="redirected_url")


def _make_rejection(code: str, description: str | None) -> ServiceError:
    about: dict[str, Any] = {"operation": "authorize", "service": Service.OAUTH, "outcome": Outcome.FAILED}
    if code not in _REJECTION_CODES:
        text = "the authorization server rejected the request with an unknown error code: see error.message"
        return ServiceError(text, status=302, message=description or code, **about)
    cls, meaning = _REJECTION_CODES[code]
    return cls(f"{meaning} ({code})", status=302, code=code, message=description, **about)
