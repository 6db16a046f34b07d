"""The errors of the services: the codes of the specification's section 7, and the responses for all errors.

    below /signing, /fax            {"error", "description"}                     HTTP 400, 401, 403
    below /message-rest             {"success": false, "code": 4, "message"}     HTTP 200, mostly
    below /DirectRegistrationREST…  {"success": false, "code", "errorMessage"}   HTTP 200, mostly
    others                          {"error", "description"}

An operation raises a RejectionError in any thread. The middleware converts it to a response in the form of the
service, and does the same for unknown paths, wrong methods, invalid bodies and unexpected exceptions.
"""

from __future__ import annotations

import logging
from enum import IntEnum, StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

T = TypeVar("T")

SIGNING_BASE = "/signing/"
MESSAGING_BASE = "/message-rest/"
REGISTRATION_BASE = "/DirectRegistrationRESTful/"

_EXPLANATIONS = {
    HTTPStatus.FORBIDDEN: "the Host header is not a loopback address: use http://127.0.0.1 or http://localhost",
    HTTPStatus.NOT_FOUND: "there is no endpoint at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "the endpoint does not support this method",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "the content type of the request body must be application/json",
    HTTPStatus.INTERNAL_SERVER_ERROR: "the sandbox failed to process the request; its log says why",
}

logger = logging.getLogger("directsuite.sandbox")

protocol_logger = logging.getLogger("directsuite.sandbox.http")
"""The logger of aiohttp's messages about requests that are not valid HTTP."""


def _remove_request_text(record: logging.LogRecord) -> bool:
    record.exc_info = None  # aiohttp's parser quotes invalid text, which may contain a credential
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
    """The codes of a ResellerAPIResponseType in use."""

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
    """A service has rejected a request, and changed nothing. The response has the form of signing and fax."""

    error: ClassVar[str]
    status: int = HTTPStatus.BAD_REQUEST

    def to_response(self) -> web.Response:
        """Return the error response in the form of the service."""
        return build_error_response(self.status, self.error, str(self))


class InvalidActionError(RejectionError):
    """Signing: the stored document does not allow the action."""

    error = "invalid_action"


class InvalidParameterError(RejectionError):
    """Signing and fax: a parameter is missing or invalid."""

    error = "invalid_parameter"


class WrongAccountError(RejectionError):
    """Signing and fax: the document or number belongs to another account."""

    error = "permission_denied"
    status = HTTPStatus.FORBIDDEN


class NoSuchDocumentError(RejectionError):
    """Signing: the document is unknown, deleted or expired."""

    error = "no_such_document"


class KeyUnavailableError(RejectionError):
    """Signing: the key, or the token with the key, cannot be used. The same request may succeed later."""

    error = HTTPStatus.INTERNAL_SERVER_ERROR.phrase
    status = HTTPStatus.INTERNAL_SERVER_ERROR


class MessagingError(RejectionError):
    """A rejection by the messaging service, with the code of an APIResponse."""

    def __init__(self, text: str, code: MessagingCode = MessagingCode.OTHER) -> None:
        super().__init__(text)
        self.code = code

    def to_response(self) -> web.Response:
        """Return an APIResponse. It has no charset, like those of successful requests."""
        body = msgspec.json.encode({"success": False, "code": self.code, "message": str(self)})
        return web.Response(body=body, content_type="application/json")


class RegistrationError(RejectionError):
    """A rejection by the registration service, with the code of a ResellerAPIResponseType."""

    def __init__(self, text: str, code: RegistrationCode = RegistrationCode.INVALID_ARGUMENT) -> None:
        super().__init__(text)
        self.code = code

    def to_response(self) -> web.Response:
        """Return a ResellerAPIResponseType."""
        return web.json_response({"code": self.code, "success": False, "errorMessage": str(self)})


class MalformedBodyError(Exception):
    """The request body is not valid JSON. The text does not quote it."""


def parse_json(body: bytes, expected: Any = Any) -> Any:
    """Return decoded JSON, as the expected type if there is one.

    Raises msgspec.ValidationError for another type. Raises MalformedBodyError for invalid syntax or UTF-8, NaN and
    Infinity, too deep nesting, too long numbers and unpaired surrogates.
    """
    try:
        return msgspec.json.decode(body, type=expected)
    except UnicodeError:
        raise MalformedBodyError("the request body is not valid UTF-8 text") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) and expected is not Any:
            parse_json(body)  # raises if the rest of the body is not valid JSON
            raise
        raise MalformedBodyError("the request body is not valid JSON") from None


def convert_body(body: object, expected: type[T], rejection: type[RejectionError], what: str = "the request body") -> T:
    """Return decoded JSON as the expected type. Raises `rejection` if it has another type. what: its subject."""
    try:
        return msgspec.convert(body, expected)
    except msgspec.ValidationError as mismatch:
        raise rejection(f"{what} is invalid: {mismatch}") from None


class BodyTooLargeError(web.HTTPRequestEntityTooLarge):
    """The request body exceeds the limit of an operation."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, limit)
        self.limit = limit


def describe_body_limit(limit: int) -> str:
    """Return the explanation for a rejected body of more than `limit` bytes."""
    return f"the request body is larger than {limit:,} bytes: start the sandbox with a larger --max-body, or max_body"


def build_error_response(status: int, error: str, description: str) -> web.Response:
    """Return an error response of the signing and fax services."""
    return web.json_response({"error": error, "description": description}, status=status)


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert the exception of a handler, unless it is a redirect, to an error response of the service."""
    try:
        try:
            "".encode(request.charset or "utf-8")  # raises for rot13, for example
        except (LookupError, ValueError):
            raise MalformedBodyError("the charset of the request body is unknown") from None
        return await handler(request)
    except Exception as error:  # noqa: BLE001  all need a response in the service's form
        return respond_to_error(error, request)


def respond_to_error(error: Exception, request: web.Request) -> web.Response:
    """Return the response for `error`, raised by a handler. Log unexpected errors, without the request's path and body.

    Raises the error itself if it is a redirect.
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
            if request.path.startswith(SIGNING_BASE):  # the specification has no 413 for this service
                return respond_to_error(InvalidParameterError(explanation), request)
        response = _build_service_rejection(request.path, error.status, explanation)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    if isinstance(error, (MalformedBodyError, HttpProcessingError, web.RequestPayloadError)):
        text = str(error) if isinstance(error, MalformedBodyError) else "the request body could not be read"
        return _build_service_rejection(request.path, HTTPStatus.BAD_REQUEST, text)
    if isinstance(error, ConnectionError):
        return web.Response()  # never sent: the client has disconnected
    # Only the operation is logged: the path may contain a session, and the body credentials.
    logger.error("The operation %s failed.", request.match_info.route.name, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _build_service_rejection(request.path, status, _explain_status(status))


def _build_service_rejection(path: str, status: int, description: str) -> web.Response:
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
