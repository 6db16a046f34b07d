"""The exceptions that directsuite raises for calls and their configuration.

    DirectSuiteError
    ├── ConfigurationError            a URL, token or login that the call needs is missing or unsafe
    ├── InvalidArgumentError          (also ValueError) an argument was rejected before the request was sent
    │   └── UnreadableFileError       (also OSError) a local file cannot be read
    │       └── MissingFileError      (also FileNotFoundError) a local file does not exist
    ├── ClosedError                   the suite is closed, or not open yet
    ├── TransportError                no usable response was received
    │   ├── ConnectFailedError        no connection: the request was not sent
    │   │   └── CircuitOpenError      not sent because the service seems to be down
    │   ├── ConnectionLostError       sent, but no response; the operation may be repeated
    │   ├── DeadlineExceededError     (also TimeoutError) not sent, or the operation may be repeated
    │   └── OutcomeUnknownError       a side effect may have happened, or happened but its result is lost
    ├── ServiceError                  the service responded with an error
    │   ├── AuthenticationError       the credentials were not accepted: 401, code 1, 011
    │   ├── PermissionDeniedError     the credentials do not permit the operation: 403, 013
    │   ├── NotFoundError             404, 208, 210
    │   ├── ConflictError             201
    │   ├── AddressError              messaging code 2, 207
    │   ├── BadRequestError           400, 002, 010, 012, 014, 202 to 206, 209
    │   │   └── DocumentNotFoundError 400 of GetDoc and Delete
    │   ├── PaymentError              003, 021, 022
    │   ├── RateLimitedError          429
    │   └── ServerError               5xx, 099, 999
    └── ResponseDecodeError           the response is not valid

The text, `repr` and arguments of these errors contain no secrets and no patient data. The service's own text may
contain both. It is available only from `ServiceError.message`, `ServiceError.body` and `ResponseDecodeError.body`. With
`Settings(error_messages="shown")`, the text of a ServiceError contains its `message`. `UnreadableFileError.filename` is
a path, which may contain the name of a patient.
"""

from __future__ import annotations

import enum
import textwrap
from errno import ENOENT
from typing import TYPE_CHECKING, Any, Literal, Self


class Outcome(enum.Enum):
    """The effect that a failed attempt may have had on the server.

    NOT_SENT: the request was not sent. Any operation may be tried again.
    REJECTED: the service did not process the request, but may do so later. Any operation may be tried again.
    UNKNOWN: the request was sent, but no usable response was received. Only repeatable operations are tried again.
    FAILED: the service responded with an error. Trying again would not help.

    An attempt that got 401 is REJECTED if it may be repeated with a new token or session. If the call then ends with
    401, the outcome of the call and its error is FAILED.
    """

    NOT_SENT = "not sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    FAILED = "failed"


class DirectSuiteError(Exception):
    """The base class of all errors in this module. Every error has these attributes:

    explanation: what went wrong, without the operation's name, the number of attempts and the duration.
    advice: what to do about it, if that is not in the explanation; "" if unknown.
    operation, service: the specification's names, such as `Sign` and `signing`. None if the error is not from a call.
    outcome: the known effect on the server, an `Outcome`. None if it does not apply.
    retry_after: seconds to wait before trying again, from the service or from the suite's limits. None if unknown.
    call: the number of the call in logs and events, unique in this process. None if it is not from a single call.
    group: the number of the first call of its group, as in logs and events. None if `call` is None.
    attempts: the number of HTTP requests that the call has made.
    elapsed: the duration of the call in seconds.
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
        self.advice = ""
        self.operation = operation
        self.service = service
        self.outcome = outcome
        self.retry_after: float | None = None
        self.call: int | None = None
        self.group: int | None = None
        self.attempts = 0
        self.elapsed = 0.0

    def __str__(self) -> str:
        text = self._explain()
        if self.operation is None:
            return text
        tries = {0: "no request was sent", 1: "1 attempt"}.get(self.attempts, f"{self.attempts} attempts")
        number = "" if self.call is None else f"call {self.call}, "
        return f"{self.operation}: {text} ({number}{tries}, {self.elapsed:.1f} s)"

    def _explain(self) -> str:
        return f"{self.explanation}: {self.advice}" if self.advice else self.explanation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def set_call(self, number: int | None, group: int | None, attempts: int, elapsed: float) -> Self:
        """Set the attributes `call`, `group`, `attempts` and `elapsed`, and return this error. For internal use."""
        self.call, self.group, self.attempts, self.elapsed = number, group, attempts, elapsed
        return self

    def copy(self) -> Self:
        """Return a copy without traceback and `__cause__`, to raise it for another caller."""
        again: Self = _rebuild(type(self), self.args, self.__dict__.copy())
        return again


def _rebuild(cls: type[Any], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error: Any = cls.__new__(cls, *args)
    error.args = args
    error.__setstate__(state)
    return error


class ConfigurationError(DirectSuiteError):
    """A setting is missing, invalid or unsafe, or the suite is used in the wrong event loop or process."""


class InvalidArgumentError(DirectSuiteError, ValueError):
    """An argument was rejected before the request was sent. The text says what is expected.

    parameter: the name of the argument.
    """

    def __init__(self, explanation: str, *, parameter: str) -> None:
        super().__init__(f"{parameter}: {explanation}")
        self.parameter = parameter


class UnreadableFileError(InvalidArgumentError, OSError):
    """A local file cannot be read. The text does not contain its path.

    errno: the number of the operating system's error, as in OSError. None if unknown.
    filename: the path as a str, or None if unknown. It may contain a patient's name: do not log it.
    """

    errno: int | None = None  # the attribute of OSError would be lost in copies

    def __init__(
        self, explanation: str, *, parameter: str, errno: int | None = None, filename: str | None = None
    ) -> None:
        super().__init__(explanation, parameter=parameter)
        self.errno = errno
        self._filename = _Hidden(filename)

    if not TYPE_CHECKING:
        __new__ = OSError.__new__  # the first in the MRO is that of ValueError, which cannot create an OSError

        @property  # type checkers know the attribute of OSError
        def filename(self) -> str | None:
            """The path, or None if unknown. It may contain a patient's name: do not log it."""
            return self._filename.content


