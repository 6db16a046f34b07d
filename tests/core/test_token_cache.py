"""The token cache alone: sources, messages, tasks, renewal in the background. The rest is in its model test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.core.credentials import AccessToken, TokenCache, make_token_source
from directsuite.wire.models import Secret

from .scripted_suite import catch_error, expect_error
from .token_fetches import NumberedTokens, TokenEvents, close_cache, get_token_text
from .virtual_time import LoopClock, ManualClock, yield_to_loop, yield_until


@pytest.fixture
def source() -> NumberedTokens:
    return NumberedTokens()


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(source: NumberedTokens, time: ManualClock) -> TokenCache:
    return TokenCache(source, time)


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


@pytest.mark.parametrize(("at", "held"), [(599.9, True), (600.0, False)])
async def test_token_is_held_until_it_expires_or_is_rejected(
    cache: TokenCache, time: ManualClock, at: float, *, held: bool
) -> None:
    credential = await cache.get_current()
    time.now = at
    assert cache.is_current(credential) is held
    cache.invalidate(credential.generation)
    assert not cache.is_current(credential)


async def _return_plain_token() -> str:
    return "two words"


async def _return_access_token() -> AccessToken:
    return AccessToken("two words", 5)


TOKENS: list[tuple[str | Secret | Callable[[], Awaitable[str | AccessToken]], bool]] = [
    ("two words", False),
    (Secret("two words"), False),
    (_return_plain_token, True),
    (_return_access_token, True),
]


@pytest.mark.parametrize(("token", "renewable"), TOKENS)
async def test_each_form_of_a_token_is_taken(token: Any, time: ManualClock, *, renewable: bool) -> None:
    cache = TokenCache(make_token_source(token), time)
    assert cache.renewable is renewable
    assert await get_token_text(cache) == "two words"


def test_source_does_not_show_the_function_behind_it() -> None:
    assert repr(make_token_source(_return_plain_token)) == "CallableToken(renewable=True)"


_NOT_A_TOKEN = "token must be a string, an async callable that returns one, or a TokenSource"
PROBLEMS: dict[str, str] = {
    "": "is empty",
    "  ": "is empty",
    "Bearer token": "begins with the word Bearer, which every request adds: omit it",
    "two\nlines": "contains a line break: remove it",
    "token\r\n": "contains a line break: remove it",
    " padded": "starts or ends with whitespace",
    "padded ": "starts or ends with whitespace",
    "\xfcnlaut": "contains a character that is not allowed in a header",
    "bell\x07": "contains a character that is not allowed in a header",
}
STATIC: list[tuple[object, str]] = [
    *((token, f"token=... of the suite: the token {problem}") for token, problem in PROBLEMS.items()),
    *((token, _NOT_A_TOKEN) for token in (None, 5)),
]


@pytest.mark.parametrize(("token", "words"), STATIC)
def test_token_that_cannot_be_right_is_named_with_what_to_do(token: object, words: str) -> None:
    with pytest.raises(ds.ConfigurationError) as caught:
        make_token_source(cast("str", token))
    assert str(caught.value) == words


async def _raises() -> str:
    raise ValueError("its text may hold a token")


async def _is_cancelled() -> str:
    raise asyncio.CancelledError


async def _hangs() -> str:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def _raises_when_it_is_cancelled() -> str:
    try:
        return await _hangs()
    except asyncio.CancelledError:
        raise ValueError("its text may hold a token") from None


def _gives(value: object) -> Callable[[], Awaitable[str]]:
    async def ask() -> str:
        return cast("str", value)

    return ask


SOURCES: list[tuple[Callable[[], Awaitable[str]], str]] = [
    (
        _raises,
        "the token source raised ValueError: the call is not repeated, because this is not an OSError. If a later "
        "attempt may succeed, raise an OSError in the token source, such as ConnectionError or TimeoutError",
    ),
    (_is_cancelled, "the token source was cancelled, although the call was not"),
    *(
        (ask, "the token source took longer than 10 s: if it needs longer, increase attempt_timeout")
        for ask in (_hangs, _raises_when_it_is_cancelled)
    ),
    (_gives(None), "the token source returned None as the token, instead of a string"),
    (_gives(5), "the token source returned int as the token, instead of a string"),
    (_gives(b"token"), "the token source returned bytes as the token, instead of a string"),
    *((_gives(token), f"the token source returned a token that {problem}") for token, problem in PROBLEMS.items()),
]


@pytest.mark.parametrize(("ask", "words"), SOURCES)
async def test_source_that_fails_is_named_with_how(
    ask: Callable[[], Awaitable[str]], words: str, time: ManualClock
) -> None:
    told = TokenEvents()
    error = await catch_error(TokenCache(make_token_source(ask), time, fetch_timeout=10, emit=told).get_current())
    assert str(error) == words
    assert [event.reason for event in told.failed] == [None if ask is _raises else error.explanation]


_EXPIRES_IN = (
    "the token source returned an invalid expires_in: it must be the lifetime in seconds, more than 0, or None"
)
GIVEN: list[tuple[Any, str]] = [
    (5, "the token source returned int instead of an AccessToken"),
    *((AccessToken("a", lifetime), _EXPIRES_IN) for lifetime in cast("list[float]", ["3600", True, b"60", 10**400])),
    *((AccessToken("a", float(lifetime)), _EXPIRES_IN) for lifetime in ("nan", "inf", "0", "-5")),
]


@pytest.mark.parametrize(("given", "words"), GIVEN)
async def test_source_that_gives_something_else_is_named_with_what(given: Any, words: str, time: ManualClock) -> None:
    class Odd(NumberedTokens):
        async def fetch(self) -> AccessToken:
            self.asked += 1
            return cast("AccessToken", given)

    source = Odd()
    told = TokenEvents()
    cache = TokenCache(source, time, emit=told)
    for _ in range(3):
        assert str(await catch_error(cache.get_current())) == words
    assert source.asked == 1  # then the back-off applies
    assert [event.reason for event in told.failed] == [words]


async def test_source_that_is_not_async_fails_like_others(time: ManualClock) -> None:
    class Odd(NumberedTokens):
        def fetch(self) -> Any:
            raise ds.ConfigurationError("its text may hold a token")

    told = TokenEvents()
    await expect_error(ds.ConfigurationError, TokenCache(Odd(), time, emit=told).get_current())
    assert [event.reason for event in told.failed] == [None]


async def test_repeated_failure_of_a_login_says_when_the_next_one_is_due(
    cache: TokenCache, source: NumberedTokens, time: ManualClock
) -> None:
    failure = ds.ServerError("no login", status=503, operation="login", service="registration", retry_after=30.0)
    source.failures = [failure]
    await catch_error(cache.get_current())
    time.now += 0.25
    assert (await catch_error(cache.get_current())).retry_after == pytest.approx(29.75)
    assert source.asked == 1


@pytest.mark.parametrize(
    ("cause", "remembered"), [(ds.ConnectionLostError("lost"), "lost"), (ValueError("its text may hold a token"), None)]
)
async def test_failure_keeps_a_cause_of_ours_while_it_is_remembered(
    cache: TokenCache, source: NumberedTokens, cause: Exception, remembered: str | None
) -> None:
    failure = ds.TransportError("no token")
    failure.__cause__ = cause
    source.failures = [failure]
    await catch_error(cache.get_current())
    again = (await catch_error(cache.get_current())).__cause__
    assert again is not cause
    assert (None if again is None else str(again)) == remembered
    assert source.asked == 1


async def test_closed_cache_says_so(cache: TokenCache, source: NumberedTokens) -> None:
    source.gate.clear()
    waiting = asyncio.create_task(catch_error(cache.get_current()))
    await yield_to_loop()
    await close_cache(cache)
    assert str(await waiting) == "the suite was closed while a token was being fetched"
    assert len(asyncio.all_tasks()) == 1
    assert str(await catch_error(cache.get_current())) == "the suite is closed: create a new DirectSuite"
    assert source.asked == 1


async def test_caller_who_is_cancelled_as_the_suite_closes_is_cancelled(
    cache: TokenCache, source: NumberedTokens
) -> None:
    source.gate.clear()
    caller = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    closing = asyncio.create_task(close_cache(cache))
    refresh = cache._fetch_task
    assert refresh is not None
    await yield_until(refresh.done)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    await closing


async def test_caller_who_was_cancelled_before_is_told_that_the_suite_was_closed(
    cache: TokenCache, source: NumberedTokens
) -> None:
    async def cleans_up() -> ds.DirectSuiteError:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await catch_error(cache.get_current())
        raise AssertionError

    source.gate.clear()
    caller = asyncio.create_task(cleans_up())
    await yield_to_loop()
    caller.cancel()
    await yield_to_loop()
    await close_cache(cache)
    assert type(await caller) is ds.ClosedError


async def test_fetch_that_begins_as_another_ends_is_the_only_one(time: ManualClock) -> None:
    def let_first_token_expire(_: ds.Event) -> None:
        if source.asked == 1:
            source.gate.clear()
            time.now += 2
            callers.append(asyncio.create_task(get_token_text(cache)))

    callers: list[asyncio.Task[str]] = []
    source = NumberedTokens(1)
    cache = TokenCache(source, time, emit=let_first_token_expire)
    assert await get_token_text(cache) == "token-1"
    await yield_to_loop()
    callers.append(asyncio.create_task(get_token_text(cache)))
    await yield_to_loop()
    source.gate.set()
    assert await asyncio.gather(*callers) == ["token-2", "token-2"]
    assert source.asked == 2


async def test_tasks_in_the_background_are_named(source: NumberedTokens) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    cache.invalidate(1)
    source.gate.clear()
    waiting = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    assert {"directsuite-keep-alive", "directsuite-token"} <= {task.get_name() for task in asyncio.all_tasks()}
    source.gate.set()
    await waiting
    await close_cache(cache)


@pytest.mark.parametrize(("lifetime", "seconds", "asked"), [(600, 3600, 7), (0.001, 10.5, 11), (None, 1_000_000, 1)])
async def test_token_is_renewed_though_no_caller_asks(lifetime: float | None, seconds: float, asked: int) -> None:
    source = NumberedTokens(lifetime)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(seconds)
    await yield_to_loop()
    assert source.asked == asked  # a token that expires at once is fetched every second
    await close_cache(cache)
    await asyncio.sleep(3600)
    assert source.asked == asked


@pytest.mark.parametrize(("lifetime", "first", "asked"), [(600, 0, 1), (None, 1, 2)])
async def test_token_that_is_adopted_is_kept_alive(lifetime: float | None, first: int, asked: int) -> None:
    source = NumberedTokens(lifetime)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    for _ in range(first):
        await cache.get_current()
    cache.store(AccessToken("adopted", 600), cache.clock.monotonic())
    await asyncio.sleep(539)
    assert await get_token_text(cache) == "adopted"
    await asyncio.sleep(2 if not first else 3062)  # without an end, the next look is within the hour
    await yield_to_loop()
    assert source.asked == asked
    await close_cache(cache)


async def test_single_use_token_is_not_sent_again_while_a_cancelled_fetch_still_exchanges_it() -> None:
    sent = list[int]()

    class Rotating:
        renewable = single_use = True
        refresh_token = 1

        async def exchange(self) -> ds.AccessToken:
            sent.append(self.refresh_token)
            await asyncio.sleep(30)
            self.refresh_token += 1
            return ds.AccessToken("a")

        async def fetch(self) -> ds.AccessToken:
            exchanging = asyncio.ensure_future(self.exchange())
            try:
                return await asyncio.shield(exchanging)
            except asyncio.CancelledError:
                return await exchanging

    cache = TokenCache(Rotating(), LoopClock(), fetch_timeout=10)
    assert (await cache.get_current()).token == ds.Secret("a")
    assert sent == [1]
    await close_cache(cache)
