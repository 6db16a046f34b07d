"""The control API under /_sandbox: what a test or a demo does to the sandbox from outside, JSON in and out.

    GET    health                           POST   reset                       {"account"?}
    GET    clock                            POST   clock/freeze                {"at"?}
    POST   clock/set      {"at"}            POST   clock/advance               {"seconds"}
    POST   clock/resume   {}                GET    ledger?operation=
    GET    faults                           POST   faults                      members of Fault; gives its id
    DELETE faults                           DELETE faults/{id}
    POST   accounts       {"kind": "mailbox" | "tuser" | "reseller" | "client", …}
    POST   individuals    {"firstName", "lastName", "ssn4", "dob", "id"?, contact}
    POST   patients/{address}/state         {"state"}, null to follow the clock again
    POST   fax            {"fax_number", "status"?, "recipients"?, "description"?, "account"?}
    PATCH  fax/{handle}   {"status"}        POST   inbound/{address}?folder=   a raw message (.eml)
    POST   messages/{smtpId}/status         {"recipient", "status"}
    POST   mailboxes/{address}/renumber     {"folder"?, "first"?}: other uids, as after a restore
    GET    profile                          POST   profile                     {"profile"}: one, or a list of several
    POST   tokens         {"account"?, "seconds"?}
    POST   tokens/expire  {"account"?}      POST   sessions/expire             {"username"?}
    GET    ca.pem                           the certificate that signatures lead to, not JSON

Bad input is 400, something unknown 404, something taken 409; each says why in {"error", "description"}. A request
that a web page may have sent is 403. Times are ISO 8601 with an offset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web

from directsuite.sandbox.fax import NumberTakenError
from directsuite.sandbox.json_body import (
    MalformedMemberError,
    as_array,
    as_object,
    integer_member,
    optional_text_member,
    read_object,
    text_member,
)
from directsuite.sandbox.loopback import local_only
from directsuite.sandbox.messaging.accounts import AccountExists, UnknownAccount
from directsuite.sandbox.messaging.refusals import Refusal
from directsuite.sandbox.refusals import refusal
from directsuite.sandbox.registration.individuals import CONTACT

if TYPE_CHECKING:
    from directsuite.sandbox.server import Sandbox

BASE = "/_sandbox"

Control = Callable[["Sandbox", web.Request], Awaitable[Any]]
"""One control: what it does to the sandbox, and the JSON that it answers."""


class UnknownSubjectError(Exception):
    """There is nothing of this name to change."""


def control_routes(sandbox: Sandbox) -> list[web.RouteDef]:
    """All controls of one sandbox."""
    return [
        web.route(method, f"{BASE}/{path}", local_only(_answering(sandbox, control)))
        for method, path, control in _CONTROLS
    ]


def _answering(sandbox: Sandbox, control: Control) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            body = await control(sandbox, request)
        except (AccountExists, NumberTakenError) as taken:
            return refusal(HTTPStatus.CONFLICT, "taken", str(taken))
        except (UnknownSubjectError, UnknownAccount) as unknown:
            return refusal(HTTPStatus.NOT_FOUND, "unknown", str(unknown))
        except (ValueError, MalformedMemberError) as bad:
            return refusal(HTTPStatus.BAD_REQUEST, "bad_input", str(bad))
        status = HTTPStatus.CREATED if request.method == "POST" and "created" in body else HTTPStatus.OK
        return web.json_response(body, status=status)

    return answer


async def _health(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"status": "ok", "now": sandbox.clock.now().isoformat(), "urls": sandbox.urls}


async def _reset(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    account = optional_text_member(await read_object(request), "account")
    _require(await sandbox.reset(account), "there is nothing of this account")
    return {"reset": account or "everything"}


async def _clock(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"now": sandbox.clock.now().isoformat(), "frozen": sandbox.clock.frozen}


async def _changed_clock(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    await sandbox.keep_clock()
    return await _clock(sandbox, request)


async def _freeze(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    at = optional_text_member(await read_object(request), "at")
    sandbox.clock.freeze(None if at is None else _moment(at))
    return await _changed_clock(sandbox, request)


async def _set(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    sandbox.clock.set(_moment(text_member(await read_object(request), "at")))
    return await _changed_clock(sandbox, request)


async def _advance(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    sandbox.clock.advance(_seconds(await read_object(request)))
    return await _changed_clock(sandbox, request)


async def _resume(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    sandbox.clock.resume()
    return await _changed_clock(sandbox, request)


async def _faults(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"faults": sandbox.faults()}


async def _add_fault(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    members = await read_object(request)
    operation, kind = text_member(members, "operation"), text_member(members, "kind")
    others = {name: value for name, value in members.items() if name not in {"operation", "kind"}}
    return {"created": sandbox.inject_fault(operation, kind, **others)}


async def _clear_faults(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    sandbox.clear_faults()
    return {"faults": []}


async def _remove_fault(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    _require(sandbox.remove_fault(int(request.match_info["id"])), "there is no fault of this id")
    return {"faults": sandbox.faults()}


async def _add_account(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    kind = text_member(body, "kind")
    if kind == "mailbox":
        await sandbox.add_account(text_member(body, "address"), text_member(body, "password"))
        return {"created": body["address"]}
    if kind == "client":
        account = text_member(body, "account", "demo")
        await sandbox.add_client(text_member(body, "client_id"), text_member(body, "client_secret"), account)
        return {"created": body["client_id"]}
    username, password = text_member(body, "username"), text_member(body, "password")
    if kind == "tuser":
        await sandbox.add_tuser(username, password, _texts(body, "direct_addresses"))
    elif kind == "reseller":
        await sandbox.add_reseller(username, password, _texts(body, "domains"))
    else:
        raise ValueError("kind must be one of mailbox, tuser, reseller, client")
    return {"created": username}


async def _add_individual(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    required = [text_member(body, name) for name in ("firstName", "lastName", "ssn4", "dob")]
    contact = {name: text for name in CONTACT if (text := optional_text_member(body, name))}
    return {"created": await sandbox.add_individual(*required, id=integer_member(body, "id"), **contact)}


async def _set_patient_state(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    state = optional_text_member(await read_object(request), "state")
    address = request.match_info["address"]
    _require(await sandbox.set_patient_state(address, state), "there is no patient of this address")
    return {"address": address, "state": state}


async def _add_fax(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    handle = await sandbox.add_fax(
        text_member(body, "fax_number"),
        status=text_member(body, "status", "complete"),
        recipients=_recipients(body),
        description=optional_text_member(body, "description") or "",
        account=text_member(body, "account", "demo"),
    )
    return {"created": handle}


async def _set_fax_status(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    status = text_member(await read_object(request), "status")
    handle = request.match_info["handle"]
    _require(await sandbox.set_fax_status(handle, status), "there is no fax of this handle")
    return {"handle": handle, "status": status}


async def _inbound(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    raw = await request.read()
    if not raw.strip():
        raise ValueError("the request body must be a raw message")
    folder = request.query.get("folder", "INBOX")
    try:
        return {"created": await sandbox.deliver(request.match_info["address"], raw, folder)}
    except Refusal as refused:
        raise ValueError(refused.text) from None


async def _renumber(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    folder = optional_text_member(body, "folder") or "INBOX"
    first = integer_member(body, "first")
    renumbered = await sandbox.renumber(request.match_info["address"], folder, first=1 if first is None else first)
    return {"renumbered": renumbered}


async def _force_status(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    recipient, status = text_member(body, "recipient"), text_member(body, "status")
    try:
        await sandbox.force_message_status(request.match_info["smtp_id"], recipient, status)
    except LookupError:
        raise UnknownSubjectError("there is no message of this smtpId to this recipient") from None
    return {"recipient": recipient, "status": status}


async def _profile(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"profile": sandbox.profile}


async def _set_profile(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    profile: Any = (await read_object(request)).get("profile")
    sandbox.profile = profile
    return await _profile(sandbox, request)


async def _issue_token(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    body = await read_object(request)
    account, lifetime = text_member(body, "account", "demo"), _seconds({"seconds": 3600, **body})
    return {"created": await sandbox.issue_token(account, lifetime=lifetime)}


async def _expire_tokens(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"expired": await sandbox.expire_tokens(optional_text_member(await read_object(request), "account"))}


async def _expire_sessions(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"expired": await sandbox.expire_sessions(optional_text_member(await read_object(request), "username"))}


async def _ledger(sandbox: Sandbox, request: web.Request) -> Mapping[str, Any]:
    return {"effects": await sandbox.ledger(request.query.get("operation"))}


_CONTROLS: tuple[tuple[str, str, Control], ...] = (
    ("GET", "health", _health),
    ("POST", "reset", _reset),
    ("GET", "clock", _clock),
    ("POST", "clock/freeze", _freeze),
    ("POST", "clock/set", _set),
    ("POST", "clock/advance", _advance),
    ("POST", "clock/resume", _resume),
    ("GET", "faults", _faults),
    ("POST", "faults", _add_fault),
    ("DELETE", "faults", _clear_faults),
    ("DELETE", r"faults/{id:[0-9]{1,9}}", _remove_fault),
    ("POST", "accounts", _add_account),
    ("POST", "individuals", _add_individual),
    ("POST", "patients/{address}/state", _set_patient_state),
    ("POST", "fax", _add_fax),
    ("PATCH", "fax/{handle}", _set_fax_status),
    ("POST", "inbound/{address}", _inbound),
    ("POST", "messages/{smtp_id}/status", _force_status),
    ("POST", "mailboxes/{address}/renumber", _renumber),
    ("GET", "profile", _profile),
    ("POST", "profile", _set_profile),
    ("POST", "tokens", _issue_token),
    ("POST", "tokens/expire", _expire_tokens),
    ("POST", "sessions/expire", _expire_sessions),
    ("GET", "ledger", _ledger),
)


def _require(known: bool, text: str) -> None:
    if not known:
        raise UnknownSubjectError(text)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("at must be a time in ISO 8601 with an offset, such as 2026-05-01T12:00:00+00:00") from None


def _seconds(body: Mapping[str, Any]) -> timedelta:
    seconds = body.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 3_153_600_000:
        raise ValueError("seconds must be a number from 0 to 3153600000, a hundred years")
    return timedelta(seconds=seconds)


def _texts(body: Mapping[str, Any], name: str) -> list[str]:
    values = as_array(body.get(name, []))
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be an array of texts")
    return values


def _recipients(body: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    recipients = body.get("recipients")
    return None if recipients is None else [as_object(recipient) for recipient in as_array(recipients)]
