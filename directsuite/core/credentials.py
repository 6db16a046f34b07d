"""Tokens that are renewed before they expire: bearer tokens and registration sessions.

    TokenSource ── fetch() ──► TokenCache ── get_current() ──► attempt
                                   ▲                              │ 401, code 011
                                   └── invalidate(generation) ────┘

A fetch is one request for a new token. All callers that need a new token share one fetch. It runs in a separate task,
so the cancellation of a caller does not cancel it. If it fails, all callers get the error until the back-off ends. The
`retry_after` of the error says when that is, so the next attempt of a call starts a new fetch. This is the same for all
sources: token functions, OAuth grants and logins.

Each token has a number, its generation. `invalidate` names it, so that the late rejection of an old token does not
discard a newer one. `Rejections` limits the fetches for a service that rejects every new token.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, cast, runtime_checkable

import attrs

from directsuite.core.checks import can_be_called_with, is_async
from directsuite.core.clock import WAIT_TOLERANCE, Clock, sleep_in_background
from directsuite.core.events import Event, RenewalFailed, Renewed, SessionRenewed, TokenRefreshed
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import Backoff
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    TransportError,
)
from directsuite.wire.models import Secret, ValueSemantics, as_secret, is_number, name_type

_BACKOFF = Backoff(1.0, 60.0)
_MAX_KEEP_ALIVE_SLEEP = 3600.0
_CANCEL_SECONDS = 5.0
"""How long a cancelled fetch waits until the token source has ended."""
LONG_FETCH_TIMEOUT = 60.0
"""The minimum timeout, in seconds, of a fetch that repeats its requests, or that could lose a single-use token."""
_HINT_TIMEOUT = "if it needs longer, increase attempt_timeout"
_HINT_RAISE_OS_ERROR = (
    "the call is not repeated, because this is not an OSError. If a later attempt may succeed, raise an OSError in the "
    "token source, such as ConnectionError or TimeoutError"
)


@attrs.frozen(repr=False, eq=False)
class Credential:
    """A token and its generation. All times are in monotonic seconds."""

    token: Secret
    generation: int
    requested_at: float
    renew_at: float
    """The time from which the token is due for renewal."""
    expires_at: float


@attrs.define(repr=False, eq=False)
class Rejections:
    """The tokens that one service has rejected in a row, and the back-off of new tokens for this service.

    The first rejected token is replaced immediately, because it may have been revoked. If the service also rejects the
    new one, the next is fetched 1 s after the request for the rejected one, then after 2, 4, … 60 s. Other services,
    which may accept the rejected token, continue to use it until that fetch succeeds.

    The count starts again when the service accepts the newest of these tokens or a newer one (`Attempt`): after a
    successful response, and after an error that concerns only the item of the call.
    """

    count: int = attrs.field(default=0, init=False)
    unusable_generation: int = attrs.field(default=0, init=False)
    """The generation of the token that calls to this service must not use any more."""
    newest_generation: int = attrs.field(default=0, init=False)
    """The generation of the newest token that was rejected."""
    _replace_at: float = attrs.field(default=0.0, init=False)

    def record(self, credential: Credential, now: float) -> float:
        """Record that the current token was rejected. Return the seconds until it may be replaced."""
        if credential.generation > self.newest_generation:  # otherwise another call has recorded it
            self.newest_generation = credential.generation
            self.count += 1
            if self.count > 1:
                self._replace_at = credential.requested_at + _BACKOFF.compute_wait(self.count - 1)
        wait = max(0.0, self._replace_at - now)
        if not wait:
            self.unusable_generation = credential.generation
        return wait


@attrs.define(eq=False, repr=False)
class TokenCache:
    """The current token of a source."""

    source: TokenSource
    clock: Clock
    margin: float = 60.0
    """Seconds before expiry from which the token is renewed, at most half of its lifetime."""
    fetch_timeout: float = LONG_FETCH_TIMEOUT
    """Timeout of one fetch, in seconds of the event loop's clock. A source that takes longer is cancelled. If it
    ignores that, the fetch ends anyway, and the source's result is not used. With single-use tokens, the fetch waits
    for the source, and uses its result.
    """
    in_header: bool = True
    """True if a token must be a valid header value."""
    keep_alive: bool = False
    """True if the token is renewed in the background, after the first one, even if no caller needs it."""
    emit: Callable[[Event], None] = lambda _: None
    """Receives an event for each renewal and each failed renewal."""
    renewed_event: type[Renewed] = TokenRefreshed
    """The class of the event for a renewal."""
    _credential: Credential | None = attrs.field(default=None, init=False)
    _generation: int = attrs.field(default=0, init=False)
    _fetch_task: asyncio.Task[Credential] | None = attrs.field(default=None, init=False)
    source_tasks: set[asyncio.Future[AccessToken]] = attrs.field(factory=set["asyncio.Future[AccessToken]"], init=False)
    """The tasks that run the source: the task of the fetch in progress, and cancelled tasks that have not ended."""
    _retry: tuple[DirectSuiteError, float] | None = attrs.field(default=None, init=False)
    """The failure of a request within the fetch in progress, and the time of the next one."""
    _failure: DirectSuiteError | None = attrs.field(default=None, init=False)
    _source_error: Exception | None = attrs.field(default=None, init=False)
    """The exception that the user's source raised in the last fetch."""
    _failures: int = attrs.field(default=0, init=False)
    _try_again_at: float = attrs.field(default=0.0, init=False)
    _pause_end: float = attrs.field(default=0.0, init=False)
    """The end of the pause that the service requested at the last failure."""
    _closed: bool = attrs.field(default=False, init=False)
    _keep_alive_task: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    @property
    def renewable(self) -> bool:
        """True if a rejected token can be replaced by a new one."""
        return self.source.renewable

    def explain_rejection(self) -> str:
        """Return what to do if the service rejects a token that cannot be replaced."""
        if not isinstance(self.source, StaticToken):
            return "the token is invalid or has expired, and its source cannot renew it"
        return (
            f"the token is invalid or has expired, and a constant one (here {self.source.origin}) cannot be renewed. "
            "Replace it, or pass an async function or an OAuth client instead"
        )

    @property
    def is_builtin(self) -> bool:
        """True if the source sends a login or token request of the suite, and is not code of the user."""
        return bool(getattr(self.source, "is_builtin", False))

    @property
    def _is_single_use(self) -> bool:
        """True if the source sends a token that can be used once, and so must not be lost, or sent by two fetches."""
        return bool(getattr(self.source, "single_use", False))

    def peek(self, newer_than: int = 0) -> Credential | None:
        """Return the current credential, or None if there is none or it is due for renewal.

        newer_than: as in `get_current`.
        """
        credential = self._credential
        if credential is None or credential.generation <= newer_than:
            return None
        return credential if self.clock.monotonic() < credential.renew_at else None

    async def get_current(self, newer_than: int = 0) -> Credential:
        """Return a credential that has not expired. Wait for a fetch only if there is none.

        A credential that is due for renewal is returned immediately and renewed in the background. Raises the error of
        a failed fetch, also during the back-off, and ClosedError if a fetch is needed but the cache is closed.

        newer_than: a generation. It and older ones are not returned.
        """
        credential = self._credential
        if credential is None or credential.generation <= newer_than or self.clock.monotonic() >= credential.expires_at:
            return await self._wait_for_fetch()
        if self.peek() is not None:
            return credential
        if not (self.is_backing_off or self._closed):
            self._start_or_join_fetch()
        return credential

    def is_current(self, credential: Credential, newer_than: int = 0) -> bool:
        """Return True if `credential` is the current one and has not expired.

        newer_than: as in `get_current`.
        """
        is_usable = self._credential is credential and credential.generation > newer_than
        return is_usable and self.clock.monotonic() < credential.expires_at

    def store(self, token: AccessToken, requested_at: float) -> Credential:
        """Replace the current credential by a token, unless the current one was requested later. End a back-off.

        Return the credential that is current afterwards.

        requested_at: time at which the token was requested, in monotonic seconds.
        """
        self._failure, self._failures, self._retry = None, 0, None
        if self._credential is not None and requested_at < self._credential.requested_at:
            return self._credential
        self._generation += 1
        lifetime = float("inf") if token.expires_in is None else token.expires_in
        margin = min(self.margin, lifetime / 2)  # otherwise a short-lived token would always be due
        self._credential = Credential(
            token.token,
            self._generation,
            requested_at=requested_at,
            renew_at=requested_at + lifetime - margin,
            expires_at=requested_at + lifetime,
        )
        self.emit(self.renewed_event(generation=self._generation, expires_in=token.expires_in))
        if self.keep_alive and self._keep_alive_task is None and not self._closed:
            # Without the context of the call that fetched the first token, to whose group it would belong.
            context = contextvars.Context()
            self._keep_alive_task = context.run(
                asyncio.create_task, self._run_keep_alive(), name="directsuite-keep-alive"
            )
        return self._credential

    def invalidate(self, generation: int) -> None:
        """Discard the current credential if it has this generation, because the service rejected it."""
        if self._credential is not None and self._credential.generation == generation:
            self._credential = None

    def find_failure(self) -> tuple[DirectSuiteError, float] | None:
        """Return the last failure, and the seconds until the next request, 0 if it is in progress.

        Return None if nothing has failed since the last token was received.
        """
        failure, due = self._retry or (self._failure, self._try_again_at)
        if failure is None:
            return None
        return _copy_without_traceback(failure, self._source_error), max(0.0, due - self.clock.monotonic())

    def _record_retry(self, failure: DirectSuiteError, wait: float) -> None:
        if self._fetch_task is not None:  # a task that the source has started may call this later
            self._retry = _copy_without_traceback(failure, None), self.clock.monotonic() + wait

    def stop(self) -> None:
        """Stop the background renewal, and start no more fetches. A fetch in progress continues."""
        self._closed = True
        if self._keep_alive_task is not None:
            self._keep_alive_task.cancel()

    async def wait_for_single_use_fetch(self, seconds: float) -> None:
        """Wait for a fetch in progress, at most `seconds`, if cancelling it would lose a single-use token."""
        if self._fetch_task is not None and self._is_single_use:
            await asyncio.wait([self._fetch_task], timeout=seconds)

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Stop, and cancel the fetch in progress. Return the cancelled tasks, which may still be running."""
        self.stop()
        ending: list[asyncio.Task[Any]] = [
            task for task in (self._keep_alive_task, self._fetch_task) if task is not None
        ]
        for task in ending:
            task.cancel()
        return ending

    async def _run_keep_alive(self) -> None:
        """Renew the credential whenever it is due, until the cache is closed or a fetch raises AuthenticationError."""
        while not isinstance(self._failure, AuthenticationError):
            wait = min(max(self._compute_due_time() - self.clock.monotonic(), _BACKOFF.first), _MAX_KEEP_ALIVE_SLEEP)
            await sleep_in_background(self.clock, wait)
            if self._compute_due_time() <= self.clock.monotonic():  # a caller may have renewed it during the sleep
                with contextlib.suppress(DirectSuiteError):  # tried again after the back-off
                    await asyncio.shield(self._start_or_join_fetch())
        # More tries could lock the account. `store` starts this task again.
        self._keep_alive_task = None

    def _compute_due_time(self) -> float:
        if self._failure is not None:
            return self._try_again_at
        return self.clock.monotonic() if self._credential is None else self._credential.renew_at

    @property
    def is_backing_off(self) -> bool:
        """True if the last fetch failed, and the time of the next one has not come."""
        return self._failure is not None and self._try_again_at - self.clock.monotonic() > WAIT_TOLERANCE

    def _start_or_join_fetch(self) -> asyncio.Task[Credential]:
        if self._fetch_task is None or self._fetch_task.done():
            self._fetch_task = asyncio.create_task(self._fetch(), name="directsuite-token")
            self._fetch_task.add_done_callback(self._handle_fetch_done)
        return self._fetch_task

    async def _wait_for_fetch(self) -> Credential:
        if self._closed:
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._failure is not None and self.is_backing_off:
            failure = _copy_without_traceback(self._failure, self._source_error)
            if failure.retry_after is not None or self._is_temporary(failure):
                failure.retry_after = max(self._try_again_at, self._pause_end) - self.clock.monotonic()
            raise failure
        refresh = self._start_or_join_fetch()
        cancellations = _count_cancellations()
        try:
            return await asyncio.shield(refresh)
        except asyncio.CancelledError:
            if not refresh.cancelled() or _count_cancellations() > cancellations:
                raise  # the caller was cancelled; the fetch continues for other callers
            error: DirectSuiteError = ClosedError("the suite was closed while a token was being fetched")
        except DirectSuiteError as failure:
            error = failure.copy()
            error.__cause__ = failure.__cause__
            if error.operation is None and self._is_temporary(error):  # a login or token request has its own retries
                error.retry_after = max(error.retry_after or 0.0, self._try_again_at - self.clock.monotonic())
        raise error

    def _is_temporary(self, failure: DirectSuiteError) -> bool:
        """Return True if another fetch may succeed."""
        if failure.operation is None or not self.is_builtin:
            was_not_sent = failure.operation is None and failure.outcome is Outcome.NOT_SENT
            return was_not_sent and not is_permanent_source_failure(failure)
        # A code that may have been used is not sent again.
        return failure.outcome is not Outcome.FAILED and not isinstance(failure, OutcomeUnknownError)

    def _handle_fetch_done(self, task: asyncio.Task[Credential]) -> None:
        if self._fetch_task is task:  # otherwise a newer fetch has started
            self._fetch_task = None
        if not task.cancelled():
            task.exception()  # otherwise the event loop logs it

    async def _fetch(self) -> Credential:
        # An eager task runs before create_task returns, and the source may start tasks that also need a token.
        self._fetch_task = cast("asyncio.Task[Credential]", asyncio.current_task())
        _RECORD_RETRY.set(self._record_retry)
        requested_at = self.clock.monotonic()  # the lifetime counts from here
        running = asyncio.ensure_future(self._call_source())
        try:
            token = await self._fetch_validated(running)
        except DirectSuiteError as failure:
            # The text of an exception that the user's source raised may contain a secret.
            is_from_source = self._source_error is not None or (
                running.done() and not running.cancelled() and running.exception() is failure
            )
            self._failure = _copy_without_traceback(failure, self._source_error)
            self._failures += 1
            wait = _BACKOFF.compute_wait(self._failures)
            self._try_again_at = self.clock.monotonic() + wait
            self._pause_end = self.clock.monotonic() + (failure.retry_after or 0.0)
            self.emit(
                RenewalFailed(
                    error=type(failure).__name__,
                    reason=failure.explanation if self.is_builtin or not is_from_source else None,
                    cause=None if self._source_error is None else type(self._source_error).__name__,
                    credential="session" if self.renewed_event is SessionRenewed else "token",
                    back_off=wait,
                )
            )
            raise
        return self.store(token, requested_at)

    async def _call_source(self) -> AccessToken:
        return await self.source.fetch()  # a source that is not async raises here

    async def _fetch_validated(self, running: asyncio.Future[AccessToken]) -> AccessToken:
        try:
            return validate_token(await self._wait_for_source(running), in_header=self.in_header)
        except DirectSuiteError:
            raise
        except asyncio.CancelledError:
            if _count_cancellations():
                raise  # this task was cancelled because the suite is closing
            raise TransportError(
                "the token source was cancelled, although the call was not", outcome=Outcome.NOT_SENT
            ) from None
        except Exception as error:
            self._source_error = error
            repeated = f", failure {self._failures + 1} in a row" if self._failures else ""
            text = f"the token source raised {type(error).__name__}{repeated}"
            failure = TransportError(text, outcome=Outcome.NOT_SENT)
            if not isinstance(error, OSError):
                failure.advice = _HINT_RAISE_OS_ERROR
            raise failure from error

    async def _wait_for_source(self, running: asyncio.Future[AccessToken]) -> AccessToken:
        """Return the token of the source. Raises TransportError if it takes too long."""
        self.source_tasks.add(running)
        running.add_done_callback(self._handle_source_done)
        try:
            done, _ = await asyncio.wait([running], timeout=self.fetch_timeout)
            if done:
                return running.result()
        finally:
            self._retry = self._source_error = None
            if not running.done():
                running.cancel()
                await asyncio.wait([running], timeout=None if self._is_single_use else _CANCEL_SECONDS)
        if self._is_single_use and not running.cancelled():
            return running.result()
        text = f"the token source took longer than {self.fetch_timeout:g} s"
        failure = TransportError(text, outcome=Outcome.NOT_SENT)
        failure.advice = _HINT_TIMEOUT
        raise failure

    def _handle_source_done(self, running: asyncio.Future[AccessToken]) -> None:
        self.source_tasks.discard(running)
        if not running.cancelled():
            running.exception()  # otherwise the event loop logs it


_RECORD_RETRY: ContextVar[Callable[[DirectSuiteError, float], None] | None] = ContextVar("record_retry", default=None)


def record_retry(failure: DirectSuiteError, wait: float) -> None:
    """Record that a request failed and is repeated after `wait` seconds, if it is part of a token fetch."""
    record = _RECORD_RETRY.get()
    if record is not None:
        record(failure, wait)


def is_permanent_source_failure(failure: DirectSuiteError) -> bool:
    """Return True if the user's token source raised an exception that does not come from the network or a file."""
    cause = failure.__cause__
    is_from_source = failure.outcome is Outcome.NOT_SENT and isinstance(cause, Exception)
    return is_from_source and not isinstance(cause, DirectSuiteError | OSError)


