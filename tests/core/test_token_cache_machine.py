"""Model tests of the token cache: events in any order, in the same turns of the loop, and without any caller.

nothing ── caller ─► fetching ── token ─► valid ── margin ─► valid, fetching ── expiry, 401 ─► nothing
                        └─────── failure ─► back-off ── time ─► nothing
"""

from __future__ import annotations

import asyncio

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import directsuite as ds
from directsuite.core.credentials import AccessToken, Credential, TokenCache
from tests.examples import scale_examples

from .token_fetches import Caller, ControlledTokenSource, ManualLoop, TokenEvents, VirtualLoopClock, close_cache
from .virtual_time import yield_to_loop

MARGIN, PATIENCE = 60, 60
LIFETIME, MAX_BACK_OFF = 600.0, 60.0
LIFETIMES = st.sampled_from([None, 0.5, 2, 60, 120, 600])
FAILURES = st.sampled_from(
    [
        (ValueError, ds.TransportError),
        (TimeoutError, ds.TransportError),
        (asyncio.CancelledError, ds.TransportError),
        (ds.ConfigurationError, ds.ConfigurationError),
    ]
)


@attrs.frozen
class Token:
    """A token of the model, with times of the loop's clock."""

    text: str
    generation: int
    asked_at: float
    renew_at: float
    expires_at: float


@attrs.define
class Model:
    """The expected behaviour of the cache."""

    token: Token | None = None
    generation: int = 0
    fetches: int = 0
    fetching_since: float | None = None
    back_off: float = 0
    blocked_until: float | None = None
    failures: int = 0
    killed: int = 0
    closed: bool = False

    def wants(self, now: float) -> bool:
        if self.closed or self.backs_off(now):
            return False
        if self.fetching_since is None:
            self.fetching_since, self.fetches = now, self.fetches + 1
        return True

    def backs_off(self, now: float) -> bool:
        return self.blocked_until is not None and now < self.blocked_until

    def adopt(self, text: str, lifetime: float | None, asked_at: float) -> None:
        """Use a token, unless the current one was requested later."""
        self.back_off, self.blocked_until = 0, None
        if self.token is not None and asked_at < self.token.asked_at:
            return
        self.generation += 1
        life = float("inf") if lifetime is None else lifetime
        margin = min(MARGIN, life / 2)
        self.token = Token(text, self.generation, asked_at, asked_at + life - margin, asked_at + life)

    def fetched(self, text: str, lifetime: float | None) -> None:
        assert self.fetching_since is not None
        asked_at, self.fetching_since = self.fetching_since, None
        self.adopt(text, lifetime, asked_at)

    def failed(self, now: float) -> None:
        self.fetching_since = None
        self.failures += 1
        self.back_off = min(max(2 * self.back_off, 1), 60)
        self.blocked_until = now + self.back_off


