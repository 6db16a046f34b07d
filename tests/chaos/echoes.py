"""A service that says back whatever was planted: in good answers, and in everything that an answer may be instead."""

from __future__ import annotations

import json
from typing import Any

from directsuite.wire import base64
from tests.core import plays
from tests.core.scripted_server import Exchange, Play

from . import planted

_ALL = " ".join(planted.EVERYTHING)
_PERSON: dict[str, Any] = {
    "firstName": planted.NAME,
    "lastName": planted.SURNAME,
    "address": planted.STREET,
    "username": planted.USERNAME,
    "endpointPassword": planted.PATIENT_PASSWORD,
    "userType": "SMTP",
    "unknown": _ALL,
}
_MAIL: dict[str, Any] = {
    "uid": planted.UID,
    "msgID": planted.SMTP_ID,
    "folder": planted.FOLDER,
    "sender": planted.ALICE,
    "subject": planted.SUBJECT,
    "body": planted.BODY,
    "recipients": [{"email": planted.BOB, "type": "TO"}],
    "headers": [{"name": "X-Planted", "value": planted.HEADER}],
    "attachments": [
        {"content": base64.encode(planted.ATTACHED).decode(), "contentType": "text/xml", "filename": planted.FILE_NAME}
    ],
    "data": base64.encode(planted.RAW).decode(),
    "unknown": _ALL,
}
_LOG = {"from": planted.ALICE, "to": planted.BOB, "messageId": planted.SMTP_ID, "status": _ALL, "statusDetails": _ALL}
_GOOD: dict[str, dict[str, Any]] = {
    "signing": {
        "identifier": planted.DOCUMENT,
        "documentDigest": planted.REASON,
        "description": _ALL,
        "signatures": [{"name": planted.SIGNER, "reason": planted.REASON, "isSigned": True}],
        "formFields": [{"name": planted.NAME, "value": _ALL}],
    },
    "fax": {
        "Username": planted.USERNAME,
        "MessageHandle": planted.HANDLE,
        "MessageDetail": [{"MessageHandle": planted.HANDLE, "FaxNumber": planted.NUMBER, "description": _ALL}],
    },
    "message": {
        "success": True,
        "code": 0,
        "message": _ALL,
        "smtpId": planted.SMTP_ID,
        "count": 1,
        "uids": [planted.UID],
        "folders": [planted.FOLDER],
        "messages": [_MAIL],
        "messageLogs": [_LOG],
    },
    "registration": {
        "success": True,
        "code": "000",
        "description": _ALL,
        "sessionId": planted.SESSION,
        "users": [_PERSON],
        "patient": [_PERSON],
    },
    "token": {
        "access_token": planted.TOKEN,
        "refresh_token": planted.REFRESH_TOKEN,
        "token_type": "Bearer",
        "expires_in": 3600,
        "unknown": _ALL,
    },
}


async def good(exchange: Exchange) -> None:
    """What the operation's good answer is, full of what was planted."""
    service, *rest = exchange.request.target[1:].split("/")
    pulled = service == "signing" and (rest[-1] == "pull" or (exchange.request.method == "GET" and rest[-1] != "info"))
    await plays.answer(base64.encode(planted.PDF) if pulled else _GOOD[service])(exchange)


half: Play = plays.pieces(b'{"success": true, "messages": [{"uid": 1, "subject": "' + _ALL.encode(), plays.Pause(900))
"""A good answer that comes to its middle and stays there."""


def after_login(play: Play) -> Play:
    """Logins go well, and everything else ends like this."""

    async def chosen(exchange: Exchange) -> None:
        await (good if exchange.request.target.endswith("/login") else play)(exchange)

    return chosen


def is_look(target: str) -> bool:
    """Whether a request looks for what became of another."""
    return target.endswith("/info") or "/GetPatientAddressByMeta/" in target


def looks(look: Play, play: Play) -> Play:
    """Logins go well, looks for what became of a call end like the one, and everything else like the other."""

    async def chosen(exchange: Exchange) -> None:
        await (look if is_look(exchange.request.target) else after_login(play))(exchange)

    return chosen


def _wire(answer: str) -> Play:
    """An answer byte for byte, then the end of the connection; `@` stands for all that was planted."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(answer.replace("\n", "\r\n").replace("@", _ALL).encode())
        exchange.close()

    return play


def _refusal(status: int, **members: Any) -> Play:
    named = {"success": False, "message": _ALL, "error": _ALL, "error_description": _ALL, "description": _ALL}
    return plays.answer(named | members, status, X_Planted=_ALL)


async def _headers_echoed(exchange: Exchange) -> None:
    """Refuse with all that the request was, its path and credentials too."""
    await exchange.read()
    request = exchange.request
    said = json.dumps({"success": False, "message": f"{request.target} {request.headers} {request.body!r}"}).encode()
    await exchange.write(plays.head(500, len(said)) + said)


FAILURES: dict[str, Play] = {
    "refused": _refusal(400, code=3),
    "refused with a good status": _refusal(200, code=2),
    "refused with a code": _refusal(200, code="208"),
    "refused as OAuth does": plays.answer(
        {"error": "invalid_grant", "error_description": _ALL, "error_uri": _ALL}, 400
    ),
    "request echoed": _headers_echoed,
    "401": _refusal(401),
    "403": _refusal(403),
    "429": _refusal(429),
    "503 with Retry-After": plays.answer(_ALL.encode(), 503, Retry_After="1"),
    "Retry-After that is none": plays.answer(_ALL.encode(), 503, Retry_After=_ALL),
    "500": plays.answer(_ALL.encode(), 500, Content_Type=_ALL),
    "redirect": plays.answer(b"", 302, Location=f"http://127.0.0.1:9/{_ALL.replace(' ', '')}"),
    "malformed": plays.answer(b'{"success": true, ' + _ALL.encode()),
    "misfit": plays.answer({"success": True, "code": 0, "messages": _ALL, "identifier": [_ALL], "users": {_ALL: 1}}),
    "truncated": plays.truncated({"success": True, "message": _ALL}),
    "cookies": plays.answer({"success": False, "code": 3}, 400, Set_Cookie=f"{_ALL}; Path={_ALL}"),
    "media type": plays.answer(b"no", Content_Type=f"text/plain; charset={_ALL}"),
    "media type that is none": plays.answer(b"no", Content_Type=_ALL),
    "coding": plays.answer(_ALL.encode(), Content_Encoding="gzip"),
    "not HTTP": _wire("220 @\n\n"),
    "status line": _wire("HTTP/1.1 2x0 @\n\n"),
    "header without a name": _wire("HTTP/1.1 200 OK\n@\n\n"),
    "header twice": _wire("HTTP/1.1 200 OK\nContent-Length: @\nContent-Length: 7\n\n@"),
    "chunk size": _wire("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n@\n@\n"),
    "long header": _wire("HTTP/1.1 200 OK\nX-Planted: " + "@" * 20 + "\n\n"),
    "more than was announced": _wire("HTTP/1.1 200 OK\nContent-Length: 3\n\n{} @"),
    "reset": plays.reset,
    "hang up": plays.hang_up,
    "half a head": plays.half_a_head,
    "silence": plays.silence,
}
"""What else a service may do, by name."""
