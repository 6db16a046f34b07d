"""The operations of the registration service (specification 4.D)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import directsuite as ds
from tests.integration.scenario import ADA, DOMAIN

from .case import JSON, SESSION, OperationCase

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def _login(scenario: Scenario) -> None:
    first = await scenario.suite.registration.login()
    second = await scenario.suite.registration.login()
    assert first.session_id
    assert first.session_id != second.session_id


async def _provision(scenario: Scenario) -> None:
    response = await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    (user,) = response.users
    assert (user.username, user.first_name, user.user_type, user.user_state) == ("ada", "Ada", "SMTP", "activated")
    payment = response.payment_confirmation
    assert payment is not None
    assert (payment.amount, payment.order_time) == (12.0, _NOON)
    assert [product.start_date for product in payment.products] == [_NOON.date()]
    assert await scenario.suite.mailbox(f"ada@{DOMAIN}", "first").get_message_count() == 0
    assert len(await scenario.list_effects("ProvisionIDProofedPatient")) == 1


async def _get_patient_address_by_meta(scenario: Scenario) -> None:
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    by_id = await scenario.suite.registration.get_patient_address_by_meta(DOMAIN, ds.IDProofedIndividual(id=7))
    by_name = await scenario.suite.registration.get_patient_address_by_meta(
        DOMAIN, ds.IDProofedIndividual(first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29")
    )
    assert [user.username for user in by_id] == ["ada"]
    assert by_name == by_id


async def _get_patient_address_by_username(scenario: Scenario) -> None:
    provisioned = await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    assert await scenario.suite.registration.get_patient_address_by_username(DOMAIN, "ada") == provisioned.users


async def _set_patients_passwords(scenario: Scenario) -> None:
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    await scenario.suite.registration.set_patients_passwords(DOMAIN, [ds.UserPassword("ada", "second")])
    assert await scenario.suite.mailbox(f"ada@{DOMAIN}", "second").get_message_count() == 0


_BASE = "/registration"
_SESSION = "s%2F1%20%252F%2B%3F%23%22"
_SUCCESS = {"code": "000", "success": True, "errorMessage": None}
_USER_JSON = {
    "firstName": "Ada",
    "lastName": "Example",
    "email": "ada@example.test",
    "username": "ada",
    "userType": "SMTP",
    "UserStateType": "activated",
    "phone": "null",
}
_USER = ds.DirectUserDetail(
    first_name="Ada",
    last_name="Example",
    email="ada@example.test",
    username="ada",
    user_type=ds.DirectUserType.SMTP,
    user_state=ds.UserStateType.ACTIVATED,
    phone="null",
)
_PAYMENT_JSON = {
    "orderId": 5,
    "amount": 12,
    "orderTime": "2026-05-01T12:00:00.000+0000",
    "products": [{"name": "Direct address", "quantity": 1, "offerPrice": 12.0, "startDate": "2026-05-01"}],
    "detail": "one address",
}
_PAYMENT = ds.PaymentConfirmation(
    order_id=5,
    amount=12.0,
    order_time=_NOON,
    products=[ds.Product(name="Direct address", quantity=1, offer_price=12.0, start_date=date(2026, 5, 1))],
    detail="one address",
)

REGISTRATION = [
    OperationCase(
        name="login",
        method="POST",
        facade="registration",
        function="login",
        arguments={},
        target=f"{_BASE}/login",
        headers=JSON,
        body={"username": "reseller", "password": 'r"é'},
        response=_SUCCESS | {"sessionId": SESSION},
        result=ds.LoginResponse(code="000", success=True, session_id=SESSION),
        required=("sessionId",),
        exercise=_login,
    ),
    OperationCase(
        name="ProvisionIDProofedPatient",
        method="POST",
        facade="registration",
        function="provision_id_proofed_patient",
        arguments={
            "direct_domain": DOMAIN,
            "individual": ds.IDProofedIndividualRESTful(
                id=9007199254740993,
                first_name="Zoë",
                last_name="O'Neil",
                ssn4="0123",
                dob=date(1980, 2, 29),
                direct_username="zoe",
                direct_password='z"é',
            ),
        },
        path_texts=("direct_domain",),
        target=f"{_BASE}/ProvisionIDProofedPatient/{_SESSION}/direct.example.test",
        headers=JSON,
        body={
            "id": 9007199254740993,
            "firstName": "Zoë",
            "lastName": "O'Neil",
            "ssn4": "0123",
            "dob": "1980-02-29",
            "directUsername": "zoe",
            "directPassword": 'z"é',
        },
        response=_SUCCESS | {"users": [_USER_JSON], "paymentConfirmation": _PAYMENT_JSON},
        result=ds.AddUsersResponseV2(code="000", success=True, users=[_USER], payment_confirmation=_PAYMENT),
        exercise=_provision,
    ),
    OperationCase(
        name="GetPatientAddressByMeta",
        method="POST",
        facade="registration",
        function="get_patient_address_by_meta",
        arguments={
            "direct_domain": "a/b?c#d.example.test",
            "individual": ds.IDProofedIndividual(first_name="Zoë", last_name="O'Neil", ssn4="0123", dob="1980-02-29"),
        },
        path_texts=("direct_domain",),
        target=f"{_BASE}/GetPatientAddressByMeta/{_SESSION}/a%2Fb%3Fc%23d.example.test",
        headers=JSON,
        body={"firstName": "Zoë", "lastName": "O'Neil", "ssn4": "0123", "dob": "1980-02-29"},
        response=_SUCCESS | {"patient": [_USER_JSON]},
        result=[_USER],
        exercise=_get_patient_address_by_meta,
    ),
    OperationCase(
        name="GetPatientAddressByUsername",
        method="GET",
        facade="registration",
        function="get_patient_address_by_username",
        arguments={"direct_domain": DOMAIN, "direct_username": "o'neil/é +%2F"},
        path_texts=("direct_domain", "direct_username"),
        target=f"{_BASE}/GetPatientAddressByUsername/{_SESSION}/direct.example.test/o%27neil%2F%C3%A9%20%2B%252F",
        headers={},  # The specification's header describes a body, which this request does not have.
        response=_SUCCESS | {"patient": _USER_JSON},
        result=[_USER],
        exercise=_get_patient_address_by_username,
    ),
    OperationCase(
        name="SetPatientsPasswords",
        method="POST",
        facade="registration",
        function="set_patients_passwords",
        arguments={"direct_domain": DOMAIN, "passwords": [ds.UserPassword("zoe", 'z"é'), ds.UserPassword("yan", "y")]},
        path_texts=("direct_domain",),
        target=f"{_BASE}/SetPatientsPasswords/{_SESSION}/direct.example.test",
        headers=JSON,
        body=[{"username": "zoe", "password": 'z"é'}, {"username": "yan", "password": "y"}],
        response=_SUCCESS,
        result=None,
        exercise=_set_patients_passwords,
    ),
]
