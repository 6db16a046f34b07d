"""The registration facade: the result of each method, and the sessions that it uses."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds
from tests.fake_services import DOMAIN, REGISTRATION, SETTINGS, FakeServices

_SUCCESS: dict[str, Any] = {"code": "000", "success": True, "errorMessage": None}
_NOBODY: dict[str, Any] = {**_SUCCESS, "patient": None}
_PERSON = ds.IDProofedIndividualRESTful(id=7, direct_username="ada", direct_password="secret")
LOGIN = f"{REGISTRATION}/login"
SCOPE = f"s1/{DOMAIN}"

# The codes of the specification's section 7, and an unknown code.
CODES: dict[str, type[ds.ServiceError]] = {
    "002": ds.BadRequestError,
    "003": ds.PaymentError,
    "010": ds.BadRequestError,
    "012": ds.BadRequestError,
    "013": ds.PermissionDeniedError,
    "014": ds.BadRequestError,
    "021": ds.PaymentError,
    "022": ds.PaymentError,
    "099": ds.ServerError,
    "201": ds.ConflictError,
    "202": ds.BadRequestError,
    "203": ds.BadRequestError,
    "204": ds.BadRequestError,
    "205": ds.BadRequestError,
    "206": ds.BadRequestError,
    "207": ds.AddressError,
    "208": ds.NotFoundError,
    "209": ds.BadRequestError,
    "210": ds.NotFoundError,
    "999": ds.ServerError,
    "777": ds.ServiceError,
}


def add_login_responses(context: FakeServices, *session_ids: str) -> None:
    for session_id in session_ids:
        context.add_response("POST", LOGIN, _SUCCESS | {"sessionId": session_id})


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(("code", "expected"), CODES.items(), ids=CODES)
async def test_code_decides_the_class_and_is_not_tried_again(
    code: str, expected: type[ds.ServiceError], status: int, services: FakeServices, suite: ds.DirectSuite
) -> None:
    add_login_responses(services, "s1")
    url = f"{REGISTRATION}/ProvisionIDProofedPatient/{SCOPE}"
    services.add_response("POST", url, {"code": code, "success": False, "errorMessage": "about Ada"}, status=status)
    with pytest.raises(ds.ServiceError) as caught:
        await suite.registration.with_options(retry=ds.RetryPolicy()).provision_id_proofed_patient(DOMAIN, _PERSON)
    assert type(caught.value) is expected
    assert (caught.value.code, caught.value.message) == (code, "about Ada")
    assert "Ada" not in f"{caught.value} {caught.value!r}"
    assert [request.url for request in services.requests_by_url] == [LOGIN, url]


async def test_one_login_serves_many_calls(services: FakeServices, suite: ds.DirectSuite) -> None:
    add_login_responses(services, "s1")
    url = f"{REGISTRATION}/GetPatientAddressByUsername/{SCOPE}/ada"
    for _ in range(3):
        services.add_response("GET", url, _NOBODY)
        assert await suite.registration.get_patient_address_by_username(DOMAIN, "ada") == []
    assert [request.url for request in services.requests_by_url] == [LOGIN, url, url, url]


async def test_login_makes_later_calls_use_the_new_session(services: FakeServices, suite: ds.DirectSuite) -> None:
    add_login_responses(services, "s1", "s2")
    await suite.registration.login()
    await suite.registration.login()
    url = f"{REGISTRATION}/GetPatientAddressByUsername/s2/{DOMAIN}/ada"
    services.add_response("GET", url, _NOBODY)
    await suite.registration.get_patient_address_by_username(DOMAIN, "ada")
    assert [request.url for request in services.requests_by_url] == [LOGIN, LOGIN, url]


@pytest.mark.parametrize("session", [{}, {"sessionId": None}, {"sessionId": ""}], ids=str)
async def test_login_without_a_session_is_not_a_response(
    session: dict[str, Any], services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("POST", LOGIN, _SUCCESS | session)
    with pytest.raises(ds.ResponseDecodeError) as caught:
        await suite.registration.login()
    assert caught.value.path == "$.sessionId"


@pytest.mark.parametrize("status", [200, 401])
async def test_rejected_session_is_renewed_once(status: int, services: FakeServices, suite: ds.DirectSuite) -> None:
    refusal = {"code": "011", "success": False, "errorMessage": "expired"}
    add_login_responses(services, "s1", "s2")
    for session_id in ("s1", "s2"):
        url = f"{REGISTRATION}/GetPatientAddressByUsername/{session_id}/{DOMAIN}/ada"
        services.add_response("GET", url, refusal, status=status)
    with pytest.raises(ds.AuthenticationError) as caught:
        await suite.registration.get_patient_address_by_username(DOMAIN, "ada")
    assert (caught.value.code, caught.value.attempts) == ("011", 2)
    assert "new login succeeded, but its session was also rejected" in str(caught.value)
    assert len(services.requests_by_url) == 4


async def test_username_that_is_listed_twice_is_rejected(services: FakeServices, suite: ds.DirectSuite) -> None:
    passwords = [ds.UserPassword("ada", "one"), ds.UserPassword("Ada", "two")]
    with pytest.raises(ds.InvalidArgumentError) as refused:
        await suite.registration.set_patients_passwords(DOMAIN, passwords)
    assert refused.value.parameter == "passwords"


async def test_calls_without_a_login_say_what_is_missing(services: FakeServices) -> None:
    async with ds.DirectSuite(SETTINGS) as suite:
        with pytest.raises(ds.ConfigurationError, match="DIRECTSUITE_LOGIN_USERNAME"):
            await suite.registration.get_patient_address_by_username(DOMAIN, "ada")
        with pytest.raises(ds.ConfigurationError, match="Login"):
            await suite.registration.login()
        with pytest.raises(ds.ConfigurationError, match="token"):
            await suite.fax.get_multiple_message_info("15550100100")
    assert services.requests_by_url == []


@pytest.mark.parametrize(
    ("status", "payload", "text"),
    [
        (404, None, "login: not found (HTTP 404)"),
        (200, {"success": False, "code": "011"}, "login: authentication failed (code 011)"),
    ],
)
async def test_failed_login_names_the_operation_that_was_not_sent(
    status: int, payload: Any, text: str, services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("POST", LOGIN, payload, status=status)
    with pytest.raises(ds.ServiceError) as caught:
        await suite.registration.get_patient_address_by_username(DOMAIN, "ada")
    assert str(caught.value).startswith(f"{text}; GetPatientAddressByUsername was not sent")
