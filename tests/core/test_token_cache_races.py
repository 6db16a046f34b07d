"""The token cache if several events happen in the same few turns of the loop."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.credentials import AccessToken, Credential, TokenCache
from tests.examples import scale_examples

from .token_fetches import ControlledTokenSource, ManualLoop, VirtualLoopClock
from .virtual_time import yield_to_loop

STEPS = st.sampled_from(
    [
        "caller arrives",
        "caller arrives",
        "caller leaves",
        "all leave",
        "turn",
        "turn",
        "turn",
        "fetch gives",
        "fetch fails",
        "token is refused",
        "login is forced",
    ]
)


class Race:
    """A token cache, and the events of a test."""

    def __init__(self, hand: ManualLoop) -> None:
        self.hand = hand
        self.source = ControlledTokenSource()
        self.cache = TokenCache(self.source, VirtualLoopClock(hand.loop))
        self.callers: list[asyncio.Task[Credential]] = []
        self.left: set[asyncio.Task[Credential]] = set()
        self.refused: dict[asyncio.Task[Credential], int] = {}
        self.refused_so_far = 0

    async def run(self, steps: list[str], *, closes: bool) -> None:
        """Run all steps, only some of which let the loop turn, then complete the fetch."""
        for step in steps:
            await self._take(step)
        if closes:
            await self.cache.aclose()
        await yield_to_loop()
        if self.source.is_fetching:
            self.source.complete(AccessToken("last", 600))
        await yield_to_loop()

    async def _take(self, step: str) -> None:
        waiting = [caller for caller in self.callers if not caller.done()]
        match step:
            case "caller arrives":
                caller = asyncio.create_task(self.cache.get_current())
                self.callers.append(caller)
                self.refused[caller] = self.refused_so_far
            case "caller leaves":
                self.left |= {caller for caller in waiting[:1] if caller.cancel()}
            case "all leave":
                self.left |= {caller for caller in waiting if caller.cancel()}
            case "fetch gives" if self.source.is_fetching:
                self.source.complete(AccessToken("fetched", 600))
            case "fetch fails" if self.source.is_fetching:
                self.source.fail(ValueError("broken"))
            case "token is refused":
                self.refused_so_far = self.cache._generation
                self.cache.invalidate(self.refused_so_far)
            case "login is forced":
                self.cache.store(AccessToken("forced", 600), self.cache.now())
            case _:
                await yield_to_loop(1)


@given(steps=st.lists(STEPS, max_size=40), closes=st.booleans())
@settings(max_examples=scale_examples(300))
def test_each_caller_gets_token_own_error_or_own_cancellation(steps: list[str], *, closes: bool) -> None:
    hand = ManualLoop()
    try:
        race = Race(hand)
        hand.run(race.run(steps, closes=closes))
        assert hand.tasks() == set()
        _assert_each_ended_well(race)
        assert race.source.max_concurrent <= 1
        assert not race.source.cancelled or closes
        if not closes:
            _assert_next_gets_a_token(race)
    finally:
        hand.close()
    assert hand.loop_errors == []


def _assert_each_ended_well(race: Race) -> None:
    errors: list[BaseException] = []
    for caller in race.callers:
        assert caller.cancelled() == (caller in race.left)
        if caller.cancelled():
            continue
        error = caller.exception()
        if error is None:
            assert caller.result().generation > race.refused[caller]
            continue
        assert isinstance(error, ds.TransportError | ds.ClosedError)
        errors.append(error)
    assert len({id(error) for error in errors}) == len(errors)


def _assert_next_gets_a_token(race: Race) -> None:
    race.hand.pass_time(61)  # any back-off has ended
    caller = race.hand.loop.create_task(race.cache.get_current())
    race.hand.run_until_idle()
    if not caller.done():
        race.source.complete(AccessToken("next", 600))
        race.hand.run_until_idle()
    assert caller.result().token.reveal()
