"""The facade of the registration service, and the source of its sessions."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Iterable

import attrs

from directsuite.core.call import Confirmation, Options
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
"""Lifetime of a session id in seconds (specification section 8)."""

_PERSON_FIELDS = attrs.fields(IDProofedIndividual)
_REQUIRED_WITHOUT_ID = ("first_name", "last_name", "ssn4", "dob")
_RESERVE_SECONDS = 2.0  # short, because a late response may still succeed but the search never proves success
_HOW_TO_FIND_OUT = (
    "ask the provider of the service whether the account was debited. Do not provision again: error.found is the user."
)


class Registration(Facade):
    """Direct addresses for identity-proofed patients. `suite.registration`; needs `registration_url` and a login.

    Logs in automatically, and again before the session ends after 10 minutes. Every method raises TransportError if no
    usable response was received, and ServiceError if the service rejects the request. Operations: specification 4.D.
    """

    def __init__(self, transport: Transport, sessions: TokenCache | None, login: Login | None) -> None:
        super().__init__(transport)
        self._sessions = sessions
        self._login_body = None if login is None else self._encode_body(login)

    async def login(self, *, timeout: float | None = None) -> LoginResponse:
        """Log in again, even if the current session is valid. Later calls use the new session.

        Raises AuthenticationError if the credentials are rejected, ConfigurationError if the suite has none.
        """
        if self._sessions is None or self._login_body is None:
            raise ConfigurationError("login requires credentials: open DirectSuite(login=Login(username, password))")
        requested_at = self.environment.clock.monotonic()
        response = await self._call(operations.LOGIN, body=self._login_body, timeout=timeout)
        self._sessions.store(make_session_token(response), requested_at)
        return response

    async def provision_id_proofed_patient(
        self,
        direct_domain: str,
        individual: IDProofedIndividualRESTful,
        *,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> AddUsersResponseV2:
        """Provision a Direct address for an identity-proofed patient, and debit the account.

        The request is never sent twice. If the response is lost, OutcomeUnknownError is raised, because the payment
        confirmation is also lost. If `individual` has a `direct_username`, the person's user with this name is searched
        for, and the error's `found` is that user, or None.

        settle: seconds for which the user is searched for. None: the suite's. 0: search once.

        Raises InvalidArgumentError if `individual` lacks a required field.
        """
        _validate_individual(require_instance(individual, IDProofedIndividualRESTful, "individual"))
        body, seconds = self._encode_body(individual), self.resolve_settle(settle)
        confirm = None
        if individual.direct_username:
            confirm = self._make_confirmation(direct_domain, individual, seconds)
        return await self._call(
            operations.PROVISION_ID_PROOFED_PATIENT, direct_domain, body=body, timeout=timeout, confirm=confirm
        )

    def _make_confirmation(
        self, direct_domain: str, individual: IDProofedIndividualRESTful, seconds: float
    ) -> Confirmation[AddUsersResponseV2]:
        """Return the search for the user of a provisioning whose response was lost.

        Finding the user does not prove the outcome, because the user may have existed before. A user is only found if
        both the person and the user name are the same.
        """
        person = IDProofedIndividual(**{field.name: getattr(individual, field.name) for field in _PERSON_FIELDS})
        username, nested = _fold_name(individual.direct_username), self._as_nested()
        found: list[DirectUserDetail] = []

        async def search() -> None:
            with contextlib.suppress(NotFoundError):
                users = await nested.get_patient_address_by_meta(direct_domain, person)
                found.extend(user for user in users if _fold_name(user.username) == username)
            if found:
                raise StopPolling

        def refine_error(error: OutcomeUnknownError) -> OutcomeUnknownError:
            if not found:
                return error
            text = (
                "it probably happened, because this person has a user with this name. The payment confirmation is lost"
            )
            return error.with_details(text, how_to_find_out=_HOW_TO_FIND_OUT, found=found[0])

        return Confirmation(verify=search, seconds=seconds, reserve=_RESERVE_SECONDS, refine_error=refine_error)

    async def get_patient_address_by_meta(
        self, direct_domain: str, individual: IDProofedIndividual, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """Return the users of a person, found by proofing id, or by name, birth date and last four SSN digits.

        If none is found, the service decides whether NotFoundError is raised or the list is empty. Raises
        InvalidArgumentError if `individual` lacks a required field.
        """
        _validate_individual(require_instance(individual, IDProofedIndividual, "individual"))
        body = self._encode_body(individual)
        response = await self._call(operations.GET_PATIENT_ADDRESS_BY_META, direct_domain, body=body, timeout=timeout)
        return response.patient

    async def get_patient_address_by_username(
        self, direct_domain: str, direct_username: str, *, timeout: float | None = None
    ) -> list[DirectUserDetail]:
        """Return the user with this username, in a list.

        If none is found, the service decides whether NotFoundError is raised or the list is empty.

        direct_username: the local part of the Direct address.
        """
        response = await self._call(
            operations.GET_PATIENT_ADDRESS_BY_USERNAME, direct_domain, direct_username, timeout=timeout
        )
        return response.patient

    async def set_patients_passwords(
        self, direct_domain: str, passwords: Iterable[UserPassword], *, timeout: float | None = None
    ) -> None:
        """Set the passwords of patients.

        If one password is rejected, the specification does not say whether the others are set. Repeating is safe.
        Raises InvalidArgumentError if there is none, or a username is listed twice.
        """
        listed = require_instances(passwords, UserPassword, "passwords")
        if not listed:
            raise InvalidArgumentError("at least one UserPassword is required", parameter="passwords")
        body = self._encode_body([*listed])
        if len({_fold_name(each.username) for each in listed}) < len(listed):
            raise InvalidArgumentError("list each username once, with one password", parameter="passwords")
        await self._call(operations.SET_PATIENTS_PASSWORDS, direct_domain, body=body, timeout=timeout)


class SessionSource:
    """Token source for registration sessions: each fetch is a login."""

    renewable = True
    is_builtin = True

    def __init__(self, transport: Transport, login: Login) -> None:
        self._transport = transport
        self._body = RequestBody.from_bytes(transport.environment.codec.encode(login))

    async def fetch(self) -> AccessToken:
        """Log in."""
        return make_session_token(
            await self._transport.call(operations.LOGIN, body=self._body, options=Options(essential=True))
        )


def make_session_token(response: LoginResponse) -> AccessToken:
    """Return the session id of a login as a token."""
    return AccessToken(response.session_id, SESSION_LIFETIME)


def _validate_individual(individual: IDProofedIndividual) -> None:
    if individual.id is not None:
        return
    missing = [name for name in _REQUIRED_WITHOUT_ID if not getattr(individual, name)]
    if missing:
        raise InvalidArgumentError(f"an individual without an id needs {', '.join(missing)}", parameter="individual")


def _fold_name(name: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", name or "").casefold().split())
