"""The operations of the registration service, in the order of the specification (4.D), and its error codes (7)."""

from __future__ import annotations

import functools
from typing import Any

from directsuite.core.operation import Auth, Code, FaultFormat, Operation, Semantics, Service
from directsuite.errors import (
    AddressError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    PaymentError,
    PermissionDeniedError,
    ServerError,
    ServiceError,
)
from directsuite.registration.models import (
    SUCCESS_CODE,
    AddUsersResponseV2,
    GetPatientAddressesResponse,
    LoginResponse,
    ResellerAPIResponse,
)

CODES: dict[Code, tuple[type[ServiceError], str]] = {
    "002": (BadRequestError, "invalid user when provisioning a new Direct mailbox account"),
    "003": (PaymentError, "registrar offer error"),
    "010": (BadRequestError, "invalid API argument or argument missing"),
    "011": (AuthenticationError, "authentication failed"),
    "012": (BadRequestError, "organization missing"),
    "013": (PermissionDeniedError, "organization permission denied"),
    "014": (BadRequestError, "Direct user account error"),
    "021": (PaymentError, "debit account authorize failed"),
    "022": (PaymentError, "debit account capture failed"),
    "099": (ServerError, "the service reported an unspecified error"),
    "201": (ConflictError, "Direct domain has been used"),
    "202": (BadRequestError, "no verified organization record found"),
    "203": (BadRequestError, "organization not verified as healthcare provider"),
    "204": (BadRequestError, "invalid state name"),
    "205": (BadRequestError, "failed to validate ID-proofed individuals"),
    "206": (BadRequestError, "invalid organization type"),
    "207": (AddressError, "unsupported address type"),
    "208": (NotFoundError, "no organization found for the domain"),
    "209": (BadRequestError, "Direct Organization object is empty"),
    "210": (NotFoundError, "Direct address not found"),
    "999": (ServerError, "the service reported an unspecified error"),
}

_ADVICE: dict[Code, str] = {
    "010": "check the arguments. Of a person, ssn4 has four digits, and dob is a datetime.date",
    "208": "check direct_domain",
    "210": "check direct_domain and the other arguments",
}

FAULT_FORMAT = FaultFormat(
    success_key="success",
    message_keys=("errorMessage", "message"),
    codes=CODES,
    advice=_ADVICE,
    success_code=SUCCESS_CODE,
    new_session_code="011",
)


_make_operation = functools.partial(
    Operation[Any], service=Service.REGISTRATION, method="POST", auth=Auth.SESSION, fault_format=FAULT_FORMAT
)

LOGIN: Operation[LoginResponse] = _make_operation(
    name="login",
    path="login",
    semantics=Semantics.REPEATABLE,
    auth=Auth.NONE,
    response=LoginResponse,
    required_fields=("session_id",),
)
PROVISION_ID_PROOFED_PATIENT: Operation[AddUsersResponseV2] = _make_operation(
    name="ProvisionIDProofedPatient",
    path="ProvisionIDProofedPatient/{session_id}/{direct_domain}",
    semantics=Semantics.NON_IDEMPOTENT,  # it debits an account
    response=AddUsersResponseV2,
    how_to_find_out="call get_patient_address_by_meta(direct_domain, individual), to search for the patient.",
)
GET_PATIENT_ADDRESS_BY_META: Operation[GetPatientAddressesResponse] = _make_operation(
    name="GetPatientAddressByMeta",
    path="GetPatientAddressByMeta/{session_id}/{direct_domain}",
    semantics=Semantics.SAFE,
    response=GetPatientAddressesResponse,
)
GET_PATIENT_ADDRESS_BY_USERNAME: Operation[GetPatientAddressesResponse] = _make_operation(
    name="GetPatientAddressByUsername",
    method="GET",
    path="GetPatientAddressByUsername/{session_id}/{direct_domain}/{direct_username}",
    semantics=Semantics.SAFE,
    response=GetPatientAddressesResponse,
)
SET_PATIENTS_PASSWORDS: Operation[ResellerAPIResponse] = _make_operation(
    name="SetPatientsPasswords",
    path="SetPatientsPasswords/{session_id}/{direct_domain}",
    semantics=Semantics.IDEMPOTENT,
    response=ResellerAPIResponse,
)
