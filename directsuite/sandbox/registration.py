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
from directsuite.sandbox.credentials import digest, hash_password, new_secret, password_matches
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.patients import Account, Contact, Description, UserPassword
from directsuite.sandbox.refusals import RegistrationCode, RegistrationError, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database

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

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """A route for each operation, named as the specification names it."""
        return [
            web.route(row.method, f"{BASE}/{row.name}{row.path}", self._handler(row), name=row.name)
            for row in OPERATIONS
        ]

    def _handler(self, row: Operation) -> Handler:
        access = self._database.write if row.changes else self._database.read

        async def handle(request: web.Request) -> web.Response:
            if row.method == "POST" and request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = parse_json(await request.read()) if row.method == "POST" else None
            now = self._clock.milliseconds()

            def work(connection: sqlite3.Connection) -> dict[str, Any]:
                domain = _admitted(connection, request.match_info, now) if row.path else ""
                return row.work(connection, Call(body, domain, request.match_info, now))

            return web.json_response({"code": RegistrationCode.SUCCESS, "success": True, **await access(work)})

        return handle


class Call(NamedTuple):
    """A call whose session is valid."""

    body: Any
    """The body as JSON."""
    domain: str
    """The domain of the path, in its normal form."""
    path: Mapping[str, str]
    """The path's segments, decoded."""
    now: int

    def converted(self, expected: type[T]) -> T:
        """The body as the type that the operation takes. Raises RegistrationError (010) where it does not fit."""
        try:
            return msgspec.convert(self.body, expected)
        except msgspec.ValidationError as mismatch:
            text = f"the request body does not fit: {mismatch}"
            raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, text) from None


def _login(connection: sqlite3.Connection, call: Call) -> dict[str, Any]:
    """LoginResponseType: a new session for a reseller or T-User."""
    login = call.converted(UserPassword)  # LoginRequest has the same members
    if not authenticate(connection, login.username, login.password):
        raise RegistrationError(RegistrationCode.AUTHENTICATION_FAILED, "the user name or password is wrong")
    session_id = new_secret()
    connection.execute(
        "INSERT INTO registration_session(digest, username, expires_at) VALUES(?, ?, ?)",
        (digest(session_id), login.username, call.now + _SESSION_LIFETIME_MS),
    )
    return {"sessionId": session_id}


def _provision(connection: sqlite3.Connection, call: Call) -> dict[str, Any]:
    """AddUsersResponseV2Type: the address, with its mailbox and its payment."""
    described, account, contact = call.converted(Description), call.converted(Account), call.converted(Contact)
    return patients.provision(connection, call.domain, described, account, contact, now=call.now)


def _addresses_by_meta(connection: sqlite3.Connection, call: Call) -> dict[str, Any]:
    """GetPatientAddressesResponseType: all addresses in the domain of the people whom the body fits."""
    people = patients.matching(connection, call.converted(Description))
    return _addresses(patients.of_individuals(connection, call.domain, people, now=call.now))


def _address_by_username(connection: sqlite3.Connection, call: Call) -> dict[str, Any]:
    """GetPatientAddressesResponseType: the address of a Direct user name in the domain."""
    patient = patients.find(connection, call.domain, call.path["direct_username"], now=call.now)
    return _addresses([] if patient is None else [patient])


def _addresses(details: list[dict[str, Any]]) -> dict[str, Any]:
    if not details:
        raise RegistrationError(RegistrationCode.NO_ADDRESS, "no Direct address was found")
    return {"patient": details}


def _set_passwords(connection: sqlite3.Connection, call: Call) -> dict[str, Any]:
    """ResellerAPIResponseType: the passwords of all listed patients are set, or of none."""
    users = call.converted(list[UserPassword])
    if not users:
        raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, "the array of users and passwords is empty")
    if len(users) > _MAX_USERS:
        raise RegistrationError(RegistrationCode.INVALID_ARGUMENT, f"the array has more than {_MAX_USERS:,} users")
    patients.set_passwords(connection, call.domain, users, now=call.now)
    return {}


class Operation(NamedTuple):
    """An operation of the specification."""

    name: str
    """The specification's, and the route's."""
    method: str
    path: str
    """The rest of the path, after the name."""
    work: Callable[[sqlite3.Connection, Call], dict[str, Any]]
    """What is done; it gives the members that the answer adds to a ResellerAPIResponseType."""
    changes: bool
    """Whether the work writes."""


_SESSION = "/{session_id}/{direct_domain}"

OPERATIONS = (
    Operation("login", "POST", "", _login, changes=True),
    Operation("ProvisionIDProofedPatient", "POST", _SESSION, _provision, changes=True),
    Operation("GetPatientAddressByMeta", "POST", _SESSION, _addresses_by_meta, changes=False),
    Operation(
        "GetPatientAddressByUsername", "GET", f"{_SESSION}/{{direct_username}}", _address_by_username, changes=False
    ),
    Operation("SetPatientsPasswords", "POST", _SESSION, _set_passwords, changes=True),
)
"""The five operations, in the order of the specification."""


def add_reseller(connection: sqlite3.Connection, username: str, password: str, domains: Iterable[str] = ()) -> None:
    """Add a reseller, or change the password of one; `domains` become domains with an organization."""
    connection.execute(
        "INSERT OR REPLACE INTO reseller(username, password) VALUES(?, ?)", (username, hash_password(password))
    )
    rows = [(_normal_domain(domain),) for domain in domains]
    connection.executemany("INSERT OR IGNORE INTO organization(domain) VALUES(?)", rows)


def authenticate(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Return True if these are the user name and password of a reseller or of a T-User."""
    row = connection.execute("SELECT password FROM reseller WHERE username = ?", (username,)).fetchone()
    if row is not None and password_matches(password, row["password"]):
        return True
    return mailboxes.authenticate_tuser(connection, username, password)


def expire_sessions(
    connection: sqlite3.Connection, *, username: str | None = None, session_id: str | None = None
) -> int:
    """End one session, those of one login, or all; returns how many there were."""
    return connection.execute(
        "UPDATE registration_session SET expires_at = 0 "
        "WHERE (:username IS NULL OR username = :username) AND (:digest IS NULL OR digest = :digest)",
        {"username": username, "digest": None if session_id is None else digest(session_id)},
    ).rowcount


def _admitted(connection: sqlite3.Connection, path: Mapping[str, str], now: int) -> str:
    """The domain of the request, in its normal form.

    Raises RegistrationError: 011 unless the session is known and has not expired, 208 unless the domain has an
    organization.
    """
    session = connection.execute(
        "SELECT 1 FROM registration_session WHERE digest = ? AND expires_at > ?", (digest(path["session_id"]), now)
    ).fetchone()
    if session is None:
        raise RegistrationError(RegistrationCode.AUTHENTICATION_FAILED, "the session is unknown or has expired")
    domain = _normal_domain(path["direct_domain"])
    registered = connection.execute("SELECT 1 FROM organization WHERE domain = ?", (domain,)).fetchone()
    if registered is None and domain not in mailboxes.domains(connection):
        raise RegistrationError(RegistrationCode.NO_ORGANIZATION, "there is no organization for the Direct domain")
    return domain


def _normal_domain(domain: str) -> str:
    """A domain as it is compared: in lower case, without the root's dot."""
    return domain.strip().rstrip(".").casefold()
