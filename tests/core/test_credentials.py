"""The token cache alone: one fetch for all callers, renewal before expiry, invalidation, back-off."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.core.credentials import AccessToken, TokenCache, make_token_source
from directsuite.secret import Secret

from .virtual_time import ManualClock, yield_to_loop


class Source:
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


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(source: Source, time: ManualClock) -> Iterator[TokenCache]:
    return cast("Iterator[TokenCache]", TokenCache(source, time))


async def get_token_text(cache: TokenCache) -> str:
    return (await cache.get_current()).token.reveal()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_eager_tasks_share_one_fetch(time: ManualClock) -> None:
    set_task_factory, eager = asyncio.get_running_loop().set_task_factory, getattr(asyncio, "eager_task_factory", None)
    others: list[asyncio.Task[str]] = []
    fetches = 0

    async def fetch() -> str:
        nonlocal fetches
        fetches += 1
        others.append(asyncio.create_task(get_token_text(tokens)))  # as a listener that calls the suite would do
        await asyncio.sleep(0)
        return f"token-{fetches}"

    tokens = TokenCache(make_token_source(fetch), time)
    set_task_factory(eager)
    assert await get_token_text(tokens) == "token-1"
    assert await asyncio.gather(*others) == ["token-1"]
    assert fetches == 1


@pytest.mark.parametrize(
    ("lifetime", "at", "asked"),
    [
        (600, 539.9, 1),
        (600, 540, 2),
        (600, 10_000, 2),
        (100, 49.9, 1),
        (100, 50, 2),
        (0, 0, 2),
        (None, 10**9, 1),
    ],
)
async def test_token_is_renewed_when_its_margin_begins(
    time: ManualClock, lifetime: float | None, at: float, asked: int
) -> None:
    source = Source(lifetime)
    cache = TokenCache(source, time)
    await cache.get_current()
    time.now = at
    await cache.get_current()
    await yield_to_loop()
    assert source.asked == asked


async def test_life_counts_from_when_the_token_was_asked_for(
    cache: TokenCache, source: Source, time: ManualClock
) -> None:
    source.gate.clear()
    waiting = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    time.now = 100
    source.gate.set()
    await waiting
    time.now = 540
    assert await get_token_text(cache) == "token-1"
    await yield_to_loop()
    assert await get_token_text(cache) == "token-2"


@pytest.mark.parametrize(("at", "held"), [(599.9, True), (600.0, False)])
async def test_token_is_held_until_it_expires_or_is_rejected(
    cache: TokenCache, time: ManualClock, at: float, *, held: bool
) -> None:
    credential = await cache.get_current()
    time.now = at
    assert cache.is_current(credential) is held
    cache.invalidate(credential.generation)
    assert not cache.is_current(credential)


async def test_late_401_keeps_the_new_token(cache: TokenCache, source: Source) -> None:
    old = await cache.get_current()
    cache.invalidate(old.generation)
    new = await cache.get_current()
    cache.invalidate(old.generation)
    assert await cache.get_current() == new
    assert source.asked == 2


async def test_all_callers_cancelled_leave_the_token_for_the_next(cache: TokenCache, source: Source) -> None:
    source.gate.clear()
    caller = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    caller.cancel()
    await yield_to_loop()
    source.gate.set()
    assert await get_token_text(cache) == "token-1"
    assert source.asked == 1


async def test_failure_reaches_all_who_waited_each_with_an_error_of_his_own(cache: TokenCache, source: Source) -> None:
    source.gate.clear()
    source.failures.append(ValueError("broken"))
    callers = [asyncio.create_task(get_token_text(cache)) for _ in range(5)]
    await yield_to_loop()
    source.gate.set()
    errors = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(error) for error in errors} == {ds.TransportError}
    assert len({id(error) for error in errors}) == 5
    assert source.asked == 1


async def test_failures_back_off_doubling_and_success_ends_it(
    cache: TokenCache, source: Source, time: ManualClock
) -> None:
    async def fails() -> None:
        with pytest.raises(ds.TransportError):
            await cache.get_current()

    source.failures = [ValueError("broken") for _ in range(9)]
    for wait in (1, 2, 4, 8, 16, 32, 60, 60):
        asked = source.asked
        await fails()
        time.now += wait - 0.01
        await fails()
        assert source.asked == asked + 1
        time.now += 0.02
    await fails()
    time.now += 60
    token = await get_token_text(cache)
    assert token == f"token-{source.asked}"
    cache.invalidate((await cache.get_current()).generation)
    source.failures = [ValueError("broken")]
    await fails()
    time.now += 1
    assert await get_token_text(cache)


async def test_fetch_that_hangs_is_given_up(cache: TokenCache, source: Source) -> None:
    source.gate.clear()
    began = asyncio.get_running_loop().time()
    with pytest.raises(ds.TransportError) as caught:
        await cache.get_current()
    assert asyncio.get_running_loop().time() - began == pytest.approx(60)
    assert caught.value.outcome is ds.Outcome.NOT_SENT


async def test_failed_fetch_without_waiters_logs_nothing(cache: TokenCache, source: Source) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    source.gate.clear()
    source.failures = [ValueError("broken")]
    caller = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    caller.cancel()
    await yield_to_loop()
    source.gate.set()
    await yield_to_loop()
    assert complaints == []


@pytest.mark.parametrize(
    "garbage", [None, 5, b"token", "", "  ", "two\nlines", " padded", "padded ", "ünlaut", object()]
)
async def test_garbage_in_place_of_a_token_is_rejected_by_name(time: ManualClock, garbage: object) -> None:
    async def ask() -> str:
        return cast("str", garbage)

    with pytest.raises(ds.DirectSuiteError) as caught:
        await TokenCache(make_token_source(ask), time).get_current()
    assert "token" in str(caught.value)
    if isinstance(garbage, str) and garbage.strip():
        assert garbage not in str(caught.value)


async def _return_plain_token() -> str:
    return "t"


async def _return_access_token() -> AccessToken:
    return AccessToken("t", 5)


@pytest.mark.parametrize("token", ["t", Secret("t"), _return_plain_token, _return_access_token])
async def test_each_form_of_a_token_is_taken(
    token: str | Secret | Callable[[], Awaitable[str | AccessToken]], time: ManualClock
) -> None:
    assert await get_token_text(TokenCache(make_token_source(token), time)) == "t"


@pytest.mark.parametrize(("token", "renewable"), [("t", False), (Secret("t"), False), (_return_plain_token, True)])
def test_text_cannot_be_replaced_by_another_token(
    token: str | Secret | Callable[[], Awaitable[str]], time: ManualClock, *, renewable: bool
) -> None:
    assert TokenCache(make_token_source(token), time).renewable is renewable


@pytest.mark.parametrize("lifetime", ["3600", float("nan"), float("inf"), 10**400, True, b"60"])
async def test_lifetime_that_is_not_a_number_of_seconds_is_rejected_once(time: ManualClock, lifetime: Any) -> None:
    source = Source(lifetime)
    cache = TokenCache(source, time)
    for _ in range(3):
        with pytest.raises(ds.ConfigurationError, match="expires_in"):
            await cache.get_current()
    assert source.asked == 1  # then the back-off applies
