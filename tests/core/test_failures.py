"""The scope of each class of error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from directsuite import errors
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.errors import DirectSuiteError, Outcome, ServiceError

ROWS: list[tuple[DirectSuiteError, ErrorScope]] = [
    (DirectSuiteError("a store of the caller's"), ErrorScope.CALLER),
    (errors.ConfigurationError("no URL"), ErrorScope.CALLER),
    (errors.InvalidArgumentError("empty", parameter="folder"), ErrorScope.CALLER),
    (errors.ClosedError("closed"), ErrorScope.CALLER),
    (errors.TransportError("no token", outcome=Outcome.NOT_SENT), ErrorScope.SERVICE),
    (errors.TransportError("a source that broke", outcome=Outcome.FAILED), ErrorScope.UNCERTAIN),
    (errors.ConnectFailedError("refused"), ErrorScope.SERVICE),
    (errors.CircuitOpenError("left alone"), ErrorScope.SERVICE),
    (errors.ConnectionLostError("reset", outcome=Outcome.UNKNOWN), ErrorScope.UNCERTAIN),
    (errors.DeadlineExceededError("in the queue", outcome=Outcome.NOT_SENT), ErrorScope.SERVICE),
    (errors.DeadlineExceededError("no answer", outcome=Outcome.UNKNOWN), ErrorScope.UNCERTAIN),
    (errors.OutcomeUnknownError("perhaps", how_to_find_out="look"), ErrorScope.UNCERTAIN),
    (errors.ResponseDecodeError("no JSON"), ErrorScope.UNCERTAIN),
    (ServiceError("a code of the service's", status=200, code=3, outcome=Outcome.FAILED), ErrorScope.ITEM),
    (ServiceError("an error with a good status", status=200, outcome=Outcome.UNKNOWN), ErrorScope.ITEM),
    (ServiceError("a redirect", status=302), ErrorScope.ENDPOINT),
    (ServiceError("wrong method", status=405), ErrorScope.ENDPOINT),
    (ServiceError("a proxy's password", status=407), ErrorScope.ENDPOINT),
    (ServiceError("slow", status=408, outcome=Outcome.UNKNOWN), ErrorScope.UNCERTAIN),
    (ServiceError("gone", status=410), ErrorScope.ITEM),
    (ServiceError("misdirected", status=421, outcome=Outcome.REJECTED), ErrorScope.SERVICE),
    (ServiceError("too early", status=425, outcome=Outcome.REJECTED), ErrorScope.SERVICE),
    (ServiceError("another protocol", status=426), ErrorScope.ENDPOINT),
    (errors.AuthenticationError("who", status=401), ErrorScope.ACCOUNT),
    (errors.PermissionDeniedError("may not", status=403), ErrorScope.ACCOUNT),
    (errors.PaymentError("not debited", status=200, code="021"), ErrorScope.ACCOUNT),
    (errors.NotFoundError("none", status=404), ErrorScope.ITEM),
    (errors.ConflictError("taken", status=200, code="201"), ErrorScope.ITEM),
    (errors.AddressError("no address", status=200, code=2), ErrorScope.ITEM),
    (errors.BadRequestError("wrong", status=400), ErrorScope.ITEM),
    (errors.DocumentNotFoundError("gone", status=400), ErrorScope.ITEM),
    (errors.RateLimitedError("too many", status=429, outcome=Outcome.UNKNOWN), ErrorScope.SERVICE),
    (errors.ServerError("failed", status=500, outcome=Outcome.UNKNOWN), ErrorScope.UNCERTAIN),
    (
        errors.ServerError("failed, by its own word", status=200, code="999", outcome=Outcome.FAILED),
        ErrorScope.UNCERTAIN,
    ),
    (errors.ServerError("come back", status=503, outcome=Outcome.REJECTED), ErrorScope.SERVICE),
]


@pytest.mark.parametrize(("error", "scope"), ROWS, ids=lambda value: type(value).__name__)
def test_error_has_its_scope(error: DirectSuiteError, scope: ErrorScope) -> None:
    assert find_error_scope(error) is scope


def test_every_class_of_error_has_a_row() -> None:
    assert {type(error) for error, _ in ROWS} == set(_classes(DirectSuiteError))


def _classes(root: type[DirectSuiteError]) -> Iterator[type[DirectSuiteError]]:
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from _classes(child)
