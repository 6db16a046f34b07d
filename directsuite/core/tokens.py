"""Tokens, and where they come from: a text, a function of the user's, or a source that knows how to ask.

token_source(what the user gave) ──► TokenSource ── fetch() ──► AccessToken ── usable? ──► the cache
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Protocol, cast, runtime_checkable

import attrs

from directsuite.core.checks import accepts, is_number
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret, as_secret
from directsuite.wire.models import ValueSemantics

_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")  # what a header can carry (RFC 6750 allows less)


@attrs.frozen(repr=False, eq=False)
class AccessToken(ValueSemantics):
    """A token and the seconds it is good for from when it was asked for; None: until it is refused."""

    token: Secret = attrs.field(converter=as_secret)
    expires_in: float | None = None


@runtime_checkable
class TokenSource(Protocol):
    """Where tokens come from. `renewable`: whether another fetch may give another token."""

    @property
    def renewable(self) -> bool:
        """Whether another fetch may give another token."""
        ...

    async def fetch(self) -> AccessToken:
        """A token that is good now."""
        ...


@runtime_checkable
class SpendingSource(Protocol):
    """A source whose fetch spends what it sends, as a rotating refresh token: an answer that is lost loses it."""

    @property
    def spends(self) -> bool:
        """Whether that is so."""
        ...


@attrs.frozen(repr=False, eq=False)
class StaticToken(ValueSemantics):
    """One token for ever."""

    token: Secret = attrs.field(converter=as_secret)
    renewable: bool = False

    async def fetch(self) -> AccessToken:
        """The token."""
        return AccessToken(self.token)


@attrs.frozen(repr=False, eq=False)
class CallableToken(ValueSemantics):
    """Tokens from a coroutine function of the user's, which gives a text or an AccessToken."""

    ask: Callable[[], Awaitable[str | AccessToken]] = attrs.field(repr=False)
    renewable: bool = True

    async def fetch(self) -> AccessToken:
        """What the function gives."""
        answer = await self.ask()
        return answer if isinstance(answer, AccessToken) else AccessToken(answer)


def token_source(token: str | Secret | Callable[[], Awaitable[str | AccessToken]] | TokenSource) -> TokenSource:
    """A TokenSource from anything that a user may give as `token`."""
    if isinstance(token, str | Secret):
        token = as_secret(token)
        if not token.reveal().strip():
            raise ConfigurationError("the token is empty: give the OAuth 2.0 access token, or a source of tokens")
        if not _VISIBLE.fullmatch(token.reveal()):
            raise ConfigurationError(
                "the token holds a line break or letter that no header can carry, or spaces around it"
            )
        return StaticToken(token)
    if not inspect.isclass(token):
        if isinstance(token, TokenSource) and callable(cast("object", token.fetch)):
            return token
        if callable(token) and accepts(token, 0):
            return CallableToken(token)
    raise ConfigurationError("token takes a text, an async callable that gives one, or a TokenSource")


def usable(given: object, *, in_header: bool) -> AccessToken:
    """What a source gave, if it is a token that can go on the wire."""
    if not isinstance(given, AccessToken):
        raise ConfigurationError(f"the token source gave {type(given).__name__} in place of an AccessToken")
    text = cast("object", given.token.reveal())  # a user's function may give anything
    if not isinstance(text, str):
        raise ConfigurationError(f"the token source gave {type(text).__name__} in place of a text")
    if not text or (in_header and not _VISIBLE.fullmatch(text)):
        raise ConfigurationError("the token source gave a token that is empty, or that no header can carry")
    lifetime = cast("object", given.expires_in)
    if lifetime is not None and not is_number(lifetime):
        raise ConfigurationError("the token source gave expires_in as something else than seconds: a number, or None")
    return given
