"""Events, messages and tasks of the token cache."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.core.credentials import AccessToken, TokenCache, make_token_source
from directsuite.core.events import Event, RenewalFailed, TokenRefreshed

from .test_credentials import Source, get_token_text
from .virtual_time import LoopClock, ManualClock, yield_to_loop


@pytest.fixture
def source() -> Source:
    return Source(lifetime=600)


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


async def _words(call: Awaitable[object]) -> str:
    with pytest.raises(ds.DirectSuiteError) as caught:
        await call
    return str(caught.value)


async def test_every_token_and_every_failure_is_reported(source: Source, time: ManualClock) -> None:
    told: list[Event] = []
    cache = TokenCache(source, time, emit=told.append)
    for failures in (0, 2, 0):
        source.failures = [ValueError("broken") for _ in range(failures)]
        for _ in range(failures):
            await _words(cache.get_current())
            time.now += 10
        cache.invalidate((await cache.get_current()).generation)
    assert told == [
        TokenRefreshed(generation=1, expires_in=600.0),
        RenewalFailed(error="TransportError", back_off=1.0),
        RenewalFailed(error="TransportError", back_off=2.0),
        TokenRefreshed(generation=2, expires_in=600.0),
        TokenRefreshed(generation=3, expires_in=600.0),
    ]


async def _two_words() -> str:
    return "two words"


async def test_text_is_a_token_without_an_end(time: ManualClock) -> None:
    cache = TokenCache(make_token_source(_two_words), time)
    first = await cache.get_current()
    time.now = 1e9
    assert await cache.get_current() is first
    assert first.token.reveal() == "two words"


def test_source_does_not_show_the_function_behind_it() -> None:
    assert repr(make_token_source(_two_words)) == "CallableToken(renewable=True)"


async def test_adopted_token_that_ends_sooner_is_renewed_within_the_hour() -> None:
    source = Source(lifetime=None)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    cache.store(AccessToken("adopted", 600), cache.now())
    await asyncio.sleep(3601)
    await yield_to_loop()
    assert source.asked == 2
    await cache.aclose()


STATIC = {
    "": "the token is empty: give the OAuth 2.0 access token, or a source of tokens",
    "Bearer token": "the token begins with the word Bearer, which every request adds: omit it",
    "two\nlines": "the token contains a line break, a character that is not allowed in a header, or spaces around it",
    "  ": "the token is empty: give the OAuth 2.0 access token, or a source of tokens",
    " padded": "the token contains a line break, a character that is not allowed in a header, or spaces around it",
    None: "token must be a string, an async callable that returns one, or a TokenSource",
    5: "token must be a string, an async callable that returns one, or a TokenSource",
}


@pytest.mark.parametrize(("token", "words"), STATIC.items())
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


async def _gives_number() -> str:
    return cast("str", 5)


async def _gives_nothing() -> str:
    return ""


SOURCES: dict[Callable[[], Awaitable[str]], str] = {
    _raises: "the token source raised ValueError",
    _is_cancelled: "the token source was cancelled, although the call was not",
    _hangs: "the token source took too long",
    _gives_number: "the token source returned int instead of a string",
    _gives_nothing: "the token source returned a token that is empty or not allowed in a header",
}


@pytest.mark.parametrize(("ask", "words"), SOURCES.items())
async def test_source_that_fails_is_named_with_how(
    ask: Callable[[], Awaitable[str]], words: str, time: ManualClock
) -> None:
    assert await _words(TokenCache(make_token_source(ask), time).get_current()) == words


GIVEN: list[tuple[object, str]] = [
    (5, "the token source returned int instead of an AccessToken"),
    (
        AccessToken("a", cast("float", "600")),
        "the token source returned an invalid expires_in: it must be a number of seconds, or None",
    ),
]


@pytest.mark.parametrize(("given", "words"), GIVEN)
async def test_source_that_gives_something_else_is_named_with_what(
    given: object, words: str, time: ManualClock
) -> None:
    class Odd(Source):
        async def fetch(self) -> AccessToken:
            return cast("AccessToken", given)

    assert await _words(TokenCache(Odd(), time).get_current()) == words


LOST = ds.ConnectionLostError("lost")


@pytest.mark.parametrize(("cause", "remembered"), [(LOST, "lost"), (ValueError("its text may hold a token"), None)])
async def test_failure_keeps_a_cause_of_ours_while_it_is_remembered(
    source: Source, time: ManualClock, cause: Exception, remembered: str | None
) -> None:
    failure = ds.TransportError("no token")
    failure.__cause__ = cause
    source.failures = [failure]
    cache = TokenCache(source, time)
    await _words(cache.get_current())
    with pytest.raises(ds.TransportError, match="no token") as caught:
        await cache.get_current()
    again = caught.value.__cause__
    assert again is not cause
    assert (None if again is None else str(again)) == remembered
    assert source.asked == 1


async def test_closed_cache_says_so(source: Source, time: ManualClock) -> None:
    cache = TokenCache(source, time)
    source.gate.clear()
    waiting = asyncio.create_task(_words(cache.get_current()))
    await yield_to_loop()
    await cache.aclose()
    assert await waiting == "the suite was closed while a token was being fetched"
    assert len(asyncio.all_tasks()) == 1
    assert await _words(cache.get_current()) == "the suite is closed: create a new DirectSuite"
    assert source.asked == 1


async def test_clock_may_begin_below_zero(source: Source, time: ManualClock) -> None:
    time.now = -1000.0
    assert await get_token_text(TokenCache(source, time)) == "token-1"


async def test_tasks_in_the_background_are_named(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    cache.invalidate(1)
    source.gate.clear()
    waiting = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert {"directsuite-keep-alive", "directsuite-token"} <= names
    source.gate.set()
    await waiting
    await cache.aclose()


async def test_rejected_token_is_fetched_again_before_anybody_asks(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    cache.invalidate((await cache.get_current()).generation)
    await asyncio.sleep(541)
    await yield_to_loop()
    assert source.asked == 2
    await asyncio.sleep(541)
    await yield_to_loop()
    assert source.asked == 3
    await cache.aclose()


@pytest.mark.parametrize("ending", ["failure", "closing"])
async def test_failed_early_renewal_is_not_reported(source: Source, time: ManualClock, ending: str) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    cache = TokenCache(source, time)
    await cache.get_current()
    source.gate.clear()
    source.failures = [ValueError("broken")]
    time.now = 550
    await cache.get_current()
    await yield_to_loop()
    if ending == "closing":
        await cache.aclose()
    source.gate.set()
    await yield_to_loop()
    gc.collect()
    assert source.asked == 2
    assert complaints == []


async def test_fetch_that_begins_as_another_ends_is_the_only_one(time: ManualClock) -> None:
    class Hasty(Source):
        """A source whose first token has expired when the cache receives it, while a caller asks for one."""

        async def fetch(self) -> AccessToken:
            token = await super().fetch()
            if self.asked == 1:
                self.gate.clear()
                callers.append(asyncio.create_task(get_token_text(cache)))
                return AccessToken(token.token, 0)
            return token

    callers: list[asyncio.Task[str]] = []
    source = Hasty()
    cache = TokenCache(source, time)
    assert await get_token_text(cache) == "token-1"
    await yield_to_loop()
    callers.append(asyncio.create_task(get_token_text(cache)))
    await yield_to_loop()
    source.gate.set()
    assert await asyncio.gather(*callers) == ["token-2", "token-2"]
    assert source.asked == 2