def _copy_without_traceback(failure: DirectSuiteError, source_error: Exception | None) -> DirectSuiteError:
    again, cause = failure.copy(), failure.__cause__
    again.__cause__ = cause.copy() if isinstance(cause, DirectSuiteError) else source_error
    return again


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def find_header_problem(token: str) -> str | None:
    """Return why a token is not a valid header value, as the predicate of a sentence, or None if it is valid."""
    if not token.strip():
        return "is empty"
    if token.lower().startswith("bearer "):
        return "begins with the word Bearer, which every request adds: omit it"
    if "\n" in token or "\r" in token:
        return "contains a line break: remove it"
    if token != token.strip():
        return "starts or ends with whitespace"
    # RFC 6750 allows even fewer characters.
    return None if token.isascii() and token.isprintable() else "contains a character that is not allowed in a header"


@scrub_class
@attrs.frozen(repr=False, eq=False)
class AccessToken(ValueSemantics):
    """A token and its lifetime.

    token: the text of the token.
    expires_in: the lifetime in seconds, more than 0, counted from the start of the token function. The token is renewed
        before it ends. None: the token is used until the service rejects it. Any other value is an error.
    """

    token: Secret = attrs.field(converter=as_secret)
    expires_in: float | None = None


@runtime_checkable
class TokenSource(Protocol):
    """Fetches tokens.

    A fetch that takes longer than `attempt_timeout` is cancelled, and the next attempt calls `fetch` again.

    If each fetch sends a single-use token, such as a rotating refresh token, set the attribute `single_use = True`. The
    limit is then at least a minute, and closing the suite waits a few seconds for the response, so that the new token
    is not lost.
    """

    @property
    def renewable(self) -> bool:
        """True if another fetch can return a different token."""
        ...

    async def fetch(self) -> AccessToken:
        """Return a valid token.

        A DirectSuiteError, such as `ConfigurationError("renew VAULT_TOKEN")`, is raised unchanged. Other exceptions
        become the cause of a TransportError. An OSError, such as TimeoutError, is tried again, others are not.
        """
        ...


