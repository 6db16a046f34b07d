"""The facade of the registration service, and the source of its sessions."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from directsuite.core.body import RequestBody
from directsuite.core.call import Options
from directsuite.core.credentials import TokenCache
from directsuite.core.facade import Facade
from directsuite.core.tokens import AccessToken
from directsuite.core.transport import Transport
from directsuite.errors import ConfigurationError, InvalidArgumentError
from directsuite.registration import operations
from directsuite.registration.models import (
    AddUsersResponseV2,
    DirectUserDetail,
    IDProofedIndividual,
    IDProofedIndividualRESTful,
    Login,
    LoginResponse,
    UserPassword,
)
from directsuite.registration.settling import PatientSearch

SESSION_LIFETIME = 600.0
"""Seconds that a sessionId is good for after its login (specification section 8)."""


class SessionSource:
    """Registration sessions as tokens: each fetch is a login."""

    renewable = True

    def __init__(self, transport: Transport, login: Login) -> None:
        self._transport = transport
        self._body = login_body(transport, login)

    async def fetch(self) -> AccessToken:
        """Log in."""
        return session_of(
            await self._transport.call(operations.LOGIN, body=self._body, options=Options(within_a_call=True))
        )


def login_body(transport: Transport, login: Login) -> RequestBody:
    """The body of the login operation."""
    return RequestBody.of(transport.codec.encode(login))


def session_of(response: LoginResponse) -> AccessToken:
    """The session that a login gave."""
    return AccessToken(response.session_id, SESSION_LIFETIME)


class Registration(Facade):
    """Direct addresses for identity-proofed patients. `suite.registration`; needs `registration_url` and a login.

    Logs in by itself, and anew before a session's 10 minutes are over. Every method raises TransportError where no
    usable answer came, ServiceError where the service said no.
    """

    def __init__(self, transport: Transport, sessions: TokenCache | None, login: Login | None) -> None:
        super().__init__(transport)
        self._sessions = sessions
        self._login_body = None if login is None else self._body(login)

    async def login(self, *, timeout: float | None = None) -> LoginResponse:
        """Log in anew, whatever is left of the current session; later calls use the new one.

        Operation login (specification 4.D). Raises AuthenticationError where the credentials are not accepted.
        """
        if self._sessions is None or self._login_body is None:
            raise ConfigurationError("login needs credentials: DirectSuite(login=Login(username, password))")
        asked_at = self._sessions.now()
        response = await self._call(operations.LOGIN, body=self._login_body, timeout=timeout)
        self._sessions.adopt(session_of(response), asked_at)
        return response

    async def provision_id_proofed_patient(
        self, direct_domain: str, individual: IDProofedIndividualRESTful, *, timeout: float | None = None
    ) -> AddUsersResponseV2:
        """Provision a Direct address for an identity-proofed patient; it debits the account.

        Operation ProvisionIDProofedPatient (specification 4.D). Never sent a second time: raises OutcomeUnknownError
        where it may or may not have happened. With a `direct_username` and names, its `found` is then the user of that
        name who is there, if the names match: the payment confirmation can't be had again.
        """
        _refuse_incomplete(individual)
        body = self._body(individual)
        search = PatientSearch.of(self._within_a_call(), direct_domain, individual)
        proof = None if search is None else search.proof()
        return await self._call(
            operations.PROVISION_ID_PROOFED_PATIENT, direct_domain, body=body, timeout=timeout, proof=proof
        )

    async def get_patient_address_by_meta(
        self, direct_domain: str, individual: IDProofedIndividual, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """Provisioned addresses by name, date of birth and last four SSN digits, or by the proofing record's id.

        Operation GetPatientAddressByMeta (specification 4.D). Raises NotFoundError where there is none.
        """
        _refuse_incomplete(individual)
        body = self._body(individual)
        answer = await self._call(operations.GET_PATIENT_ADDRESS_BY_META, direct_domain, body=body, timeout=timeout)
        return answer.patient

    async def get_patient_address_by_username(
        self, direct_domain: str, direct_username: str, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """The address with this Direct username, the part before the `@`.

        Operation GetPatientAddressByUsername (specification 4.D). Raises NotFoundError where there is none.
        """
        answer = await self._call(
            operations.GET_PATIENT_ADDRESS_BY_USERNAME, direct_domain, direct_username, timeout=timeout
        )
        return answer.patient

    async def set_patients_passwords(
        self, direct_domain: str, passwords: Iterable[UserPassword], *, timeout: float | None = None
    ) -> None:
        """Reset the passwords of the patients listed.

        Operation SetPatientsPasswords (specification 4.D).
        """
        listed = list(passwords)
        if not listed:
            raise InvalidArgumentError("list at least one UserPassword", parameter="passwords")
        body = self._body([*listed])
        await self._call(operations.SET_PATIENTS_PASSWORDS, direct_domain, body=body, timeout=timeout)


def _refuse_incomplete(individual: IDProofedIndividual) -> None:
    if individual.id is not None:
        return
    required = attrs.asdict(individual, recurse=False, filter=lambda field, _: field.name in _WITHOUT_ID)
    missing = [name for name in _WITHOUT_ID if not required[name]]
    if missing:
        raise InvalidArgumentError(f"without an id it needs {', '.join(missing)}", parameter="individual")


_WITHOUT_ID = ("first_name", "last_name", "ssn4", "dob")
