"""Everything that directsuite raises.

    DirectSuiteError
    ├── ConfigurationError            a URL, token or login that the call needs is missing or unsafe
    ├── InvalidArgumentError          (also ValueError) refused before anything was sent
    ├── ClosedError                   the suite is closed, or not open yet
    ├── TransportError                no usable answer
    │   ├── ConnectFailedError        nothing was sent
    │   │   └── CircuitOpenError      … since the service is down, and is left alone for a while
    │   ├── ConnectionLostError       sent, no answer, on an operation that may be repeated
    │   ├── DeadlineExceededError     (also TimeoutError) nothing was sent, or the operation may be repeated
    │   └── OutcomeUnknownError       a side effect may or may not have happened, or did and its result is lost
    ├── ServiceError                  the service said no
    │   ├── AuthenticationError       who you are: 401, code 1, 011
    │   ├── PermissionDeniedError     what you may: 403, 013
    │   ├── NotFoundError             404, 208, 210
    │   ├── ConflictError             201
    │   ├── AddressError              messaging code 2, 207
    │   ├── BadRequestError           400, 002, 010, 012, 014, 202 to 206, 209
    │   ├── PaymentError              003, 021, 022
    │   ├── RateLimitedError          429
    │   └── ServerError               5xx, 099, 999
    └── ResponseDecodeError           an answer that is not what it should be

No text, `repr` or argument of these holds a secret or patient data. What the service itself wrote is kept apart:
`ServiceError.message` and `.body` give it to those who ask for it.
"""

from __future__ import annotations

import enum
from typing import Any, Self


class Outcome(enum.Enum):
    """What is known, after a failed attempt, about what happened on the server."""

    NOT_SENT = "not sent"
    """Nothing left this machine: any operation may be tried again."""
    REJECTED = "rejected"
    """The service refused to act on it for now: any operation may be tried again."""
    UNKNOWN = "unknown"
    """Sent, without a usable answer: only an operation that may be repeated is tried again."""
    FAILED = "failed"
    """The service said no: trying again would not help."""


class DirectSuiteError(Exception):
    """The root of the tree.

    Every error has these attributes:

    explanation: what went wrong, without operation and figures.
    operation, service: the specification's names, such as `Sign` and `signing`; None where no call was under way.
    outcome: what is known about the effect, an `Outcome`; None where that is no question.
    retry_after: seconds to wait before another try, where the service or the call's own limits named them, or None.
    attempts: the number of HTTP requests of the whole call.
    elapsed: seconds of the whole call.
    """

    def __init__(
        self,
        explanation: str,
        *,
        operation: str | None = None,
        service: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(explanation)
        self.explanation = explanation
        """What went wrong, without operation and figures."""
        self.operation = operation
        """The specification's name of the operation; None where no call was under way."""
        self.service = service
        """The service of the operation; None where no call was under way."""
        self.outcome = outcome
        """What is known about the effect; None where that is no question."""
        self.retry_after: float | None = None
        """Seconds to wait before another try, where the service or the call's own limits named them."""
        self.attempts = 0
        """HTTP requests made, in the whole call."""
        self.elapsed = 0.0
        """Seconds, of the whole call."""

    def __str__(self) -> str:
        if self.operation is None:
            return self.explanation
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.operation}: {self.explanation} ({tries}, {self.elapsed:.1f} s)"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def copy(self) -> Self:
        """The same failure for another caller: without this one's traceback."""
        again: Self = _rebuild(type(self), self.args, self.__dict__.copy())
        return again


