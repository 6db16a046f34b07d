"""A service that says back whatever was planted: in good answers, and in everything that an answer may be instead."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.core import responses
from tests.core.scripted_server import Exchange, Responder
from tests.operations import OPERATIONS

from . import sentinels

_ALL_SENTINELS = " ".join(sentinels.ALL_SENTINELS)
_PERSON: dict[str, Any] = {
    "firstName": sentinels.NAME,
    "lastName": sentinels.SURNAME,
    "address": sentinels.STREET,
    "username": sentinels.USERNAME,
    "endpointPassword": sentinels.PATIENT_PASSWORD,
    "userType": "SMTP",
    "unknown": _ALL_SENTINELS,
}
_MAIL: dict[str, Any] = {
    "uid": sentinels.UID,
    "msgID": sentinels.SMTP_ID,
    "folder": sentinels.FOLDER,
    "sender": sentinels.ALICE,
    "subject": sentinels.SUBJECT,
    "body": sentinels.BODY,
    "recipients": [{"email": sentinels.BOB, "type": "TO"}],
    "headers": [{"name": "X-Planted", "value": sentinels.HEADER}],
    "attachments": [
        {
            "content": base64.b64encode(sentinels.ATTACHED).decode(),
            "contentType": "text/xml",
            "filename": sentinels.FILE_NAME,
        }
    ],
    "data": base64.b64encode(sentinels.RAW).decode(),
    "unknown": _ALL_SENTINELS,
}
_LOG = {
    "from": sentinels.ALICE,
    "to": sentinels.BOB,
    "messageId": sentinels.SMTP_ID,
    "status": _ALL_SENTINELS,
    "statusDetails": _ALL_SENTINELS,
}
_SUCCESS_BODIES: dict[str, dict[str, Any]] = {
    "signing": {
        "identifier": sentinels.DOCUMENT,
        "documentDigest": sentinels.REASON,
        "description": _ALL_SENTINELS,
        "signatures": [{"name": sentinels.SIGNER, "reason": sentinels.REASON, "isSigned": True}],
        "formFields": [{"name": sentinels.NAME, "value": _ALL_SENTINELS}],
    },
    "fax": {
        "Username": sentinels.USERNAME,
        "MessageHandle": sentinels.HANDLE,
        "MessageDetail": [
            {"MessageHandle": sentinels.HANDLE, "FaxNumber": sentinels.NUMBER, "description": _ALL_SENTINELS}
        ],
    },
    "message": {
        "success": True,
        "code": 0,
        "message": _ALL_SENTINELS,
        "smtpId": sentinels.SMTP_ID,
        "count": 1,
        "uids": [sentinels.UID],
        "folders": [sentinels.FOLDER],
        "messages": [_MAIL],
        "messageLogs": [_LOG],
    },
    "registration": {
        "success": True,
        "code": "000",
        "description": _ALL_SENTINELS,
        "sessionId": sentinels.SESSION,
        "users": [_PERSON],
        "patient": [_PERSON],
    },
    "token": {
        "access_token": sentinels.TOKEN,
        "refresh_token": sentinels.REFRESH_TOKEN,
        "token_type": "Bearer",
        "expires_in": 3600,
        "unknown": _ALL_SENTINELS,
    },
}


_SERVICES = {"mailbox": "message", "tuser": "message"}
for _case in OPERATIONS.values():
    if not isinstance(_case.response, bytes):  # add the members that are not planted above
        _response: Any = _case.response
        _body = _SUCCESS_BODIES[_SERVICES.get(_case.facade, _case.facade)]
        _body.update({**_response, **_body})


async def respond_success(exchange: Exchange) -> None:
    service, *rest = exchange.request.target[1:].split("/")
    pulled = service == "signing" and (rest[-1] == "pull" or (exchange.request.method == "GET" and rest[-1] != "info"))
    await responses.respond(base64.b64encode(sentinels.PDF) if pulled else _SUCCESS_BODIES[service])(exchange)


partial_response: Responder = responses.respond_in_chunks(
    b'{"success": true, "messages": [{"uid": 1, "subject": "' + _ALL_SENTINELS.encode(), responses.Pause(900)
)
"""A successful response that stops in the middle."""


def respond_after_login(responder: Responder) -> Responder:
    async def chosen(exchange: Exchange) -> None:
        await (respond_success if exchange.request.target.endswith("/login") else responder)(exchange)

    return chosen


def is_verification_request(target: str) -> bool:
    return target.endswith("/info") or "/GetPatientAddressByMeta/" in target


def respond_to_verification(verification: Responder, responder: Responder) -> Responder:
    """Return a responder that accepts logins, and has separate responders for verifications and other requests."""

    async def chosen(exchange: Exchange) -> None:
        await (verification if is_verification_request(exchange.request.target) else respond_after_login(responder))(
            exchange
        )

    return chosen


def _respond_raw(answer: str) -> Responder:
    content = answer.replace("\n", "\r\n").replace("@", _ALL_SENTINELS).encode()
    return responses.close_after(responses.send_raw(content))


def _make_rejection(status: int, **members: Any) -> Responder:
    named = {
        "success": False,
        "message": _ALL_SENTINELS,
        "error": _ALL_SENTINELS,
        "error_description": _ALL_SENTINELS,
        "description": _ALL_SENTINELS,
    }
    return responses.respond(named | members, status, X_Planted=_ALL_SENTINELS)


async def _echo_request(exchange: Exchange) -> None:
    await exchange.read()
    request = exchange.request
    said = json.dumps({"success": False, "message": f"{request.target} {request.headers} {request.body!r}"}).encode()
    await exchange.write(responses.make_head(500, len(said)) + said)


FAILURE_RESPONSES: dict[str, Responder] = {
    "refused": _make_rejection(400, code=3),
    "refused with a good status": _make_rejection(200, code=2),
    "refused with a code": _make_rejection(200, code="208"),
    "refused as OAuth does": responses.respond(
        {"error": "invalid_grant", "error_description": _ALL_SENTINELS, "error_uri": _ALL_SENTINELS}, 400
    ),
    "request echoed": _echo_request,
    "401": _make_rejection(401),
    "403": _make_rejection(403),
    "429": _make_rejection(429),
    "503 with Retry-After": responses.respond(_ALL_SENTINELS.encode(), 503, Retry_After="1"),
    "Retry-After that is none": responses.respond(_ALL_SENTINELS.encode(), 503, Retry_After=_ALL_SENTINELS),
    "500": responses.respond(_ALL_SENTINELS.encode(), 500, Content_Type=_ALL_SENTINELS),
    "redirect": responses.respond(b"", 302, Location=f"http://127.0.0.1:9/{_ALL_SENTINELS.replace(' ', '')}"),
    "malformed": responses.respond(b'{"success": true, ' + _ALL_SENTINELS.encode()),
    "misfit": responses.respond(
        {
            "success": True,
            "code": 0,
            "messages": _ALL_SENTINELS,
            "identifier": [_ALL_SENTINELS],
            "users": {_ALL_SENTINELS: 1},
        }
    ),
    "refused at its end": responses.respond({"messages": [_MAIL], "message": _ALL_SENTINELS, "success": False}),
    "truncated": responses.truncate({"success": True, "message": _ALL_SENTINELS}),
    "cookies": responses.respond(
        {"success": False, "code": 3}, 400, Set_Cookie=f"{_ALL_SENTINELS}; Path={_ALL_SENTINELS}"
    ),
    "media type": responses.respond(b"no", Content_Type=f"text/plain; charset={_ALL_SENTINELS}"),
    "media type that is none": responses.respond(b"no", Content_Type=_ALL_SENTINELS),
    "coding": responses.respond(_ALL_SENTINELS.encode(), Content_Encoding="gzip"),
    "not HTTP": _respond_raw("220 @\n\n"),
    "status line": _respond_raw("HTTP/1.1 2x0 @\n\n"),
    "header without a name": _respond_raw("HTTP/1.1 200 OK\n@\n\n"),
    "header twice": _respond_raw("HTTP/1.1 200 OK\nContent-Length: @\nContent-Length: 7\n\n@"),
    "chunk size": _respond_raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n@\n@\n"),
    "long header": _respond_raw("HTTP/1.1 200 OK\nX-Planted: " + "@" * 20 + "\n\n"),
    "more than was announced": _respond_raw("HTTP/1.1 200 OK\nContent-Length: 3\n\n{} @"),
    "reset": responses.reset,
    "hang up": responses.hang_up,
    "half a head": responses.send_partial_head,
    "silence": responses.never_respond,
}
"""The failing responses, by name."""
