"""The HTTP session: when a suite may be used, its connections, and the time-outs of what it sends.

Opening and closing belong to the event loop and process that opened it.
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

_DRAIN = 5.0
"""Seconds that closing waits for an answer without which what was sent for it is lost."""


_ASKING_IS_DEAR = sys.version_info < (3, 12)
"""asyncio makes a system call when it is asked for the running loop."""

_forks = 0
"""How many forks led to this process: cheaper to look at than its number in the system."""


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Session:
    """Opens and closes the HTTP session, and knows the calls that are under way.

    tls: None for the machine's trust store and TLS 1.2 or newer, or, with a factory, for what its session does. proxy:
    an HTTP proxy's URL. factory: makes the session, where the user wants another than ours. close_session: False leaves
    the factory's session open.
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
        """The HTTP session may be another program part's, too, with cookies of its own."""
        self.reading: set[ResponseStream] = set()
        """Answers that are being read; closing ends each."""
        self.fetching: Sequence[TokenCache] = ()
        """What may still fetch a token for calls that closing waits for; ended when no call needs them any more."""
        self.request_options: dict[str, Any] = {}
        """What each request says about TLS and the proxy; what isn't there is as the session has it."""
        self._clock = clock
        self._waiting: set[asyncio.Future[Any]] = set()
        self._http: aiohttp.ClientSession | None = None
        self._timeouts: TimeoutScheduler | None = None
        self._thread = 0
        self._forks = 0
        self._opening = False
        self.closed = False
        """Closing has begun."""
        self._ended: asyncio.Event | None = None
        self.calls = 0
        """Calls that are under way; who ends the last one tells `idle`."""
        self._idle: asyncio.Event | None = None

    @property
    def http(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._http is None:
            raise ClosedError("the suite is closed: open a new one", outcome=Outcome.NOT_SENT)
        if self._http.closed:
            raise ClosedError(
                "the HTTP session was closed by another who uses it: with a shared session set close_session=False"
            )
        return self._http

    @property
    def timeouts(self) -> TimeoutScheduler:
        """The ends of the attempts that are under way; with the event loop in which the suite was opened."""
        if self._timeouts is None:
            raise _closed()
        return self._timeouts

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed. Raises ClosedError where the suite ends before."""
        await self.wait(self._clock.sleep(seconds))

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return what the awaitable gives. Raises ClosedError where the suite ends before."""
        if self._http is None:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()  # a coroutine that nobody awaits complains
            raise _closed()
        waiting = asyncio.ensure_future(awaitable)
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting])
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()
        if waiting.cancelled() and self.closed:
            raise _closed()
        return waiting.result()

    @property
    def state(self) -> str:
        """Return the state in words, for repr."""
        if self.closed:
            return "closed"
        return "not open" if self._http is None else "open"

    async def open(self) -> None:
        """Create the session in the running loop. A suite opens once."""
        if self.closed:
            raise ClosedError("the suite was closed: create a new DirectSuite")
        if self._http is not None or self._opening:
            raise ConfigurationError("the suite is open already: share it between tasks, don't enter it twice")
        self._opening = True
        try:
            if self._secure and self._tls is None and self._factory is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads certificates from disk
            if self.closed:
                raise ClosedError("the suite was closed while it was being opened: create a new DirectSuite")
            self._timeouts = TimeoutScheduler(asyncio.get_running_loop())
            self._thread = threading.get_ident()
            self._forks = _forks
            said = {"ssl": self._tls, "proxy": self._proxy}
            self.request_options = {name: value for name, value in said.items() if value is not None}
            http = _made_by(self._factory) if self._factory is not None else _session()
            problem = _problem_of(http)
            if problem is not None:
                if self._close_session:
                    await http.close()
                raise ConfigurationError(f"session_factory: {problem}")
            self._http = http
            keep_heap()
        finally:
            self._opening = False

    def check(self, *, within_a_call: bool = False) -> None:
        """Raise the error that says why the suite can't be used here and now, if it can't.

        within_a_call: for the sake of a call that is under way, which closing waits for.
        """
        if self.closed and not (within_a_call and self.calls and self._http is not None):
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._http is None:
            raise ClosedError("the suite is not open yet: use it inside `async with DirectSuite(...) as suite:`")
        self._check_place()

    def _check_place(self) -> None:
        loop = None if self._timeouts is None else self._timeouts.loop
        here = _ASKING_IS_DEAR and self._thread == threading.get_ident() and loop is not None and loop.is_running()
        if self._forks == _forks and (here or asyncio.get_running_loop() is loop):
            return
        if self._forks != _forks:
            raise ConfigurationError(
                "the suite was opened before this process was forked: connections can't be shared between processes. "
                "Create and open a DirectSuite in each worker process, after the fork"
            )
        raise ConfigurationError(
            "the suite belongs to another event loop: create and open a DirectSuite in each loop that uses one"
        )

    def idle(self) -> None:
        """No call is under way any more."""
        if self._idle is not None:
            self._idle.set()

    async def close(self, grace: float) -> None:
        """Refuse new calls, wait up to `grace` seconds for those under way, then end their connections.

        A second closer waits for the first. A token request that spends what it sends gets up to 5 more seconds.
        """
        if self._http is None and self._ended is None:
            self.closed = True
            return
        if self._ended is not None:
            if not self._ended.is_set():
                self._check_place()
                await self._ended.wait()
            return
        self._check_place()
        self.closed = True
        self._ended = asyncio.Event()
        try:
            if self.calls and grace > 0:
                self._idle = asyncio.Event()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._idle.wait()
        finally:
            try:
                await self._end()
            finally:
                self._ended.set()

    async def _end(self) -> None:
        http, self._http = self._http, None  # nobody sends anything from here on
        for waiting in tuple(self._waiting):
            waiting.cancel()
        for cache in self.fetching:
            cache.stop()
        try:
            await self._drain()
        finally:
            await self._end_connections(http)

    async def _drain(self) -> None:
        """Wait for answers that may not be lost; who cancels closing a second time doesn't wait for them either."""
        draining = asyncio.ensure_future(self._drained())
        try:
            await asyncio.shield(draining)
        except asyncio.CancelledError:
            await draining
            raise

    async def _drained(self) -> None:
        for cache in self.fetching:
            await cache.drain(_DRAIN)

    async def _end_connections(self, http: aiohttp.ClientSession | None) -> None:
        for answer in tuple(self.reading):
            answer.close()  # aiohttp's session would end the connection, and leave who reads from it waiting
        ending = [task for cache in self.fetching for task in cache.cancel()]
        try:
            if http is not None and self._close_session:
                await http.close()
        finally:
            if self._timeouts is not None:
                self._timeouts.close()  # ends those, too, who wait for another session, or for one that stays open
            if ending:
                await asyncio.wait(ending, timeout=_DRAIN)  # a source of the user's may take its time


