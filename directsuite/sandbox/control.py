"""The control API under /_sandbox, with which tests and demos control the sandbox. Requests and responses are JSON.

Errors are {"error", "description"}: 400 for invalid input, 404 for an unknown subject, 409 for a name in use, 403 for
a request that a web page may have sent. Times are ISO 8601 with an offset. The page has the same controls as forms.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, cast

import attrs
import msgspec
from aiohttp import web

from directsuite._version import __version__
from directsuite.sandbox.access import Access, RouteHandler
from directsuite.sandbox.credentials import DEMO_ACCOUNT
from directsuite.sandbox.faults import Fault
from directsuite.sandbox.fax import NewFax, NumberTakenError
from directsuite.sandbox.messaging.mailboxes import AccountExists, UnknownAccount
from directsuite.sandbox.patients import Contact
from directsuite.sandbox.quirks import Profile
from directsuite.sandbox.rejections import RejectionError, build_error_response
from directsuite.sandbox.state import SandboxState

BASE = "/_sandbox"

Json = Mapping[str, Any]
ControlHandler = Callable[[SandboxState, web.Request, Any], Awaitable[Json]]
"""Runs a control, given the request and its decoded body. Returns the JSON response."""


class _UnknownSubjectError(Exception):
    pass


def make_control_routes(sandbox: SandboxState, access: Access) -> list[web.RouteDef]:
    """Return the routes of all controls."""
    return [
        web.route(entry.method, f"{BASE}/{entry.path}", access.guard_control_handler(_make_handler(sandbox, entry)))
        for entry in CONTROLS
    ]


def _make_handler(sandbox: SandboxState, entry: ControlOperation) -> RouteHandler:
    async def respond(request: web.Request) -> web.StreamResponse:
        try:
            # no body means an empty object
            sent = b"" if entry.body_type is None else (await request.read()).strip()
            body = None if entry.body_type is None else msgspec.json.decode(sent or b"{}", type=entry.body_type)
            result = await entry.handler(sandbox, request, body)
        except REJECTION_ERRORS as error:
            return build_error_response(
                choose_error_status(error), _ERROR_CODES[choose_error_status(error)], str(error)
            )
        status = HTTPStatus.CREATED if request.method == "POST" and "created" in result else HTTPStatus.OK
        return web.json_response(result, status=status)

    return respond


REJECTION_ERRORS = (
    *(AccountExists, NumberTakenError, _UnknownSubjectError, UnknownAccount),
    *(ValueError, msgspec.DecodeError, OverflowError, RecursionError, RejectionError),
)
"""The errors of controls, whose texts are sent to the client."""

_ERROR_CODES = {HTTPStatus.CONFLICT: "taken", HTTPStatus.NOT_FOUND: "unknown", HTTPStatus.BAD_REQUEST: "bad_input"}


def choose_error_status(error: Exception) -> HTTPStatus:
    """Return the HTTP status for one of REJECTION_ERRORS: 409, 404 or 400."""
    if isinstance(error, (AccountExists, NumberTakenError)):
        return HTTPStatus.CONFLICT
    return HTTPStatus.NOT_FOUND if isinstance(error, (_UnknownSubjectError, UnknownAccount)) else HTTPStatus.BAD_REQUEST


_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Number = int | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}$(?!\n)")]  # JSON Schema has no \Z
_MAX_SECONDS = 3_153_600_000  # a hundred years
_OPTIONAL_TEXT = (str | None, None)
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=_MAX_SECONDS)]


class _Mailbox(msgspec.Struct, kw_only=True, tag_field="kind", tag="mailbox"):
    address: _Text
    password: _Text


class _TUser(msgspec.Struct, kw_only=True, tag_field="kind", tag="tuser"):
    username: _Text
    password: _Text
    direct_addresses: list[str] = []


class _Reseller(msgspec.Struct, kw_only=True, tag_field="kind", tag="reseller"):
    username: _Text
    password: _Text
    domains: list[str] = []


class _Client(msgspec.Struct, kw_only=True, tag_field="kind", tag="client"):
    client_id: _Text
    client_secret: _Text
    account: _Text | None = None


class _Individual(Contact, kw_only=True, rename="camel"):
    first_name: _Text
    last_name: _Text
    ssn4: _Text
    dob: _Text
    id: _Number | None = None


@attrs.frozen
class ControlOperation:
    """A control: its route, handler and documentation."""

    method: str
    path: str
    """The path below /_sandbox, in the syntax of aiohttp."""
    handler: ControlHandler
    body_type: Any = None
    """The type of the JSON body. None: there is no JSON body."""
    is_body_raw: bool = False
    """True for a body that is not JSON, which the handler reads."""
    query_parameter: str | None = None
    example: Any = None
    """A body that works with the sample data."""
    notice: str = "The change was made."
    """The page's notice after the change, with names of members, path parameters and `now` in braces."""


