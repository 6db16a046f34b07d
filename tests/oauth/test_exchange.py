"""A code is sent a second time only if the first request certainly did not arrive."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.oauth.endpoint import TokenEndpoint, TokenResponse
from directsuite.oauth.source import CodeExchange


def fresh() -> ds.AuthorizationCode:
    return ds.AuthorizationCode("https://login.example.test/token", "me", None, "c", "https://app.example.test/")


class Endpoint:
    """Fails as configured, and counts the requests."""

    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.asked = 0

    async def request_tokens(self, *_: Any, **__: Any) -> TokenResponse:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return TokenResponse(access_token=ds.Secret("a"))


def refused(code: str | None, outcome: ds.Outcome = ds.Outcome.FAILED) -> ds.ServiceError:
    return ds.ServiceError("refused", status=400, code=code, outcome=outcome)


UNKNOWN = ds.OutcomeUnknownError("lost", how_to_find_out="ask")
UNUSABLE = ds.ResponseDecodeError("of another type")
UNUSABLE.outcome = ds.Outcome.FAILED


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (ds.ConnectFailedError("nobody there", outcome=ds.Outcome.NOT_SENT), True),
        (ds.DeadlineExceededError("too late", outcome=ds.Outcome.NOT_SENT), True),
        (ds.RateLimitedError("busy", status=429, outcome=ds.Outcome.REJECTED), True),
        (ds.ClosedError("closed"), True),
        (refused("invalid_client"), True),
        (refused(None), True),
        (refused("invalid_grant"), False),
        (refused(None, ds.Outcome.UNKNOWN), False),
        (UNKNOWN, False),
        (UNUSABLE, False),
        (asyncio.CancelledError(), False),
        (None, False),
    ],
    ids=repr,
)
async def test_code_is_sent_again_only_where_nobody_took_it(failure: BaseException | None, again: bool) -> None:
    endpoint = Endpoint(failure)
    exchange = CodeExchange(cast("TokenEndpoint", endpoint), fresh())
    errors: list[BaseException] = []
    for _ in range(3):
        try:
            await exchange.exchange(lambda _: None)
        except (ds.DirectSuiteError, asyncio.CancelledError) as error:
            errors.append(error)
    last = errors[-1]
    assert endpoint.asked == (3 if again else 1)
    if isinstance(failure, asyncio.CancelledError):
        assert isinstance(last, ds.OutcomeUnknownError)
        assert "authorization again" in last.how_to_find_out
    elif failure is None:
        assert isinstance(last, ds.AuthenticationError)
        assert (last.status, last.attempts) == (0, 0)
    else:
        assert type(last) is type(failure)
        assert str(last) == str(failure)