class TokenCacheMachine(RuleBasedStateMachine):
    """Callers, expiry, rejections, failures, cancellations, forced logins and closing, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.hand = ManualLoop()
        self.source = ControlledTokenSource()
        self.told = TokenEvents()
        self.model = Model()
        self.waiting: list[Caller] = []
        self.seen: set[int] = set()
        self.kept: list[BaseException] = []
        self.failure: type[BaseException] | None = None
        self.cache = TokenCache(
            self.source, VirtualLoopClock(self.hand.loop), margin=MARGIN, fetch_timeout=PATIENCE, emit=self.told
        )

    def teardown(self) -> None:
        self.hand.close()
        assert self.hand.loop_errors == []

    @rule(count=st.integers(1, 3))
    def callers_arrive(self, count: int) -> None:
        """Each caller immediately gets a valid token or an error, or waits for the only fetch."""
        now, model = self.hand.now, self.model
        good = model.token is not None and now < model.token.expires_at
        at_once = good or model.closed or model.backs_off(now)
        if not good or (model.token is not None and now >= model.token.renew_at):
            model.wants(now)
        callers = [Caller(self.hand.loop.create_task(self.cache.get_current()), model.fetches) for _ in range(count)]
        self.hand.run_until_idle()
        if not at_once:
            self.waiting += callers
            return
        for caller in callers:
            if good:
                self._got_token(caller)
            else:
                self._got_error(caller, ds.ClosedError if model.closed else self.failure)

    @precondition(lambda self: self.model.fetching_since is not None)
    @rule(lifetime=LIFETIMES)
    def fetch_gives_a_token(self, lifetime: float | None) -> None:
        text = f"token-{self.model.fetches}"
        self.model.fetched(text, lifetime)
        self.source.complete(AccessToken(text, lifetime))
        self.hand.run_until_idle()
        for caller in self._no_longer_waiting():
            self._got_token(caller)

    @precondition(lambda self: self.model.fetching_since is not None)
    @rule(failure=FAILURES)
    def fetch_fails(self, failure: tuple[type[BaseException], type[BaseException]]) -> None:
        """All waiting callers get the error, each a separate copy."""
        raised, self.failure = failure
        self.model.failed(self.hand.now)
        self.source.fail(raised("broken"))
        self.hand.run_until_idle()
        for caller in self._no_longer_waiting():
            self._got_error(caller, self.failure)

    @rule(lifetime=st.sampled_from([2, 120, 600]))
    def caller_is_served(self, lifetime: float) -> None:
        self.callers_arrive(1)
        if self.model.fetching_since is not None:
            self.fetch_gives_a_token(lifetime)

    @rule(seconds=st.sampled_from([1, 2, 5, 30, 59, 60, 61, 300, 600]))
    def time_passes(self, seconds: float) -> None:
        """A fetch that takes too long fails; nothing else happens."""
        end = self.hand.now + seconds
        since = self.model.fetching_since
        too_long = since is not None and since + PATIENCE <= end
        if since is not None and too_long:
            self.failure = ds.TransportError
            self.model.failed(since + PATIENCE)
            self.model.killed += 1
        self.hand.pass_time(seconds)
        if too_long:
            for caller in self._no_longer_waiting():
                self._got_error(caller, ds.TransportError)

    @precondition(lambda self: self.model.token is not None and self.model.token.expires_at < float("inf"))
    @rule(moment=st.sampled_from(["renew_at", "expires_at"]), before=st.sampled_from([0, 0.5]))
    def token_grows_old(self, moment: str, before: float) -> None:
        """Advance to one of the relevant times, or just before it."""
        seconds = getattr(self.model.token, moment) - before - self.hand.now
        if seconds > 0:
            self.time_passes(seconds)

    @precondition(lambda self: self.model.token is not None)
    @rule()
    def current_token_is_refused(self) -> None:
        assert self.model.token is not None
        self.cache.invalidate(self.model.token.generation)
        self.model.token = None

    @rule(age=st.integers(1, 3))
    def older_token_is_refused_late(self, age: int) -> None:
        self.cache.invalidate(self.model.generation - age)

    @rule(ago=st.sampled_from([0, 1, 30, 60]))
    def login_is_forced(self, ago: int) -> None:
        """The new session is used from now on, unless the current one was requested later."""
        text = f"forced-{self.model.generation + 1}"
        asked_at = self.hand.now - ago
        self.model.adopt(text, 600, asked_at)
        self.hand.call(lambda: self.cache.store(AccessToken(text, 600), asked_at))

    @precondition(lambda self: bool(self.waiting))
    @rule(choice=st.data())
    def one_caller_leaves(self, choice: st.DataObject) -> None:
        leaving = choice.draw(st.sampled_from(self.waiting))
        self.waiting.remove(leaving)
        leaving.task.cancel()
        self.hand.run_until_idle()
        assert leaving.task.cancelled()

    @precondition(lambda self: bool(self.waiting))
    @rule()
    def all_callers_leave(self) -> None:
        leaving, self.waiting = self.waiting, []
        for caller in leaving:
            caller.task.cancel()
        self.hand.run_until_idle()
        assert all(caller.task.cancelled() for caller in leaving)

    @precondition(lambda self: not self.model.closed and self.model.generation + self.model.failures > 8)
    @rule()
    def suite_closes(self) -> None:
        """Waiting callers get an error, and no fetch starts any more."""
        self.model.killed += self.model.fetching_since is not None
        self.model.closed, self.model.fetching_since = True, None
        self.hand.run(close_cache(self.cache))
        self.hand.run_until_idle()
        for caller in self._no_longer_waiting():
            self._got_error(caller, ds.ClosedError)

    @invariant()
    def fetches_are_the_model_s(self) -> None:
        """At most one fetch at a time, no fetch during back-off or without need; cancelled callers end no fetch."""
        assert self.source.started == self.model.fetches
        assert self.source.max_concurrent <= 1
        assert self.source.cancelled == self.model.killed
        fetching = self.model.fetching_since is not None
        assert len(self.hand.tasks()) == len(self.waiting) + 2 * fetching  # the fetch, and the source

    @invariant()
    def whoever_waits_waits_for_a_fetch(self) -> None:
        assert not any(caller.task.done() for caller in self.waiting)
        assert not self.waiting or self.model.fetching_since is not None

    @invariant()
    def each_renewal_and_each_failure_is_told_once(self) -> None:
        assert [event.generation for event in self.told.renewed] == list(range(1, self.model.generation + 1))
        assert len(self.told.failed) == self.model.failures
        if self.told.failed and self.model.back_off:
            assert self.told.failed[-1].back_off == self.model.back_off

    def _no_longer_waiting(self) -> list[Caller]:
        callers, self.waiting = self.waiting, []
        return callers

    def _got_token(self, caller: Caller) -> None:
        """Check the current token: it is valid, or was requested for this caller."""
        token = self.model.token
        assert token is not None
        credential: Credential = caller.task.result()
        assert (credential.token.reveal(), credential.generation) == (token.text, token.generation)
        assert self.hand.now < credential.expires_at or token.text == f"token-{caller.fetch}"

    def _got_error(self, caller: Caller, kind: type[BaseException] | None) -> None:
        error = caller.task.exception()
        assert error is not None
        assert type(error) is kind
        assert id(error) not in self.seen
        self.seen.add(id(error))
        self.kept.append(error)  # so that no other object gets its id


TestTokenCache = TokenCacheMachine.TestCase
TestTokenCache.settings = settings(max_examples=scale_examples(100), stateful_step_count=40)


@attrs.define
class Service:
    """A token source that responds immediately or fails. at: the times of the requests."""

    hand: ManualLoop
    renewable: bool = True
    up: bool = True
    at: list[float] = attrs.Factory(list[float])

    async def fetch(self) -> AccessToken:
        self.at.append(self.hand.now)
        if not self.up:
            raise ConnectionError
        return AccessToken(f"token-{len(self.at)}", LIFETIME)


class KeepAliveMachine(RuleBasedStateMachine):
    """Time passes, the source fails and recovers, rejects its token, and the suite closes."""

    def __init__(self) -> None:
        super().__init__()
        self.hand = ManualLoop()
        self.service = Service(self.hand)
        self.told = TokenEvents()
        self.cache = TokenCache(
            self.service, VirtualLoopClock(self.hand.loop), margin=MARGIN, keep_alive=True, emit=self.told
        )
        self.closed_at: int | None = None
        self.troubled_until = 0.0

    @initialize()
    def first_caller(self) -> None:
        self.hand.run(self.cache.get_current())
        self.hand.run_until_idle()

    def teardown(self) -> None:
        self.hand.close()
        assert self.hand.loop_errors == []

    @rule(seconds=st.sampled_from([0.5, 30, 61, 300, 541, 700]))
    def time_passes(self, seconds: float) -> None:
        self.hand.pass_time(seconds)
        if not self.service.up:
            self.troubled_until = max(self.troubled_until, self.hand.now + MAX_BACK_OFF + 1)

    @rule()
    def service_goes_down(self) -> None:
        self.service.up = False

    @rule()
    def service_comes_back(self) -> None:
        self.service.up = True

    @precondition(lambda self: self.closed_at is None)
    @rule()
    def token_is_refused(self) -> None:
        """The token is replaced at the next renewal or call."""
        self.cache.invalidate(self.cache._generation)
        self.troubled_until = max(self.troubled_until, self.hand.now + LIFETIME - MARGIN + 1)

    @precondition(lambda self: self.closed_at is None and len(self.service.at) > 8)
    @rule()
    def suite_closes(self) -> None:
        self.hand.run(close_cache(self.cache))
        self.closed_at = len(self.service.at)

    @invariant()
    def token_is_there_while_it_can_be(self) -> None:
        """The token is valid without any call, except for a while after failures."""
        if self.closed_at is None and self.service.up and self.hand.now > self.troubled_until and self.service.at:
            credential = self.cache._credential
            assert credential is not None
            assert self.hand.now < credential.expires_at

    @invariant()
    def nothing_is_fetched_after_closing(self) -> None:
        if self.closed_at is not None:
            assert len(self.service.at) == self.closed_at
            assert self.hand.tasks() == set()
        elif self.service.at:
            assert len(self.hand.tasks()) == 1  # the background task

    @invariant()
    def service_is_left_alone_in_between(self) -> None:
        """Fetches are at least a second apart, and less frequent while the source fails."""
        pauses = [later - earlier for earlier, later in zip(self.service.at, self.service.at[1:], strict=False)]
        assert all(pause >= 1 for pause in pauses)
        assert len(self.told.renewed) + len(self.told.failed) == len(self.service.at)


TestKeepAlive = KeepAliveMachine.TestCase
TestKeepAlive.settings = settings(max_examples=scale_examples(40), stateful_step_count=25)


STEPS = st.sampled_from(
    [
        *("caller arrives", "caller arrives", "caller leaves", "all leave", "turn", "turn", "turn"),
        *("fetch gives", "fetch fails", "token is refused", "login is forced"),
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
            await close_cache(self.cache)
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
                self.cache.store(AccessToken("forced", 600), self.cache.clock.monotonic())
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
