"""OAuth 2.0 grants as a user gives them: `DirectSuite(token=ClientCredentials(...))`. Records, checked by the suite.

ClientCredentials    a program's own account; renews by asking again
RefreshToken         a user's consent as it was kept; renewals may bring another refresh token
AuthorizationCode    a user's fresh consent: one exchange, from then on as RefreshToken
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Literal, cast

import attrs
from yarl import URL

from directsuite.core.checks import problem_of_url
from directsuite.core.credentials import AccessToken, TokenSource
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.secret import Secret, as_optional_secret, as_secret

ClientAuth = Literal["basic", "body"]
"""Where the client's secret goes: HTTP Basic, which every server has to take (RFC 6749 section 2.3.1), or the body."""

OnRotated = Callable[[Secret], object]
"""Keeps a new refresh token where the next run of the program finds it: a plain function, or a coroutine function."""


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


@attrs.define
class CodeUse:
    """What became of a code."""

    over: DirectSuiteError | None = None
    """Why it can't be sent any more; None where it still can."""


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
    use: CodeUse = attrs.field(factory=CodeUse, init=False, repr=False, eq=False)
    """What became of the code, for all suites that have this grant."""


Consent = RefreshToken | AuthorizationCode
Grant = ClientCredentials | RefreshToken | AuthorizationCode
Token = str | Secret | Callable[[], Awaitable[str | AccessToken]] | TokenSource | Grant
"""What a suite takes as its token: a text, an async function that gives one, a source, or a grant."""

_IN_THE_BODY = frozenset(
    {"client_id", "client_secret", "code", "code_verifier", "grant_type", "password", "refresh_token", "username"}
)
"""What must not stand in a token URL's query: a parameter goes once, and secrets only into the body."""


def check_grant(grant: Grant, *, allow_insecure_http: bool = False) -> None:
    """Raise ConfigurationError for a grant that can't work or isn't safe."""
    for problem in _problems(grant, allow_insecure_http):
        raise ConfigurationError(f"the grant's {problem}")


def _problems(grant: Grant, allow_insecure_http: bool) -> Iterator[str]:
    """What is wrong with a grant: given, not raised, so that no frame of a traceback holds a secret."""
    if problem := problem_of_url(grant.token_url, allow_insecure_http=allow_insecure_http, query=True):
        yield f"token_url {problem}"
    elif _IN_THE_BODY & URL(grant.token_url).query.keys():
        yield "token_url must not hold parameters of the grant: give them to the grant itself"
    for name, value in _texts_of(grant):
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


def _texts_of(grant: Grant) -> Iterator[tuple[str, object]]:
    """The texts and secrets of a grant by name, save those that may be left out and are."""
    for field in attrs.fields(type(grant)):
        value = cast("object", getattr(grant, field.name))
        left_out = value is None and "None" in str(field.type)
        if field.name not in ("client_auth", "on_rotated", "use") and not left_out:
            yield field.name, value
