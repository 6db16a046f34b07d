"""The meaning of a failed attempt: the table that determines retries and the errors that callers get.

    row               observation                                         outcome   error                  again
    ────────────────  ──────────────────────────────────────────────────  ────────  ─────────────────────  ──────────
    dns               the host's name has no address                      NOT_SENT  ConnectFailedError     always
    unreachable       no route to the host                                NOT_SENT  ConnectFailedError     always
    refused           connection refused                                  NOT_SENT  ConnectFailedError     always
    tls               handshake failed, or the certificate is not valid   NOT_SENT  ConnectFailedError     always
    proxy             proxy not available, or it rejected CONNECT         NOT_SENT  ConnectFailedError     always
    lost-before       connection ended before the request was written     NOT_SENT  ConnectFailedError     always
    connect-time      no connection within the attempt timeout            NOT_SENT  ConnectFailedError     always
    connect-deadline  no connection within the deadline                   NOT_SENT  DeadlineExceededError  no
    queue-deadline    no token, connection slot or rate slot within it    NOT_SENT  DeadlineExceededError  no
    token             no token from its source                            NOT_SENT  TransportError         always
    lost-in-body      connection lost while the body was sent             UNKNOWN   ConnectionLostError    repeatable
    lost              connection lost before the complete headers         UNKNOWN   ConnectionLostError    repeatable
    answer-time       no complete response within the attempt timeout     UNKNOWN   ConnectionLostError    repeatable
    answer-deadline   no complete response within the deadline            UNKNOWN   DeadlineExceededError  no
    cancelled         the caller was cancelled                            —         CancelledError         no
    not-http          response is not valid HTTP                          UNKNOWN   ResponseDecodeError    repeatable
    head-too-large    line of 8 KB, or over 128 headers or trailers       UNKNOWN   ResponseDecodeError    repeatable
    truncated         response is incomplete                              UNKNOWN   ResponseDecodeError    repeatable
    malformed         2xx, but the response does not fit the operation    UNKNOWN   ResponseDecodeError    repeatable
    too-large         more than `max_response_bytes`, or `max_bytes`      UNKNOWN   ResponseDecodeError    no
    own               `success: false`, with any status                   FAILED    by its code            no
    own-session       … with the code that requests a new session         REJECTED  AuthenticationError    renewed
    own-2xx           2xx, and signing's or fax's `error`                 UNKNOWN   ServiceError           repeatable
    3xx               redirect: not followed                              FAILED    ServiceError           no
    400               the status alone, or signing's or fax's `error`     FAILED    BadRequestError        no
    401               for a password, or a token that is not renewable    FAILED    AuthenticationError    no
    401-renewable     for a renewable token, or a session                 REJECTED  AuthenticationError    renewed
    403               as 400                                              FAILED    PermissionDeniedError  no
    404               as 400                                              FAILED    NotFoundError          no
    408               as 400: proxies send it if the server is slow       UNKNOWN   ServiceError           repeatable
    421, 425          as 400: not processed                               REJECTED  ServiceError           always
    429               whatever the body                                   REJECTED  RateLimitedError       always
    4xx               other statuses, also before the body was sent       FAILED    ServiceError           no
    503-retry-after   with a readable Retry-After                         REJECTED  ServerError            always
    5xx               other statuses                                      UNKNOWN   ServerError            repeatable

`Operation.status_errors` replaces the class for some operations. The Outcome is that of the attempt. "again" is the
condition for another attempt:

- `always`: as the retry policy allows. Exceptions: the call ends if the user's token source raised neither a
  DirectSuiteError nor an OSError, or if a login or token request of the suite failed, which has its own retries. If
  that request failed before the call, the call waits until the next one may be made.
- `repeatable`: as the retry policy allows if the operation may be repeated. Otherwise the call ends as
  OutcomeUnknownError, with this failure as its cause.
- `renewed`: once, with a new token or session. If that is also rejected, the outcome is FAILED, and further calls
  replace it only after a back-off (`credentials.Rejections`).

An attempt of an operation that may not be repeated has no timeout except the deadline, or the time reserved before it
for verification. A request is not repeated if a required value is unreadable (`Facade.with_strict_paths`).

The scope of an error is what caused it. It shows whether a job continues, waits or stops:

    scope      cause                                                        what to do
    ─────────  ───────────────────────────────────────────────────────────  ───────────────────────────────────────────
    ITEM       the service rejected this item                               continue: the next item may succeed
    UNCERTAIN  no usable response, because of the item or of the service    try other items to find out which
    SERVICE    the service rejects all requests, or cannot be reached       wait, then try again
    ENDPOINT   the URL is wrong, or a proxy does not forward the request    correct the URL or the proxy
    ACCOUNT    the credentials were rejected, or do not permit this         stop: another attempt would fail again
    CALLER     settings, arguments, storage or code; a closed suite         stop: another attempt would fail again

An item is what a job processes with one request, such as a document, message or folder.
"""

