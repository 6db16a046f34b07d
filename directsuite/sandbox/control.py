"""The control API under /_sandbox: what a test or a demo does to the sandbox from outside, JSON in and out.

    GET    health                           POST   reset                       {"account"?}
    GET    environment                      variables with which a client finds the sandbox
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

Who may talk to it: programs on this machine, and no page that a browser has loaded from elsewhere. A page can make its
visitor's browser send requests to loopback; such a request bears an Origin header, or, where the page's own name was
made to lead to loopback (DNS rebinding), that name as its Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from directsuite.sandbox.credentials import DEMO_ACCOUNT
from directsuite.sandbox.fax import NewFax, NumberTakenError
from directsuite.sandbox.messaging.mailboxes import AccountExists, UnknownAccount
from directsuite.sandbox.messaging.service import Profile
from directsuite.sandbox.patients import Contact
from directsuite.sandbox.refusals import RefusedError, refusal
from directsuite.sandbox.state import SandboxState

BASE = "/_sandbox"

Answer = Callable[[web.Request], Awaitable[web.Response]]

Control = Callable[[SandboxState, web.Request, Any], Awaitable[Mapping[str, Any]]]
"""One control: what it does to the sandbox, given the request and its body, and the JSON that it answers."""


class UnknownSubjectError(Exception):
    """There is nothing of this name to change."""


def control_routes(sandbox: SandboxState) -> list[web.RouteDef]:
    """All controls of one sandbox."""
    return [
        web.route(method, f"{BASE}/{path}", local_only(_answering(sandbox, control, body)))
        for method, path, body, control in _CONTROLS
    ]


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address or `localhost`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_only(handler: Answer) -> Answer:
    """The handler, behind a refusal for requests that may come from a web page."""

    async def answer(request: web.Request) -> web.Response:
        """The handler's answer, or 403."""
        if "Origin" in request.headers or not is_loopback(_host(request.headers.get("Host", ""))):
            return refusal(HTTPStatus.FORBIDDEN, "forbidden", "the control API is for programs on this machine only")
        return await handler(request)

    return answer


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _answering(sandbox: SandboxState, control: Control, expected: Any) -> Answer:
    """A handler that reads the body as the type expected, where there is one; no body is an empty object."""

    async def answer(request: web.Request) -> web.Response:
        try:
            sent = b"" if expected is None else (await request.read()).strip()
            body = None if expected is None else msgspec.json.decode(sent or b"{}", type=expected)
            answered = await control(sandbox, request, body)
        except (AccountExists, NumberTakenError) as taken:
            return refusal(HTTPStatus.CONFLICT, "taken", str(taken))
        except (UnknownSubjectError, UnknownAccount) as unknown:
            return refusal(HTTPStatus.NOT_FOUND, "unknown", str(unknown))
        except (ValueError, msgspec.DecodeError, OverflowError, RecursionError, RefusedError) as bad:
            return refusal(HTTPStatus.BAD_REQUEST, "bad_input", str(bad))
        status = HTTPStatus.CREATED if request.method == "POST" and "created" in answered else HTTPStatus.OK
        return web.json_response(answered, status=status)

    return answer


_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Number = int | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}\Z")]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=3_153_600_000)]  # a hundred years


class _Body(msgspec.Struct, kw_only=True):
    """A body without members; those that are not known are passed over."""


class _Account(_Body):
    account: str | None = None


class _Username(_Body):
    username: str | None = None


class _Freeze(_Body):
    at: str | None = None


class _Set(_Body):
    at: str


class _Advance(_Body):
    seconds: _Seconds


class _Token(_Body):
    account: _Text | None = None
    seconds: _Seconds = 3600


class _Mailbox(_Body, tag_field="kind", tag="mailbox"):
    address: _Text
    password: _Text


class _TUser(_Body, tag_field="kind", tag="tuser"):
    username: _Text
    password: _Text
    direct_addresses: list[str] = []


class _Reseller(_Body, tag_field="kind", tag="reseller"):
    username: _Text
    password: _Text
    domains: list[str] = []


