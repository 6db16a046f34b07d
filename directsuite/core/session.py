"""The HTTP session of a suite: opening, closing, the connections, and the responses.

A suite belongs to the event loop and the process in which it was opened. It can be used and closed only there. Closing
it ends the blocks in progress that `Session.run` awaits.

The `repr` of a response omits headers and body, because tracebacks can include local variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import io
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
import attrs
from aiohttp.http import StreamWriter
from yarl import URL

from directsuite._version import __version__
from directsuite.core.clock import Clock
from directsuite.core.events import group_calls
from directsuite.core.upload import RequestPayload
from directsuite.errors import ClosedError, ConfigurationError, Outcome, ResponseDecodeError

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from directsuite.core.credentials import TokenCache
    from directsuite.core.limits import Limits

T = TypeVar("T")

SessionFactory = Callable[[], aiohttp.ClientSession]

_DRAIN_TIMEOUT = 5.0
"""Seconds that closing waits for cleanups, then for responses to single-use tokens, and then for cancelled fetches."""
MAX_ERROR_BODY_BYTES = 64 * 1024
"""Maximum number of bytes of a response that an error carries."""
READ_BYTES = 120 * 1024
"""Maximum number of bytes that a connection reads at once. For the 256 KB of asyncio, the C library may request memory
from the system at each read, however small the response.
"""
_STREAM_READ_BYTES = 224 * 1024  # for a download of known size: fewer reads need less CPU, but more memory
_MAX_BYTES_IN_PIECES = 2**20  # more is joined while it is received: joining all at the end would block
_MAX_EXPANSION_RATIO = 20
"""Maximum ratio of decompressed to received bytes of base64 text. Only compression bombs exceed it."""
_MAX_UNCHECKED_BYTES = 2**20  # decompressed bytes that are allowed with any ratio


class Cleanup:
    """An action that must run when a block ends. It runs once: then, or when the suite is closed before."""

    def __init__(self, action: Callable[[], Coroutine[Any, Any, None]], cleanups: set[Cleanup]) -> None:
        """Register the action. cleanups: the registered ones, to which this one belongs until it has run."""
        self._action = action
        self._context = contextvars.copy_context()  # the group of the calls
        self._cleanups = cleanups
        self.task: asyncio.Task[None] | None = None
        cleanups.add(self)

    def start(self) -> asyncio.Task[None]:
        """Return the task that runs the action, which is started by the first call."""
        if self.task is None:
            self.task = self._context.run(asyncio.ensure_future, self._action())
            self.task.add_done_callback(lambda _: self._cleanups.discard(self))
        return self.task

    def start_after(self, pause: Coroutine[Any, Any, None]) -> None:
        """Start the action when `pause`, a `Session.sleep`, ends, or when the suite is closed before."""

        async def wait() -> None:
            with contextlib.suppress(ClosedError):
                await pause
            self.start()

        self._waiting = asyncio.ensure_future(wait())  # the event loop keeps only a weak reference


class Session:
    """Opens and closes the HTTP session, and tracks the calls in progress.

    tls: TLS context of all requests. None: the system's trust store and TLS 1.2 or newer; with a factory, the TLS
        settings of its session.
    proxy: URL of an HTTP proxy. None: no proxy; with a factory, the proxy of its session.
    factory: function that returns the aiohttp session to use. None: create a session here.
    close_session: whether closing also closes the factory's session.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        proxy: str | None,
        factory: SessionFactory | None,
        close_session: bool = True,
        clock: Clock,
    ) -> None:
        self._factory = factory
        self._close_session = close_session or factory is None
        self.shared = factory is not None
        """True if the HTTP session comes from the user. Other code may use it, and it may send cookies."""
        self.open_responses: set[ResponseStream] = set()
        """The responses that are being read. Closing the suite closes them."""
        self.token_caches: Sequence[TokenCache] = ()
        """The token caches. They may fetch tokens until the calls in progress have ended."""
        overrides: dict[str, Any] = {"ssl": tls, "proxy": proxy}
        self.request_options = {name: value for name, value in overrides.items() if value is not None}
        """Arguments `ssl` and `proxy` of each request. The session's setting applies if one is missing."""
        self._clock = clock
        self._running: dict[asyncio.Timeout, asyncio.Task[Any] | None] = {}
        """The timeouts of the blocks in progress, with their tasks. Closing removes and expires them."""
        self._http: aiohttp.ClientSession | None = None
        self.now: Callable[[], float]
        """Returns the time of the event loop, which all deadlines use. Set by `open`, like the next two."""
        self._loop: asyncio.AbstractEventLoop
        self._process_id: int
        self.closed = False
        """True if closing has begun."""
        self._closing_finished: asyncio.Event | None = None
        self.calls = 0
        """The number of calls in progress."""
        self._cleanups: set[Cleanup] = set()
        self.grace_ended = False
        """True if closing no longer waits for the calls in progress."""
        self.idle = asyncio.Event()
        """Must be set when the last call in progress ends while the suite is closing."""

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

    async def run(self, timeout: asyncio.Timeout, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable.

        Raises TimeoutError if it takes too long, and ConnectionAbortedError if the suite is closed first.
        """
        # Without the argument, current_task would call get_running_loop, which is slow before Python 3.12.
        self._running[timeout] = asyncio.current_task(self._loop)
        try:
            async with timeout:
                return await awaitable
        except TimeoutError:
            if timeout in self._running:
                raise
        finally:
            self._running.pop(timeout, None)
        raise ConnectionAbortedError

    def reschedule(self, timeout: asyncio.Timeout, when: float) -> None:
        """Change the expiry of a timeout in `run`. Has no effect if its block has ended, or is being cancelled."""
        if timeout in self._running and not timeout.expired():
            timeout.reschedule(when)

    def _abort(self, *, only_waits: bool) -> None:
        for timeout in tuple(self._running):
            if timeout.when() is None or not only_waits:
                self._expire(timeout)

    def _expire(self, timeout: asyncio.Timeout) -> None:
        if self._running[timeout] is not asyncio.current_task() and not timeout.expired():
            del self._running[timeout]
            timeout.reschedule(0.0)

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
            raise make_closed_error()
        timeout = asyncio.timeout(None)
        try:
            return await self.run(timeout, awaitable)
        except ConnectionAbortedError:
            if not timeout.expired():
                raise
        raise make_closed_error()

    @property
    def state(self) -> str:
        """The state as text for `repr`: "closed", "open" or "not open"."""
        if self.closed:
            return "closed"
        return "not open" if self._http is None else "open"

    async def open(self) -> None:
        """Create the HTTP session in the running event loop. A suite can be opened only once.

        Raises ClosedError if the suite was closed. Raises ConfigurationError if it is already open, or if the factory
        returns no aiohttp session or one that is unsafe to use.
        """
        if self.closed:
            raise ClosedError("the suite was closed: create a new DirectSuite")
        if self._http is not None:
            raise ConfigurationError("the suite is already open: share it between tasks instead of entering it twice")
        http = _call_factory(self._factory) if self._factory is not None else _create_session()
        problem = _find_session_problem(http)
        if problem is not None:
            if self._close_session:
                await http.close()
            raise ConfigurationError(f"session_factory: {problem}")
        self._loop, self._process_id = asyncio.get_running_loop(), os.getpid()
        self.now = self._loop.time
        self._http = http

    def require_usable(self, *, nested: bool = False, essential: bool = False) -> None:
        """Raise an error if the suite cannot be used now, in this event loop and process.

        nested, essential: whether the request is also allowed while the suite is closing; see `Options`.

        Raises ClosedError if the suite is not open, and ConfigurationError if it was opened in another event loop, or
        before a fork.
        """
        is_allowed = essential or (nested and self.calls > 0 and not self.grace_ended)
        if self.closed and not (is_allowed and self._http is not None):
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._http is None:
            raise ClosedError("the suite is not open yet: use it inside `async with DirectSuite(...) as suite:`")
        self._check_loop_and_process()

    @contextlib.contextmanager
    def track_call(self, *, nested: bool = False) -> Generator[None]:
        """Count a method that makes several calls as one call in progress, for which closing waits, and group them.

        Raises the errors of `require_usable`.
        """
        self.require_usable(nested=nested)
        self.calls += 1
        try:
            with group_calls():
                yield
        finally:
            self.calls -= 1
            if self.closed and not self.calls:
                self.idle.set()

    def add_cleanup(self, action: Callable[[], Coroutine[Any, Any, None]]) -> Cleanup:
        """Register an action that a block must start when it ends. Closing starts it, and waits for it."""
        return Cleanup(action, self._cleanups)

    def _check_loop_and_process(self) -> None:
        if self._process_id != os.getpid():
            raise ConfigurationError(
                "the suite was opened before this process was forked: connections can't be shared between processes. "
                "Create and open a DirectSuite in each worker process, after the fork"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                "the suite belongs to another event loop: create and open a DirectSuite in each loop that uses one"
            )

    async def close(self, grace: float) -> None:
        """Reject new calls, wait for the calls in progress, run the cleanups, then close all connections.

        grace: maximum time to wait for calls in progress, in seconds.

        Cleanups get up to 5 more seconds, and then fetches that send a single-use token. If another task is closing the
        suite, wait for it. Raises ConfigurationError in another event loop, or after a fork.
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
            try:
                if self.calls and grace > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(grace):
                            await self.idle.wait()
            finally:
                await self._run_cleanups()
        finally:
            try:
                await self._close_resources()
            finally:
                self._closing_finished.set()

    async def _run_cleanups(self) -> None:
        """End the calls in progress if any cleanup remains, and wait for the cleanups."""
        self.grace_ended = True
        if not self._cleanups:
            return
        kept: set[object] = {each.task for each in self._cleanups}
        kept.update(*(cache.source_tasks for cache in self.token_caches))
        for timeout, task in tuple(self._running.items()):
            if task not in kept:
                self._expire(timeout)  # a cleanup needs its connection, and must not overtake a request of its block
        end = self.now() + _DRAIN_TIMEOUT
        while self._cleanups and (left := end - self.now()) > 0:  # a block that ends now may add one
            await asyncio.wait([cleanup.start() for cleanup in self._cleanups], timeout=left)

    async def _close_resources(self) -> None:
        http, self._http = self._http, None  # no request can be sent from now on
        self._abort(only_waits=True)
        for cache in self.token_caches:
            cache.stop()
        # A first cancellation is raised after the responses to single-use tokens; a second one ends this wait.
        draining = asyncio.gather(*(cache.wait_for_single_use_fetch(_DRAIN_TIMEOUT) for cache in self.token_caches))
        try:
            try:
                await asyncio.shield(draining)
            except asyncio.CancelledError:
                await draining
                raise
        finally:
            await self._end_connections(http)

    async def _end_connections(self, http: aiohttp.ClientSession | None) -> None:
        for response in tuple(self.open_responses):
            response.close()  # aiohttp does not wake a task that waits for data
        ending = [task for cache in self.token_caches for task in cache.cancel()]
        try:
            if http is not None and self._close_session:
                await http.close()
        finally:
            # Some attempts use another HTTP session, or a shared session that stays open. This ends them too.
            self._abort(only_waits=False)
            if ending:
                await asyncio.wait(ending, timeout=_DRAIN_TIMEOUT)  # a token source may delay it


def make_closed_error() -> ClosedError:
    """Return the error of a call that waited when the suite was closed."""
    return ClosedError("the suite was closed while the call waited", outcome=Outcome.NOT_SENT)


def _call_factory(factory: SessionFactory) -> aiohttp.ClientSession:
    made = cast("object", factory())  # the factory may ignore its return type
    if isinstance(made, aiohttp.ClientSession):
        return made
    if inspect.iscoroutine(made):
        made.close()  # a coroutine that is never awaited causes a warning
    raise ConfigurationError(
        f"session_factory must return an aiohttp.ClientSession, but returned an object of type {type(made).__name__}: "
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


class _NoCookies(aiohttp.DummyCookieJar):
    _no_cookies = SimpleCookie()

    def filter_cookies(self, request_url: URL) -> SimpleCookie:
        return self._no_cookies


class _Request(aiohttp.ClientRequest):
    """A request that writes its headers together with a small body.

    aiohttp starts a task to write a body, which costs about a tenth of the CPU of a small call.
    """

    def __init__(self, *target: Any, **options: Any) -> None:
        super().__init__(*target, **options)
        self._response_options = {name: options[name] for name in ("timer", "traces", "session")}

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send the request. Return the response, whose headers have not been received yet."""
        payload, protocol = self.body, conn.protocol
        if not isinstance(payload, RequestPayload) or self.proxy is not None or protocol is None:
            return await super().send(conn)
        content = payload.small_content
        if content is None or protocol.writing_paused:
            return await super().send(conn)
        writer = StreamWriter(protocol, self.loop)
        payload.start(writer)
        await writer.write_headers(f"{self.method} {self.url.raw_path_qs} HTTP/1.1", self.headers)
        await writer.write_eof(content)
        protocol.start_timeout()
        return self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            request_info=self.request_info,
            loop=self.loop,
            stream_writer=writer,
            **self._response_options,
        )


def _create_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        request_class=_Request,
        connector=FreshConnector(limit=0),  # connections are limited per service in core/limits.py
        cookie_jar=_NoCookies(),
        trust_env=False,
        headers={"User-Agent": f"directsuite/{__version__}", "Accept": "application/json, text/plain"},
    )


_SEEN_ATTR = "_directsuite_given_out"


class FreshConnector(aiohttp.TCPConnector):
    """A TCP connector that closes an idle connection instead of reusing it if it has received data.

    A server or proxy may send a second response to a request, or status 408 on an idle connection. aiohttp takes it as
    the response to the next request, perhaps of another user.
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
        if protocol is not None and not hasattr(protocol, _SEEN_ATTR):
            setattr(protocol, _SEEN_ATTR, True)
            _limit_reads(protocol.transport)
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Open a connection. `sock_connect` also limits DNS and the response of a proxy."""
        async with asyncio.timeout(timeout.sock_connect):  # aiohttp's `connect` also limits the wait for a free one
            return await super()._create_connection(req, traces, timeout)


def _limit_reads(transport: Any) -> None:
    """Limit the size of the buffers into which asyncio reads, if its transport has the attribute."""
    reader = getattr(transport, "_ssl_protocol", transport)
    if hasattr(reader, "max_size"):
        reader.max_size = READ_BYTES


class ResponseStream:
    """The response to one request, created before the request is sent.

    `close` returns the connection to the pool, or closes it if the response was not read completely.
    """

    def __init__(self, open_responses: set[ResponseStream], limits: Limits | None, *, is_base64: bool = False) -> None:
        """Create a stream without a response.

        open_responses: the responses being read, to which this one adds itself.
        limits: the limits to which `close` returns the connection slot. None: there is no slot.
        is_base64: True if the body is base64 text, which is checked for compression bombs.
        """
        self._is_base64 = is_base64
        self._response: aiohttp.ClientResponse | None = None
        self._content: aiohttp.StreamReader
        self._open_responses = open_responses
        self._limits = limits
        self._closed = False
        self._is_large = False
        self._enlarged: Any = None  # the transport that reads more at once
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def begin(self, response: aiohttp.ClientResponse) -> None:
        """Set the response, whose status and headers have been received."""
        self._response = response
        self._content = response.content
        self.status = response.status
        self.headers = response.headers
        self._open_responses.add(self)

    def enlarge_reads(self) -> None:
        """Let the connection read more at once until `close`, if the size of the response is known.

        With TLS, it already does: asyncio decrypts all data that it has received.
        """
        self._is_large = "Content-Length" in self.headers
        connection = None if self._response is None else self._response.connection
        transport: Any = None if connection is None else connection.transport
        if self._is_large and hasattr(transport, "max_size"):
            transport.max_size = _STREAM_READ_BYTES
            self._enlarged = transport

    async def read(self, limit: int) -> BufferedResponse:
        """Return the response with its complete body.

        If the body has more than `limit` bytes, return its beginning, with `too_large` set.
        """
        content = self._content
        pieces: list[bytes] = []
        joined: io.BytesIO | None = None
        size, piece, body = 0, b"", b""
        try:
            while size <= limit and (piece := await self.read_chunk()):
                pieces.append(piece)
                size += len(piece)
                if content.at_eof():
                    break
                if size > _MAX_BYTES_IN_PIECES:
                    joined = joined or io.BytesIO()
                    joined.writelines(pieces)
                    pieces.clear()
            if joined is None:
                body = b"".join(pieces)
            else:
                joined.writelines(pieces)
                body = joined.getvalue()  # without a copy
            if size > limit:
                body = body[:MAX_ERROR_BODY_BYTES]
            return BufferedResponse(self.status, self.headers, body, too_large=size > limit, size=size)
        finally:
            # Tracebacks can include local variables.
            pieces.clear()
            piece, body, joined = b"", b"", None

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body, or b"" at its end.

        Raises ResponseDecodeError if base64 text expands like a compression bomb, and exceptions of aiohttp.
        """
        content = self._content
        size = content.total_bytes if self._is_base64 else 0
        if size > _MAX_UNCHECKED_BYTES and size > _MAX_EXPANSION_RATIO * content.total_raw_bytes:
            text = (
                f"the compressed response expands to more than {_MAX_EXPANSION_RATIO} times its size, as no document "
                "should: configure the service, or its proxy, to send documents uncompressed"
            )
            raise ResponseDecodeError(text, too_large=True)
        if self._is_large:
            chunk, _ = await content.readchunk()  # without joining the data that was received
            return chunk
        return await content.readany()  # readchunk would return the smallest chunks separately

    def close(self) -> None:
        """Release the connection and its slot. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        self._open_responses.discard(self)
        if self._enlarged is not None:
            self._enlarged.max_size = READ_BYTES
        if self._response is not None:
            if not self._content.at_eof() and self._content.exception() is None:
                # Otherwise aiohttp raises one shared exception in all later reads, which retains their frames.
                self._content.set_exception(aiohttp.ClientConnectionError("the connection was closed"))
            self._response.close()
        if self._limits is not None:
            self._limits.release()

    def __repr__(self) -> str:
        return f"ResponseStream(status={self.status})"


@attrs.define(repr=False, eq=False)
class BufferedResponse:
    """A response that has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False
    """True if the body is larger than the limit. `body` is then only its beginning."""
    size: int = attrs.field(default=attrs.Factory(lambda response: len(response.body), takes_self=True))
    """The number of bytes received. `body` may contain fewer if the response is too large."""

    def __repr__(self) -> str:
        return f"BufferedResponse(status={self.status}, bytes={self.size})"
