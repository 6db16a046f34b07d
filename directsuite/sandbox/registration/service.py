"""The registration service: five operations, and the order in which each request is judged.

    session (011) → domain (208) → arguments (010, 204) → the operation itself (002, 014, 205, 210)

A body that is not announced as application/json is HTTP 415, one that is no JSON at all HTTP 400, both with code 010;
every other refusal is HTTP 200 with `success: false`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from directsuite.sandbox.json_body import (
    MalformedMemberError,
    as_array,
    as_object,
    optional_text_member,
    read_json,
    text_member,
)
from directsuite.sandbox.registration import individuals, patients, sessions
from directsuite.sandbox.registration.answers import Code, RefusedError, failure, success

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database

BASE = "/DirectRegistrationRESTful/rest/Patient"
SCHEMA = sessions.SCHEMA + individuals.SCHEMA + patients.SCHEMA


class RegistrationService:
    """Login, and the four operations of a session."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """The five operations, under the base path of the service."""
        scope = "{session_id}/{direct_domain}"
        return [
            web.post(f"{BASE}/login", _answering(self.login), name="login"),
            web.post(
                f"{BASE}/ProvisionIDProofedPatient/{scope}",
                _answering(self.provision_id_proofed_patient),
                name="ProvisionIDProofedPatient",
            ),
            web.post(
                f"{BASE}/GetPatientAddressByMeta/{scope}",
                _answering(self.get_patient_address_by_meta),
                name="GetPatientAddressByMeta",
            ),
            web.get(
                f"{BASE}/GetPatientAddressByUsername/{scope}/{{direct_username}}",
                _answering(self.get_patient_address_by_username),
                name="GetPatientAddressByUsername",
                allow_head=False,
            ),
            web.post(
                f"{BASE}/SetPatientsPasswords/{scope}",
                _answering(self.set_patients_passwords),
                name="SetPatientsPasswords",
            ),
        ]

    async def login(self, request: web.Request) -> web.Response:
        """A new session for a reseller or T-User: LoginResponseType."""
        body = as_object(await read_json(request))
        username, password = text_member(body, "username"), text_member(body, "password")
        now = self._clock.milliseconds()
        session_id = await self._database.write(
            lambda connection: sessions.log_in(connection, username, password, now=now)
        )
        return success(sessionId=session_id)

    async def provision_id_proofed_patient(self, request: web.Request) -> web.Response:
        """Provision an address, its mailbox and its payment: AddUsersResponseV2Type."""
        body, now = await read_json(request), self._clock.milliseconds()

        def provision(connection: sqlite3.Connection) -> dict[str, Any]:
            """The answer's members."""
            domain = _admitted(connection, request, now)
            members = as_object(body)
            wanted = patients.Provisioning(
                described=individuals.Description.of(members),
                domain=domain,
                username=_given(members, "directUsername"),
                password=_given(members, "directPassword"),
                contact=individuals.contact_of(members),
            )
            return patients.provision(connection, wanted, now=now)

        return success(**await self._database.write(provision))

    async def get_patient_address_by_meta(self, request: web.Request) -> web.Response:
        """The addresses of a person in the domain: GetPatientAddressesResponseType."""
        body, now = await read_json(request), self._clock.milliseconds()

        def find(connection: sqlite3.Connection) -> list[dict[str, Any]]:
            """All addresses of the people whom the body fits."""
            domain = _admitted(connection, request, now)
            people = individuals.matching(connection, individuals.Description.of(as_object(body)))
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
        body, now = await read_json(request), self._clock.milliseconds()

        def set_passwords(connection: sqlite3.Connection) -> None:
            """All in one transaction."""
            domain = _admitted(connection, request, now)
            patients.set_passwords(connection, domain, _user_passwords(body), now=now)

        await self._database.write(set_passwords)
        return success()


def _answering(
    operation: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Turn refusals into answers; a body that is no JSON at all stays a MalformedBodyError, which becomes HTTP 400."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST" and request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        try:
            return await operation(request)
        except RefusedError as refused:
            return failure(refused)
        except MalformedMemberError as malformed:
            return failure(RefusedError(Code.INVALID_ARGUMENT, str(malformed)))

    return answer


def _admitted(connection: sqlite3.Connection, request: web.Request, now: int) -> str:
    """The domain of a request whose session and domain are good."""
    sessions.require_session(connection, request.match_info["session_id"], now=now)
    return sessions.require_domain(connection, request.match_info["direct_domain"])


def _addresses(found: list[dict[str, Any]]) -> web.Response:
    if not found:
        raise RefusedError(Code.NO_ADDRESS, "no Direct address was found")
    return success(patient=found)


def _given(members: dict[str, Any], name: str) -> str | None:
    """A member that may be left out, but not empty."""
    return None if optional_text_member(members, name) is None else text_member(members, name)


def _user_passwords(body: Any) -> list[tuple[str, str]]:
    members = [as_object(entry) for entry in as_array(body)]
    if not members:
        raise RefusedError(Code.INVALID_ARGUMENT, "the array of users and passwords is empty")
    return [(text_member(entry, "username"), text_member(entry, "password")) for entry in members]
