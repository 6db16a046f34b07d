"""OAuth 2.0 grants as a user gives them: `DirectSuite(token=ClientCredentials(...))`. Records, checked by the suite.

ClientCredentials    a program's own account; renews by asking again
RefreshToken         a user's consent as it was kept; renewals may bring another refresh token
AuthorizationCode    a user's fresh consent: one exchange, from then on as RefreshToken

AuthorizationRequest is the way to that: to the user's consent and back (RFC 6749 section 4.1, RFC 7636).

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
from directsuite.secret import Secret, as_optional_secret, as_secret

ClientAuth = Literal["basic", "body"]
"""Where the client's secret goes: HTTP Basic, which every server has to take (RFC 6749 section 2.3.1), or the body."""

OnRotated = Callable[[Secret], object]
"""Keeps a new refresh token where the next run of the program finds it: a plain function, or a coroutine function."""


@scrub_class
@attrs.frozen
class ClientCredentials:
    """The grant for a program that acts for itself (RFC 6749 section 4.4).

    Raises nothing by itself; DirectSuite raises ConfigurationError for a token_url that is neither https nor on this
    machine, and for what is missing.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret = attrs.field(converter=as_secret)
    scope: str | None = None
    """Names with a space between them."""
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """A `token_type` to accept in addition to Bearer, such as "BearerToken". Tokens are sent as Bearer anyway."""


@scrub_class
@attrs.frozen
class RefreshToken:
    """The grant for a user who has consented before (RFC 6749 section 6).

    A refresh token belongs to one suite: where the server rotates them, a second one would be refused.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret | None = attrs.field(converter=as_optional_secret)
    """None for a public client."""
    refresh_token: Secret = attrs.field(converter=as_secret)
    scope: str | None = None
    """Names with a space between them."""
    on_rotated: OnRotated | None = attrs.field(default=None, repr=False)
    """Called with each new refresh token, before the access token that came with it is used.

    Until it has returned, no call goes on. Where it raises, the new refresh token is kept in memory, and the next call
    begins by giving it to `on_rotated` again. It must not use the suite's signing or fax itself, which wait for it.
    """
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """A `token_type` to accept in addition to Bearer. See ClientCredentials."""


@attrs.define
class CodeUse:
    """What became of a code."""

    blocking_error: DirectSuiteError | None = None
    """Why it can't be sent any more; None where it still can."""


@scrub_class
@attrs.frozen
class AuthorizationCode:
    """The grant for a user who has just consented (RFC 6749 section 4.1).

    A code works once: the next run of the program needs a RefreshToken. `AuthorizationRequest.redeem` makes the grant.
    """

    token_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: Secret | None = attrs.field(converter=as_optional_secret)
    """None for a public client."""
    code: Secret = attrs.field(converter=as_secret)
    redirect_uri: str
    """As in the authorization request."""
    code_verifier: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The secret behind that request's challenge (RFC 7636)."""
    on_rotated: OnRotated | None = attrs.field(default=None, repr=False)
    """As in RefreshToken; it gets the first refresh token too."""
    client_auth: ClientAuth = attrs.field(default="basic", kw_only=True)
    token_type: str | None = attrs.field(default=None, kw_only=True)
    """A `token_type` to accept in addition to Bearer. See ClientCredentials."""
    use: CodeUse = attrs.field(factory=CodeUse, init=False, repr=False, eq=False)
    """What became of the code, for all suites that have this grant."""


Consent = RefreshToken | AuthorizationCode
Grant = ClientCredentials | RefreshToken | AuthorizationCode
Token = str | Secret | Callable[[], Awaitable[str | AccessToken]] | TokenSource | Grant
"""What a suite takes as its token: a text, an async function that gives one, a source, or a grant."""

_BODY_ONLY_PARAMETERS = frozenset(
    {"client_id", "client_secret", "code", "code_verifier", "grant_type", "password", "refresh_token", "username"}
)
"""What must not stand in a token URL's query: a parameter goes once, and secrets only into the body."""


def validate_grant(grant: Grant, *, allow_insecure_http: bool = False) -> None:
    """Raise ConfigurationError for a grant that can't work or isn't safe."""
    for problem in _find_problems(grant, allow_insecure_http):
        raise ConfigurationError(f"the grant's {problem}")