def _closed() -> ClosedError:
    return ClosedError("the suite was closed while the call waited", outcome=Outcome.NOT_SENT)


def _made_by(factory: SessionFactory) -> aiohttp.ClientSession:
    made = cast("object", factory())  # whatever its type promises
    if isinstance(made, aiohttp.ClientSession):
        return made
    if inspect.iscoroutine(made):
        made.close()  # else it would complain that nobody awaited it
    raise ConfigurationError(
        f"session_factory: it has to give an aiohttp.ClientSession, and gave an object of type {type(made).__name__}: "
        "set a plain function that returns a session"
    )


def _problem_of(http: aiohttp.ClientSession) -> str | None:
    """What makes a session of the user's unsafe, or None."""
    if http.auth is not None or http.trust_env:
        return "leave auth and trust_env out, whose passwords are not ours; set proxy= in Settings"
    if not (isinstance(http.connector, FreshConnector) or (http.connector is not None and http.connector.force_close)):
        return (
            "give the session connector=FreshConnector(...), or one with force_close=True: others give out connections "
            "that hold an answer nobody asked for, which would be taken for that of the next call"
        )
    return None


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=FreshConnector(limit=0),  # the limit is ours, per service
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": f"directsuite/{__version__}", "Accept": "application/json, text/plain"},
    )


NEVER = float("inf")


