"""A token cache with its source and its callers in hand: nothing happens but what a test lets happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs

from directsuite.core.credentials import AccessToken, Credential
from directsuite.core.events import Event, RenewalFailed, Renewed

from .virtual_time import VirtualTimeLoop, yield_to_loop

T = TypeVar("T")


class VirtualLoopClock:
    """The time of a loop, which need not run."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.define
class ControlledTokenSource:
    """A token source whose fetches end when the test says so.

    begun: how many there were. killed: how many were cancelled from outside. most: how many there were at a time.
    """

    renewable = True
    started: int = 0
    cancelled: int = 0
    max_concurrent: int = 0
    _open: list[asyncio.Future[AccessToken]] = attrs.Factory(list[asyncio.Future[AccessToken]])

    async def fetch(self) -> AccessToken:
        """What the test gives it."""
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
        """Whether a fetch waits for the test's word."""
        return any(not answer.done() for answer in self._open)

    def complete(self, token: AccessToken) -> None:
        """End the fetch under way with a token."""
        [answer] = self._open
        answer.set_result(token)

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        [answer] = self._open
        answer.set_exception(error)


@attrs.define(eq=False)
class Caller:
    """Somebody who wants a token. fetch: the number of the fetch that he waits for."""

    task: asyncio.Task[Credential]
    fetch: int


@attrs.define
class TokenEvents:
    """What the cache told, by kind."""

    renewed: list[Renewed] = attrs.Factory(list[Renewed])
    failed: list[RenewalFailed] = attrs.Factory(list[RenewalFailed])

    def __call__(self, event: Event) -> None:
        if isinstance(event, Renewed):
            self.renewed.append(event)
        elif isinstance(event, RenewalFailed):
            self.failed.append(event)


class ManualLoop:
    """A loop that turns only when it is told to."""

    def __init__(self) -> None:
        self.loop = VirtualTimeLoop()
        self.loop_errors: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.loop_errors.append(context["message"]))

    @property
    def now(self) -> float:
        return self.loop.time()

    def run_until_idle(self) -> None:
        """Turn until nothing more can happen without time, or a word of the test's."""
        self.loop.run_until_complete(yield_to_loop(12))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What it gives."""
        return self.loop.run_until_complete(coroutine)

    def call(self, action: Callable[[], T]) -> T:
        """Do something within the loop that doesn't wait."""

        async def within() -> T:
            return action()

        return self.run(within())

    def pass_time(self, seconds: float) -> None:
        """Let so many virtual seconds go by."""
        self.run(asyncio.sleep(seconds))
        self.run_until_idle()

    def tasks(self) -> set[asyncio.Task[Any]]:
        """All tasks that are there."""
        return asyncio.all_tasks(self.loop)

    def close(self) -> None:
        """End what is left."""
        left = self.tasks()
        for task in left:
            task.cancel()
        if left:
            self.run(_wait_for(left))
        self.loop.close()


async def _wait_for(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks)
