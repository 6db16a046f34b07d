"""What an error is about: one document, the service, or the way to it."""

from __future__ import annotations

from http import HTTPStatus

from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    ServiceError,
)
from directsuite.jobs.signing.keeping import JournalError

MISSING = (NotFoundError, BadRequestError)
"""What the service may say of an identifier that it doesn't know: the specification leaves open which."""

DENIED = (AuthenticationError, PermissionDeniedError)
_OF_THE_SERVICE = (*DENIED, RateLimitedError, ServerError)
"""What the service says whichever document it is asked about."""

_OF_THE_WAY = frozenset(
    {
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.UPGRADE_REQUIRED,
    }
)
"""With redirects, what a wrong URL or a proxy answers to every request of this kind, whichever document it is of."""

_FOR_NOW = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.MISDIRECTED_REQUEST, HTTPStatus.TOO_EARLY})
"""What passes by waiting, and says nothing of the document. All else that the service says is about the document."""

_HOPELESS = (*DENIED, ClosedError, ConfigurationError, JournalError)


def is_hopeless(error: DirectSuiteError) -> bool:
    """Whether what `Course.go` raised would meet every other document as well, and doesn't pass by waiting."""
    return isinstance(error, _HOPELESS) or is_astray(error) or is_missing(error)


def is_astray(error: DirectSuiteError) -> bool:
    """Whether a request went to something that takes none of its kind: the URL is wrong, or a proxy is in the way."""
    return isinstance(error, ServiceError) and (300 <= error.status < 400 or error.status in _OF_THE_WAY)


def is_missing(error: DirectSuiteError) -> bool:
    """Whether there is nothing by the request's URL."""
    return isinstance(error, NotFoundError) or (isinstance(error, ServiceError) and error.status == HTTPStatus.GONE)


def is_its_own(error: DirectSuiteError) -> bool:
    """Whether a failure is about the document, and would meet it again."""
    if isinstance(error, ServiceError):
        return not (isinstance(error, _OF_THE_SERVICE) or error.status in _FOR_NOW or is_astray(error))
    return isinstance(error, InvalidArgumentError)
