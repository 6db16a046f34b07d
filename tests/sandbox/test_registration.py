"""The registration service: sessions, provisioning, look-ups and passwords."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox import patients
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.patients import Contact, IndividualDescription, RegistrationCall
from directsuite.sandbox.rejections import RegistrationError
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from directsuite.sandbox.state import SCHEMAS

from .conftest import Api

DOMAIN = "direct.example.test"
ADA = {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29"}


class RegistrationApi(Api):
    session: str

    async def call(
        self, operation: str, body: object = None, *rest: str, session: str | None = None, domain: str = DOMAIN
    ) -> Any:
        """Call an operation, with GET if there is a `rest` of the path. Check that success and code agree."""
        url = "/".join([self.sandbox.registration_url, operation, session or self.session, domain, *rest])
        status, response = await self.request("GET" if rest else "POST", url, json=None if rest else body)
        assert (status, response["success"]) == (200, response["code"] == "000")
        assert response["success"] or response["errorMessage"]
        return response

    async def can_log_in(self, username: str, password: str) -> bool:
        login = {"username": f"{username}@{DOMAIN}", "password": password}
        return bool((await self.message("GetMessageCount/INBOX", **login))[1]["success"])


@pytest.fixture
async def registration(sandbox: Sandbox, http: aiohttp.ClientSession) -> RegistrationApi:
    await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
    await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7, state="ak", email="ada@example.test")
    await sandbox.add_individual("Ada", "Example", "9999", "1990-01-01", id=8)
    api = RegistrationApi(sandbox, http)
    api.session = (await api.login(*DEMO_LOGIN))[1]["sessionId"]
    return api


async def test_a_patient_has_an_address_a_mailbox_and_a_payment(
    sandbox: Sandbox, registration: RegistrationApi
) -> None:
    body = await registration.call(
        "ProvisionIDProofedPatient", {"id": 7, "directUsername": "Ada.E", "directPassword": "pass"}
    )
    assert body["code"] == "000"
    assert body["users"] == [
        {
            "firstName": "Ada",
            "lastName": "Example",
            "email": "ada@example.test",
            "state": "Alaska",
            "username": "ada.e",
            "userType": "SMTP",
            "UserStateType": "activated",
        }
    ]
    payment = body["paymentConfirmation"]
    assert payment["orderTime"] == "2026-05-01T12:00:00.000+0000"
    [product] = payment["products"]
    assert (product["startDate"], product["expireDate"]) == ("2026-05-01", "2027-05-01")
    assert payment["amount"] == product["amount"] == product["salePrice"] * product["quantity"]
    assert await registration.can_log_in("ada.e", "pass")
    [effect] = await sandbox.ledger("ProvisionIDProofedPatient")
    assert (effect["subject"], effect["detail"]["order"]) == (f"ada.e@{DOMAIN}", payment["orderId"])


async def test_provisioning_needs_a_proofed_individual(sandbox: Sandbox, registration: RegistrationApi) -> None:
    provisioned = 0
    cases: list[tuple[object, str]] = [
        ({"id": 7, **ADA}, "000"),
        *(({"id": "7"}, "000"), ({**ADA, "firstName": " ada ", "lastName": "EXAMPLE", "dob": "02/29/1980"}, "000")),
        *(({**ADA, "dob": "19800229"}, "000"), ({"id": 7, "state": "vermont"}, "000")),
        *(({"id": 7, "ssn4": "0000"}, "205"), ({"id": 7, "firstName": "Eve"}, "205"), ({"id": 999}, "205")),
        *(({**ADA, "ssn4": "4321"}, "205"), ({**ADA, "dob": "1980-02-28"}, "205")),
        *(({**ADA, "dob": "1981-02-29"}, "010"), ({**ADA, "dob": "soon"}, "010"), ({**ADA, "lastName": ""}, "010")),
        *(({**ADA, "ssn4": "123"}, "010"), ({**ADA, "ssn4": 1234}, "010"), ({"firstName": "Ada"}, "010")),
        *(({"id": True}, "010"), ({"id": 2**63}, "010"), ({}, "010"), ([], "010"), ("text", "010")),
        *(({"id": 7, "directUsername": name}, "002") for name in ("a b", ".a", "a..b", "a.", "a@b", "x" * 65, "é")),
        *(({"id": 7, "directUsername": ""}, "010"), ({"id": 7, "directPassword": 5}, "010")),
        ({"id": 7, "state": "Atlantis"}, "204"),
    ]
    for body, code in cases:
        assert (await registration.call("ProvisionIDProofedPatient", body))["code"] == code, body
        provisioned += code == "000"
        assert len(await sandbox.ledger("ProvisionIDProofedPatient")) == provisioned, body


async def test_user_name_that_is_taken_is_rejected(sandbox: Sandbox, registration: RegistrationApi) -> None:
    await sandbox.add_account(f"bob@{DOMAIN}", "secret")
    wanted = {"id": 7, "directUsername": "ada"}
    codes = [(await registration.call("ProvisionIDProofedPatient", wanted))["code"] for _ in range(2)]
    assert codes == ["000", "014"]
    assert (await registration.call("ProvisionIDProofedPatient", {"id": 7, "directUsername": "BOB"}))["code"] == "014"


async def test_a_missing_user_name_is_generated_from_the_names(registration: RegistrationApi) -> None:
    made = [(await registration.call("ProvisionIDProofedPatient", {"id": 7}))["users"][0]["username"] for _ in range(2)]
    assert made == ["ada.example", "ada.example2"]


async def test_session_lasts_ten_minutes_from_issue(sandbox: Sandbox, registration: RegistrationApi) -> None:
    sandbox.clock.advance(timedelta(minutes=9, seconds=59))
    assert (await registration.call("GetPatientAddressByMeta", ADA))["code"] == "210"
    sandbox.clock.advance(timedelta(seconds=1))
    assert (await registration.call("GetPatientAddressByMeta", ADA))["code"] == "011"


async def test_errors_of_session_and_domain_precede_others(registration: RegistrationApi) -> None:
    assert (await registration.call("ProvisionIDProofedPatient", {}, session="guessed", domain="nowhere.test"))[
        "code"
    ] == "011"
    assert (await registration.call("ProvisionIDProofedPatient", {}, domain="nowhere.test"))["code"] == "208"
    assert (await registration.call("ProvisionIDProofedPatient", {}))["code"] == "010"


async def test_domain_is_known_by_its_mailboxes_too_in_any_case(
    sandbox: Sandbox, registration: RegistrationApi
) -> None:
    await sandbox.add_account("carol@clinic.example.test", "secret")
    body = await registration.call(
        "ProvisionIDProofedPatient", {"id": 7, "directUsername": "ada"}, domain="Clinic.Example.TEST"
    )
    assert body["code"] == "000"


async def test_login_without_the_right_credentials_is_rejected(api: Api) -> None:
    cases: list[tuple[object, str]] = [
        ({"username": "demo-reseller", "password": "wrong"}, "011"),
        ({"username": "nobody", "password": "x"}, "011"),
        ({"username": "demo-reseller"}, "010"),
        ({"username": "demo-reseller", "password": None}, "010"),
        ({"username": 1, "password": "x"}, "010"),
        ([], "010"),
    ]
    for body, code in cases:
        assert (await api.request("POST", f"{api.sandbox.registration_url}/login", json=body))[1]["code"] == code, body


async def test_addresses_are_found_by_person_and_by_user_name(registration: RegistrationApi) -> None:
    for username in ("ada", "ada2"):
        await registration.call("ProvisionIDProofedPatient", {"id": 7, "directUsername": username})
    by_person = await registration.call("GetPatientAddressByMeta", ADA)
    assert [user["username"] for user in by_person["patient"]] == ["ada", "ada2"]
    by_name = await registration.call("GetPatientAddressByUsername", None, "ADA")
    assert [user["username"] for user in by_name["patient"]] == ["ada"]
    assert (await registration.call("GetPatientAddressByMeta", {"id": 8}))["code"] == "210"
    assert (await registration.call("GetPatientAddressByMeta", {**ADA, "firstName": "Eve"}))["code"] == "210"
    assert (await registration.call("GetPatientAddressByUsername", None, "eve"))["code"] == "210"


async def test_mailbox_that_is_no_patient_is_not_found(sandbox: Sandbox, registration: RegistrationApi) -> None:
    await sandbox.add_account(f"bob@{DOMAIN}", "secret")
    assert (await registration.call("GetPatientAddressByUsername", None, "bob"))["code"] == "210"
    passwords = [{"username": "bob", "password": "stolen"}]
    assert (await registration.call("SetPatientsPasswords", passwords))["code"] == "210"


async def test_passwords_are_set_for_all_or_for_none(sandbox: Sandbox, registration: RegistrationApi) -> None:
    for username in ("ada", "eve"):
        await registration.call(
            "ProvisionIDProofedPatient", {"id": 7, "directUsername": username, "directPassword": "old"}
        )

    wanted = [{"username": name, "password": "new"} for name in ("ada", "nobody", "eve")]
    assert (await registration.call("SetPatientsPasswords", wanted))["code"] == "210"
    assert [await registration.can_log_in(name, "old") for name in ("ada", "eve")] == [True, True]
    assert (await registration.call("SetPatientsPasswords", [wanted[0], wanted[2]]))["code"] == "000"
    assert [await registration.can_log_in(name, "new") for name in ("ada", "eve")] == [True, True]
    assert not await registration.can_log_in("ada", "old")
    assert len(await sandbox.ledger("SetPatientsPasswords")) == 1


async def test_passwords_without_a_user_or_password_are_rejected(registration: RegistrationApi) -> None:
    cases: list[object] = [[], {}, ["x"], [{"username": "ada"}], [{"username": "ada", "password": ""}]]
    for body in cases:
        assert (await registration.call("SetPatientsPasswords", body))["code"] == "010", body


async def test_address_expires_with_its_certificate_and_can_be_forced(
    sandbox: Sandbox, registration: RegistrationApi
) -> None:
    await registration.call("ProvisionIDProofedPatient", {"id": 7, "directUsername": "ada"})
    await sandbox.set_patient_state(f"ada@{DOMAIN}", "disabled")

    async def state() -> str:
        session = (await registration.login(*DEMO_LOGIN))[1]["sessionId"]
        found = await registration.call("GetPatientAddressByUsername", None, "ada", session=session)
        return str(found["patient"][0]["UserStateType"])

    assert await state() == "disabled"
    await sandbox.set_patient_state(f"ada@{DOMAIN}", None)
    assert await state() == "activated"
    sandbox.clock.advance(timedelta(days=366))
    assert await state() == "provisioned_cert_expired"
    assert not await sandbox.set_patient_state(f"nobody@{DOMAIN}", "disabled")
    with pytest.raises(ValueError, match="activated"):
        await sandbox.set_patient_state(f"ada@{DOMAIN}", "happy")


@contextmanager
def registry() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.executescript("\n".join(SCHEMAS))
        person = IndividualDescription(first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29")
        patients.add_individual(connection, person, Contact(), 1)
        yield connection


def refusal_of(work: Callable[[], object]) -> RegistrationError | None:
    try:
        work()
    except RegistrationError as refused:
        return refused
    return None


@given(st.text(max_size=70) | st.from_regex(r"[A-Za-z0-9._-]{1,70}", fullmatch=True))
def test_a_user_name_is_rejected_or_has_a_mailbox(username: str) -> None:
    with registry() as connection:
        body = {"id": 1, "directUsername": username, "directPassword": "secret"}
        call = RegistrationCall(body, DOMAIN, {"direct_username": username}, 0)
        refused = refusal_of(lambda: patients.provision(connection, call))
        if refused is not None:
            assert refused.code == ("002" if username.strip() else "010")
            return
        [found] = patients.find_by_username(connection, call)["patient"]
        address = f"{found['username']}@{DOMAIN}"
        assert mailboxes.authenticate(connection, address, "secret") is not None


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_in_any_script_result_in_a_user_name(first: str, last: str) -> None:
    with registry() as connection:
        body = {"firstName": first, "lastName": last, "ssn4": "1234", "dob": "1980-02-29"}
        try:
            person = IndividualDescription(first_name=first, last_name=last, ssn4="1234", dob="1980-02-29")
        except ValueError:
            assert not (first.strip() and last.strip())
            return
        patients.add_individual(connection, person, Contact())
        [user] = patients.provision(connection, RegistrationCall(body, DOMAIN, {}, 0))["users"]
        assert (user["firstName"], user["lastName"]) == (first, last)
