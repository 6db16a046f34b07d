"""The registration service (specification 4.D): five operations, the sessions of their callers, the order of judgement.

    session (011) → domain (208) → arguments (010, 204) → the operation itself (002, 014, 205, 210)

A body that is not announced as application/json is HTTP 415, one that is no JSON at all HTTP 400, both with code 010;
every other refusal is HTTP 200 with `success: false`.

A login is a reseller, kept here, or a T-User of the messaging service. Either may work in every domain that has an
organization: a domain that the messaging service serves, or one that was added with a reseller. A session lasts ten
minutes from issue, however much it is used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from directsuite.sandbox import patients
from directsuite.sandbox.credentials import check_password, generate_secret, hash_password, hash_secret
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.patients import Account, Contact, IndividualDescription, UserPassword
from directsuite.sandbox.rejections import RegistrationCode, RegistrationError, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase

T = TypeVar("T")

BASE = "/DirectRegistrationRESTful/rest/Patient"
SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS reseller(username TEXT PRIMARY KEY, password BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS organization(domain TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS registration_session(
  digest BLOB PRIMARY KEY, username TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
"""
    + patients.SCHEMA
)

_SESSION_LIFETIME_MS = 600_000
_MAX_USERS = 1_000  # whose passwords one request sets: each takes milliseconds to hash


class RegistrationService:
    """Login, and the four operations of a session."""

    def __init__(self, database: SandboxDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def make_routes(self) -> list[web.RouteDef]:
        """A route for each operation, named as the specification names it."""
        return [
            web.route(row.method, f"{BASE}/{row.name}{row.path}", self._make_handler(row), name=row.name)
            for row in OPERATIONS
        ]

    def _make_handler(self, row: RegistrationOperation) -> Handler:
        access = self._database.write if row.is_write else self._database.read

        async def handle(request: web.Request) -> web.Response:
            if row.method == "POST" and request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = parse_json(await request.read()) if row.method == "POST" else None
            now = self._clock.milliseconds()

            def work(connection: sqlite3.Connection) -> dict[str, Any]:
                domain = _authorize_session(connection, request.match_info, now) if row.path else ""
                return row.handler(connection, RegistrationCall(body, domain, request.match_info, now))

            return web.json_response({"code": RegistrationCode.SUCCESS, "success": True, **await access(work)})

        return handle


class RegistrationCall(NamedTuple):
    """A call whose session is valid."""

    body: Any
    """The body as JSON."""
    domain: str
    """The domain of the path, in its normal form."""
    path: Mapping[str, str]
    """The path's segments, decoded."""
    now: int

    def convert_body(self, expected: type[T]) -> T:
        """The body as the type that the operation takes. Raises RegistrationError (010) where it does not fit."""
        try:
            return msgspec.convert(self.body, expected)
        except msgspec.ValidationError as mismatch:
            text = f"the request body does not fit: {mismatch}"
            raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, text) from None