class MissingFileError(UnreadableFileError, FileNotFoundError):
    """A local file does not exist. `errno` is ENOENT."""

    def __init__(self, explanation: str, *, parameter: str, filename: str | None = None) -> None:
        super().__init__(explanation, parameter=parameter, errno=ENOENT, filename=filename)


class ClosedError(DirectSuiteError):
    """The suite is closed, or not open yet."""


FailureReason = Literal[
    "host name not found",
    "no name server responded",
    "host not reachable",
    "connection refused",
    "certificate not accepted",
    "TLS handshake failed",
    "proxy failed",
    "timed out while connecting",
    "connection failed",
    "connection reset",
    "connection closed",
    "timed out after connecting",
]
"""Why a connection could not be made, or was lost."""


class TransportError(DirectSuiteError):
    """No usable response was received.

    reason: why the connection could not be made, or was lost: a FailureReason. None for other causes.
    """

    reason: FailureReason | None = None


class ConnectFailedError(TransportError):
    """No connection could be made. The request was not sent."""


class CircuitOpenError(ConnectFailedError):
    """The service has not responded to many consecutive attempts. No call is sent until a probe gets a response.

    `retry_after` is the number of seconds after which to try again.
    """


class ConnectionLostError(TransportError):
    """The request was sent, but no complete response was received. The operation may safely be repeated."""


class DeadlineExceededError(TransportError, TimeoutError):
    """The call's deadline was reached. The request was not sent, or the operation may safely be repeated."""


class OutcomeUnknownError(TransportError):
    """It is unknown whether a side effect has happened, or its result is lost. Check before you repeat the call.

    happened: True if the side effect has certainly happened and only its result is lost. Do not repeat the call.
    looked: True if the package looked for the effect during the entire settle time and did not find it.
    how_to_find_out: how to check whether the effect has happened.
    found: the DirectUserDetail found after a provisioning, or None.

    `__cause__` is the failure that left the outcome unknown.
    """

    def __init__(self, explanation: str, *, how_to_find_out: str, happened: bool = False, **about: Any) -> None:
        super().__init__(explanation, outcome=Outcome.UNKNOWN, **about)
        self.how_to_find_out = how_to_find_out
        self.looked = False
        self.happened = happened
        self._found = _Hidden(None)

    @property
    def found(self) -> Any | None:
        """The DirectUserDetail found after a provisioning, or None. Patient data: do not log it."""
        return self._found.content

    def with_details(self, explanation: str, *, how_to_find_out: str, found: object = None) -> OutcomeUnknownError:
        """Return a copy with another explanation and hint. found: the DirectUserDetail that was found, or None."""
        again = self.copy()
        again.args, again.explanation, again.how_to_find_out = (explanation,), explanation, how_to_find_out
        again._found = _Hidden(found)
        again.__cause__ = self.__cause__
        return again

    def __str__(self) -> str:
        text = f"{super().__str__()}. What to do: {self.how_to_find_out}"
        hint = self.__cause__.describe_message(".__cause__") if isinstance(self.__cause__, ServiceError) else ""
        return f"{text.removesuffix('.')}. {hint}" if hint else text