@attrs.frozen(repr=False, eq=False)
class StaticToken(ValueSemantics):
    """A source that always returns the same token. origin: where it was set, for errors."""

    token: Secret = attrs.field(converter=as_secret)
    origin: str
    renewable: bool = False

    async def fetch(self) -> AccessToken:
        """Return the token."""
        return AccessToken(self.token)


@attrs.frozen(repr=False, eq=False)
class CallableToken(ValueSemantics):
    """A source that calls an async function of the user, which returns a str or an AccessToken."""

    function: Callable[[], Awaitable[str | AccessToken]] = attrs.field(repr=False)
    renewable: bool = True

    async def fetch(self) -> AccessToken:
        """Call the function and return its result as an AccessToken."""
        token = await self.function()
        return token if isinstance(token, AccessToken) else AccessToken(token)


def make_token_source(
    token: str | Secret | Callable[[], Awaitable[str | AccessToken]] | TokenSource,
    origin: str = "token=... of the suite",
) -> TokenSource:
    """Create a TokenSource from a `token` argument. origin: where a constant token was set.

    Raises ConfigurationError if the argument is not a token, function or source, or if the token is malformed.
    """
    if isinstance(token, str | Secret):
        token = as_secret(token)
        if problem := find_header_problem(token.reveal()):
            raise ConfigurationError(f"{origin}: the token {problem}")
        return StaticToken(token, origin)
    if not inspect.isclass(token):
        if isinstance(token, TokenSource) and callable(cast("object", token.fetch)):
            return token
        if callable(token) and can_be_called_with(token, 0):
            if not is_async(inspect.unwrap(token)):
                raise ConfigurationError("token must be an async function (`async def`), not a plain function")
            return CallableToken(token)
    raise ConfigurationError("token must be a string, an async callable that returns one, or a TokenSource")


def validate_token(token: object, *, in_header: bool) -> AccessToken:
    """Return the token unchanged. Raises ConfigurationError if a source returned no valid AccessToken.

    in_header: whether the token must be a valid header value.
    """
    if not isinstance(token, AccessToken):
        raise ConfigurationError(f"the token source returned {type(token).__name__} instead of an AccessToken")
    text = cast("object", token.token.reveal())  # a function of the user may return anything
    if not isinstance(text, str):
        raise ConfigurationError(f"the token source returned {name_type(text)} as the token, instead of a string")
    if (in_header or not text) and (problem := find_header_problem(text)):
        raise ConfigurationError(f"the token source returned a token that {problem}")
    lifetime = cast("object", token.expires_in)
    if lifetime is not None and not (is_number(lifetime) and cast("float", lifetime) > 0):
        raise ConfigurationError(
            "the token source returned an invalid expires_in: it must be the lifetime in seconds, more than 0, or None"
        )
    return token
