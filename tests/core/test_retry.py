"""Whether, when and how often a call is retried, and what an error of a retry says of the attempt before it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_chain,
    wait_combine,
    wait_fixed,
    wait_incrementing,
    wait_none,
)

import directsuite as ds
from directsuite.core.retry import MAX_RETRY_AFTER, Backoff, DefaultWait, parse_retry_after

from . import api, responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, TWO_ATTEMPTS_POLICY, catch_error, expect_error, open_suite
from .virtual_time import LoopClock, yield_until

LIMITED = responses.respond(b"", 429)
UNAVAILABLE = responses.respond(b"", 503)


class OwnWait:
    def __call__(self, state: RetryCallState) -> float:
        return 1.0


class LongerWait(DefaultWait):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, retry_state: RetryCallState) -> float:
        return super().__call__(retry_state) + self.seconds


class Strategy:
    """An object with an async `__call__`, which tenacity accepts as a strategy."""

    async def __call__(self, _: RetryCallState) -> float:
        await asyncio.sleep(0)
        return 2


async def wait_two(_: RetryCallState) -> float:
    return 2


def wait_later(state: RetryCallState) -> Awaitable[float]:
    return wait_two(state)


def own_wait(state: RetryCallState) -> float:
    return 1.0


async def never_return(_: RetryCallState) -> float:
    await asyncio.Event().wait()
    raise AssertionError


async def stop_now(_: RetryCallState) -> bool:
    return True


async def go_on(_: RetryCallState) -> bool:
    return False


ATTEMPTS: list[tuple[ds.RetryPolicy, int]] = [
    *((ds.RetryPolicy(attempts=number, wait=wait_fixed(1)), number) for number in (1, 2, 4)),
    (ds.RetryPolicy(), 4),
    (ds.RetryPolicy(attempts=4, wait=wait_fixed(1), stop=stop_after_attempt(2)), 2),
    (ds.RetryPolicy(attempts=3, wait=wait_fixed(2), stop=stop_now), 1),
    (ds.RetryPolicy(attempts=3, wait=wait_fixed(2), stop=go_on), 3),
    (ds.RetryPolicy(wait=never_return), 1),
]


@pytest.mark.parametrize(("policy", "attempts"), ATTEMPTS)
async def test_call_is_tried_as_often_as_the_policy_says(
    server: ScriptedServer, policy: ds.RetryPolicy, attempts: int
) -> None:
    server.default_responder = responses.reset
    async with open_suite(server, retry=policy) as suite:
        error = await expect_error(ds.ConnectionLostError, api.GET_MESSAGE_COUNT(suite))
    assert error.attempts == len(server.requests) == attempts


RETRY_AFTER = [responses.respond(b"", status, Retry_After="7") for status in (429, 503)]
OWN_WAITS: list[Any] = [wait_two, Strategy(), functools.partial(wait_two), wait_later, wait_fixed(2)]
LOST: list[Responder] = [responses.reset]
SLEEPS: list[tuple[ds.RetryPolicy, list[Responder], list[tuple[float, float]]]] = [
    (ds.RetryPolicy(), [LIMITED] * 3, [(1, 1.5), (2, 2.5), (4, 4.5)]),
    (ds.RetryPolicy(), [UNAVAILABLE], [(30, 60)]),
    (ds.RetryPolicy(wait=wait_incrementing(start=5, increment=2)), [responses.reset] * 3, [(5, 5), (7, 7), (9, 9)]),
    (ds.RetryPolicy(wait=lambda _: 0), [responses.reset], [(0, 0)]),
    *((ds.RetryPolicy(wait=wait), LOST, [(2.0, 2.0)]) for wait in OWN_WAITS),
    *((TWO_ATTEMPTS_POLICY, [play], [(7.0, 7.0)]) for play in RETRY_AFTER),
]


@pytest.mark.parametrize(("policy", "script", "bounds"), SLEEPS)
async def test_wait_is_that_of_the_policy_or_of_the_service(
    server: ScriptedServer, policy: ds.RetryPolicy, script: list[Responder], bounds: list[tuple[float, float]]
) -> None:
    server.enqueue(*script)
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=policy, timeout=90) as suite:
        assert await api.GET_MESSAGE_COUNT(suite) == 7
    assert len(clock.sleeps) == len(bounds)
    assert all(least <= wait <= most for wait, (least, most) in zip(clock.sleeps, bounds, strict=True))


@pytest.mark.parametrize("gives", [None, "2", True, -1.0, float("nan"), [2]], ids=repr)
async def test_wait_without_seconds_raises_with_failure_as_cause(server: ScriptedServer, gives: Any) -> None:
    server.default_responder = responses.reset
    async with open_suite(server, retry=ds.RetryPolicy(wait=lambda _: gives)) as suite:
        error = await expect_error(ds.ConfigurationError, api.GET_MESSAGE_COUNT(suite))
    assert "wait must return seconds: a number, 0 or more" in str(error)
    assert isinstance(error.__cause__, ds.ConnectionLostError)


@pytest.mark.parametrize("ask", [api.GET_MESSAGE_COUNT, api.SEND], ids=str)
async def test_wait_that_does_not_fit_the_deadline_raises_immediately(server: ScriptedServer, ask: api.ApiCall) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="60"))
    clock = LoopClock()
    async with open_suite(server, clock=clock, timeout=30) as suite:
        error = await expect_error(ds.RateLimitedError, ask(suite))
    assert (error.retry_after, error.attempts, error.elapsed) == (60, 1, 0)
    assert "the call was not retried, because the wait of 60 s is longer than the time left. Call again" in str(error)
    assert clock.sleeps == []


async def test_wait_that_does_not_fit_the_deadline_is_rounded_up_and_added_to_other_advice(
    server: ScriptedServer,
) -> None:
    error = ds.RateLimitedError("busy", status=429, outcome=ds.Outcome.REJECTED)
    error.retry_after, error.advice = 0.4, "ask the provider"

    async def raise_error() -> None:
        raise error

    async def sleep(_: float) -> None:
        raise AssertionError("the wait is too long")

    async def forbid(_: object) -> None:
        raise AssertionError("the wait is requested")

    retrying = ds.RetryPolicy().make_retry_loop(
        may_repeat=lambda _: True,
        time_left=lambda: 0.3,
        sleep=sleep,
        on_scheduled=lambda _, __: None,
        mentions_wait=True,
        await_result=forbid,
    )
    await expect_error(ds.RateLimitedError, retrying(raise_error))
    assert error.advice == (
        "ask the provider. The call was not retried, because the wait of 1 s is longer than the time left. "
        "Call again after this wait, or with a longer timeout"
    )


async def test_no_retries_still_renews_the_token(server: ScriptedServer) -> None:
    tokens = iter(["old", "new"])

    async def ask() -> str:
        return next(tokens)

    server.enqueue(responses.respond(b"", 401))
    async with open_suite(server, token=ask, retry=ds.RetryPolicy.none()) as suite:
        await suite.signing.get_doc_info("doc")
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]


GONE = [responses.respond({"error": "no such document"}, status) for status in (400, 404)]


@pytest.mark.parametrize("gone", GONE, ids=["400", "404"])
async def test_not_found_after_lost_delete_means_deleted(server: ScriptedServer, gone: Responder) -> None:
    server.enqueue(responses.reset, gone)
    async with open_suite(server) as suite:
        update = await suite.signing.delete("doc")
    assert update.identifier == "doc"
    assert len(server.requests) == 2


@pytest.mark.parametrize("first", [responses.respond(b"", 429), GONE[1]], ids=["429", "404"])
async def test_not_found_at_first_delete_is_raised(server: ScriptedServer, first: Responder) -> None:
    server.enqueue(first, GONE[1])
    async with open_suite(server) as suite:
        await expect_error(ds.NotFoundError, api.DELETE(suite))


EXISTS = responses.respond({"success": False, "code": 3, "message": "exists"})


def folders(*names: str) -> Responder:
    return responses.respond({"success": True, "folders": ["INBOX", *names]})


def list_folders(names: dict[str, list[str]]) -> Responder:
    """Respond with the names below the requested folder."""

    async def respond(exchange: Exchange) -> None:
        root = exchange.request.path.split("/")[1]
        await responses.respond({"success": True, "folders": names[root]})(exchange)

    return respond


async def _create(suite: ds.DirectSuite) -> None:
    await suite.mailbox(ALICE, PASSWORD).create_folder("INBOX.New")


async def _move(suite: ds.DirectSuite) -> None:
    await suite.mailbox(ALICE, PASSWORD).move_folder("INBOX.Old", "INBOX.New")


PROOFS: list[tuple[Callable[[ds.DirectSuite], Awaitable[None]], list[str], bool]] = [
    (_create, ["inbox.new"], True),
    (_create, [], False),
    (_move, ["INBOX.New"], True),
    (_move, ["INBOX.Old"], False),
    (_move, ["INBOX.Old", "INBOX.New"], False),
    (_move, [], False),
]


@pytest.mark.parametrize(("change", "seen", "happened"), PROOFS)
async def test_rejected_repeat_is_an_error_unless_proof_shows_that_it_happened(
    server: ScriptedServer, change: Callable[[ds.DirectSuite], Awaitable[None]], seen: list[str], happened: bool
) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = folders(*seen)
    async with open_suite(server) as suite:
        if happened:
            await change(suite)
        else:
            error = await catch_error(change(suite))
            assert isinstance(error, ds.ServiceError)
            assert (error.code, error.attempts) == (3, 2)


@pytest.mark.parametrize(
    ("folder", "listed"),
    [
        ("INBOX.Cases.Old", {"INBOX": ["INBOX.Cases", "INBOX.New"], "INBOX.Cases": ["INBOX.Cases.Old"]}),
        ("INBOX.Ärzte", {"INBOX": ["INBOX.&AMQ-rzte", "INBOX.New"]}),
        ("Archive", {"INBOX": ["INBOX.New"]}),
    ],
    ids=["only direct subfolders are listed", "encoded name", "outside INBOX"],
)
async def test_folder_that_a_listing_hides_is_not_taken_for_a_moved_one(
    folder: str, listed: dict[str, list[str]], server: ScriptedServer
) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = list_folders(listed)
    async with open_suite(server) as suite:
        error = await catch_error(suite.mailbox(ALICE, PASSWORD).move_folder(folder, "INBOX.New"))
    assert isinstance(error, ds.ServiceError)


@pytest.mark.parametrize("old", [None, "INBOX.Old"], ids=["create", "move"])
async def test_listings_of_direct_subfolders_prove_the_change_of_a_nested_folder(
    old: str | None, server: ScriptedServer
) -> None:
    listed = {"INBOX": ["INBOX.Sent", "INBOX.Cases"], "INBOX.Cases": ["INBOX.Cases.New"]}

    server.enqueue(responses.reset, EXISTS)
    server.default_responder = list_folders(listed)
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        new = "INBOX.Cases.New"
        await (box.create_folder(new) if old is None else box.move_folder(old, new))


@pytest.mark.parametrize("change", [_create, _move], ids=["create", "move"])
async def test_first_rejection_is_believed_without_looking(
    server: ScriptedServer, suite: ds.DirectSuite, change: Callable[[ds.DirectSuite], Awaitable[None]]
) -> None:
    server.enqueue(EXISTS)
    await catch_error(change(suite))
    assert len(server.requests) == 1


async def test_proof_that_cannot_be_had_leaves_the_rejection(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = responses.reset
    error = await expect_error(ds.ServiceError, _create(suite))
    assert (error.operation, error.attempts) == ("CreateFolder", 2)


async def test_verification_ends_with_the_deadline(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = responses.never_respond
    error = await catch_error(suite.mailbox(ALICE, PASSWORD).create_folder("INBOX.New", timeout=10))
    assert error.operation == "CreateFolder"
    assert error.elapsed == pytest.approx(10)


async def test_repeat_of_an_operation_without_harm_is_the_same_request(server: ScriptedServer) -> None:
    server.enqueue(responses.reset)
    async with open_suite(server) as suite:
        await api.SAVE(suite)
    first, second = server.requests
    assert (first.method, first.target, first.body) == (second.method, second.target, second.body)
    assert first.headers == second.headers


@pytest.mark.parametrize(
    ("ask", "refusal", "told"),
    [
        (api.MARK_AS_READ, responses.respond(b"", 403), ds.PermissionDeniedError),
        (api.MARK_AS_READ, responses.respond({"success": False, "code": 1}), ds.AuthenticationError),
        (api.DELETE, responses.respond(b"", 401), ds.AuthenticationError),
        (api.DELETE, responses.respond(b"", 429), ds.RateLimitedError),
        (api.GET_MESSAGE_COUNT, responses.respond(b"", 403), ds.PermissionDeniedError),
    ],
)
async def test_rejection_of_the_repeat_leaves_the_outcome_of_a_change_unknown(
    server: ScriptedServer, suite: ds.DirectSuite, ask: api.ApiCall, refusal: Responder, told: type[ds.DirectSuiteError]
) -> None:
    server.enqueue(responses.reset)
    server.default_responder = refusal
    error = await expect_error(told, ask(suite))
    assert error.outcome is (ds.Outcome.FAILED if ask is api.GET_MESSAGE_COUNT else ds.Outcome.UNKNOWN)


async def test_deadline_of_a_repeat_does_not_say_that_nothing_was_sent(server: ScriptedServer) -> None:
    server.enqueue(responses.delay(0.5, responses.reset))
    server.default_responder = responses.never_respond
    async with open_suite(server, max_connections=1, leaky=True) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        marking = asyncio.ensure_future(catch_error(box.mark_messages_as_read_by_uids("INBOX", [1], timeout=5)))
        await yield_until(lambda: len(server.requests) == 1)
        holding = asyncio.ensure_future(catch_error(box.get_message_count(timeout=30)))
        error = await marking
        holding.cancel()
    assert type(error) is ds.DeadlineExceededError
    assert error.outcome is ds.Outcome.UNKNOWN
    assert "an earlier attempt was sent, but got no response" in str(error)


async def test_refused_repeat_has_the_reason_and_advice_of_the_refusal(server: ScriptedServer) -> None:
    async def stop_and_reset(exchange: Exchange) -> None:
        server.stop_listening()
        await responses.reset(exchange)

    server.enqueue(stop_and_reset)
    async with open_suite(server) as suite:
        error = await expect_error(ds.ConnectionLostError, api.GET_MESSAGE_COUNT(suite))
    assert isinstance(error.__cause__, ds.ConnectFailedError)
    assert (error.reason, error.advice) == ("connection refused", error.__cause__.advice)


@pytest.mark.parametrize("host", ["a..b.example", "a" * 70 + ".example"])
async def test_unresolvable_host_is_connect_failed_error(host: str) -> None:
    url = f"https://{host}/message"
    async with ds.DirectSuite(ds.Settings(message_url=url, retry=ds.RetryPolicy.none())) as suite:
        error = await expect_error(ds.ConnectFailedError, suite.mailbox(ALICE, PASSWORD).get_message_count())
    assert error.outcome is ds.Outcome.NOT_SENT


def _state(error: Exception | None, attempt: int = 1) -> RetryCallState:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    if error is not None:
        state.set_exception((type(error), error, None))
    return state


RATE_LIMITED = ds.RateLimitedError("", status=429)
WAITS: list[tuple[Exception | None, float, float, float]] = [
    (RATE_LIMITED, 1, 1.5, 60),
    (ds.ServerError("", status=503), 30, 60, 60),
    (ds.ServerError("", status=500), 0, 0.5, 10),
    (ds.ConnectionLostError(""), 0, 0.5, 10),
    (None, 0, 0.5, 10),
]


@pytest.mark.parametrize(("error", "least", "most", "last"), WAITS)
def test_default_wait_suits_the_error_and_spreads_callers(
    error: Exception | None, least: float, most: float, last: float
) -> None:
    first = {DefaultWait()(_state(error)) for _ in range(50)}
    assert all(least <= wait <= most for wait in first)
    assert len(first) > 25
    assert all(DefaultWait()(_state(error, attempt=20)) <= last for _ in range(50))


def test_default_wait_goes_into_sums_and_chains_of_tenacity() -> None:
    seven = wait_fixed(7)
    waits = [DefaultWait() + seven, seven + DefaultWait(), wait_chain(DefaultWait(), seven)]
    assert [int(wait(_state(RATE_LIMITED))) for wait in waits] == [8, 8, 1]


def test_subclass_of_default_wait_may_have_attributes() -> None:
    assert 101 <= LongerWait(100)(_state(RATE_LIMITED)) < 160


ODD_POLICIES: list[dict[str, Any]] = [
    *({"attempts": value} for value in (0, -1, 2.5, float("nan"), True, "3", None, 10**400)),
    *({"wait": value} for value in (OwnWait, 5, None, "5", AsyncRetrying(), stop_after_attempt(2), lambda: 5)),
    *({"stop": value} for value in (OwnWait, 5, True, AsyncRetrying(), wait_fixed(1), lambda: True)),
    {"wait": retry_if_exception_type()},
]


@pytest.mark.parametrize("odd", ODD_POLICIES, ids=lambda odd: next(iter(odd)))
def test_policy_that_could_not_work_is_rejected_when_it_is_made(odd: dict[str, Any]) -> None:
    with pytest.raises(ds.ConfigurationError, match=f"^{next(iter(odd))} must be ") as caught:
        ds.RetryPolicy(**odd)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("wait", [wait_fixed(1), wait_fixed(1) + wait_fixed(2), own_wait, OwnWait()])
@pytest.mark.parametrize("stop", [None, stop_after_attempt(2) | stop_after_attempt(3), own_wait])
def test_strategy_is_one_of_tenacity_s_or_a_function_of_the_state(wait: Any, stop: Any) -> None:
    policy = ds.RetryPolicy(wait=wait, stop=stop)
    assert (policy.wait, policy.stop) == (wait, stop)


@pytest.mark.parametrize("wait", [ds.DefaultWait(), wait_combine(ds.DefaultWait(), wait_none())])
async def test_503_is_tried_again_soon_if_there_is_no_time_for_the_wait(
    server: ScriptedServer, wait: ds.DefaultWait
) -> None:
    server.enqueue(UNAVAILABLE, UNAVAILABLE)
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=ds.RetryPolicy(wait=wait), timeout=34) as suite:
        assert await suite.mailbox(ALICE, PASSWORD).get_message_count() == 7
    assert len(clock.sleeps) == 2
    assert max(clock.sleeps) <= 10


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.999])
async def test_wait_after_a_503_leaves_time_for_an_attempt(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    monkeypatch.setattr("random.random", lambda: fraction)
    server.enqueue(UNAVAILABLE)
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=ds.RetryPolicy(), timeout=40) as suite:
        assert await suite.mailbox(ALICE, PASSWORD).get_message_count() == 7
    [wait] = clock.sleeps
    assert 30 <= wait <= 35


@pytest.mark.parametrize(("attempts", "retry_after"), [(4, 30.0), (1, None)])
async def test_error_of_a_503_says_when_to_try_again(
    server: ScriptedServer, attempts: int, retry_after: float | None
) -> None:
    server.default_responder = UNAVAILABLE
    async with open_suite(server, clock=LoopClock(), retry=ds.RetryPolicy(attempts=attempts), timeout=20) as suite:
        error = await catch_error(api.GET_MESSAGE_COUNT(suite))
    assert (type(error), error.attempts, error.retry_after) == (ds.ServerError, attempts, retry_after)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("-3", None),
        ("1.5", None),
        ("soon", None),
        ("3601", 3600.0),
        ("99999999999999", 3600.0),
        ("Thu, 01 Jan 1970 00:01:30 GMT", 30.0),
        ("Thu, 01 Jan 1970 00:01:30 -0000", 30.0),
        ("Thu, 01 Jan 1970 01:01:30 +0100", 30.0),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 0.0),
        ("Mon, 99 Jan 1970 00:00:30 GMT", None),
        ("Thursday, 01-Jan-70 00:01:30 GMT", 30.0),
        ("Thu Jan  1 00:01:30 1970", 30.0),
        ("Thu, 01 Jan 1970 00:01:30 CET", None),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 3600.0),
        ("٣", None),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=lambda: 60.0) == seconds


@pytest.mark.parametrize("clock_error", [-2 * 365 * 86400.0, -3600.0, 3600.0, 2 * 365 * 86400.0])
def test_retry_after_date_is_counted_from_the_response_date(clock_error: float) -> None:
    server_time = datetime(2026, 1, 1, tzinfo=UTC)
    header, date = (format_datetime(server_time + timedelta(seconds=seconds), usegmt=True) for seconds in (30, 0))
    assert parse_retry_after(header, date, now=lambda: server_time.timestamp() + clock_error) == 30


def test_unreadable_response_date_leaves_the_local_clock() -> None:
    assert parse_retry_after("Thu, 01 Jan 1970 00:01:30 GMT", "today", now=lambda: 60.0) == 30


@given(st.text())
def test_retry_after_never_fails(header: str) -> None:
    wait = parse_retry_after(header)
    assert wait is None or wait >= 0


SECONDS = st.floats(min_value=0.001, max_value=1e6)


def test_pause_doubles_until_the_longest() -> None:
    backoff = Backoff(30.0, 200.0)
    assert [backoff.compute_wait(failures) for failures in (1, 2, 3, 4, 100_000)] == [30.0, 60.0, 120.0, 200.0, 200.0]


def test_service_gets_the_pause_that_it_asks_for_up_to_an_hour() -> None:
    backoff = Backoff(1.0, 60.0)
    assert backoff.compute_wait(1, 42.0) == 42.0
    assert backoff.compute_wait(7, 42.0) == 60.0
    assert backoff.compute_wait(1, 86_400.0) == MAX_RETRY_AFTER == 3600.0


@given(SECONDS, SECONDS, st.integers(1, 10**9), st.none() | SECONDS)
def test_pauses_never_shrink_and_keep_within_their_bounds(
    first: float, longest: float, failures: int, retry_after: float | None
) -> None:
    backoff = Backoff(first, longest)
    wait = backoff.compute_wait(failures, retry_after)
    assert min(first, longest) <= wait <= max(longest, MAX_RETRY_AFTER)
    assert wait <= backoff.compute_wait(failures + 1, retry_after)
