"""The requests of the registration service (specification 4.D)."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import directsuite as ds

from .row import JSON, SESSION, RequestRow, make_json_response

if TYPE_CHECKING:
    from .recorder import CannedResponse

_BASE = "/DirectRegistrationRESTful/rest/Patient"
_SESSION = "s%2F1%20%252F%2B%3F%23%22"
_DOMAIN = "direct.example.test"

LOGIN_TARGET = f"{_BASE}/login"
LOGIN_BODY = {"username": "reseller", "password": 'r"é'}
LOGIN_RESPONSE: CannedResponse = make_json_response(code="000", success=True, sessionId=SESSION)

_ADDRESSES_RESPONSE = make_json_response(code="000", success=True, patient=[])

REGISTRATION_ROWS = [
    RequestRow(
        operation="login",
        call=lambda suite: suite.registration.login(),
        method="POST",
        target=LOGIN_TARGET,
        headers=JSON,
        absent_headers=("authorization", "cookie"),
        body=LOGIN_BODY,
        response=LOGIN_RESPONSE,
    ),
    RequestRow(
        operation="ProvisionIDProofedPatient",
        call=lambda suite: suite.registration.provision_id_proofed_patient(
            _DOMAIN,
            ds.IDProofedIndividualRESTful(
                id=9007199254740993,
                first_name="Zoë",
                last_name="O'Neil",
                ssn4="0123",
                dob=date(1980, 2, 29),
                direct_username="zoe",
                direct_password='z"é',
            ),
        ),
        method="POST",
        target=f"{_BASE}/ProvisionIDProofedPatient/{_SESSION}/direct.example.test",
        headers=JSON,
        absent_headers=("authorization", "cookie"),
        body={
            "id": 9007199254740993,
            "firstName": "Zoë",
            "lastName": "O'Neil",
            "ssn4": "0123",
            "dob": "1980-02-29",
            "directUsername": "zoe",
            "directPassword": 'z"é',
        },
        response=make_json_response(code="000", success=True, users=[], paymentConfirmation=None),
        logs_in=True,
    ),
    RequestRow(
        operation="GetPatientAddressByMeta",
        call=lambda suite: suite.registration.get_patient_address_by_meta(
            "a/b?c#d.example.test",
            ds.IDProofedIndividual(first_name="Zoë", last_name="O'Neil", ssn4="0123", dob="1980-02-29"),
        ),
        method="POST",
        target=f"{_BASE}/GetPatientAddressByMeta/{_SESSION}/a%2Fb%3Fc%23d.example.test",
        headers=JSON,
        absent_headers=("authorization", "cookie"),
        body={"firstName": "Zoë", "lastName": "O'Neil", "ssn4": "0123", "dob": "1980-02-29"},
        response=_ADDRESSES_RESPONSE,
        logs_in=True,
    ),
    RequestRow(
        operation="GetPatientAddressByUsername",
        call=lambda suite: suite.registration.get_patient_address_by_username(_DOMAIN, "o'neil/é +%2F"),
        method="GET",
        target=f"{_BASE}/GetPatientAddressByUsername/{_SESSION}/direct.example.test/o%27neil%2F%C3%A9%20%2B%252F",
        # The specification's header says what the body is, and this request has none: either way is right.
        headers={},
        absent_headers=("authorization", "cookie"),
        response=_ADDRESSES_RESPONSE,
        logs_in=True,
    ),
    RequestRow(
        operation="SetPatientsPasswords",
        call=lambda suite: suite.registration.set_patients_passwords(
            _DOMAIN, [ds.UserPassword("zoe", 'z"é'), ds.UserPassword("yan", "y")]
        ),
        method="POST",
        target=f"{_BASE}/SetPatientsPasswords/{_SESSION}/direct.example.test",
        headers=JSON,
        absent_headers=("authorization", "cookie"),
        body=[{"username": "zoe", "password": 'z"é'}, {"username": "yan", "password": "y"}],
        response=make_json_response(code="000", success=True),
        logs_in=True,
    ),
]
