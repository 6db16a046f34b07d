"""Service D of the specification, patient registration: its five operations."""

from __future__ import annotations

from directsuite.sandbox.openapi.json_schema import array_of, ref, text
from directsuite.sandbox.openapi.operations import Content, Operation, Service, named
from directsuite.sandbox.openapi.registration_types import SCHEMAS

_RESPONSE = ref("ResellerAPIResponseType")
_IN_SESSION = {"in": "path", "parameter": "sessionId"}
_OF_DOMAIN = "{sessionId}/{directDomain}"

OPERATIONS: list[Operation] = [
    Operation(
        "login",
        "POST",
        "/login",
        "Opens a session for a reseller or a T-User.",
        named("LoginResponseType"),
        body=named("LoginRequest"),
        certain=["sessionId"],
        credentials={"in": "body"},
    ),
    Operation(
        "ProvisionIDProofedPatient",
        "POST",
        f"/ProvisionIDProofedPatient/{_OF_DOMAIN}",
        "Provisions a Direct address for an identity-proofed patient.",
        named("AddUsersResponseV2Type"),
        body=named("IDProofedIndividualRESTful"),
        certain=["users"],
        credentials=_IN_SESSION,
    ),
    Operation(
        "GetPatientAddressByMeta",
        "POST",
        f"/GetPatientAddressByMeta/{_OF_DOMAIN}",
        "Finds addresses by patient name, date of birth and last four digits of the SSN.",
        named("GetPatientAddressesResponseType"),
        body=named("IDProofedIndividual"),
        credentials=_IN_SESSION,
    ),
    Operation(
        "GetPatientAddressByUsername",
        "GET",
        f"/GetPatientAddressByUsername/{_OF_DOMAIN}/{{directUsername}}",
        "Finds an address by Direct username.",
        named("GetPatientAddressesResponseType"),
        credentials=_IN_SESSION,
    ),
    Operation(
        "SetPatientsPasswords",
        "POST",
        f"/SetPatientsPasswords/{_OF_DOMAIN}",
        "Resets the passwords of the listed patients.",
        named("ResellerAPIResponseType"),
        body=Content(schema=array_of(ref("UserPassword"), "The users and their new passwords.")),
        credentials=_IN_SESSION,
    ),
]

SERVICE = Service(
    name="registration",
    description=(
        "Provisions and finds patients' Direct addresses. A session from login travels in the path. "
        "Refusals are answers with `success: false` and a code."
    ),
    base="/DirectRegistrationRESTful/rest/Patient",
    operations=OPERATIONS,
    schemas=SCHEMAS,
    parameters={
        "sessionId": text("The session, from login.", minLength=1),
        "directDomain": text("The Direct domain.", format="hostname"),
        "directUsername": text("Local part of the Direct address.", minLength=1),
    },
    refusals={
        400: ("The body is no JSON, or not of the operation's type.", _RESPONSE),
        413: ("The body is too large.", _RESPONSE),
        415: ("The body is of another media type.", _RESPONSE),
        500: ("Server error.", _RESPONSE),
    },
)
