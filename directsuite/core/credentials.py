"""Tokens that are renewed before they expire: bearer tokens and registration sessions alike.

    TokenSource ── fetch() ──► TokenCache ── current() ──► attempt
                                   ▲                          │ 401, code 011
                                   └── invalidate(generation)─┘

However many callers need a new token, one fetch gets it (single flight), in a task of its own that no caller's
cancellation can kill. A late refusal of an old token never throws away the new one: tokens are numbered, and
invalidation names the number. A failure reaches all who waited for it, and further fetches back off.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast, runtime_checkable

import attrs

from directsuite.core.checks import accepts
from directsuite.core.clock import Clock
from directsuite.core.events import Event, RenewalFailed, Renewed, TokenRefreshed
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import Backoff
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    Outcome,
    TransportError,
)
from directsuite.secret import Secret, as_secret
from directsuite.wire.models import ValueSemantics, is_number

_BACKOFF = Backoff(1.0, 60.0)
_LONGEST_NAP = 3600.0


@attrs.frozen
class Credential:
    """A token with its number, and its moments in monotonic seconds."""

    token: Secret
    generation: int
    asked_at: float
    renew_at: float
    """From then on it is renewed."""
    expires_at: float


class TokenCache:
    """The current token of a source.

    margin: seconds before expiry at which it is renewed. patience: of one fetch. in_header: tokens have to fit into a
    header; a path takes any. keep_alive: renew it from then on in the background, whether or not anybody asks for it.
    emit: told of renewals, each a `renewed`, and of their failures.
    """

    def __init__(
        self,
        source: TokenSource,
        clock: Clock,
        *,
        margin: float = 60.0,
        patience: float = 60.0,
        in_header: bool = True,
        keep_alive: bool = False,
        emit: Callable[[Event], None] = lambda _: None,
        renewed: type[Renewed] = TokenRefreshed,
    ) -> None:
        self._source = source
        self._clock = clock
        self._margin = margin
        self._patience = patience
        self._in_header = in_header
        self._credential: Credential | None = None
        self._generation = 0
        self._refresh: asyncio.Task[Credential] | None = None
        self._failure: DirectSuiteError | None = None
        self._failures = 0
        self._try_again_at = 0.0
        self._closed = False
        self._keep_alive = keep_alive
        self._keeper: asyncio.Task[None] | None = None
        self._emit = emit
        self._kind = renewed

    @property
    def renewable(self) -> bool:
        """A refused token may be replaced by another."""
        return self._source.renewable

    def at_once(self) -> Credential | None:
        """The credential, where nothing has to be waited for or done: it is not due yet."""
        credential = self._credential
        return credential if credential is not None and self._clock.monotonic() < credential.renew_at else None

    async def current(self) -> Credential:
        """A credential that is still good. Within the margin it is renewed in the background; nobody waits for that."""
        credential = self._credential
        if credential is None or self._clock.monotonic() >= credential.expires_at:
            return await self._renewed()
        if self.at_once() is not None:
            return credential
        if not (self._backs_off() or self._closed):
            self._refreshing()
        return credential

    def holds(self, credential: Credential) -> bool:
        """Return True if `credential` is the current one and has not expired."""
        return self._credential is credential and self._clock.monotonic() < credential.expires_at

    def now(self) -> float:
        """The moment, on the cache's clock, from which a token asked for now is counted."""
        return self._clock.monotonic()

    def adopt(self, token: AccessToken, asked_at: float) -> Credential:
        """Use a token from here on, whatever is left of the current one, unless that was asked for later.

        asked_at: the moment it was asked for.
        """
        self._failure, self._failures = None, 0
        if self._credential is not None and asked_at < self._credential.asked_at:
            return self._credential
        self._generation += 1
        lifetime = float("inf") if token.expires_in is None else token.expires_in
        margin = min(self._margin, lifetime / 2)  # a token that lives shorter than the margin is still used
        self._credential = Credential(
            token.token,
            self._generation,
            asked_at=asked_at,
            renew_at=asked_at + lifetime - margin,
            expires_at=asked_at + lifetime,
        )
        self._emit(self._kind(generation=self._generation, expires_in=token.expires_in))
        if self._keep_alive and self._keeper is None and not self._closed:
            self._keeper = asyncio.create_task(self._keep(), name="directsuite-keep-alive")
        return self._credential

    def invalidate(self, generation: int) -> None:
        """Forget the credential of this generation, which the service refused; a newer one stays."""
        if self._credential is not None and self._credential.generation == generation:
            self._credential = None

    def stop(self) -> None:
        """Begin no further fetch."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait for a fetch under way where to break it off would lose what it spends."""
        if self._refresh is not None and getattr(self._source, "spends", False):
            await asyncio.wait([self._refresh], timeout=seconds)

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Break off what is under way; the tasks that are ending."""
        self.stop()
        ending: list[asyncio.Task[Any]] = [task for task in (self._keeper, self._refresh) if task is not None]
        for task in ending:
            task.cancel()
        return ending

    async def aclose(self) -> None:
        """Break off what is under way, and begin no other fetch."""
        if ending := self.cancel():
            await asyncio.wait(ending)

    async def _keep(self) -> None:
        """Renew the credential whenever it is due, until closing, or until the source says who asks is wrong."""
        while not isinstance(self._failure, AuthenticationError):
            await self._clock.sleep(min(max(self._due() - self.now(), _BACKOFF.first), _LONGEST_NAP))
            if self._due() <= self.now():  # it may have been renewed meanwhile
                with contextlib.suppress(DirectSuiteError):  # told already; the next try is after the back-off
                    await asyncio.shield(self._refreshing())
        self._keeper = None  # trying on could lock the account; the next credential is kept alive again

    def _due(self) -> float:
        if self._failure is not None:
            return self._try_again_at
        return self.now() if self._credential is None else self._credential.renew_at

    def _backs_off(self) -> bool:
        return self._failure is not None and self._clock.monotonic() < self._try_again_at

    def _refreshing(self) -> asyncio.Task[Credential]:
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._fetch(), name="directsuite-token")
            self._refresh.add_done_callback(self._fetched)
        return self._refresh

    async def _renewed(self) -> Credential:
        if self._closed:
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._failure is not None and self._backs_off():
            raise _detached(self._failure)
        refresh = self._refreshing()
        cancellations = _cancellations()
        try:
            return await asyncio.shield(refresh)
        except asyncio.CancelledError:
            if not refresh.cancelled() or _cancellations() > cancellations:
                raise  # the caller was cancelled; the fetch goes on for the others
            error: DirectSuiteError = ClosedError("the suite was closed while a token was being fetched")
        except DirectSuiteError as failure:
            error = failure.copy()
            error.__cause__ = failure.__cause__
        raise error

    def _fetched(self, task: asyncio.Task[Credential]) -> None:
        if self._refresh is task:  # else another has begun
            self._refresh = None
        if not task.cancelled():
            task.exception()  # seen here, so that a failure nobody waits for is no complaint of the event loop's

    async def _fetch(self) -> Credential:
        # An eager task runs before create_task returns, and the source may start tasks that also need a token.
        self._refresh = cast("asyncio.Task[Credential]", asyncio.current_task())
        asked_at = self.now()  # life counts from here: the answer may have been long on its way
        try:
            token = await self._ask()
        except DirectSuiteError as failure:
            self._failure = _detached(failure)
            self._failures += 1
            wait = _BACKOFF.after(self._failures)
            self._try_again_at = self._clock.monotonic() + wait
            self._emit(RenewalFailed(error=type(failure).__name__, back_off=wait))
            raise
        return self.adopt(token, asked_at)

    async def _ask(self) -> AccessToken:
        try:
            async with asyncio.timeout(self._patience):
                return usable(await self._source.fetch(), in_header=self._in_header)
        except DirectSuiteError:
            raise
        except asyncio.CancelledError:
            if _cancellations():
                raise  # it is the fetch that was cancelled, by closing
            raise TransportError("the token source was cancelled from within", outcome=Outcome.NOT_SENT) from None
        except TimeoutError:
            raise TransportError("the token source took too long", outcome=Outcome.NOT_SENT) from None
        except Exception as error:
            raise TransportError(f"the token source raised {type(error).__name__}", outcome=Outcome.NOT_SENT) from error


def _detached(failure: DirectSuiteError) -> DirectSuiteError:
    """The same failure, for the time after it: no traceback of it keeps the frames of its call alive."""
    again, cause = failure.copy(), failure.__cause__
    again.__cause__ = cause.copy() if isinstance(cause, DirectSuiteError) else None
    return again


def _cancellations() -> int:
    """How often the running task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")  # what a header can carry (RFC 6750 allows less)


