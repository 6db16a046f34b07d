"""A user's kept consent: refresh tokens rotate, are saved before use, and may be lost on the way."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import plays
from tests.core.opened import failure_of, opened
from tests.core.scripted_server import Play, ScriptedServer
from tests.core.virtual_time import elapsed, until

from .token_service import REFRESH, TokenService, refusal


class Saved:
    """What `on_rotated` was given, and how many requests other than for tokens had come by then."""

    def __init__(self, server: ScriptedServer, *, failures: int = 0) -> None:
        self.server = server
        self.failures = failures
        self.tokens: list[str] = []
        self.called = 0
        self.calls_before: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, token: ds.Secret) -> None:
        self.called += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError(f"disk full while writing {token.reveal()}")
        self.tokens.append(token.reveal())
        self.calls_before.append(len(self.server.to("/signing/")))


async def test_new_refresh_token_is_saved_before_its_access_token_is_used(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved)) as suite:
        for _ in range(3):
            await suite.signing.get_doc_info("doc")
            await asyncio.sleep(101)
    assert saved.tokens == [f"sentinel-of-a-refresh-token-{number}" for number in (1, 2, 3)]
    assert saved.calls_before == [0, 1, 2]
    assert [form["refresh_token"] for form in service.forms] == [REFRESH, *saved.tokens[:2]]
    assert {form["scope"] for form in service.forms} == {"fax"}


async def test_plain_function_may_save(server: ScriptedServer, service: TokenService) -> None:
    saved: list[ds.Secret] = []
    async with opened(server, token=service.refreshing(saved.append)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved == [ds.Secret("sentinel-of-a-refresh-token-1")]


@pytest.mark.parametrize("gives", [True, False])
async def test_refresh_token_that_stays_is_not_saved_again(
    server: ScriptedServer, service: TokenService, gives: bool
) -> None:
    service.rotates, service.gives_refresh_token = False, gives
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved)) as suite:
        for _ in range(2):
            await suite.signing.get_doc_info("doc")
            service.valid.clear()
    assert saved.called == 0
    assert [form["refresh_token"] for form in service.forms] == [REFRESH, REFRESH]


async def test_failed_saving_is_repeated_with_the_same_token_before_anything_is_sent(
    server: ScriptedServer, service: TokenService
) -> None:
    saved = Saved(server, failures=2)
    async with opened(server, token=service.refreshing(saved), retry=ds.RetryPolicy.none()) as suite:
        errors = [await failure_of(suite.signing.get_doc_info("doc"))]
        await asyncio.sleep(2)
        errors.append(await failure_of(suite.signing.get_doc_info("doc")))
        assert len(server.requests) == 1
        await asyncio.sleep(4)
        await suite.signing.get_doc_info("doc")
    for error in errors:
        assert isinstance(error, ds.TransportError)
        assert error.outcome is ds.Outcome.NOT_SENT
        assert "on_rotated raised OSError" in str(error)
    assert saved.tokens == ["sentinel-of-a-refresh-token-1", "sentinel-of-a-refresh-token-2"]
    assert [form["refresh_token"] for form in service.forms] == [REFRESH, saved.tokens[0]]
    assert saved.calls_before == [0, 0]


async def test_failed_saving_heals_within_one_call(server: ScriptedServer, service: TokenService) -> None:
    saved = Saved(server, failures=1)
    async with opened(server, token=service.refreshing(saved)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved.tokens[-1] == service.refresh_token


async def test_closing_waits_for_the_saving(server: ScriptedServer, service: TokenService) -> None:
    saved = Saved(server)
    saved.gate.clear()
    async with opened(server, token=service.refreshing(saved), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: saved.called == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        asyncio.get_running_loop().call_later(3, saved.gate.set)
        assert await elapsed(closing) == pytest.approx(3)
        assert isinstance(await caller, ds.ClosedError)
    assert saved.tokens == [service.refresh_token]


async def test_closing_does_not_wait_for_ever(server: ScriptedServer, service: TokenService) -> None:
    saved = Saved(server)
    saved.gate.clear()
    async with opened(server, token=service.refreshing(saved), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: saved.called == 1)
        assert await elapsed(suite.aclose(grace=0)) == pytest.approx(5)
        await caller
    assert saved.tokens == []


async def test_saving_that_hangs_ends_with_the_cache_s_patience_and_keeps_the_token(
    server: ScriptedServer, service: TokenService
) -> None:
    saved = Saved(server)
    saved.gate.clear()
    async with opened(server, token=service.refreshing(saved), timeout=100) as suite:
        error = await failure_of(suite.signing.with_options(retry=ds.RetryPolicy.none()).get_doc_info("doc"))
        assert "took too long" in str(error)
        saved.gate.set()
        await asyncio.sleep(2)
        await suite.signing.get_doc_info("doc")
    assert [form["refresh_token"] for form in service.forms] == [REFRESH, "sentinel-of-a-refresh-token-1"]


@pytest.mark.parametrize("saving", [3, 20, 55])
async def test_saving_that_is_slow_the_second_time_tears_no_renewal(
    server: ScriptedServer, service: TokenService, saving: float
) -> None:
    saved = Saved(server, failures=1)
    view = ds.RetryPolicy.none()
    async with opened(server, token=service.refreshing(saved), timeout=200, attempt_timeout=100, retry=view) as suite:
        await failure_of(suite.signing.get_doc_info("doc"))
        await asyncio.sleep(2)
        saved.gate.clear()
        asyncio.get_running_loop().call_later(saving, saved.gate.set)
        service.script = [plays.slow(44, service.issue)]
        answers = [await asyncio.gather(suite.signing.get_doc_info("doc"), return_exceptions=True)]
        await asyncio.sleep(2)
        answers.append(await asyncio.gather(suite.signing.get_doc_info("doc"), return_exceptions=True))
    [[first], [second]] = answers
    if saving > 10:
        assert isinstance(first, ds.TransportError)
        assert first.outcome is ds.Outcome.NOT_SENT
        assert "on_rotated took" in str(first)
    assert not isinstance(second, BaseException)
    assert (len(service.forms), saved.tokens[-1]) == (2, service.refresh_token)


async def test_lost_answer_is_tried_again_and_its_refusal_says_what_may_have_happened(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [service.lose]
    async with opened(server, token=service.refreshing()) as suite:
        error = await failure_of(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.AuthenticationError)
    assert (error.code, error.outcome, len(service.forms)) == ("invalid_grant", ds.Outcome.FAILED, 2)
    assert "whose answer was lost" in str(error)
    assert "send the user through authorization again" in str(error)


async def test_answer_lost_in_an_earlier_call_is_remembered(server: ScriptedServer, service: TokenService) -> None:
    service.script = [service.lose, plays.reset]
    async with opened(server, token=service.refreshing(), leaky=True) as suite:
        view = suite.signing.with_options(retry=ds.RetryPolicy.none())
        first = await failure_of(view.get_doc_info("doc"))
        await asyncio.sleep(2)
        second = await failure_of(view.get_doc_info("doc"))
    assert (type(first), first.outcome) == (ds.ConnectionLostError, ds.Outcome.NOT_SENT)
    assert isinstance(second, ds.AuthenticationError)
    assert "whose answer was lost" in str(second)


@pytest.mark.parametrize("before", [[], [plays.answer(b"", 429)], [plays.answer(b"", 503, Retry_After="1")]])
async def test_refusal_without_a_lost_answer_does_not_speak_of_one(
    server: ScriptedServer, service: TokenService, before: list[Play]
) -> None:
    service.script = [*before, refusal("invalid_grant")]
    async with opened(server, token=service.refreshing()) as suite:
        error = await failure_of(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.AuthenticationError)
    assert "lost" not in str(error)
    assert "send the user through authorization again" in str(error)


async def test_lost_answer_that_spent_nothing_does_no_harm(server: ScriptedServer, service: TokenService) -> None:
    service.script = [plays.reset]
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved.tokens == [service.refresh_token]


async def test_cancelled_caller_loses_no_refresh_token(server: ScriptedServer, service: TokenService) -> None:
    gate = asyncio.Event()
    service.script = [plays.gated(gate, service.issue)]
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved)) as suite:
        caller = asyncio.create_task(suite.signing.get_doc_info("doc"))
        await until(lambda: len(server.requests) == 1)
        caller.cancel()
        gate.set()
        await until(lambda: bool(saved.tokens))
        await suite.signing.get_doc_info("doc")
    assert (service.issued, len(saved.tokens)) == (1, 1)


async def test_hundred_callers_on_a_refused_token_rotate_once(server: ScriptedServer, service: TokenService) -> None:
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved), requests_per_second=10_000, burst=1000) as suite:
        await suite.signing.get_doc_info("doc")
        service.valid.clear()
        await asyncio.gather(*(suite.signing.get_doc_info("doc") for _ in range(100)))
    assert (service.issued, len(saved.tokens)) == (2, 2)


async def test_refresh_token_is_kept_if_the_token_type_is_refused(
    server: ScriptedServer, service: TokenService
) -> None:
    second = "sentinel-of-a-refresh-token-1"
    answer = {"access_token": "sentinel-of-an-access-token-1", "refresh_token": second, "token_type": "mac"}
    service.script = [plays.answer(answer)]
    service.refresh_token = second
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved)) as suite:
        assert isinstance(await failure_of(suite.signing.get_doc_info("doc")), ds.ResponseDecodeError)
        assert saved.tokens == [second]
        await asyncio.sleep(100)
        await suite.signing.get_doc_info("doc")
    assert [form["refresh_token"] for form in service.forms] == [REFRESH, second]


async def test_refresh_token_that_could_not_be_saved_is_saved_later(
    server: ScriptedServer, service: TokenService
) -> None:
    second = "sentinel-of-a-refresh-token-7"
    answer = {"access_token": "sentinel-of-an-access-token-7", "refresh_token": second, "token_type": "mac"}
    service.script = [plays.answer(answer)]
    service.refresh_token = second
    saved = Saved(server, failures=1)
    async with opened(server, token=service.refreshing(saved), retry=ds.RetryPolicy.none()) as suite:
        assert "on_rotated raised OSError" in str(await failure_of(suite.signing.get_doc_info("doc")))
        await asyncio.sleep(100)
        await suite.signing.get_doc_info("doc")
    assert saved.tokens == [second, "sentinel-of-a-refresh-token-1"]
