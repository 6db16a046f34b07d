"""The facade of the registration service, and the source of its sessions."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Awaitable, Callable, Iterable

import attrs

from directsuite.core.call import SETTLE_TIMEOUT, Confirmation, Options
from directsuite.core.credentials import AccessToken, TokenCache
from directsuite.core.facade import Facade, StopPolling
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import ConfigurationError, InvalidArgumentError, NotFoundError, OutcomeUnknownError
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
from directsuite.wire.models import require_instance, require_instances

SESSION_LIFETIME = 600.0
"""Seconds that a sessionId is good for after its login (specification section 8)."""

_PERSON_FIELDS = attrs.fields(IDProofedIndividual)
_REQUIRED_WITHOUT_ID = ("first_name", "last_name", "ssn4", "dob")
_RESERVE_SECONDS = 2.0  # seconds: a look can't make it a success, while a late answer may
_HOW_TO_FIND_OUT = (
    "error.found is the user; whether and what the account was debited, the service's provider can tell. "
    "Don't provision again."
)


class Registration(Facade):
    """Direct addresses for identity-proofed patients. `suite.registration`; needs `registration_url` and a login.

    Logs in by itself, and anew before a session's 10 minutes are over. Every method raises TransportError where no
    usable answer came, ServiceError where the service said no.
    """

    def __init__(self, transport: Transport, sessions: TokenCache | None, login: Login | None) -> None:
        super().__init__(transport)
        self._sessions = sessions
        self._login_body = None if login is None else self._encode_body(login)

    async def login(self, *, timeout: float | None = None) -> LoginResponse:
        """Log in anew, whatever is left of the current session; later calls use the new one.

        Operation login (specification 4.D). Raises AuthenticationError where the credentials are not accepted.
        """
        if self._sessions is None or self._login_body is None:
            raise ConfigurationError("login needs credentials: DirectSuite(login=Login(username, password))")
        requested_at = self._sessions.now()
        response = await self._call(operations.LOGIN, body=self._login_body, timeout=timeout)
        self._sessions.store(make_session_token(response), requested_at)
        return response

    async def provision_id_proofed_patient(
        self, direct_domain: str, individual: IDProofedIndividualRESTful, *, timeout: float | None = None
    ) -> AddUsersResponseV2:
        """Provision a Direct address for an identity-proofed patient; it debits the account.

        Operation ProvisionIDProofedPatient (specification 4.D). Never sent a second time: raises OutcomeUnknownError
        where it may or may not have happened. With a `direct_username`, its `found` is then the user of that name whom
        this very person has, if there is one: the payment confirmation can't be had again.
        """
        _validate_individual(require_instance(individual, IDProofedIndividualRESTful, "individual"))
        body = self._encode_body(individual)
        confirm = None
        if individual.direct_username:
            person = IDProofedIndividual(**{field.name: getattr(individual, field.name) for field in _PERSON_FIELDS})
            find = self._as_nested().get_patient_address_by_meta
            search = PatientSearch(
                functools.partial(find, direct_domain, person), _fold_name(individual.direct_username)
            )
            confirm = search.make_confirmation()
        return await self._call(
            operations.PROVISION_ID_PROOFED_PATIENT, direct_domain, body=body, timeout=timeout, confirm=confirm
        )

    async def get_patient_address_by_meta(
        self, direct_domain: str, individual: IDProofedIndividual, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """Provisioned addresses by name, date of birth and last four SSN digits, or by the proofing record's id.

        Operation GetPatientAddressByMeta (specification 4.D). Raises NotFoundError where there is none.
        """
        _validate_individual(require_instance(individual, IDProofedIndividual, "individual"))
        body = self._encode_body(individual)
        response = await self._call(operations.GET_PATIENT_ADDRESS_BY_META, direct_domain, body=body, timeout=timeout)
        return response.patient

    async def get_patient_address_by_username(
        self, direct_domain: str, direct_username: str, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """The address with this Direct username, the part before the `@`.

        Operation GetPatientAddressByUsername (specification 4.D). Raises NotFoundError where there is none.
        """
        response = await self._call(
            operations.GET_PATIENT_ADDRESS_BY_USERNAME, direct_domain, direct_username, timeout=timeout
        )
        return response.patient

    async def set_patients_passwords(
        self, direct_domain: str, passwords: Iterable[UserPassword], *, timeout: float | None = None
    ) -> None:
        """Reset the passwords of the patients listed.

        Operation SetPatientsPasswords (specification 4.D), which leaves open whether the others' are set where one is
        refused. It may be repeated: that sets the same passwords.
        """
        listed = require_instances(passwords, UserPassword, "passwords")
        if not listed:
            raise InvalidArgumentError("list at least one UserPassword", parameter="passwords")
        body = self._encode_body([*listed])
        if len({_fold_name(each.username) for each in listed}) < len(listed):
            raise InvalidArgumentError("list each username once, with one password", parameter="passwords")
        await self._call(operations.SET_PATIENTS_PASSWORDS, direct_domain, body=body, timeout=timeout)


class SessionSource:
    """Registration sessions as tokens: each fetch is a login."""

    renewable = True

    def __init__(self, transport: Transport, login: Login) -> None:
        self._transport = transport
        self._body = RequestBody.from_bytes(transport.codec.encode(login))

    async def fetch(self) -> AccessToken:
        """Log in."""
        return make_session_token(
            await self._transport.call(operations.LOGIN, body=self._body, options=Options(nested=True))
        )


def make_session_token(response: LoginResponse) -> AccessToken:
    """The session that a login gave."""
    return AccessToken(response.session_id, SESSION_LIFETIME)


@attrs.define(eq=False, repr=False)
class PatientSearch:
    """Looks for the user that a provisioning makes, where its answer got lost: found or not, the outcome stays unknown.

    The answer's payment confirmation can't be had again, and the user may have been there before. Who only has the same
    names, or the same user name, is another person: their address must not go to this one.
    """

    find: Callable[[], Awaitable[list[DirectUserDetail]]]
    """Gives the users of this very person; not refused while a closing suite waits for the call."""
    username: str
    """The user name that was asked for, folded."""
    user: DirectUserDetail | None = None
    """The user, once it is there."""

    def make_confirmation(self) -> Confirmation[AddUsersResponseV2]:
        """The search, as the transport makes it."""
        return Confirmation(
            verify=self.verify, seconds=SETTLE_TIMEOUT, reserve=_RESERVE_SECONDS, refine_error=self.refine_error
        )

    async def verify(self) -> None:
        """Prove nothing, but end the search when the user is there."""
        try:
            users = await self.find()
        except NotFoundError:
            return
        for user in users:
            if _fold_name(user.username) == self.username:
                self.user = user
                raise StopPolling

    def refine_error(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """The error that the caller gets, with the user who was found."""
        if self.user is None:
            return error
        text = "it probably happened: this person has a user of this user name, its payment confirmation is lost"
        return error.with_details(text, how_to_find_out=_HOW_TO_FIND_OUT, found=self.user)


def _validate_individual(individual: IDProofedIndividual) -> None:
    if individual.id is not None:
        return
    missing = [name for name in _REQUIRED_WITHOUT_ID if not getattr(individual, name)]
    if missing:
        raise InvalidArgumentError(f"without an id it needs {', '.join(missing)}", parameter="individual")


def _fold_name(name: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", name or "").casefold().split())
