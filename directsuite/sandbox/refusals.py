"""How each service refuses: its own error body for unknown paths, wrong methods, bad bodies and crashes.

below /signing, /fax            {"error", "description"}                     specification section 7
below /message-rest             {"success": false, "code": 4, "message"}     specification section 2.C
below /DirectRegistrationREST…  {"success": false, "code", "errorMessage"}   specification section 2.D
anywhere else                   {"error", "description"}
"""

from __future__ import annotations

import codecs
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

MESSAGING_BASE = "/message-rest/"
REGISTRATION_BASE = "/DirectRegistrationRESTful/"

_EXPLANATIONS = {
    HTTPStatus.NOT_FOUND: "there is no endpoint at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "the endpoint does not take this method",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "the request body must be announced as application/json",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the request body is too large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "the sandbox failed to answer; its log says why",
}

logger = logging.getLogger("directsuite.sandbox")

protocol_logger = logging.getLogger("directsuite.sandbox.http")
"""For aiohttp's own messages about requests that are not HTTP."""


def _without_request_text(record: logging.LogRecord) -> bool:
    record.exc_info = None  # aiohttp's parser quotes what it could not read, which may be a credential
    return True


protocol_logger.addFilter(_without_request_text)


class MalformedBodyError(Exception):
    """The request body is no JSON; the text says what is wrong, and never quotes the body."""


def parse_json(body: bytes) -> Any:
    """JSON text as Python values. Raises MalformedBodyError.

    Refused beside bad syntax: text that is not UTF-8, NaN and Infinity, nesting too deep to parse, numbers too long to
    read, and unpaired surrogates, which no database or mailbox could store.
    """
    try:
        return msgspec.json.decode(body)
    except UnicodeError:
        raise MalformedBodyError("the request body is not valid UTF-8 text") from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedBodyError("the request body is not valid JSON") from None


def refusal(status: int, error: str, description: str) -> web.Response:
    """An error body of the signing and fax services: `error` and `description`, with its HTTP status."""
    return web.json_response({"error": error, "description": description}, status=status)


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what a handler raises with the error body of the service that the request went to."""
    try:
        _require_known_charset(request)
        return await handler(request)
    except Exception as error:  # noqa: BLE001  a crash too is answered in the service's own form
        return refusal_of(error, request)


def refusal_of(error: Exception, request: web.Request) -> web.Response:
    """The answer to a request whose handler raised `error`. A crash is logged without the request.

    Raises the error itself where it is a redirect.
    """
    if isinstance(error, web.HTTPException):
        if error.status < HTTPStatus.BAD_REQUEST:
            raise error
        answer = _service_refusal(request.path, error.status, _explanation(error.status))
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    if isinstance(error, (MalformedBodyError, HttpProcessingError, web.RequestPayloadError)):
        text = str(error) if isinstance(error, MalformedBodyError) else "the request body could not be read"
        return _service_refusal(request.path, HTTPStatus.BAD_REQUEST, text)
    if isinstance(error, ConnectionError):
        return web.Response()  # the client has left: nobody gets this, and nothing is wrong here
    # The path may hold a session and the body credentials: the log names the operation and nothing else.
    logger.error("the operation %s failed", request.match_info.route.name, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _service_refusal(request.path, status, _explanation(status))


def _service_refusal(path: str, status: int, description: str) -> web.Response:
    """A refusal in the form of the service that `path` belongs to."""
    body: dict[str, Any]
    if path.startswith(MESSAGING_BASE):
        body = {"success": False, "code": 4, "message": description}
    elif path.startswith(REGISTRATION_BASE):
        code = "999" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "010"
        body = {"success": False, "code": code, "errorMessage": description}
    else:
        return refusal(status, HTTPStatus(status).phrase, description)
    return web.json_response(body, status=status)


def _explanation(status: int) -> str:
    known = HTTPStatus(status)
    return _EXPLANATIONS.get(known, known.phrase)


def _require_known_charset(request: web.Request) -> None:
    try:
        codecs.lookup(request.charset or "utf-8")
    except (LookupError, ValueError):
        raise MalformedBodyError("the charset of the request body is unknown") from None
