"""Whose fault an error is, for every class of error that there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import directsuite as ds
from directsuite import errors
from directsuite.core.failures import HOPELESS, Scope, scope_of
from directsuite.errors import DirectSuiteError, Outcome, ServiceError

ROWS: list[tuple[DirectSuiteError, Scope]] = [
    (DirectSuiteError("a store of the caller's"), Scope.CALLER),
    (errors.ConfigurationError("no URL"), Scope.CALLER),
    (errors.InvalidArgumentError("empty", parameter="folder"), Scope.CALLER),
    (errors.ClosedError("closed"), Scope.CALLER),
    (errors.TransportError("no token", outcome=Outcome.NOT_SENT), Scope.SERVICE),
    (errors.TransportError("a source that broke", outcome=Outcome.FAILED), Scope.UNCERTAIN),
    (errors.ConnectFailedError("refused"), Scope.SERVICE),
    (errors.CircuitOpenError("left alone"), Scope.SERVICE),
    (errors.ConnectionLostError("reset", outcome=Outcome.UNKNOWN), Scope.UNCERTAIN),
    (errors.DeadlineExceededError("in the queue", outcome=Outcome.NOT_SENT), Scope.SERVICE),
    (errors.DeadlineExceededError("no answer", outcome=Outcome.UNKNOWN), Scope.UNCERTAIN),
    (errors.OutcomeUnknownError("perhaps", how_to_find_out="look"), Scope.UNCERTAIN),
    (errors.ResponseDecodeError("no JSON"), Scope.UNCERTAIN),
    (ServiceError("a code of the service's", status=200, code=3, outcome=Outcome.FAILED), Scope.ITEM),
    (ServiceError("an error with a good status", status=200, outcome=Outcome.UNKNOWN), Scope.ITEM),
    (ServiceError("a redirect", status=302), Scope.ENDPOINT),
    (ServiceError("wrong method", status=405), Scope.ENDPOINT),
    (ServiceError("a proxy's password", status=407), Scope.ENDPOINT),
    (ServiceError("slow", status=408, outcome=Outcome.UNKNOWN), Scope.UNCERTAIN),
    (ServiceError("gone", status=410), Scope.ITEM),
    (ServiceError("misdirected", status=421, outcome=Outcome.REJECTED), Scope.SERVICE),
    (ServiceError("too early", status=425, outcome=Outcome.REJECTED), Scope.SERVICE),
    (ServiceError("another protocol", status=426), Scope.ENDPOINT),
    (errors.AuthenticationError("who", status=401), Scope.ACCOUNT),
    (errors.PermissionDeniedError("may not", status=403), Scope.ACCOUNT),
    (errors.PaymentError("not debited", status=200, code="021"), Scope.ACCOUNT),
    (errors.NotFoundError("none", status=404), Scope.ITEM),
    (errors.ConflictError("taken", status=200, code="201"), Scope.ITEM),
    (errors.AddressError("no address", status=200, code=2), Scope.ITEM),
    (errors.BadRequestError("wrong", status=400), Scope.ITEM),
    (errors.RateLimitedError("too many", status=429, outcome=Outcome.UNKNOWN), Scope.SERVICE),
    (errors.ServerError("failed", status=500, outcome=Outcome.UNKNOWN), Scope.UNCERTAIN),
    (errors.ServerError("failed, by its own word", status=200, code="999", outcome=Outcome.FAILED), Scope.UNCERTAIN),
    (errors.ServerError("come back", status=503, outcome=Outcome.REJECTED), Scope.SERVICE),
]


@pytest.mark.parametrize(("error", "scope"), ROWS, ids=lambda value: type(value).__name__)
def test_an_error_has_its_scope(error: DirectSuiteError, scope: Scope) -> None:
    assert scope_of(error) is scope


def test_every_class_of_error_has_a_row() -> None:
    assert {type(error) for error, _ in ROWS} == set(_classes(DirectSuiteError))


def test_asking_again_is_hopeless_where_the_caller_or_the_credentials_are_to_blame() -> None:
    assert {scope_of(error) for error in (ds.ClosedError("closed"), ROWS[1][0])} <= HOPELESS
    assert HOPELESS.isdisjoint({Scope.ITEM, Scope.UNCERTAIN, Scope.SERVICE, Scope.ENDPOINT})


def _classes(root: type[DirectSuiteError]) -> Iterator[type[DirectSuiteError]]:
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from _classes(child)