from __future__ import annotations

import enum
import errno
import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong

from directsuite.core.operation import Auth, Json, Operation, Service
from directsuite.core.retry import parse_retry_after
from directsuite.core.session import MAX_ERROR_BODY_BYTES, BufferedResponse
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectFailedError,
    ConnectionLostError,
    DirectSuiteError,
    FailureReason,
    NotFoundError,
    Outcome,
    PaymentError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
    TransportError,
)
from directsuite.wire.codec import Codec
from directsuite.wire.models import Model, Secret, get_wire_name, has_no_uid
from directsuite.wire.parsing import MismatchError, parse
from directsuite.wire.values import Report, count_unreadable, decode_base64

R = TypeVar("R")

_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"  # RFC 6838 (4.2)
_MEDIA_TYPE = re.compile(f"{_NAME}/{_NAME}")
_TOO_MANY_HEADERS_TEXTS = ("Too many headers received", "Too many trailers received")  # aiohttp has no class for them
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})
"""Values of Content-Encoding that aiohttp decodes, or for which it raises ContentEncodingError."""
_IGNORED_ENCODINGS = frozenset({"utf-8", "utf8", "none", "8bit", "binary"})
"""Invalid values that some servers send with a body that is not encoded."""
_ENCODING_LIST = re.compile(r"[a-z0-9-]{1,16}(?:, ?[a-z0-9-]{1,16}){0,3}")
_HINT_ENCODING = "configure the service, or its proxy, to send gzip, deflate or no encoding"
HINT_URL = "check the URL in the settings"
"""In an error, the name of the setting replaces "the URL in the settings"."""
_HINT_TLS = f"{HINT_URL}, and ask the service's provider for TLS 1.2 or newer, and about client certificates"
_HINT_PROXY = "check the setting proxy"
_HINT_RENEW = "inform the service's provider"
_CERTIFICATE_PROBLEMS: Mapping[object, tuple[str, str]] = {  # by X509_V_ERR_… of OpenSSL
    **dict.fromkeys(
        (2, 18, 19, 20, 21),
        (
            "the server's certificate is not trusted",
            "if the service has a private authority, set ca_bundle, or tls of Settings, to trust its certificate; "
            "if SSL_CERT_FILE is set, check that it names a PEM file",
        ),
    ),
    9: ("the server's certificate is not valid yet", f"set the clock of this machine, or {_HINT_RENEW}"),
    10: ("the server's certificate has expired", f"{_HINT_RENEW}, or set the clock of this machine if it is wrong"),
    **dict.fromkeys((62, 64), ("the server's certificate is for another host name", HINT_URL)),
}
_NOT_TLS_REASONS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
_SHORT_NUMBER = re.compile(r"-?\d{1,4}\Z")
_CONNECT_ERRORS = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerFingerprintMismatch,
    aiohttp.ClientHttpProxyError,  # the proxy rejected CONNECT: nothing reached the service
    aiohttp.InvalidURL,  # the URL of the proxy
)
_REASONS_BY_ERRNO: Mapping[int | None, FailureReason] = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EPIPE: "connection reset",
    errno.ENETUNREACH: "host not reachable",
    errno.EHOSTUNREACH: "host not reachable",
    errno.EHOSTDOWN: "host not reachable",
}
_UNPROCESSED_STATUSES = frozenset({421, 425, 429})  # RFC 9110 (15.5.20), RFC 8470 (5.2), RFC 6585 (4)


class ConnectionDroppedError(Exception):
    """Raised if a connection ended before the response. After it, aiohttp does not retry.

    origin: the exception of aiohttp.
    """

    def __init__(self, origin: BaseException) -> None:
        super().__init__(type(origin).__name__)
        self.origin = origin


