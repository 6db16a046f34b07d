"""A token cache, its source and its callers, all controlled by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs

from directsuite.core.credentials import AccessToken, Credential, TokenCache
from directsuite.core.events import Event, RenewalFailed, Renewed

from .virtual_time import VirtualTimeLoop, yield_to_loop

T = TypeVar("T")


class VirtualLoopClock:
    """The clock of a loop that may be stopped."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class NumberedTokens:
    """Returns numbered tokens when the gate is open, after raising `failures`. Counts its calls."""

    renewable = True

    def __init__(self, lifetime: float | None = 600.0) -> None:
        self.lifetime = lifetime
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[BaseException] = []

    async def fetch(self) -> AccessToken:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return AccessToken(f"token-{number}", self.lifetime)


async def close_cache(cache: TokenCache) -> None:
    if ending := cache.cancel():
        await asyncio.wait(ending)


async def get_token_text(cache: TokenCache) -> str:
    return (await cache.get_current()).token.reveal()


@attrs.define
class ControlledTokenSource:
    """A token source whose fetches are completed by the test.

    begun: the number of fetches. killed: the number cancelled from outside. most: the maximum number at a time.
    """

    renewable = True
    started: int = 0
    cancelled: int = 0
    max_concurrent: int = 0
    _open: list[asyncio.Future[AccessToken]] = attrs.Factory(list[asyncio.Future[AccessToken]])

    async def fetch(self) -> AccessToken:
        answer: asyncio.Future[AccessToken] = asyncio.get_running_loop().create_future()
        self.started += 1
        self._open.append(answer)
        self.max_concurrent = max(self.max_concurrent, len(self._open))
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += not answer.done() or answer.cancelled()
            raise
        finally:
            self._open.remove(answer)

    @property
    def is_fetching(self) -> bool:
        return any(not answer.done() for answer in self._open)

    def complete(self, token: AccessToken) -> None:
        [answer] = self._open
        answer.set_result(token)

    def fail(self, error: BaseException) -> None:
        [answer] = self._open
        answer.set_exception(error)


@attrs.define(eq=False)
class Caller:
    """A caller that waits for a token. fetch: the number of its fetch."""

    task: asyncio.Task[Credential]
    fetch: int


@attrs.define
class TokenEvents:
    """The events of the cache, by kind."""

    renewed: list[Renewed] = attrs.Factory(list[Renewed])
    failed: list[RenewalFailed] = attrs.Factory(list[RenewalFailed])

    def __call__(self, event: Event) -> None:
        if isinstance(event, Renewed):
            self.renewed.append(event)
        elif isinstance(event, RenewalFailed):
            self.failed.append(event)


class ManualLoop:
    """A loop that runs only when the test says so."""

    def __init__(self) -> None:
        self.loop = VirtualTimeLoop()
        self.loop_errors: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.loop_errors.append(context["message"]))

    @property
    def now(self) -> float:
        return self.loop.time()

    def run_until_idle(self) -> None:
        """Run until all tasks wait for time or for the test."""
        self.loop.run_until_complete(yield_to_loop(12))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def call(self, action: Callable[[], T]) -> T:
        async def within() -> T:
            return action()

        return self.run(within())

    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        self.run_until_idle()

    def tasks(self) -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks(self.loop)

    def close(self) -> None:
        left = self.tasks()
        for task in left:
            task.cancel()
        if left:
            self.run(_wait_for(left))
        self.loop.close()


async def _wait_for(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks)
