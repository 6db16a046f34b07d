"""The registration service: five operations, the sessions of their callers, and the order of judgement.

    session (011) → domain (208) → arguments (010, 204) → the operation itself (002, 014, 205, 210)

A body that is not announced as application/json is HTTP 415, one that is no JSON at all HTTP 400, both with code 010;
every other refusal is HTTP 200 with `success: false`.

A login is a reseller, kept here, or a T-User of the messaging service. Either may work in every domain that has an
organization: a domain that the messaging service serves, or one that was added with a reseller. A session lasts ten
minutes from issue, however much it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from directsuite.sandbox.credentials import digest, hash_password, new_secret, password_matches
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.refusals import parse_json
from directsuite.sandbox.registration import Code, RefusedError, individuals, patients
from directsuite.sandbox.registration.individuals import Contact, Description
from directsuite.sandbox.registration.patients import Account, UserPassword

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterable

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
    + individuals.SCHEMA
    + patients.SCHEMA
)

_SESSION_LIFETIME_MS = 600_000


class RegistrationService:
    """Login, and the four operations of a session."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """The five operations, under the base path of the service."""
        scope = "{session_id}/{direct_domain}"
        posts = {
            "login": self.login,
            f"ProvisionIDProofedPatient/{scope}": self.provision_id_proofed_patient,
            f"GetPatientAddressByMeta/{scope}": self.get_patient_address_by_meta,
            f"SetPatientsPasswords/{scope}": self.set_patients_passwords,
        }
        name = "GetPatientAddressByUsername"
        by_username = _answering(self.get_patient_address_by_username)
        return [
            *(
                web.post(f"{BASE}/{path}", _answering(work), name=path.partition("/")[0])
                for path, work in posts.items()
            ),
            web.get(f"{BASE}/{name}/{scope}/{{direct_username}}", by_username, name=name, allow_head=False),
        ]

    async def login(self, request: web.Request) -> web.Response:
        """A new session for a reseller or T-User: LoginResponseType."""
        login = _converted(await _json(request), UserPassword)  # LoginRequest has the same members
        now = self._clock.milliseconds()
        session_id = await self._database.write(
            lambda connection: log_in(connection, login.username, login.password, now=now)
        )
        return _success(sessionId=session_id)

    async def provision_id_proofed_patient(self, request: web.Request) -> web.Response:
        """Provision an address, its mailbox and its payment: AddUsersResponseV2Type."""
        body, now = await _json(request), self._clock.milliseconds()

        def provision(connection: sqlite3.Connection) -> dict[str, Any]:
            """The answer's members."""
            domain = _admitted(connection, request, now)
            described, account = _converted(body, Description), _converted(body, Account)
            return patients.provision(connection, domain, described, account, _converted(body, Contact), now=now)

        return _success(**await self._database.write(provision))

    async def get_patient_address_by_meta(self, request: web.Request) -> web.Response:
        """The addresses of a person in the domain: GetPatientAddressesResponseType."""
        body, now = await _json(request), self._clock.milliseconds()

        def find(connection: sqlite3.Connection) -> list[dict[str, Any]]:
            """All addresses of the people whom the body fits."""
            domain = _admitted(connection, request, now)
            people = individuals.matching(connection, _converted(body, Description))
            return patients.of_individuals(connection, domain, people, now=now)

        return _addresses(await self._database.read(find))

    async def get_patient_address_by_username(self, request: web.Request) -> web.Response:
        """The address of a Direct user name in the domain: GetPatientAddressesResponseType."""
        now, username = self._clock.milliseconds(), request.match_info["direct_username"]

        def find(connection: sqlite3.Connection) -> list[dict[str, Any]]:
            """The one address, or none."""
            domain = _admitted(connection, request, now)
            patient = patients.find(connection, domain, username, now=now)
            return [] if patient is None else [patient]

        return _addresses(await self._database.read(find))

    async def set_patients_passwords(self, request: web.Request) -> web.Response:
        """Set the passwords of all listed patients or of none: ResellerAPIResponseType."""
        body, now = await _json(request), self._clock.milliseconds()

        def set_passwords(connection: sqlite3.Connection) -> None:
            """All in one transaction."""
            domain = _admitted(connection, request, now)
            users = _converted(body, list[UserPassword])
            if not users:
                raise RefusedError(Code.INVALID_ARGUMENT, "the array of users and passwords is empty")
            patients.set_passwords(connection, domain, users, now=now)

        await self._database.write(set_passwords)
        return _success()


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
    return accounts.authenticate_tuser(connection, username, password)


def log_in(connection: sqlite3.Connection, username: str, password: str, *, now: int) -> str:
    """A new session. Raises RefusedError (011) for a wrong user name or password."""
    if not authenticate(connection, username, password):
        raise RefusedError(Code.AUTHENTICATION_FAILED, "the user name or password is wrong")
    session_id = new_secret()
    connection.execute(
        "INSERT INTO registration_session(digest, username, expires_at) VALUES(?, ?, ?)",
        (digest(session_id), username, now + _SESSION_LIFETIME_MS),
    )
    return session_id


def expire_sessions(
    connection: sqlite3.Connection, *, username: str | None = None, session_id: str | None = None
) -> int:
    """End one session, those of one login, or all; returns how many there were."""
    return connection.execute(
        "UPDATE registration_session SET expires_at = 0 "
        "WHERE (?1 IS NULL OR username = ?1) AND (?2 IS NULL OR digest = ?2)",
        (username, None if session_id is None else digest(session_id)),
    ).rowcount


def _answering(
    operation: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Answer what an operation refuses; a body that is no JSON at all stays a MalformedBodyError, which is HTTP 400."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST" and request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        try:
            return await operation(request)
        except RefusedError as refused:
            return web.json_response({"code": refused.code, "success": False, "errorMessage": str(refused)})

    return answer


async def _json(request: web.Request) -> Any:
    return parse_json(await request.read())


def _converted(body: Any, expected: type[T]) -> T:
    """The body as the type that the operation takes. Raises RefusedError (010) where it does not fit."""
    try:
        return msgspec.convert(body, expected)
    except msgspec.ValidationError as mismatch:
        raise RefusedError(Code.INVALID_ARGUMENT, f"the request body does not fit: {mismatch}") from None


def _admitted(connection: sqlite3.Connection, request: web.Request, now: int) -> str:
    """The domain of the request, in its normal form.

    Raises RefusedError: 011 unless the session is known and has not expired, 208 unless the domain has an organization.
    """
    session = connection.execute(
        "SELECT 1 FROM registration_session WHERE digest = ? AND expires_at > ?",
        (digest(request.match_info["session_id"]), now),
    ).fetchone()
    if session is None:
        raise RefusedError(Code.AUTHENTICATION_FAILED, "the session is unknown or has expired")
    domain = _normal_domain(request.match_info["direct_domain"])
    registered = connection.execute("SELECT 1 FROM organization WHERE domain = ?", (domain,)).fetchone()
    if registered is None and domain not in accounts.domains(connection):
        raise RefusedError(Code.NO_ORGANIZATION, "there is no organization for the Direct domain")
    return domain


def _normal_domain(domain: str) -> str:
    """A domain as it is compared: in lower case, without the root's dot."""
    return domain.strip().rstrip(".").casefold()


def _addresses(found: list[dict[str, Any]]) -> web.Response:
    if not found:
        raise RefusedError(Code.NO_ADDRESS, "no Direct address was found")
    return _success(patient=found)


def _success(**members: Any) -> web.Response:
    """A ResellerAPIResponseType that succeeded, with the members that its extension adds."""
    return web.json_response({"code": Code.SUCCESS, "success": True, **members})