class TimeoutScheduler:
    """The time-outs of all attempts of a suite that are under way, in one event loop.

        attempt ── timeout_at(deadline) ─► Timeout ── reschedule ─► a later end with every sign of life
                                             │
        one timer of the event loop ◄────────┘  at the earliest end of all

    Nearly every attempt is over long before its end. A timer of its own, as `asyncio.timeout_at` has it, costs some
    microseconds, a few per cent of a small call: asyncio compares timers in Python, and keeps cancelled ones. So one
    timer serves all; it is set when an end comes before it, and looks for the next one when it runs out.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._timeouts: set[Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = NEVER
        self._closing = False

    def timeout_at(self, when: float) -> Timeout:
        """A time-out for the current task's next block, in the event loop's time."""
        return Timeout(self, when)

    def close(self) -> None:
        """Abort every block that is under way, and leave no timer behind: not after the last that begins later."""
        self._closing = True
        for timeout in self._timeouts:
            timeout.abort()
        if not self._timeouts:
            self._stop()

    def watch(self, timeout: Timeout) -> None:
        """See to it that this time-out ends when it is due."""
        self._timeouts.add(timeout)
        if timeout.when < self._due:
            self._stop()
            self._due = timeout.when
            self._timer = self.loop.call_at(self._due, self._run_out)

    def leave(self, timeout: Timeout) -> None:
        """Forget a time-out whose block is over."""
        self._timeouts.discard(timeout)
        if self._closing and not self._timeouts:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, NEVER

    def _run_out(self) -> None:
        due = max(self._due, self.loop.time())  # all that are past, so that many ends take few turns
        self._timer, self._due = None, NEVER
        for timeout in [each for each in self._timeouts if each.when <= due]:
            self._timeouts.discard(timeout)
            timeout.expire()
        if self._timeouts:
            self.watch(min(self._timeouts, key=lambda timeout: timeout.when))


class Timeout:
    """Cancels the block under it when its time is up, and raises TimeoutError there.

    One that is aborted before raises ConnectionAbortedError. when: in the event loop's time, or NEVER.
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
        """Its time was up before the block ended."""
        return self._error is TimeoutError

    @property
    def aborted(self) -> bool:
        """True if the suite was closed before the block ended."""
        return self._error is ConnectionAbortedError

    def __enter__(self) -> None:
        task = asyncio.current_task(self._scheduler.loop)  # without its loop it would ask for the process's number
        if task is None:
            raise RuntimeError("outside a task nothing can be cancelled")
        self._task = task
        self._cancelling = task.cancelling()
        self._scheduler.watch(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._scheduler.leave(self)
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error from error

    def extend(self, seconds: float, most: float) -> None:
        """Let it end so many seconds from now, and at `most` at the latest."""
        self.reschedule(min(self._scheduler.loop.time() + seconds, most))

    def reschedule(self, when: float) -> None:
        """Let it end at another time; too late where it has ended already."""
        self.when = when
        if self._task is not None and self._error is None:
            self._scheduler.watch(self)

    def expire(self) -> None:
        """End the block now: its time is up."""
        self._end(TimeoutError)

    def abort(self) -> None:
        """End the block now, as one whose connection ended; but not under who does this within the block."""
        if self._task is not asyncio.current_task():
            self._end(ConnectionAbortedError)

    def _end(self, error: type[OSError]) -> None:
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()


_GIVEN_OUT = "_directsuite_given_out"


class FreshConnector(aiohttp.TCPConnector):
    """A TCP connector that ends a kept-alive connection where it is no longer as it was left.

    A server, or a proxy, may send a second answer to one request, or a 408 to a connection that rests. aiohttp gives
    such a connection out again, and takes what lies there for the answer to the next request: someone else's mail, or a
    success of what was never sent.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A new connection, or one that was kept alive and is as it was left."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or not (hasattr(protocol, _GIVEN_OUT) and protocol.should_close):
                break
            connection.close()
        if protocol is not None:
            setattr(protocol, _GIVEN_OUT, True)
        return connection


_LARGEST = 4 * 1024 * 1024
"""Bytes of the largest block that comes from the heap."""


def keep_heap() -> None:
    """Have blocks of up to 4 MB come from the heap, and stay there for the next ones. It touches one page.

    glibc maps each block beyond a threshold anew, and gives back what is free at the heap's end beyond twice that; the
    threshold is 128 KB, and then the largest mapped block that was ever freed (mallopt(3)). Dozens of documents of some
    100 KB under way at a time would have the system find nearly every page of theirs again: a quarter of their CPU
    time. The price: what a burst took may stay with the process, as it does on glibc by itself from the second burst
    on. Elsewhere than on glibc this does nothing.
    """
    bytes(_LARGEST)
