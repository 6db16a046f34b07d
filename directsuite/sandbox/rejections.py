"""How each service refuses: the codes of the specification's section 7, and every answer that is not a success.

    below /signing, /fax            {"error", "description"}                     HTTP 400, 401, 403
    below /message-rest             {"success": false, "code": 4, "message"}     HTTP 200, mostly
    below /DirectRegistrationREST…  {"success": false, "code", "errorMessage"}   HTTP 200, mostly
    anywhere else                   {"error", "description"}

An operation raises a RefusedError, in whatever thread it runs; the middleware answers it, and unknown paths, wrong
methods, bad bodies and crashes in the form of the service that the request went to.

    RefusedError
    ├── MessagingError, RegistrationError     a code of the service's own
    ├── InvalidActionError                    signing: the document cannot take this action
    ├── InvalidParameterError                 signing and fax: something in the request is missing or wrong
    ├── PermissionDeniedError                 signing and fax: it belongs to another account
    ├── NoSuchDocumentError                   signing: unknown, deleted or expired
    └── KeyUnavailableError                   signing: the key can't be used now
"""

from __future__ import annotations

import logging
from enum import IntEnum, StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

SIGNING_BASE = "/signing/"
MESSAGING_BASE = "/message-rest/"
REGISTRATION_BASE = "/DirectRegistrationRESTful/"

_EXPLANATIONS = {
    HTTPStatus.FORBIDDEN: "the Host header names no loopback address: use http://127.0.0.1 or http://localhost",
    HTTPStatus.NOT_FOUND: "there is no endpoint at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "the endpoint does not take this method",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "the request body must be announced as application/json",
    HTTPStatus.INTERNAL_SERVER_ERROR: "the sandbox failed to answer; its log says why",
}

MAX_JSON_VALUES = 100_000
"""The values that JSON of no expected type may have: they take up to thirty times the size of the text in memory."""

logger = logging.getLogger("directsuite.sandbox")

protocol_logger = logging.getLogger("directsuite.sandbox.http")
"""For aiohttp's own messages about requests that are not HTTP."""


def _remove_request_text(record: logging.LogRecord) -> bool:
    record.exc_info = None  # aiohttp's parser quotes what it could not read, which may be a credential
    return True


protocol_logger.addFilter(_remove_request_text)


class MessagingCode(IntEnum):
    """The code of an APIResponse."""

    SUCCESS = 0
    AUTHENTICATION = 1
    ADDRESS = 2
    FOLDER = 3
    OTHER = 4


class RegistrationCode(StrEnum):
    """The codes of a ResellerAPIResponseType that the sandbox gives."""

    SUCCESS = "000"
    INVALID_USER = "002"
    INVALID_ARGUMENT = "010"
    AUTHENTICATION_FAILED = "011"
    USER_ACCOUNT_ERROR = "014"
    INVALID_STATE = "204"
    NOT_PROOFED = "205"
    NO_ORGANIZATION = "208"
    NO_ADDRESS = "210"
    OTHER = "999"


class RejectionError(Exception):
    """A service refuses a request, which then changes nothing. Signing and fax answer as this class does."""

    error: ClassVar[str]
    status: int = HTTPStatus.BAD_REQUEST

    def to_response(self) -> web.Response:
        """The service's error body, with its HTTP status."""
        return build_error_response(self.status, self.error, str(self))


class InvalidActionError(RejectionError):
    """The stored document cannot take the requested action."""

    error = "invalid_action"


class InvalidParameterError(RejectionError):
    """A parameter is missing or invalid."""

    error = "invalid_parameter"


class WrongAccountError(RejectionError):
    """The document or fax number belongs to another account."""

    error = "permission_denied"
    status = HTTPStatus.FORBIDDEN


class NoSuchDocumentError(RejectionError):
    """No document has this identifier, or no longer."""

    error = "no_such_document"


class KeyUnavailableError(RejectionError):
    """The token that holds the signing key doesn't answer as it should; the same request may succeed later."""

    error = HTTPStatus.INTERNAL_SERVER_ERROR.phrase
    status = HTTPStatus.INTERNAL_SERVER_ERROR