def _find_problems(grant: Grant, allow_insecure_http: bool) -> Iterator[str]:
    """What is wrong with a grant: given, not raised, so that no frame of a traceback holds a secret."""
    if problem := find_url_problem(grant.token_url, allow_insecure_http=allow_insecure_http, query=True):
        yield f"token_url {problem}"
    elif _BODY_ONLY_PARAMETERS & URL(grant.token_url).query.keys():
        yield "token_url must not hold parameters of the grant: give them to the grant itself"
    for name, value in _iter_texts(grant):
        text = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(text, str) or not text:
            yield f"{name} has to be a text that is not empty"
        elif any("\ud800" <= letter <= "\udfff" for letter in text):
            yield f"{name} holds half a surrogate pair, which has no UTF-8"
    if cast("str", grant.client_auth) not in ("basic", "body"):
        yield "client_auth is 'basic' or 'body'"
    hook = cast("object", getattr(grant, "on_rotated", None))
    if hook is not None and not callable(hook):
        yield "on_rotated has to be a function that takes the new refresh token"


def _iter_texts(grant: Grant) -> Iterator[tuple[str, object]]:
    """The texts and secrets of a grant by name, save those that may be left out and are."""
    for field in attrs.fields(type(grant)):
        value = cast("object", getattr(grant, field.name))
        left_out = value is None and "None" in str(field.type)
        if field.name not in ("client_auth", "on_rotated", "use") and not left_out:
            yield field.name, value


_REJECTION_CODES: dict[str, tuple[type[ServiceError], str]] = {
    "access_denied": (PermissionDeniedError, "the user, or the authorization server, denied consent"),
    "unauthorized_client": (AuthenticationError, "this client may not ask for an authorization code"),
    "invalid_request": (BadRequestError, "the authorization request lacks something, or is not valid"),
    "unsupported_response_type": (BadRequestError, "the authorization server gives no codes"),
    "invalid_scope": (BadRequestError, "the scope is unknown or not valid"),
    "server_error": (ServerError, "the authorization server failed"),
    "temporarily_unavailable": (ServerError, "the authorization server is overloaded or in maintenance"),
}
"""The codes of RFC 6749 section 4.1.2.1."""


@scrub_class
@attrs.frozen(kw_only=True)
class AuthorizationRequest:
    """A request for a user's consent.

    A program that meets the redirect in another process keeps `state` and `code_verifier` in the user's session, and
    builds the request anew: AuthorizationRequest(client_id=..., redirect_uri=..., state=..., code_verifier=...).
    """

    client_id: str
    redirect_uri: str
    state: str = attrs.field(repr=False)
    code_verifier: Secret = attrs.field(converter=as_secret)
    url: str = attrs.field(default="", repr=False)
    """Send the user's browser there; it comes back to the redirect URI."""

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
        """A new request to the authorization server's URL, whose own query stays, with a fresh state and PKCE secret.

        Raises ConfigurationError for a URL that is neither https nor on this machine.
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
        """The grant for DirectSuite's `token`, from the URL (or its path and query) that the browser came back to.

        Raises InvalidArgumentError for a redirect that doesn't answer this request and for a request without its state
        or code_verifier, PermissionDeniedError where consent was denied, and another ServiceError where the
        authorization server refused or failed.
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
        """The code, or the error that the redirect is: returned, so that no traceback holds what it said."""
        for name, value in (("state", self.state), ("code_verifier", self.code_verifier.reveal())):
            if not isinstance(cast("object", value), str) or not value:  # an empty state is any forger's
                text = "has to be the request's own, a text that is not empty: it is lost from the user's session"
                return InvalidArgumentError(text, parameter=name)
        try:
            pairs = parse_qsl(urlsplit(redirected_url.reveal()).query, keep_blank_values=True)
        except (ValueError, TypeError, AttributeError):  # of what is no text
            return _make_redirect_error("it is no URL")
        parameters = dict(pairs)
        if len(parameters) != len(pairs):
            return _make_redirect_error("a parameter stands in it twice")
        state = parameters.get("state", "")
        if not hmac.compare_digest(state.encode("utf-8", "replace"), self.state.encode("utf-8", "replace")):
            return _make_redirect_error(
                "its state is not this request's: it answers another one, or somebody forged it"
            )
        if "error" in parameters:
            return _make_rejection(parameters["error"], parameters.get("error_description"))
        return (
            Secret(parameters["code"])
            if parameters.get("code")
            else _make_redirect_error("it holds neither a code nor an error")
        )


def _make_redirect_error(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(reason, parameter="redirected_url")


def _make_rejection(code: str, description: str | None) -> ServiceError:
    about: dict[str, Any] = {"operation": "authorize", "service": Service.OAUTH, "outcome": Outcome.FAILED}
    if code not in _REJECTION_CODES:
        text = "the authorization server refused, with a code of another form"
        return ServiceError(text, status=302, message=description, **about)
    cls, meaning = _REJECTION_CODES[code]
    return cls(f"{meaning} ({code})", status=302, code=code, message=description, **about)