def _rebuild(cls: type[Any], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error: Any = cls.__new__(cls, *args)
    error.args = args
    error.__setstate__(state)
    return error


class ConfigurationError(DirectSuiteError):
    """A URL, token or login that the call needs is missing or unsafe, or the suite is used where it may not be."""


class InvalidArgumentError(DirectSuiteError, ValueError):
    """An argument was refused before anything was sent. `parameter` names it; the text says what to do."""

    def __init__(self, explanation: str, *, parameter: str) -> None:
        super().__init__(f"{parameter}: {explanation}")
        self.parameter = parameter


class ClosedError(DirectSuiteError):
    """The suite is closed, or not open yet."""


class TransportError(DirectSuiteError):
    """No usable answer came."""


class ConnectFailedError(TransportError):
    """No connection could be made: nothing was sent."""


class CircuitOpenError(ConnectFailedError):
    """The service has not answered for many attempts in a row: nothing is sent until a probe has found it back.

    `retry_after` gives the seconds after which to try again.
    """


class ConnectionLostError(TransportError):
    """The request was sent and no answer came; the operation may be repeated without harm."""


class DeadlineExceededError(TransportError, TimeoutError):
    """The call's time was up. Nothing was sent, or the operation may be repeated without harm."""


class OutcomeUnknownError(TransportError):
    """A side effect may or may not have happened: do not simply do it again.

    happened: True if it is certain that it did happen, and only its result is lost: do not do it again at all.
    looked: True if it was looked for during the whole settle time, and nothing showed that it happened.
    how_to_find_out: where to look.
    found: the DirectUserDetail that was found when a provisioning was left unknown, or None.

    The cause is the failure that left the question open.
    """

    def __init__(self, explanation: str, *, how_to_find_out: str, happened: bool = False, **about: Any) -> None:
        super().__init__(explanation, outcome=Outcome.UNKNOWN, **about)
        self.how_to_find_out = how_to_find_out
        """What to look at."""
        self.looked = False
        """True if it was looked for during the whole settle time, and nothing showed that it happened."""
        self.happened = happened
        """True if it is certain that it did happen, and only its result is lost."""
        self._found = _Sealed(None)

    @property
    def found(self) -> Any | None:
        """The DirectUserDetail that was found when a provisioning was left unknown. Patient data: do not log it."""
        return self._found.content

    def knowing(self, explanation: str, *, how_to_find_out: str, found: object = None) -> OutcomeUnknownError:
        """The same failure in other words, for one who has found out more of what became of the call."""
        again = OutcomeUnknownError(
            explanation, how_to_find_out=how_to_find_out, operation=self.operation, service=self.service
        )
        again.attempts, again.elapsed, again.retry_after = self.attempts, self.elapsed, self.retry_after
        again.looked, again.happened = self.looked, self.happened
        again._found = _Sealed(found)
        again.__cause__ = self.__cause__
        return again

    def __str__(self) -> str:
        return f"{super().__str__()} To find out: {self.how_to_find_out}"


class ServiceError(DirectSuiteError):
    """The service said no.

    status: the HTTP status. code: the service's own code, an int in messaging, a str in registration, None elsewhere.
    message, body: what the service wrote, which may name patients; no log and no text of the error has it.
    """

    def __init__(
        self,
        explanation: str,
        *,
        status: int,
        code: int | str | None = None,
        message: str | None = None,
        body: bytes = b"",
        retry_after: float | None = None,
        **about: Any,
    ) -> None:
        super().__init__(explanation, **about)
        self.status = status
        """The HTTP status."""
        self.code = code
        """The service's own code: an int in messaging, a str in registration, None elsewhere."""
        self.retry_after = retry_after
        self._said = _Sealed((message, body))

    @property
    def message(self) -> str | None:
        """What the service wrote for people. It may name patients: do not log it unread."""
        message: str | None = self._said.content[0]
        return message

    @property
    def body(self) -> bytes:
        """The answer's body as it came (its first part, where it was long). It may hold patient data."""
        body: bytes = self._said.content[1]
        return body


class AuthenticationError(ServiceError):
    """The token, password or session was not accepted (401, code 1, 011)."""


class PermissionDeniedError(ServiceError):
    """These credentials may not do this (403, 013)."""


class NotFoundError(ServiceError):
    """No such endpoint, domain or address (404, 208, 210)."""


class ConflictError(ServiceError):
    """The Direct domain is in use (201)."""


class AddressError(ServiceError):
    """An address was not accepted (messaging code 2, 207)."""


class BadRequestError(ServiceError):
    """An argument is missing or not valid (400, 002, 010, 012, 014, 202 to 206, 209)."""


class PaymentError(ServiceError):
    """The account could not be debited (003, 021, 022)."""


class RateLimitedError(ServiceError):
    """Too many requests (429). `retry_after` gives seconds where the service named them."""


class ServerError(ServiceError):
    """The service failed (5xx, 099, 999)."""


class ResponseDecodeError(DirectSuiteError):
    """An answer that is not what it should be.

    path: the JSON path of the first wrong place, never its value. body: the answer, which may hold patient data.
    too_large: True if it was larger than `max_response_bytes`, or than a method's `max_bytes`.
    """

    def __init__(
        self, explanation: str, *, path: str = "$", body: bytes = b"", too_large: bool = False, **about: Any
    ) -> None:
        super().__init__(explanation, outcome=Outcome.UNKNOWN, **about)
        self.path = path
        """The JSON path of the first wrong place, never its value."""
        self.too_large = too_large
        """True if it was larger than `max_response_bytes`, or than a method's `max_bytes`."""
        self._said = _Sealed((None, body))

    @property
    def body(self) -> bytes:
        """The answer's body as it came (its first part, where it was long). It may hold patient data."""
        body: bytes = self._said.content[1]
        return body


class _Sealed:
    """What the service wrote, out of the reach of tools that print an exception's attributes."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return _Sealed, (self.content,)  # pickle's protocols 0 and 1 do not know slots

    def __repr__(self) -> str:
        return "<withheld>"
