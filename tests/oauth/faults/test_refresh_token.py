"""A user's kept consent: refresh tokens rotate, are saved before use, and may be lost on the way."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite
from tests.core.virtual_time import measure_elapsed, yield_until

from .token_service import FIRST_REFRESH_TOKEN, TokenService, make_rejection


class RotationRecorder:
    """The arguments of `on_rotated`, with the number of other requests at that time."""

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
        self.calls_before.append(len(self.server.find_requests("/signing/")))


async def test_new_refresh_token_is_saved_before_its_access_token_is_used(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        for _ in range(3):
            await suite.signing.get_doc_info("doc")
            await asyncio.sleep(101)
    assert saved.tokens == [f"sentinel-of-a-refresh-token-{number}" for number in (1, 2, 3)]
    assert saved.calls_before == [0, 1, 2]
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, *saved.tokens[:2]]
    assert {form["scope"] for form in service.forms} == {"fax"}


async def test_plain_function_may_save(server: ScriptedServer, service: TokenService) -> None:
    saved: list[ds.Secret] = []
    async with open_suite(server, token=service.make_refresh_token(saved.append)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved == [ds.Secret("sentinel-of-a-refresh-token-1")]


@pytest.mark.parametrize("repeats", [True, False])
async def test_refresh_token_that_stays_is_not_saved_again(
    server: ScriptedServer, service: TokenService, repeats: bool
) -> None:
    service.rotates, service.gives_refresh_token = False, repeats
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        for _ in range(2):
            await suite.signing.get_doc_info("doc")
            service.valid.clear()
    assert saved.called == 0
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, FIRST_REFRESH_TOKEN]


async def test_failed_save_is_retried_with_same_token_before_any_request(
    server: ScriptedServer, service: TokenService
) -> None:
    saved = RotationRecorder(server, failures=2)
    async with open_suite(server, token=service.make_refresh_token(saved), retry=ds.RetryPolicy.none()) as suite:
        errors = [await catch_error(suite.signing.get_doc_info("doc"))]
        await asyncio.sleep(2)
        errors.append(await catch_error(suite.signing.get_doc_info("doc")))
        assert len(server.requests) == 1
        await asyncio.sleep(4)
        await suite.signing.get_doc_info("doc")
    for error in errors:
        assert isinstance(error, ds.TransportError)
        assert error.outcome is ds.Outcome.NOT_SENT
        assert "on_rotated raised OSError" in str(error)
    assert saved.tokens == ["sentinel-of-a-refresh-token-1", "sentinel-of-a-refresh-token-2"]
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, saved.tokens[0]]
    assert saved.calls_before == [0, 0]


async def test_failed_saving_heals_within_one_call(server: ScriptedServer, service: TokenService) -> None:
    saved = RotationRecorder(server, failures=1)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved.tokens[-1] == service.refresh_token


async def test_closing_waits_for_the_saving(server: ScriptedServer, service: TokenService) -> None:
    saved = RotationRecorder(server)
    saved.gate.clear()
    async with open_suite(server, token=service.make_refresh_token(saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: saved.called == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        asyncio.get_running_loop().call_later(3, saved.gate.set)
        assert await measure_elapsed(closing) == pytest.approx(3)
        assert isinstance(await caller, ds.ClosedError)
    assert saved.tokens == [service.refresh_token]


async def test_closing_does_not_wait_for_ever(server: ScriptedServer, service: TokenService) -> None:
    saved = RotationRecorder(server)
    saved.gate.clear()
    async with open_suite(server, token=service.make_refresh_token(saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: saved.called == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(5)
        await caller
    assert saved.tokens == []


async def test_hanging_save_ends_with_fetch_timeout_and_keeps_token(
    server: ScriptedServer, service: TokenService
) -> None:
    saved = RotationRecorder(server)
    saved.gate.clear()
    async with open_suite(server, token=service.make_refresh_token(saved), timeout=100) as suite:
        error = await catch_error(suite.signing.with_options(retry=ds.RetryPolicy.none()).get_doc_info("doc"))
        assert "took too long" in str(error)
        saved.gate.set()
        await asyncio.sleep(2)
        await suite.signing.get_doc_info("doc")
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, "sentinel-of-a-refresh-token-1"]


@pytest.mark.parametrize("saving", [3, 20, 55])
async def test_saving_that_is_slow_the_second_time_tears_no_renewal(
    server: ScriptedServer, service: TokenService, saving: float
) -> None:
    saved = RotationRecorder(server, failures=1)
    view = ds.RetryPolicy.none()
    async with open_suite(
        server, token=service.make_refresh_token(saved), timeout=200, attempt_timeout=100, retry=view
    ) as suite:
        await catch_error(suite.signing.get_doc_info("doc"))
        await asyncio.sleep(2)
        saved.gate.clear()
        asyncio.get_running_loop().call_later(saving, saved.gate.set)
        service.script = [responses.delay(44, service.issue)]
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


async def test_rejection_after_lost_response_explains_possible_rotation(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [service.drop_response]
    async with open_suite(server, token=service.make_refresh_token()) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.AuthenticationError)
    assert (error.code, error.outcome, len(service.forms)) == ("invalid_grant", ds.Outcome.FAILED, 2)
    assert "whose response was lost" in str(error)
    assert "send the user through authorization again" in str(error)


async def test_response_lost_in_an_earlier_call_is_remembered(server: ScriptedServer, service: TokenService) -> None:
    service.script = [service.drop_response, responses.reset]
    async with open_suite(server, token=service.make_refresh_token(), leaky=True) as suite:
        view = suite.signing.with_options(retry=ds.RetryPolicy.none())
        first = await catch_error(view.get_doc_info("doc"))
        await asyncio.sleep(2)
        second = await catch_error(view.get_doc_info("doc"))
    assert (type(first), first.outcome) == (ds.ConnectionLostError, ds.Outcome.NOT_SENT)
    assert isinstance(second, ds.AuthenticationError)
    assert "whose response was lost" in str(second)


@pytest.mark.parametrize("before", [[], [responses.respond(b"", 429)], [responses.respond(b"", 503, Retry_After="1")]])
async def test_rejection_without_lost_response_mentions_none(
    server: ScriptedServer, service: TokenService, before: list[Responder]
) -> None:
    service.script = [*before, make_rejection("invalid_grant")]
    async with open_suite(server, token=service.make_refresh_token()) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.AuthenticationError)
    assert "lost" not in str(error)
    assert "send the user through authorization again" in str(error)


async def test_lost_response_that_spent_nothing_does_no_harm(server: ScriptedServer, service: TokenService) -> None:
    service.script = [responses.reset]
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        await suite.signing.get_doc_info("doc")
    assert saved.tokens == [service.refresh_token]


async def test_cancelled_caller_loses_no_refresh_token(server: ScriptedServer, service: TokenService) -> None:
    gate = asyncio.Event()
    service.script = [responses.respond_after(gate, service.issue)]
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        caller = asyncio.create_task(suite.signing.get_doc_info("doc"))
        await yield_until(lambda: len(server.requests) == 1)
        caller.cancel()
        gate.set()
        await yield_until(lambda: bool(saved.tokens))
        await suite.signing.get_doc_info("doc")
    assert (service.issued, len(saved.tokens)) == (1, 1)


async def test_hundred_callers_on_a_rejected_token_rotate_once(server: ScriptedServer, service: TokenService) -> None:
    saved = RotationRecorder(server)
    async with open_suite(
        server, token=service.make_refresh_token(saved), requests_per_second=10_000, burst=1000
    ) as suite:
        await suite.signing.get_doc_info("doc")
        service.valid.clear()
        await asyncio.gather(*(suite.signing.get_doc_info("doc") for _ in range(100)))
    assert (service.issued, len(saved.tokens)) == (2, 2)


async def test_refresh_token_is_kept_if_the_token_type_is_rejected(
    server: ScriptedServer, service: TokenService
) -> None:
    second = "sentinel-of-a-refresh-token-1"
    answer = {"access_token": "sentinel-of-an-access-token-1", "refresh_token": second, "token_type": "mac"}
    service.script = [responses.respond(answer)]
    service.refresh_token = second
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
        assert isinstance(await catch_error(suite.signing.get_doc_info("doc")), ds.ResponseDecodeError)
        assert saved.tokens == [second]
        await asyncio.sleep(100)
        await suite.signing.get_doc_info("doc")
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, second]


async def test_refresh_token_that_could_not_be_saved_is_saved_later(
    server: ScriptedServer, service: TokenService
) -> None:
    second = "sentinel-of-a-refresh-token-7"
    answer = {"access_token": "sentinel-of-an-access-token-7", "refresh_token": second, "token_type": "mac"}
    service.script = [responses.respond(answer)]
    service.refresh_token = second
    saved = RotationRecorder(server, failures=1)
    async with open_suite(server, token=service.make_refresh_token(saved), retry=ds.RetryPolicy.none()) as suite:
        assert "on_rotated raised OSError" in str(await catch_error(suite.signing.get_doc_info("doc")))
        await asyncio.sleep(100)
        await suite.signing.get_doc_info("doc")
    assert saved.tokens == [second, "sentinel-of-a-refresh-token-1"]
