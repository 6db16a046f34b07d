"""Model test of `keep_alive`: the token is valid whenever its source permits, without any caller."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from directsuite.core.credentials import AccessToken, TokenCache
from tests.examples import scale_examples

from .token_fetches import ManualLoop, TokenEvents, VirtualLoopClock

LIFETIME, MARGIN = 600.0, 60.0
LONGEST_BACK_OFF = 60.0


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
            self.troubled_until = max(self.troubled_until, self.hand.now + LONGEST_BACK_OFF + 1)

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
        self.hand.run(self.cache.aclose())
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