def convert_exception(error: BaseException, operation: Operation[Any], *, started: bool) -> DirectSuiteError | None:
    """Return the typed error for an exception of aiohttp, or None if it does not come from the network.

    The error's text does not contain aiohttp's message, which contains the URL.

    started: True if some of the request may have been sent.
    """
    about = operation.error_context
    origin = error.origin if isinstance(error, ConnectionDroppedError) else error
    seen = _describe_exception(origin)
    # UnicodeError: the host name cannot be encoded for DNS.
    if isinstance(error, _CONNECT_ERRORS) or (isinstance(error, UnicodeError) and not started):
        reason, seen, advice = _explain_connect_failure(origin, seen)
        failure = ConnectFailedError(
            f"no connection to the {operation.service.display_name} ({seen})", outcome=Outcome.NOT_SENT, **about
        )
        failure.reason, failure.advice = reason, _name_url_setting(advice, operation)
        return failure
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError) and started:
        return ResponseDecodeError(f"{_explain_bad_response(origin)} ({seen})", **about)
    if isinstance(error, ConnectionDroppedError | aiohttp.ClientError | OSError):
        lost: TransportError
        if started:
            text = f"the connection was lost before a response was received ({seen})"
            lost = ConnectionLostError(text, outcome=Outcome.UNKNOWN, **about)
        else:
            text = f"the connection closed before the request was sent ({seen})"
            lost = ConnectFailedError(text, outcome=Outcome.NOT_SENT, **about)
        timed_out: FailureReason = "timed out after connecting" if started else "timed out while connecting"
        lost.reason = _find_reason(origin, "connection closed", timed_out)
        return lost
    return None


def _find_reason(error: BaseException, default: FailureReason, timed_out: FailureReason) -> FailureReason:
    number = getattr(error, "errno", None)
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return timed_out
    return _REASONS_BY_ERRNO.get(number, default)


