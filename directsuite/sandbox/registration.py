"""The registration service (specification 4.D): its five operations, and the sessions of its users.

A request is validated in this order:

    session (011) → domain (208) → arguments (010, 204) → the operation itself (002, 014, 205, 210)

A body of another type than application/json is HTTP 415, and invalid JSON is HTTP 400, both with code 010.
Every other rejection is HTTP 200 with `success: false`.

A user is a reseller of this module or a T-User of the messaging service. Each may use all domains that have an
organization: the domains of the messaging service, and those added with resellers. A session expires ten minutes
after the login, even if it is used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from directsuite.sandbox import patients
from directsuite.sandbox.credentials import check_password, find_secret_account, hash_password, store_secret
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.patients import RegistrationCall, UserPassword
from directsuite.sandbox.rejections import RegistrationCode, RegistrationError, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase

BASE = "/DirectRegistrationRESTful/rest/Patient"
SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS reseller(username TEXT PRIMARY KEY, password BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS organization(domain TEXT PRIMARY KEY) WITHOUT ROWID;
"""
    + patients.SCHEMA
)

_SESSION_LIFETIME_MS = 600_000


def make_routes(database: SandboxDatabase, clock: Clock) -> list[web.RouteDef]:
    """Return a route for each operation, with the operation's name."""

    def make_handler(row: _Operation) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if row.method == "POST" and request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = parse_json(await request.read()) if row.method == "POST" else None
            now = clock.milliseconds()

            def work(connection: sqlite3.Connection) -> dict[str, Any]:
                domain = _authorize_session(connection, request.match_info, now) if row.path else ""
                return row.handler(connection, RegistrationCall(body, domain, request.match_info, now))

            members = await (database.write if row.is_write else database.read)(work)
            return web.json_response({"code": RegistrationCode.SUCCESS, "success": True, **members})

        return handle

    return [
        web.route(row.method, f"{BASE}/{row.name}{row.path}", make_handler(row), name=row.name) for row in OPERATIONS
    ]


def _login(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    login = call.convert_body(UserPassword)  # LoginRequest has the same members
    if not authenticate(connection, login.username, login.password):
        raise RegistrationError("the user name or password is wrong", RegistrationCode.AUTHENTICATION_FAILED)
    expires_at = call.now + _SESSION_LIFETIME_MS
    return {"sessionId": store_secret(connection, "session", login.username, expires_at=expires_at)}


class _Operation(NamedTuple):
    name: str
    """The name in the specification and of the route."""
    method: str
    path: str
    """The path after the name."""
    handler: Callable[[sqlite3.Connection, RegistrationCall], dict[str, Any]]
    """Returns the members to add to a ResellerAPIResponseType."""
    is_write: bool = False


_SESSION_PATH = "/{session_id}/{direct_domain}"

OPERATIONS = (
    _Operation("login", "POST", "", _login, is_write=True),
    _Operation("ProvisionIDProofedPatient", "POST", _SESSION_PATH, patients.provision, is_write=True),
    _Operation("GetPatientAddressByMeta", "POST", _SESSION_PATH, patients.find_by_meta),
    _Operation("GetPatientAddressByUsername", "GET", _SESSION_PATH + "/{direct_username}", patients.find_by_username),
    _Operation("SetPatientsPasswords", "POST", _SESSION_PATH, patients.set_passwords, is_write=True),
)


def add_reseller(connection: sqlite3.Connection, username: str, password: str, domains: Iterable[str] = ()) -> None:
    """Add a reseller, or change the password of one, and add an organization for each of `domains`."""
    connection.execute(
        "INSERT OR REPLACE INTO reseller(username, password) VALUES(?, ?)", (username, hash_password(password))
    )
    rows = [(_normalize_domain(domain),) for domain in domains]
    connection.executemany("INSERT OR IGNORE INTO organization(domain) VALUES(?)", rows)


def authenticate(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Return True for the user name and password of a reseller or T-User."""
    row = connection.execute("SELECT password FROM reseller WHERE username = ?", (username,)).fetchone()
    if row is not None and check_password(password, row["password"]):
        return True
    return mailboxes.authenticate_tuser(connection, username, password)


def _authorize_session(connection: sqlite3.Connection, path: Mapping[str, str], now: int) -> str:
    if find_secret_account(connection, "session", path["session_id"], now=now) is None:
        raise RegistrationError("the session is unknown or has expired", RegistrationCode.AUTHENTICATION_FAILED)
    domain = _normalize_domain(path["direct_domain"])
    registered = connection.execute("SELECT 1 FROM organization WHERE domain = ?", (domain,)).fetchone()
    if registered is None and domain not in mailboxes.list_domains(connection):
        raise RegistrationError("there is no organization for the Direct domain", RegistrationCode.NO_ORGANIZATION)
    return domain


def _normalize_domain(domain: str) -> str:
    return domain.strip().rstrip(".").casefold()