_EXAMPLE_TIME = "2026-05-01T12:00:00+00:00"


CONTROLS = list[ControlOperation]()
"""All controls. Their summaries are the docstrings of the handlers."""


def _control(
    method: str, path: str, body: Any = None, **documentation: Any
) -> Callable[[ControlHandler], ControlHandler]:
    """Add the decorated handler to CONTROLS.

    body: the members of the JSON body with their types, or with type and default value; or the type of the body.
    """

    def register(handler: ControlHandler) -> ControlHandler:
        body_type = body
        if isinstance(body, dict):
            kinds = cast("Mapping[str, Any]", body)
            members: Any = [(name, *kind) if isinstance(kind, tuple) else (name, kind) for name, kind in kinds.items()]
            body_type = msgspec.defstruct(handler.__name__, members, kw_only=True)
        CONTROLS.append(ControlOperation(method, path, handler, body_type, **documentation))
        return handler

    return register


@_control("GET", "clock")
async def _clock(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Return the time of the sandbox."""
    return {"now": sandbox.clock.now().isoformat(), "frozen": sandbox.clock.frozen}


@_control(
    "POST",
    "clock/freeze",
    {"at": _OPTIONAL_TEXT},
    example={"at": _EXAMPLE_TIME},
    notice="The clock was stopped at {now} UTC.",
)
async def _freeze(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Stop the clock at its present time, or at another time."""
    sandbox.clock.freeze(None if body.at is None else _parse_time(body.at))
    return await _store_clock(sandbox, request)


@_control(
    "POST", "clock/set", {"at": str}, example={"at": _EXAMPLE_TIME}, notice="The clock was set. It is now {now} UTC."
)
async def _set(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Set the clock."""
    sandbox.clock.set(_parse_time(body.at))
    return await _store_clock(sandbox, request)


@_control(
    "POST",
    "clock/advance",
    {"seconds": _Seconds},
    example={"seconds": 600},
    notice="The clock was advanced. It is now {now} UTC.",
)
async def _advance(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Advance the clock."""
    sandbox.clock.advance(timedelta(seconds=body.seconds))
    return await _store_clock(sandbox, request)


@_control("POST", "clock/resume", notice="The clock was resumed.")
async def _resume(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Restart a stopped clock."""
    sandbox.clock.resume()
    return await _store_clock(sandbox, request)


@_control("GET", "faults")
async def _faults(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """List the fault rules, and how often each was applied."""
    return {"faults": sandbox.faults()}


@_control(
    "POST",
    "faults",
    Fault,
    example={"operation": "Send", "kind": "reset_after"},
    notice="Fault {created} was added: {kind} for {operation}.",
)
async def _add_fault(sandbox: SandboxState, request: web.Request, body: Fault) -> Json:
    """Add a fault rule and return its id."""
    return {"created": sandbox.inject_fault(**msgspec.structs.asdict(body))}


@_control("DELETE", "faults", notice="All faults were removed.")
async def _clear_faults(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Remove all fault rules."""
    sandbox.clear_faults()
    return {"faults": []}


@_control(
    "DELETE",
    "faults/{id:[0-9]{1,9}}",
    notice="Fault {id} was removed.",
)
async def _remove_fault(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Remove a fault rule."""
    _require_exists(sandbox.remove_fault(int(request.match_info["id"])), "there is no fault with this id")
    return {"faults": sandbox.faults()}


@_control(
    "POST",
    "accounts",
    _Mailbox | _TUser | _Reseller | _Client,
    example={"kind": "mailbox", "address": "carol@direct.example.test", "password": "sandbox"},
    notice="The account {created} was added.",
)
async def _add_account(
    sandbox: SandboxState, request: web.Request, body: _Mailbox | _TUser | _Reseller | _Client
) -> Json:
    """Add a mailbox, a T-User, a login for registration, or an OAuth 2.0 client."""
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


@_control(
    "POST",
    "individuals",
    _Individual,
    example={"firstName": "Jan", "lastName": "Pattern", "ssn4": "2468", "dob": "1991-03-05"},
    notice="{firstName} {lastName} was added.",
)
async def _add_individual(sandbox: SandboxState, request: web.Request, body: _Individual) -> Json:
    """Add an identity-proofed individual and return the id."""
    name, proof = (body.first_name, body.last_name), (body.ssn4, body.dob)
    number = None if body.id is None else int(body.id)
    return {"created": await sandbox.add_individual(*name, *proof, id=number, **body.to_members())}


@_control(
    "POST",
    "patients/{address}/state",
    {"state": _OPTIONAL_TEXT},
    example={"state": "disabled"},
    notice="The state of {address} was set.",
)
async def _set_patient_state(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Set the state of a patient; null makes it depend on the clock again."""
    address = request.match_info["address"]
    _require_exists(await sandbox.set_patient_state(address, body.state), "there is no patient with this address")
    return {"address": address, "state": body.state}


@_control(
    "POST",
    "fax",
    NewFax,
    example={"fax_number": "15550100100", "status": "waiting"},
    notice="The fax {created} was added.",
)
async def _add_fax(sandbox: SandboxState, request: web.Request, body: NewFax) -> Json:
    """Add a fax and return its handle."""
    return {"created": await sandbox.add_fax(**msgspec.structs.asdict(body))}


@_control(
    "PATCH",
    "fax/{handle}",
    {"status": _Text},
    example={"status": "complete"},
    notice="The fax {handle} was set to {status}.",
)
async def _set_fax_status(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Change the status of a fax."""
    handle = request.match_info["handle"]
    missing = f"there is no fax with the handle {handle!r}: `directsuite fax list NUMBER` shows the handles of a number"
    _require_exists(await sandbox.set_fax_status(handle, body.status), missing)
    return {"handle": handle, "status": body.status}


@_control(
    "POST",
    "inbound/{address}",
    is_body_raw=True,
    query_parameter="folder",
    example="From: lab@lab.example.test\nSubject: Blood count\n\nAll within limits.\n",
    notice="The message was delivered to {address}.",
)
async def _deliver(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Deliver the body, a raw message (RFC 5322), into a mailbox."""
    raw = await request.read()
    if not raw.strip():
        raise ValueError("the request body must be a raw message, but it is empty")
    folder = request.query.get("folder", "INBOX")
    return {"created": await sandbox.deliver(request.match_info["address"], raw, folder)}


@_control(
    "POST",
    "messages/{smtp_id}/status",
    {"recipient": _Text, "status": _Text},
    example={"recipient": "bob@direct.example.test", "status": "Remotely Failed"},
    notice="The delivery to {recipient} was set to {status}.",
)
async def _set_message_status(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Set the final status of a message's delivery to a recipient."""
    try:
        await sandbox.set_message_status(request.match_info["smtp_id"], body.recipient, body.status)
    except LookupError:
        raise _UnknownSubjectError("no message with this smtpId was sent to this recipient") from None
    return {"recipient": body.recipient, "status": body.status}


@_control("GET", "profile")
async def _profile(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Return the profile: the deviations from the specification."""
    return {"profile": sandbox.profile}


@_control(
    "POST",
    "profile",
    {"profile": Profile | list[Profile]},
    example={"profile": "java"},
    notice="The response profiles were changed.",
)
async def _set_profile(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Set one or more profiles: deviations from the specification."""
    sandbox.profile = body.profile
    return {"profile": sandbox.profile}


@_control("POST", "tokens", {"account": (_Text | None, None), "seconds": (_Seconds, 3600)}, example={"seconds": 60})
async def _issue_token(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Issue an access token."""
    lifetime = timedelta(seconds=body.seconds)
    return {"created": await sandbox.issue_token(body.account or DEMO_ACCOUNT, lifetime=lifetime)}


@_control("POST", "sessions/expire", {"username": _OPTIONAL_TEXT}, notice="All registration sessions were ended.")
async def _expire_sessions(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Expire the registration sessions of a login, or all."""
    return {"expired": await sandbox.expire_sessions(body.username)}


@_control("GET", "ledger", query_parameter="operation")
async def _ledger(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """List the side effects of all operations, or of one."""
    return {"effects": await sandbox.ledger(request.query.get("operation"))}


@_control("POST", "reset", notice="The sandbox was reset to its initial content.")
async def _reset(sandbox: SandboxState, request: web.Request, body: Any) -> Json:
    """Delete everything and add the initial data again."""
    await sandbox.reset()
    return {"reset": "everything"}


async def _store_clock(sandbox: SandboxState, request: web.Request) -> Json:
    await sandbox.keep_clock()
    return await _clock(sandbox, request, None)


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("at must be an ISO 8601 time with an offset, such as 2026-05-01T12:00:00+00:00") from None


def _require_exists(exists: bool, text: str) -> None:
    if not exists:
        raise _UnknownSubjectError(text)


def build_control_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the control API."""
    bodies = [entry.body_type for entry in CONTROLS if entry.body_type is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    described = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for entry in CONTROLS:
        path = re.sub(r":.*", "}", entry.path)
        operation: dict[str, Any] = {
            "operationId": entry.handler.__name__.removeprefix("_"),
            "summary": entry.handler.__doc__,
            "tags": ["control"],
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                for name in re.findall(r"{(\w+)}", path)
            ],
            "responses": {
                status: {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}
                for status, text in _RESPONSES.items()
            },
        }
        if entry.query_parameter is not None:
            operation["parameters"].append({"name": entry.query_parameter, "in": "query", "schema": {"type": "string"}})
        example = {} if entry.example is None else {"example": entry.example}
        if entry.body_type is not None:
            operation["requestBody"] = {"content": {"application/json": {"schema": next(described), **example}}}
        elif entry.is_body_raw:
            operation["requestBody"] = {"required": True, "content": {"application/octet-stream": example}}
        paths.setdefault(f"{BASE}/{path}", {})[entry.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "The sandbox's control API", "version": __version__},
        "tags": [
            {"name": "control", "description": "Controls the sandbox. These operations are not part of the services."}
        ],
        "paths": paths,
        "components": {"schemas": components},
    }


_RESPONSES = {
    "200": "The request succeeded.",
    "201": "The subject was added. `created` contains its id or name.",
    "400": "The input is invalid. `description` says why.",
    "401": "The sandbox accepts connections from other machines, and the request has no valid token.",
    "403": "The request has an Origin header, or a Host header that is not a loopback address.",
    "404": "The subject does not exist.",
    "409": "The name is already in use.",
    "413": "The body is too large. `description` contains the maximum size.",
}