def _login(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """LoginResponseType: a new session for a reseller or T-User."""
    login = call.convert_body(UserPassword)  # LoginRequest has the same members
    if not authenticate(connection, login.username, login.password):
        raise RegistrationError(RegistrationCode.AUTHENTICATION_FAILED, "the user name or password is wrong")
    session_id = generate_secret()
    connection.execute(
        "INSERT INTO registration_session(digest, username, expires_at) VALUES(?, ?, ?)",
        (hash_secret(session_id), login.username, call.now + _SESSION_LIFETIME_MS),
    )
    return {"sessionId": session_id}


def _provision(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """AddUsersResponseV2Type: the address, with its mailbox and its payment."""
    described, account, contact = (
        call.convert_body(IndividualDescription),
        call.convert_body(Account),
        call.convert_body(Contact),
    )
    return patients.provision(connection, call.domain, described, account, contact, now=call.now)


def _find_addresses_by_meta(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """GetPatientAddressesResponseType: all addresses in the domain of the people whom the body fits."""
    people = patients.find_individuals(connection, call.convert_body(IndividualDescription))
    return _build_addresses(patients.list_individual_patients(connection, call.domain, people, now=call.now))


def _find_address_by_username(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """GetPatientAddressesResponseType: the address of a Direct user name in the domain."""
    patient = patients.find_patient(connection, call.domain, call.path["direct_username"], now=call.now)
    return _build_addresses([] if patient is None else [patient])


def _build_addresses(details: list[dict[str, Any]]) -> dict[str, Any]:
    if not details:
        raise RegistrationError(RegistrationCode.NO_ADDRESS, "no Direct address was found")
    return {"patient": details}


def _set_passwords(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """ResellerAPIResponseType: the passwords of all listed patients are set, or of none."""
    users = call.convert_body(list[UserPassword])
    if not users:
        raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, "the array of users and passwords is empty")
    if len(users) > _MAX_USERS:
        raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, f"the array has more than {_MAX_USERS:,} users")
    patients.set_passwords(connection, call.domain, users, now=call.now)
    return {}


class RegistrationOperation(NamedTuple):
    """An operation of the specification."""

    name: str
    """The specification's, and the route's."""
    method: str
    path: str
    """The rest of the path, after the name."""
    handler: Callable[[sqlite3.Connection, RegistrationCall], dict[str, Any]]
    """What is done; it gives the members that the answer adds to a ResellerAPIResponseType."""
    is_write: bool
    """Whether the work writes."""


_SESSION_PATH = "/{session_id}/{direct_domain}"

OPERATIONS = (
    RegistrationOperation("login", "POST", "", _login, is_write=True),
    RegistrationOperation("ProvisionIDProofedPatient", "POST", _SESSION_PATH, _provision, is_write=True),
    RegistrationOperation("GetPatientAddressByMeta", "POST", _SESSION_PATH, _find_addresses_by_meta, is_write=False),
    RegistrationOperation(
        "GetPatientAddressByUsername",
        "GET",
        f"{_SESSION_PATH}/{{direct_username}}",
        _find_address_by_username,
        is_write=False,
    ),
    RegistrationOperation("SetPatientsPasswords", "POST", _SESSION_PATH, _set_passwords, is_write=True),
)
"""The five operations, in the order of the specification."""


def add_reseller(connection: sqlite3.Connection, username: str, password: str, domains: Iterable[str] = ()) -> None:
    """Add a reseller, or change the password of one; `domains` become domains with an organization."""
    connection.execute(
        "INSERT OR REPLACE INTO reseller(username, password) VALUES(?, ?)", (username, hash_password(password))
    )
    rows = [(_normalize_domain(domain),) for domain in domains]
    connection.executemany("INSERT OR IGNORE INTO organization(domain) VALUES(?)", rows)


def authenticate(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Return True if these are the user name and password of a reseller or of a T-User."""
    row = connection.execute("SELECT password FROM reseller WHERE username = ?", (username,)).fetchone()
    if row is not None and check_password(password, row["password"]):
        return True
    return mailboxes.authenticate_tuser(connection, username, password)


def expire_sessions(
    connection: sqlite3.Connection, *, username: str | None = None, session_id: str | None = None
) -> int:
    """End one session, those of one login, or all; returns how many there were."""
    return connection.execute(
        "UPDATE registration_session SET expires_at = 0 "
        "WHERE (:username IS NULL OR username = :username) AND (:digest IS NULL OR digest = :digest)",
        {"username": username, "digest": None if session_id is None else hash_secret(session_id)},
    ).rowcount


def _authorize_session(connection: sqlite3.Connection, path: Mapping[str, str], now: int) -> str:
    """The domain of the request, in its normal form.

    Raises RegistrationError: 011 unless the session is known and has not expired, 208 unless the domain has an
    organization.
    """
    session = connection.execute(
        "SELECT 1 FROM registration_session WHERE digest = ? AND expires_at > ?", (hash_secret(path["session_id"]), now)
    ).fetchone()
    if session is None:
        raise RegistrationError(RegistrationCode.AUTHENTICATION_FAILED, "the session is unknown or has expired")
    domain = _normalize_domain(path["direct_domain"])
    registered = connection.execute("SELECT 1 FROM organization WHERE domain = ?", (domain,)).fetchone()
    if registered is None and domain not in mailboxes.list_domains(connection):
        raise RegistrationError(RegistrationCode.NO_ORGANIZATION, "there is no organization for the Direct domain")
    return domain


def _normalize_domain(domain: str) -> str:
    """A domain as it is compared: in lower case, without the root's dot."""
    return domain.strip().rstrip(".").casefold()