def _explain_connect_failure(error: BaseException, seen: str) -> tuple[FailureReason, str, str]:
    """Return the reason for a failed connection, its text, and what to do. seen: the text if the reason is unknown."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "proxy failed", "the proxy cannot be reached", _HINT_PROXY
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return "proxy failed", f"the proxy rejected the connection, HTTP {error.status}", _HINT_PROXY
    if isinstance(error, aiohttp.InvalidURL):
        return "proxy failed", "the proxy's URL is not valid", _HINT_PROXY
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if error.errno == socket.EAI_AGAIN:
            return "no name server responded", "no name server responded", "check the network and DNS of this machine"
        advice = f"{HINT_URL}, the proxy if there is one, and the DNS of this machine"
        return "host name not found", "the host name was not found", advice
    if isinstance(error, UnicodeError):
        return "host name not found", seen, HINT_URL
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return "certificate not accepted", seen, HINT_URL
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        code = getattr(error.certificate_error, "verify_code", None)
        unknown = f"the server's certificate is not accepted, code {code}", _HINT_RENEW
        return "certificate not accepted", *_CERTIFICATE_PROBLEMS.get(code, unknown)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        origin: object = getattr(error, "os_error", None)
        reason = str(getattr(origin, "reason", None))
        if reason in _NOT_TLS_REASONS:
            return "TLS handshake failed", "the server does not speak TLS", f"{HINT_URL}: the scheme and the port"
        if "PROTOCOL" in reason:
            seen = "the server supports none of the TLS versions that this machine permits"
        else:
            seen = "the TLS handshake failed"
        return "TLS handshake failed", seen, _HINT_TLS
    # asyncio reports a connection that ended during the TLS handshake with this exception.
    if isinstance(error, aiohttp.ClientConnectorError) and repr(error.os_error) == "ConnectionResetError()":
        return "TLS handshake failed", "the server closed the connection during the TLS handshake", _HINT_TLS
    return _find_reason(error, "connection failed", "timed out while connecting"), seen, HINT_URL


def _explain_bad_response(error: BaseException) -> str:
    cause: BaseException | None = error  # its message quotes the response
    while cause is not None:
        if isinstance(cause, LineTooLong) or getattr(cause, "message", None) in _TOO_MANY_HEADERS_TEXTS:
            return (
                "the response has a header of more than 8 KB, or more than 128 headers: "
                "configure the service, or its proxy, to send fewer and shorter headers"
            )
        if isinstance(cause, ContentEncodingError):
            return f"the response cannot be decoded as its Content-Encoding says: {_HINT_ENCODING}"
        cause = cause.__cause__
    return "the response is incomplete or not valid HTTP"


def find_unsupported_encoding(headers: Mapping[str, str]) -> str | None:
    """Return why aiohttp cannot decode the Content-Encoding, such as x-gzip or two encodings. None if it can."""
    encoding = headers.get("Content-Encoding")
    if encoding is None or (encoding := encoding.strip().lower()) in _ENCODINGS | _IGNORED_ENCODINGS:
        return None
    shown = encoding if _ENCODING_LIST.fullmatch(encoding) else "of an unknown form"
    return f"the response has the Content-Encoding {shown}, which is not supported: {_HINT_ENCODING}"


def _describe_exception(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    if type(error) in (aiohttp.ClientConnectorError, aiohttp.ClientOSError) and number is not None and number > 0:
        return os.strerror(number)
    return type(error).__name__ if number is None else f"{type(error).__name__}, errno {number}"


def interpret(
    operation: Operation[R],
    response: BufferedResponse,
    max_bytes: int,
    codec: Codec,
    on_skipped: Callable[[Mapping[str, int]], None] | None = None,
    parsed: tuple[Any, Report] | None = None,
) -> R | DirectSuiteError:
    """Decode a complete response. Return its value, or the typed error that it reports.

    The error is not raised, so that no traceback contains the response.

    max_bytes: the maximum size of a response in bytes, for the error about a larger one.
    on_skipped: called with the number of values that could not be read, by JSON path, if there are any.
    parsed: the result of `parse_large`. None: parse the body here.
    """
    about = operation.error_context
    report: Report
    if response.too_large:
        hint = f"read it with {operation.streaming_method}, or raise" if operation.streaming_method else "raise"
        text = f"the response is larger than {max_bytes} bytes: {hint} max_response_bytes"
        return ResponseDecodeError(text, body=response.body[:MAX_ERROR_BODY_BYTES], too_large=True, **about)
    if operation.response is not bytes or response.status >= 300:
        document, report = (_parse_document(response), {}) if parsed is None else parsed
        failure = find_service_error(operation, response.status, response.headers, document, response.body)
        if failure is not None:
            return failure
    else:
        document, report = None, {}
    try:
        result = _decode_body(operation, response, document, codec, report)
        for path in operation.strict_paths & report.keys():
            raise MismatchError("readable", path)
        return result
    except MismatchError as mismatch:
        expected, path = mismatch.expected, mismatch.path
    # Reading needs a few more stack frames than parsing.
    except RecursionError:
        expected, path = "nested less deeply", "$"
    finally:
        if report and on_skipped is not None:
            on_skipped(report)
    got = _read_media_type(response.headers.get("Content-Type", ""))
    text = f"the response ({got}, {len(response.body)} bytes) does not fit the operation: {path} should be {expected}"
    return ResponseDecodeError(text, path=path, body=response.body[:MAX_ERROR_BODY_BYTES], **about)


def _decode_body(operation: Operation[R], response: BufferedResponse, document: Any, codec: Codec, report: Report) -> R:
    if response.status < 200:
        raise MismatchError("a response with a final status")
    if operation.response is bytes:
        if not response.body:
            raise MismatchError("base64 text")
        return cast("R", decode_base64(response.body))
    if document is None:
        raise MismatchError("JSON")
    if not operation.fault_format.is_success(document):
        raise MismatchError("true", f"$.{operation.fault_format.success_key}")
    model: Any = operation.response
    result: Any = codec.structure(model, document, report)
    for path in operation.required_fields:
        _require_field(result, path, report)
    decoded: R = result
    return decoded


def _require_field(response: Model, path: str, report: Report) -> None:
    """Raise MismatchError if the response lacks this required field.

    For `messages[].uid`, remove the elements without a uid, and count them in `report`.
    """
    name, _, of_element = path.partition("[].")
    value: Any = getattr(response, name, None)
    if not of_element:
        if value is None or value == "" or (isinstance(value, Secret) and not value):
            # A traceback may include this frame.
            value = None
            raise MismatchError("present", f"$.{get_wire_name(type(response), name)}")
    elif any(map(has_no_uid, value)):
        for _ in filter(has_no_uid, value):
            count_unreadable(report, f".{get_wire_name(type(response), name)}[]")
        value[:] = [element for element in value if not has_no_uid(element)]


def _read_media_type(header: str) -> str:
    """Return the media type without parameters, or "no media type" if it could corrupt a log."""
    bare = header.partition(";")[0].strip()
    return bare if _MEDIA_TYPE.fullmatch(bare) else "no media type"


async def parse_large(operation: Operation[Any], response: BufferedResponse, codec: Codec) -> tuple[Any, Report] | None:
    """Parse a response and read the elements of its list, with turns for the event loop.

    Return the same as `Codec.parse_in_turns`. If it is None, `interpret` parses the response.
    """
    if response.too_large or operation.response is bytes or response.status >= 300:
        return None
    return await codec.parse_in_turns(operation.response, response.body)


def _parse_document(response: BufferedResponse) -> Any:
    try:
        return parse(response.body)
    except MismatchError:
        return None


def make_decode_error(
    operation: Operation[Any], mismatch: MismatchError, headers: Mapping[str, str]
) -> ResponseDecodeError:
    """Return the typed error for a part of a response that does not fit the operation."""
    media_type = _read_media_type(headers.get("Content-Type", ""))
    text = f"the response ({media_type}) does not fit the operation: {mismatch}"
    return ResponseDecodeError(text, path=mismatch.path, **operation.error_context)


def find_service_error(
    operation: Operation[Any], status: int, headers: Mapping[str, str], document: Json, body: bytes
) -> ServiceError | None:
    """Return the typed error that a response reports, or None if it must be decoded as the result.

    document: the body as JSON values. None if it is not JSON.
    """
    fault = operation.fault_format.read(document)
    if status < 300 and (fault is None or (operation.fault_format.success_key is None and not fault.message)):
        return None
    wait = parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
    cls, meaning = classify_status(status)
    advice = _find_advice(status, operation)
    if cls is AuthenticationError and operation.auth is Auth.BEARER:
        meaning = "the service rejected the access token"
    if fault is not None:
        cls, meaning, advice = operation.status_errors.get(status, (cls, meaning, advice))
    code = None
    if fault is not None and fault.code is not None and status != 429:
        cls, meaning = operation.fault_format.codes.get(
            fault.code, (ServiceError, "the service reported an unknown error")
        )
        code, advice = fault.code, operation.fault_format.advice.get(fault.code, "")
    if operation.service is Service.OAUTH:
        meaning = meaning.replace("the service", "the token endpoint")
    named = f"code {code if _SHORT_NUMBER.match(str(code)) else 'of another form'}"  # see find_loggable_code
    own = fault is not None and operation.fault_format.success_key is not None and status != 429
    error = cls(
        f"{meaning} ({named if code is not None else f'HTTP {status}'})",
        status=status,
        code=code,
        message=_find_message(document, body, headers) if fault is None or not fault.message else fault.message,
        body=body[:MAX_ERROR_BODY_BYTES],
        retry_after=wait,
        **operation.error_context,
    )
    error.advice = _name_url_setting(advice, operation)
    if cls is AuthenticationError and operation.auth not in (Auth.BEARER, Auth.SESSION):  # those may be renewed
        error.advice = _CREDENTIAL_HINTS.get(operation.service, "")
    error.outcome = Outcome.FAILED if own else _determine_outcome(operation, status, wait)
    if code is not None and code == operation.fault_format.new_session_code and operation.auth is Auth.SESSION:
        error.outcome = Outcome.REJECTED
    return error


def find_failure_reason(error: BaseException | None) -> FailureReason | None:
    """Return why a connection failed, for events and logs. None if the error has another cause."""
    return error.reason if isinstance(error, TransportError) else None


def find_loggable_code(error: BaseException) -> int | str | None:
    """Return the service's error code, or None if there is none or it is neither a short number nor one of OAuth.

    Another code is text of the service, which the error has only as an attribute. OAuth's errors have only known codes.
    """
    if not isinstance(error, ServiceError):
        return None
    return error.code if error.service == Service.OAUTH or _SHORT_NUMBER.match(str(error.code)) else None


def _find_message(document: Json, body: bytes, headers: Mapping[str, str]) -> str | None:
    if isinstance(document, dict):
        return next((text for name in _MESSAGE_KEYS if isinstance(text := document.get(name), str) and text), None)
    if headers.get("Content-Type", "").startswith("text/plain"):
        return body[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace").strip() or None
    return None


def _determine_outcome(operation: Operation[Any], status: int, wait: float | None) -> Outcome:
    if status in _UNPROCESSED_STATUSES or (status == 401 and operation.auth in (Auth.BEARER, Auth.SESSION)):
        return Outcome.REJECTED
    if status >= 500 or status == 408:
        return Outcome.REJECTED if status == 503 and wait is not None else Outcome.UNKNOWN
    if status < 300:  # contradicts the error in the body
        return Outcome.UNKNOWN
    return Outcome.FAILED


def classify_status(status: int) -> tuple[type[ServiceError], str]:
    """Return the error class for an HTTP status, and the meaning of the status (specification section 7)."""
    if status in _ERROR_CLASSES:
        return _ERROR_CLASSES[status]
    if status >= 500:
        return ServerError, "the service failed"
    if status < 300:
        return ServiceError, "the service reports an error, although the HTTP status is a success"
    if status < 400:
        return ServiceError, "the service sent a redirect, which is not followed"
    return ServiceError, "the service rejected the request"


def _find_advice(status: int, operation: Operation[Any]) -> str:
    if status == 404:
        item = ", or the requested item no longer exists" if "{" in operation.path else ""
        return f"{HINT_URL}, which may be incomplete{item}"
    return HINT_URL if 300 <= status < 400 else ""


def _name_url_setting(advice: str, operation: Operation[Any]) -> str:
    return advice.replace(HINT_URL, f"check the setting {operation.service.url_setting}")


_ERROR_CLASSES: dict[int, tuple[type[ServiceError], str]] = {
    400: (BadRequestError, "invalid action, or a parameter is missing or invalid"),
    401: (AuthenticationError, "the service rejected the credentials"),
    403: (PermissionDeniedError, "permission was denied for the requested action"),
    404: (NotFoundError, "not found"),
    413: (ServiceError, "the request is larger than the service accepts"),
    429: (RateLimitedError, "too many requests"),
}

_CREDENTIAL_HINTS = {
    Service.MESSAGING: "check the address or user name, and its password",
    Service.REGISTRATION: "check the user name and password of the login",
}

_MESSAGE_KEYS = ("message", "errorMessage", "detail", "title", "error_description", "description", "error")
"""JSON keys, in order of preference, that may contain a message for people in other responses."""


class ErrorScope(enum.Enum):
    """The cause of an error; see the last table of this module."""

    ITEM = enum.auto()
    UNCERTAIN = enum.auto()
    SERVICE = enum.auto()
    ENDPOINT = enum.auto()
    ACCOUNT = enum.auto()
    """The account, for example its payment. A service may also raise PermissionDeniedError for a single item."""
    CALLER = enum.auto()


NOT_RETRYABLE = frozenset({ErrorScope.ACCOUNT, ErrorScope.CALLER})
"""Scopes for which another attempt would fail again. Repeating a rejected password may lock the account."""

_WRONG_ENDPOINT_STATUSES = frozenset({405, 407, 426})
"""Statuses, in addition to redirects, of a wrong URL or a proxy."""


def find_error_scope(error: DirectSuiteError) -> ErrorScope:
    """Return the scope of an error. It is CALLER for DirectSuiteError classes defined elsewhere, such as by a store."""
    if isinstance(error, AuthenticationError | PermissionDeniedError | PaymentError):
        return ErrorScope.ACCOUNT
    if isinstance(error, ServiceError):
        return _find_service_error_scope(error)
    if isinstance(error, TransportError):
        nothing_sent = isinstance(error, ConnectFailedError) or error.outcome is Outcome.NOT_SENT
        return ErrorScope.SERVICE if nothing_sent else ErrorScope.UNCERTAIN
    return ErrorScope.UNCERTAIN if isinstance(error, ResponseDecodeError) else ErrorScope.CALLER


def _find_service_error_scope(error: ServiceError) -> ErrorScope:
    if isinstance(error, RateLimitedError) or error.outcome is Outcome.REJECTED:
        return ErrorScope.SERVICE
    if isinstance(error, ServerError) or error.status == 408:
        return ErrorScope.UNCERTAIN
    is_wrong_url = 300 <= error.status < 400 or error.status in _WRONG_ENDPOINT_STATUSES
    # A rejection by the token endpoint concerns no item.
    return ErrorScope.ENDPOINT if is_wrong_url or error.service == Service.OAUTH else ErrorScope.ITEM