class MessagingError(RejectionError):
    """The messaging service refuses, with the code of an APIResponse."""

    def __init__(self, code: MessagingCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    def to_response(self) -> web.Response:
        """An APIResponse, which names no charset, as those that succeed."""
        body = msgspec.json.encode({"success": False, "code": self.code, "message": str(self)})
        return web.Response(body=body, content_type="application/json")


class RegistrationError(RejectionError):
    """The registration service refuses, with the code of a ResellerAPIResponseType."""

    def __init__(self, code: RegistrationCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    def to_response(self) -> web.Response:
        """A ResellerAPIResponseType."""
        return web.json_response({"code": self.code, "success": False, "errorMessage": str(self)})


class MalformedBodyError(Exception):
    """The request body is no JSON; the text says what is wrong, and never quotes the body."""


def parse_json(body: bytes, expected: Any = Any) -> Any:
    """JSON text as Python values, or as the type expected. Raises MalformedBodyError.

    Refused beside bad syntax: text that is not UTF-8, NaN and Infinity, nesting too deep to parse, numbers too long to
    read, and unpaired surrogates, which no database or mailbox could store. Without an expected type also JSON that may
    have more than MAX_JSON_VALUES values. Raises msgspec.ValidationError for JSON of another type.
    """
    may_have_many_values = sum(map(body.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES
    if expected is Any and may_have_many_values:
        raise MalformedBodyError(f"the request body has more than {MAX_JSON_VALUES:,} values")
    try:
        return msgspec.json.decode(body, type=expected)
    except UnicodeError:
        raise MalformedBodyError("the request body is not valid UTF-8 text") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) and expected is not Any and not may_have_many_values:
            parse_json(body)  # what does not fit may be no JSON either, further on
            raise
        raise MalformedBodyError("the request body is not valid JSON") from None


class BodyTooLargeError(web.HTTPRequestEntityTooLarge):
    """The request body is larger than an operation takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, limit)
        self.limit = limit


def describe_body_limit(limit: int) -> str:
    """Return what a body of more than `limit` bytes is refused with."""
    return f"the request body is larger than {limit:,} bytes: start the sandbox with a larger --max-body, or max_body"


def build_error_response(status: int, error: str, description: str) -> web.Response:
    """An error body of the signing and fax services: `error` and `description`, with its HTTP status."""
    return web.json_response({"error": error, "description": description}, status=status)


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what a handler raises with the error body of the service that the request went to."""
    try:
        _validate_charset(request)
        return await handler(request)
    except Exception as error:  # noqa: BLE001  a crash too is answered in the service's own form
        return respond_to_error(error, request)


def respond_to_error(error: Exception, request: web.Request) -> web.Response:
    """The answer to a request whose handler raised `error`. A crash is logged without the request.

    Raises the error itself where it is a redirect.
    """
    if isinstance(error, RejectionError):
        return error.to_response()
    if isinstance(error, web.HTTPException):
        if error.status < HTTPStatus.BAD_REQUEST:
            raise error
        explanation = _explain_status(error.status)
        if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            explanation = describe_body_limit(
                error.limit if isinstance(error, BodyTooLargeError) else request.client_max_size
            )
            if request.path.startswith(SIGNING_BASE):  # the specification gives this service no 413
                return respond_to_error(InvalidParameterError(explanation), request)
        answer = _build_service_rejection(request.path, error.status, explanation)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    if isinstance(error, (MalformedBodyError, HttpProcessingError, web.RequestPayloadError)):
        text = str(error) if isinstance(error, MalformedBodyError) else "the request body could not be read"
        return _build_service_rejection(request.path, HTTPStatus.BAD_REQUEST, text)
    if isinstance(error, ConnectionError):
        return web.Response()  # the client has left: nobody gets this, and nothing is wrong here
    # The path may hold a session and the body credentials: the log names the operation and nothing else.
    logger.error("the operation %s failed", request.match_info.route.name, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _build_service_rejection(request.path, status, _explain_status(status))


def _build_service_rejection(path: str, status: int, description: str) -> web.Response:
    """A refusal in the form of the service that `path` belongs to."""
    body: dict[str, Any]
    if path.startswith(MESSAGING_BASE):
        body = {"success": False, "code": MessagingCode.OTHER, "message": description}
    elif path.startswith(REGISTRATION_BASE):
        crashed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        code = RegistrationCode.OTHER if crashed else RegistrationCode.INVALID_ARGUMENT
        body = {"success": False, "code": code, "errorMessage": description}
    else:
        return build_error_response(status, HTTPStatus(status).phrase, description)
    return web.json_response(body, status=status)


def _explain_status(status: int) -> str:
    return _EXPLANATIONS.get(HTTPStatus(status), HTTPStatus(status).phrase)


def _validate_charset(request: web.Request) -> None:
    try:
        "".encode(request.charset or "utf-8")  # which some codecs, as rot13, refuse: they are not for text
    except (LookupError, ValueError):
        raise MalformedBodyError("the charset of the request body is unknown") from None