class ServiceError(DirectSuiteError):
    """The service responded with an error.

    status: the HTTP status. 302 if a request for consent was rejected, 0 without a response.
    code: the service's error code: an int in messaging, a str in registration and OAuth, otherwise None.
    message, body: the service's own text, which may contain patient data. It is never logged. The error's text contains
        up to 1,000 characters of the message if the setting `error_messages` is "shown".
    """

    _MAX_SHOWN_CHARS = 1000

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
        self.code = code
        self.retry_after = retry_after
        self._service_text = _Hidden((message, body))
        self._is_message_shown: bool | None = None

    def mention_message(self, *, shown: bool) -> None:
        """Add the service's message, or a hint at it or at the body, to the text of this error. For internal use."""
        self._is_message_shown = shown

    def _explain(self) -> str:
        hint = self.describe_message()
        if not hint:
            return super()._explain()
        end = "" if hint.endswith((".", "!", "?", "…")) else "."
        advice = f"{hint}{end} {self.advice[:1].upper()}{self.advice[1:]}" if self.advice else hint
        return f"{self.explanation}. {advice}"

    def describe_message(self, prefix: str = "") -> str:
        """Return the service's message, or a hint at the attribute with the message or the body, or "".

        prefix: the attribute that contains this error, such as ".__cause__". For internal use.
        """
        words = textwrap.shorten(self.message or "", self._MAX_SHOWN_CHARS, placeholder=" …")
        if self._is_message_shown is None or not (words or self.body):
            return ""
        if not words:
            return f"The body of the response is in {prefix}.body"
        if self._is_message_shown:
            return f"The service's own words: {words}"
        return f"To see the service's reason, print {prefix}.message"

    @property
    def message(self) -> str | None:
        """The service's error message, or None. It may contain patient data: do not log it."""
        message: str | None = self._service_text.content[0]
        return message

    @property
    def body(self) -> bytes:
        """The response's body, or its first part if it is long. It may contain patient data."""
        body: bytes = self._service_text.content[1]
        return body


class AuthenticationError(ServiceError):
    """The service did not accept the token, password or session (401, code 1, 011)."""


class PermissionDeniedError(ServiceError):
    """The credentials do not permit this operation (403, 013)."""


class NotFoundError(ServiceError):
    """The endpoint, domain or address does not exist (404, 208, 210)."""


class ConflictError(ServiceError):
    """The Direct domain is already in use (201)."""


class AddressError(ServiceError):
    """The service did not accept an address (messaging code 2, 207)."""


class BadRequestError(ServiceError):
    """An argument is missing or not valid (400, 002, 010, 012, 014, 202 to 206, 209)."""


class DocumentNotFoundError(BadRequestError):
    """The signing service has no document with this identifier: it is unknown, deleted or expired.

    Only GetDoc and Delete raise it, for 400: their only parameter is the identifier. The specification has no status or
    code that distinguishes a missing document from other reasons of 400 of the other operations.
    """


class PaymentError(ServiceError):
    """The account could not be debited (003, 021, 022)."""


class RateLimitedError(ServiceError):
    """Too many requests were sent (429). `retry_after` is set if the service said how long to wait."""


class ServerError(ServiceError):
    """The service failed (5xx, 099, 999)."""


class ResponseDecodeError(DirectSuiteError):
    """The response is not valid HTTP or JSON, does not have the expected content, or is too large.

    path: the JSON path of the first invalid value.
    body: the response's body, or its first part. It may contain patient data.
    too_large: True if the response was larger than `max_response_bytes`, or than a method's `max_bytes`.
    """

    def __init__(
        self, explanation: str, *, path: str = "$", body: bytes = b"", too_large: bool = False, **about: Any
    ) -> None:
        super().__init__(explanation, outcome=Outcome.UNKNOWN, **about)
        self.path = path
        self.too_large = too_large
        self._service_text = _Hidden((None, body))

    @property
    def body(self) -> bytes:
        """The response's body, or its first part. It may contain patient data."""
        body: bytes = self._service_text.content[1]
        return body


class _Hidden:
    """Hides the service's text from tools that print an exception's attributes."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hidden, (self.content,)  # pickle protocols 0 and 1 do not support slots

    def __repr__(self) -> str:
        return "<withheld>"