@scrub_class
@attrs.frozen(repr=False, eq=False)
class AccessToken(ValueSemantics):
    """A token, and how long it is good for."""

    token: Secret = attrs.field(converter=as_secret)
    expires_in: float | None = None
    """Seconds from when it was asked for; None: until it is refused."""


@runtime_checkable
class TokenSource(Protocol):
    """Where tokens come from.

    One whose fetch spends what it sends, as a rotating refresh token, says so by an attribute `spends`: closing waits a
    moment for its answer, without which the token would be lost.
    """

    @property
    def renewable(self) -> bool:
        """Another fetch may give another token."""
        ...

    async def fetch(self) -> AccessToken:
        """A token that is good now."""
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
        if token.reveal().lower().startswith("bearer "):
            raise ConfigurationError("the token begins with the word Bearer, which every request adds: leave it out")
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


def usable(answer: object, *, in_header: bool) -> AccessToken:
    """What a source gave, if it is a token that can go on the wire."""
    if not isinstance(answer, AccessToken):
        raise ConfigurationError(f"the token source gave {type(answer).__name__} in place of an AccessToken")
    text = cast("object", answer.token.reveal())  # a user's function may give anything
    if not isinstance(text, str):
        raise ConfigurationError(f"the token source gave {type(text).__name__} in place of a text")
    if not text or (in_header and not _VISIBLE.fullmatch(text)):
        raise ConfigurationError("the token source gave a token that is empty, or that no header can carry")
    lifetime = cast("object", answer.expires_in)
    if lifetime is not None and not is_number(lifetime):
        raise ConfigurationError("the token source gave expires_in as something else than seconds: a number, or None")
    return answer
