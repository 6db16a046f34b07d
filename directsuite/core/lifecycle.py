"""When a suite may be used: between opening and closing, in the event loop and process that opened it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Generator

import aiohttp

from directsuite._version import __version__
from directsuite.errors import ClosedError, ConfigurationError

SessionFactory = Callable[[], aiohttp.ClientSession]


class Lifecycle:
    """Opens and closes the HTTP session, and counts the calls that are under way.

    tls: None for the machine's trust store and TLS 1.2 or newer. proxy: an HTTP proxy's URL. factory: makes the
    session, where the user wants another than ours.
    """

    def __init__(
        self, *, secure: bool, tls: ssl.SSLContext | None, proxy: str | None, factory: SessionFactory | None
    ) -> None:
        self._secure = secure
        self._tls = tls
        self.proxy = proxy
        self._factory = factory
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._closed = False
        self._calls = 0
        self._idle: asyncio.Event | None = None

    @property
    def http(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._http is None:
            raise ClosedError("the suite is closed: open a new one")
        return self._http

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """How aiohttp is to verify servers."""
        return self._tls if self._tls is not None else True

    async def open(self) -> None:
        """Create the session in the running loop. A suite opens once."""
        if self._closed:
            raise ClosedError("the suite was closed: create a new DirectSuite")
        if self._http is not None:
            raise ConfigurationError("the suite is open already: share it between tasks, don't enter it twice")
        if self._secure and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads certificates from disk
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._http = self._factory() if self._factory is not None else _session()

    def check(self, *, within_a_call: bool = False) -> None:
        """Raise the error that says why the suite can't be used here and now, if it can't.

        within_a_call: for the sake of a call that is under way, which closing waits for.
        """
        if self._closed and not (within_a_call and self._calls and self._http is not None):
            raise ClosedError("the suite is closed: create a new DirectSuite")
        if self._http is None:
            raise ClosedError("the suite is not open yet: use it inside `async with DirectSuite(...) as suite:`")
        if os.getpid() != self._process:
            raise ConfigurationError(
                "the suite was opened before this process was forked: connections can't be shared between processes. "
                "Create and open a DirectSuite in each worker process, after the fork"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                "the suite belongs to another event loop: create and open a DirectSuite in each loop that uses one"
            )

    @contextlib.contextmanager
    def under_way(self) -> Generator[None]:
        """Counts one call for as long as it lasts."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._calls == 0 and self._idle is not None:
                self._idle.set()

    async def close(self, grace: float) -> None:
        """Refuse new calls, wait up to `grace` seconds for those under way, then end their connections."""
        if self._closed or self._http is None:
            self._closed = True
            return
        self.check()
        self._closed = True
        try:
            if self._calls and grace > 0:
                self._idle = asyncio.Event()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._idle.wait()
        finally:
            http, self._http = self._http, None
            await http.close()


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),  # the limit is ours, per service
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": f"directsuite/{__version__}", "Accept": "application/json, text/plain"},
    )
