"""The HTTP session of a suite: opening and closing, the connections, and the timeouts of all attempts.

A suite belongs to the event loop and the process in which it was opened. It can be used and closed only there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp

from directsuite._version import __version__
from directsuite.core.clock import Clock
from directsuite.core.response import ResponseStream
from directsuite.errors import ClosedError, ConfigurationError, Outcome

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from directsuite.core.credentials import TokenCache

T = TypeVar("T")

SessionFactory = Callable[[], aiohttp.ClientSession]

_DRAIN_TIMEOUT = 5.0
"""Seconds for which closing waits for the response to a single-use token, and then for cancelled fetches."""


_GET_LOOP_IS_SLOW = sys.version_info < (3, 12)
"""True if `asyncio.get_running_loop` makes a system call."""

_fork_count = 0
"""Number of forks before this process. Cheaper to read than the process ID."""


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Session:
    """Opens and closes the HTTP session, and tracks the calls in progress.

    secure: whether any service has an https URL.
    tls: TLS context of all requests. None: the system's trust store and TLS 1.2 or newer; with a factory, the TLS
        settings of its session.
    proxy: URL of an HTTP proxy. None: no proxy; with a factory, the proxy of its session.
    factory: function that returns the aiohttp session to use. None: create a session here.
    close_session: whether closing also closes the factory's session.
    """

    def __init__(
        self,
        *,
        secure: bool,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        factory: SessionFactory | None,
        close_session: bool = True,
        clock: Clock,
    ) -> None:
        self._secure = secure
        self._tls = tls
        self._proxy = proxy
        self._factory = factory
        self._close_session = close_session or factory is None
        self.shared = factory is not None
        """True if the HTTP session comes from the user. Other code may use it, and it may send cookies."""
        self.open_responses: set[ResponseStream] = set()
        """The responses that are being read. Closing the suite closes them."""
        self.token_caches: Sequence[TokenCache] = ()
        """The token caches. They may fetch tokens until the calls in progress have ended."""
        self.request_options: dict[str, Any] = {}
        """Arguments `ssl` and `proxy` of each request. The session's setting applies if one is missing."""
        self._clock = clock
        self._waiting: set[asyncio.Future[Any]] = set()
        self._http: aiohttp.ClientSession | None = None
        self._timeouts: TimeoutScheduler | None = None
        self._thread_id = 0
        self._fork_count = 0
        self._opening = False
        self.closed = False
        """True if closing has begun."""
        self._closing_finished: asyncio.Event | None = None
        self.calls = 0
        """The number of calls in progress. The last one to end must call `notify_idle`."""
        self._idle: asyncio.Event | None = None

    @property
    def http(self) -> aiohttp.ClientSession:
        """The open HTTP session. Raises ClosedError if it is not open."""
        if self._http is None:
            raise ClosedError("the suite is closed: open a new one", outcome=Outcome.NOT_SENT)
        if self._http.closed:
            raise ClosedError(
                "other code closed the HTTP session: if suites share a session, set close_session=False in each of them"
            )
        return self._http

    @property
    def timeouts(self) -> TimeoutScheduler:
        """The timeouts of the attempts in progress. Raises ClosedError if the suite was never opened."""
        if self._timeouts is None:
            raise _make_closed_error()
        return self._timeouts

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`. Raises ClosedError if the suite is not open, or is closed first."""
        await self.wait(self._clock.sleep(seconds))

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable and return its result, or raise its exception.

        Cancelling the caller cancels the awaitable. Raises ClosedError if the suite is not open, or is closed first.
        """
        if self._http is None:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()  # a coroutine that is never awaited causes a warning
            raise _make_closed_error()
        waiting = asyncio.ensure_future(awaitable)
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting])
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()
        if waiting.cancelled() and self.closed:
            raise _make_closed_error()
        return waiting.result()

    @property
    def state(self) -> str:
        """The state as text for `repr`: "closed", "open" or "not open"."""
        if self.closed:
            return "closed"
        return "not open" if self._http is None else "open"

    async def open(self) -> None:
        """Create the HTTP session in the running event loop. A suite can be opened only once.

        Raises ClosedError if the suite is closed before or while it opens. Raises ConfigurationError if it is already
        open, or if the factory returns no aiohttp session or one that is unsafe to use.
        """
        if self.closed:
            raise ClosedError("the suite was closed: create a new DirectSuite")
        if self._http is not None or self._opening:
            raise ConfigurationError("the suite is already open: share it between tasks instead of entering it twice")
        self._opening = True
        try:
            if self._secure and self._tls is None and self._factory is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads certificates from disk
            if self.closed:
                raise ClosedError("the suite was closed while it was being opened: create a new DirectSuite")
            self._timeouts = TimeoutScheduler(asyncio.get_running_loop())
            self._thread_id = threading.get_ident()
            self._fork_count = _fork_count
            overrides = {"ssl": self._tls, "proxy": self._proxy}
            self.request_options = {name: value for name, value in overrides.items() if value is not None}
            http = _call_factory(self._factory) if self._factory is not None else _create_session()
            problem = _find_session_problem(http)
            if problem is not None:
                if self._close_session:
                    await http.close()
                raise ConfigurationError(f"session_factory: {problem}")
            self._http = http
            tune_malloc()
        finally:
            self._opening = False

    def require_usable(self, *, nested: bool = False) -> None:
        """Raise an error if the suite cannot be used now, in this event loop and process.

        nested: True if the request belongs to a call in progress. It is then allowed while closing waits for calls.

        Raises ClosedError if the suite is not open, and ConfigurationError if it was opened in another event loop, or
        before a fork.
        """
        if self.closed and not (nested and self.calls and self._http is not None):
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._http is None:
            raise ClosedError("the suite is not open yet: use it inside `async with DirectSuite(...) as suite:`")
        self._check_loop_and_process()

    def _check_loop_and_process(self) -> None:
        loop = None if self._timeouts is None else self._timeouts.loop
        here = _GET_LOOP_IS_SLOW and self._thread_id == threading.get_ident() and loop is not None and loop.is_running()
        if self._fork_count == _fork_count and (here or asyncio.get_running_loop() is loop):
            return
        if self._fork_count != _fork_count:
            raise ConfigurationError(
                "the suite was opened before this process was forked: connections can't be shared between processes. "
                "Create and open a DirectSuite in each worker process, after the fork"
            )
        raise ConfigurationError(
            "the suite belongs to another event loop: create and open a DirectSuite in each loop that uses one"
        )

    def notify_idle(self) -> None:
        """Wake `close` because the last call in progress has ended."""
        if self._idle is not None:
            self._idle.set()

    async def close(self, grace: float) -> None:
        """Reject new calls, wait for the calls in progress, then close all connections.

        grace: maximum time to wait for calls in progress, in seconds.

        Fetches that send a single-use token get up to 5 more seconds. If another task is closing the suite, wait for
        it. Raises ConfigurationError in another event loop, or after a fork.
        """
        if self._http is None and self._closing_finished is None:
            self.closed = True
            return
        if self._closing_finished is not None:
            if not self._closing_finished.is_set():
                self._check_loop_and_process()
                await self._closing_finished.wait()
            return
        self._check_loop_and_process()
        self.closed = True
        self._closing_finished = asyncio.Event()
        try:
            if self.calls and grace > 0:
                self._idle = asyncio.Event()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._idle.wait()
        finally:
            try:
                await self._close_resources()
            finally:
                self._closing_finished.set()

    async def _close_resources(self) -> None:
        http, self._http = self._http, None  # no request can be sent from now on
        for waiting in tuple(self._waiting):
            waiting.cancel()
        for cache in self.token_caches:
            cache.stop()
        try:
            await self._drain_shielded()
        finally:
            await self._end_connections(http)

    async def _drain_shielded(self) -> None:
        """Wait for the responses to single-use tokens.

        A first cancellation is raised only after this wait; a second one ends it.
        """
        draining = asyncio.ensure_future(self._drain_caches())
        try:
            await asyncio.shield(draining)
        except asyncio.CancelledError:
            await draining
            raise

    async def _drain_caches(self) -> None:
        for cache in self.token_caches:
            await cache.wait_for_single_use_fetch(_DRAIN_TIMEOUT)

    async def _end_connections(self, http: aiohttp.ClientSession | None) -> None:
        for response in tuple(self.open_responses):
            response.close()  # aiohttp does not wake a task that waits for data
        ending = [task for cache in self.token_caches for task in cache.cancel()]
        try:
            if http is not None and self._close_session:
                await http.close()
        finally:
            if self._timeouts is not None:
                # Some attempts use another HTTP session, or a shared session that stays open. This ends them too.
                self._timeouts.close()
            if ending:
                await asyncio.wait(ending, timeout=_DRAIN_TIMEOUT)  # a token source may delay it


def _make_closed_error() -> ClosedError:
    return ClosedError("the suite was closed while the call waited", outcome=Outcome.NOT_SENT)


def _call_factory(factory: SessionFactory) -> aiohttp.ClientSession:
    made = cast("object", factory())  # the factory may ignore its return type
    if isinstance(made, aiohttp.ClientSession):
        return made
    if inspect.iscoroutine(made):
        made.close()  # a coroutine that is never awaited causes a warning
    raise ConfigurationError(
        f"session_factory: it must return an aiohttp.ClientSession, not an object of type {type(made).__name__}: "
        "set a plain function that returns a session"
    )


def _find_session_problem(http: aiohttp.ClientSession) -> str | None:
    if http.auth is not None or http.trust_env:
        return "omit auth and trust_env, which would send other passwords. For a proxy, set proxy= in Settings"
    if not (isinstance(http.connector, FreshConnector) or (http.connector is not None and http.connector.force_close)):
        return (
            "create the session with connector=FreshConnector(...), or a connector with force_close=True: others reuse "
            "connections that have received an unexpected response, which the next call would get"
        )
    return None


def _create_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=FreshConnector(limit=0),  # connections are limited per service in core/limits.py
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": f"directsuite/{__version__}", "Accept": "application/json, text/plain"},
    )


NO_DEADLINE = float("inf")


class TimeoutScheduler:
    """The timeouts of all attempts in progress of a suite, in one event loop.

        attempt ── timeout_at(deadline) ─► Timeout ── extend ─► later expiry whenever data arrives or is sent
                                             │
        one timer of the event loop ◄────────┘  set to the earliest expiry

    All timeouts share one timer, because a separate one for each, as in `asyncio.timeout_at`, costs a few per cent of a
    small call. The timer is set again only if a timeout expires earlier than it, or when it fires.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._timeouts: set[Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NO_DEADLINE
        self._closing = False

    def timeout_at(self, when: float) -> Timeout:
        """Return a timeout for a `with` block of the current task.

        when: time of expiry on the event loop's clock, or NO_DEADLINE.
        """
        return Timeout(self, when)

    def close(self) -> None:
        """Abort all blocks in progress except that of the current task. They raise ConnectionAbortedError.

        The timer is cancelled when no block is left. Blocks may still start afterwards.
        """
        self._closing = True
        for timeout in self._timeouts:
            timeout.abort()
        if not self._timeouts:
            self._cancel_timer()

    def watch(self, timeout: Timeout) -> None:
        """Add a timeout, or update its expiry."""
        self._timeouts.add(timeout)
        if timeout.when < self._timer_at:
            self._cancel_timer()
            self._timer_at = timeout.when
            self._timer = self.loop.call_at(self._timer_at, self._expire_due)

    def remove(self, timeout: Timeout) -> None:
        """Remove a timeout whose block has ended."""
        self._timeouts.discard(timeout)
        if self._closing and not self._timeouts:
            self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NO_DEADLINE

    def _expire_due(self) -> None:
        due = max(self._timer_at, self.loop.time())  # all that are overdue
        self._timer, self._timer_at = None, NO_DEADLINE
        for timeout in [each for each in self._timeouts if each.when <= due]:
            self._timeouts.discard(timeout)
            timeout.expire()
        if self._timeouts:
            self.watch(min(self._timeouts, key=lambda timeout: timeout.when))


class Timeout:
    """A context manager that cancels its block on expiry and raises TimeoutError.

    If the suite is closed first, it cancels the block and raises ConnectionAbortedError.

    when: time of expiry on the event loop's clock, or NO_DEADLINE.
    """

    __slots__ = ("_cancelling", "_error", "_scheduler", "_task", "when")

    def __init__(self, scheduler: TimeoutScheduler, when: float) -> None:
        self._scheduler = scheduler
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._error: type[OSError] | None = None
        self.when = when

    @property
    def expired(self) -> bool:
        """True if the timeout expired before the block ended."""
        return self._error is TimeoutError

    @property
    def aborted(self) -> bool:
        """True if the suite was closed before the block ended."""
        return self._error is ConnectionAbortedError

    def __enter__(self) -> None:
        # Without the argument, asyncio would call get_running_loop, see _GET_LOOP_IS_SLOW.
        task = asyncio.current_task(self._scheduler.loop)
        if task is None:
            raise RuntimeError("This must be called in a task.")
        self._task = task
        self._cancelling = task.cancelling()
        self._scheduler.watch(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._scheduler.remove(self)
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error from error

    def extend(self, seconds: float, latest_expiry: float) -> None:
        """Set the expiry to `seconds` from now, but at most to `latest_expiry`, a time on the event loop's clock."""
        self.reschedule(min(self._scheduler.loop.time() + seconds, latest_expiry))

    def reschedule(self, when: float) -> None:
        """Change the expiry, as in `TimeoutScheduler.timeout_at`. Has no effect on a block that was cancelled."""
        self.when = when
        if self._task is not None and self._error is None:
            self._scheduler.watch(self)

    def expire(self) -> None:
        """Cancel the block now, so that it raises TimeoutError."""
        self._cancel_task(TimeoutError)

    def abort(self) -> None:
        """Cancel the block now, unless it belongs to the current task, so that it raises ConnectionAbortedError."""
        if self._task is not asyncio.current_task():
            self._cancel_task(ConnectionAbortedError)

    def _cancel_task(self, error: type[OSError]) -> None:
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()


_SEEN_ATTR = "_directsuite_given_out"


class FreshConnector(aiohttp.TCPConnector):
    """A TCP connector that closes an idle connection instead of reusing it if it has received data.

    A server or proxy may send a second response to a request, or status 408 on an idle connection. aiohttp takes it as
    the response to the next request: the caller gets another user's mail, or a success for a request that was not sent.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a new connection, or an idle one that has received no data."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or not (hasattr(protocol, _SEEN_ATTR) and protocol.should_close):
                break
            connection.close()
        if protocol is not None:
            setattr(protocol, _SEEN_ATTR, True)
        return connection


_MAX_HEAP_BLOCK_BYTES = 4 * 1024 * 1024
"""The largest block to allocate from the heap."""


def tune_malloc() -> None:
    """Make glibc allocate blocks of up to 4 MB from the heap, and retain freed memory for the next blocks.

    By default, glibc maps blocks above a threshold of 128 KB separately, and returns much of the free memory to the
    system. When a larger mapped block is freed, the threshold rises to its size (see mallopt(3)), so this frees one
    block of 4 MB. Without this, dozens of documents of about 100 KB at once spend a quarter of their CPU time on page
    faults. Has no effect without glibc.
    """
    bytes(_MAX_HEAP_BLOCK_BYTES)