class _Client(_Body, tag_field="kind", tag="client"):
    client_id: _Text
    client_secret: _Text
    account: _Text | None = None


class _Individual(Contact, kw_only=True, rename="camel"):
    first_name: _Text
    last_name: _Text
    ssn4: _Text
    dob: _Text
    id: _Number | None = None


class _PatientState(_Body):
    state: str | None = None


class _FaxStatus(_Body):
    status: _Text


class _Renumber(_Body):
    folder: str | None = None
    first: _Number | None = None


class _DeliveryStatus(_Body):
    recipient: _Text
    status: _Text


class _Profile(_Body):
    profile: Profile | list[Profile]


async def _reset(sandbox: SandboxState, request: web.Request, body: _Account) -> Mapping[str, Any]:
    _require(await sandbox.reset(body.account), "there is nothing of this account")
    return {"reset": body.account or "everything"}


async def _clock(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    return {"now": sandbox.clock.now().isoformat(), "frozen": sandbox.clock.frozen}


async def _freeze(sandbox: SandboxState, request: web.Request, body: _Freeze) -> Mapping[str, Any]:
    sandbox.clock.freeze(None if body.at is None else _moment(body.at))
    return await _changed_clock(sandbox, request)


async def _set(sandbox: SandboxState, request: web.Request, body: _Set) -> Mapping[str, Any]:
    sandbox.clock.set(_moment(body.at))
    return await _changed_clock(sandbox, request)


async def _advance(sandbox: SandboxState, request: web.Request, body: _Advance) -> Mapping[str, Any]:
    sandbox.clock.advance(timedelta(seconds=body.seconds))
    return await _changed_clock(sandbox, request)


async def _resume(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    sandbox.clock.resume()
    return await _changed_clock(sandbox, request)


async def _changed_clock(sandbox: SandboxState, request: web.Request) -> Mapping[str, Any]:
    await sandbox.keep_clock()
    return await _clock(sandbox, request, None)


async def _faults(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    return {"faults": sandbox.faults()}


async def _add_fault(sandbox: SandboxState, request: web.Request, body: dict[str, Any]) -> Mapping[str, Any]:
    members: dict[str, Any] = {"operation": None, "kind": None, **body}  # what is missing is named in the refusal
    return {"created": sandbox.inject_fault(**members)}


async def _clear_faults(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    sandbox.clear_faults()
    return {"faults": []}


async def _remove_fault(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    _require(sandbox.remove_fault(int(request.match_info["id"])), "there is no fault of this id")
    return {"faults": sandbox.faults()}


async def _add_account(
    sandbox: SandboxState, request: web.Request, body: _Mailbox | _TUser | _Reseller | _Client
) -> Mapping[str, Any]:
    match body:
        case _Mailbox():
            await sandbox.add_account(body.address, body.password)
            return {"created": body.address}
        case _Client():
            await sandbox.add_client(body.client_id, body.client_secret, body.account or DEMO_ACCOUNT)
            return {"created": body.client_id}
        case _TUser():
            await sandbox.add_tuser(body.username, body.password, body.direct_addresses)
        case _Reseller():
            await sandbox.add_reseller(body.username, body.password, body.domains)
    return {"created": body.username}


async def _add_individual(sandbox: SandboxState, request: web.Request, body: _Individual) -> Mapping[str, Any]:
    name, proof = (body.first_name, body.last_name), (body.ssn4, body.dob)
    number = None if body.id is None else int(body.id)
    return {"created": await sandbox.add_individual(*name, *proof, id=number, **body.members())}


async def _set_patient_state(sandbox: SandboxState, request: web.Request, body: _PatientState) -> Mapping[str, Any]:
    address = request.match_info["address"]
    _require(await sandbox.set_patient_state(address, body.state), "there is no patient of this address")
    return {"address": address, "state": body.state}


async def _add_fax(sandbox: SandboxState, request: web.Request, body: dict[str, Any]) -> Mapping[str, Any]:
    members: dict[str, Any] = {name: body.get(name) for name in NewFax.__struct_fields__}
    return {"created": await sandbox.add_fax(**members)}


async def _set_fax_status(sandbox: SandboxState, request: web.Request, body: _FaxStatus) -> Mapping[str, Any]:
    handle = request.match_info["handle"]
    _require(await sandbox.set_fax_status(handle, body.status), "there is no fax of this handle")
    return {"handle": handle, "status": body.status}


async def _inbound(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    raw = await request.read()
    if not raw.strip():
        raise ValueError("the request body must be a raw message")
    folder = request.query.get("folder", "INBOX")
    return {"created": await sandbox.deliver(request.match_info["address"], raw, folder)}


async def _renumber(sandbox: SandboxState, request: web.Request, body: _Renumber) -> Mapping[str, Any]:
    address, first = request.match_info["address"], 1 if body.first is None else int(body.first)
    return {"renumbered": await sandbox.renumber(address, body.folder or "INBOX", first=first)}


async def _force_status(sandbox: SandboxState, request: web.Request, body: _DeliveryStatus) -> Mapping[str, Any]:
    try:
        await sandbox.force_message_status(request.match_info["smtp_id"], body.recipient, body.status)
    except LookupError:
        raise UnknownSubjectError("there is no message of this smtpId to this recipient") from None
    return {"recipient": body.recipient, "status": body.status}


async def _profile(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    return {"profile": sandbox.profile}


async def _set_profile(sandbox: SandboxState, request: web.Request, body: _Profile) -> Mapping[str, Any]:
    sandbox.profile = body.profile
    return {"profile": sandbox.profile}


async def _issue_token(sandbox: SandboxState, request: web.Request, body: _Token) -> Mapping[str, Any]:
    return {
        "created": await sandbox.issue_token(body.account or DEMO_ACCOUNT, lifetime=timedelta(seconds=body.seconds))
    }


async def _expire_tokens(sandbox: SandboxState, request: web.Request, body: _Account) -> Mapping[str, Any]:
    return {"expired": await sandbox.expire_tokens(body.account)}


async def _expire_sessions(sandbox: SandboxState, request: web.Request, body: _Username) -> Mapping[str, Any]:
    return {"expired": await sandbox.expire_sessions(body.username)}


async def _ledger(sandbox: SandboxState, request: web.Request, body: object) -> Mapping[str, Any]:
    return {"effects": await sandbox.ledger(request.query.get("operation"))}


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("at must be a time in ISO 8601 with an offset, such as 2026-05-01T12:00:00+00:00") from None


def _require(exists: bool, text: str) -> None:
    if not exists:
        raise UnknownSubjectError(text)


_CONTROLS: tuple[tuple[str, str, Any, Control], ...] = (
    # method, path, type of the body, what it does
    ("POST", "reset", _Account, _reset),
    ("GET", "clock", None, _clock),
    ("POST", "clock/freeze", _Freeze, _freeze),
    ("POST", "clock/set", _Set, _set),
    ("POST", "clock/advance", _Advance, _advance),
    ("POST", "clock/resume", None, _resume),
    ("GET", "faults", None, _faults),
    ("POST", "faults", dict[str, Any], _add_fault),
    ("DELETE", "faults", None, _clear_faults),
    ("DELETE", r"faults/{id:[0-9]{1,9}}", None, _remove_fault),
    ("POST", "accounts", _Mailbox | _TUser | _Reseller | _Client, _add_account),
    ("POST", "individuals", _Individual, _add_individual),
    ("POST", "patients/{address}/state", _PatientState, _set_patient_state),
    ("POST", "fax", dict[str, Any], _add_fax),
    ("PATCH", "fax/{handle}", _FaxStatus, _set_fax_status),
    ("POST", "inbound/{address}", None, _inbound),
    ("POST", "messages/{smtp_id}/status", _DeliveryStatus, _force_status),
    ("POST", "mailboxes/{address}/renumber", _Renumber, _renumber),
    ("GET", "profile", None, _profile),
    ("POST", "profile", _Profile, _set_profile),
    ("POST", "tokens", _Token, _issue_token),
    ("POST", "tokens/expire", _Account, _expire_tokens),
    ("POST", "sessions/expire", _Username, _expire_sessions),
    ("GET", "ledger", None, _ledger),
)
