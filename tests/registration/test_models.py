"""The models and the arguments of the registration service."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite

CODEC = Codec()


@pytest.mark.parametrize(("dob", "sent"), [(date(1970, 1, 31), "1970-01-31"), ("01/31/1970", "01/31/1970")])
def test_day_of_birth_is_sent_as_year_month_day_or_as_the_text(dob: date | str, sent: str) -> None:
    assert json.loads(CODEC.encode(ds.IDProofedIndividual(dob=dob))) == {"dob": sent}


@pytest.mark.parametrize("member", ["UserStateType", "userState"])
def test_state_is_read_under_either_name_and_written_as_specified(member: str) -> None:
    detail = CODEC.decode(ds.DirectUserDetail, json.dumps({member: "activated"}).encode())
    assert detail.user_state is ds.UserStateType.ACTIVATED
    assert detail.extra == {}
    assert CODEC.encode(detail) == b'{"UserStateType":"activated"}'


def test_both_names_immediately_lose_nothing() -> None:
    document = {"UserStateType": "activated", "userState": "disabled"}
    detail = CODEC.decode(ds.DirectUserDetail, json.dumps(document).encode())
    assert detail.user_state is ds.UserStateType.ACTIVATED
    assert json.loads(CODEC.encode(detail)) == document


def test_direct_address_is_the_username_in_the_domain() -> None:
    user = ds.DirectUserDetail(username="ada", email="ada@mail.example.com")
    assert user.direct_address("direct.example.org") == "ada@direct.example.org"
    with pytest.raises(ds.InvalidArgumentError):
        user.direct_address("")
    with pytest.raises(ValueError, match="no username"):
        ds.DirectUserDetail(email="ada@mail.example.com").direct_address("direct.example.org")


SECRETS: list[tuple[ds.Model, str, str]] = [
    (ds.Login("reseller", "Zaphod"), "password", "password"),
    (ds.UserPassword("patient", "Zaphod"), "password", "password"),
    (ds.IDProofedIndividualRESTful(direct_password="Zaphod"), "direct_password", "directPassword"),
    (types.DirectUser(endpoint_password="Zaphod"), "endpoint_password", "endpointPassword"),
    (ds.LoginResponse(session_id="Zaphod"), "session_id", "sessionId"),
]


@pytest.mark.parametrize(("model", "field", "member"), SECRETS)
def test_passwords_and_sessions_are_secrets_that_still_go_on_the_wire(model: ds.Model, field: str, member: str) -> None:
    assert getattr(model, field) == ds.Secret("Zaphod")
    sent: dict[str, Any] = json.loads(CODEC.encode(model))
    assert sent[member] == "Zaphod"
    again = CODEC.decode(type(model), CODEC.encode(model))
    assert isinstance(getattr(again, field), ds.Secret)


DOMAIN = "direct.example.test"
WRONG: dict[str, Callable[[ds.Registration, Any], Awaitable[object]]] = {
    "passwords": lambda registration, odd: registration.set_patients_passwords(DOMAIN, odd),
    "individual": lambda registration, odd: registration.get_patient_address_by_meta(DOMAIN, odd),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("parameter", WRONG)
@pytest.mark.parametrize(
    "value", [None, 5, "ada", ["ada"], ds.UserPassword("ada", "hush")], ids=lambda value: type(value).__name__
)
async def test_argument_of_the_wrong_type_is_rejected(server: ScriptedServer, parameter: str, value: object) -> None:
    async with open_suite(server) as suite:
        error = await catch_error(WRONG[parameter](suite.registration, value))
    assert isinstance(error, ds.InvalidArgumentError)
    assert error.parameter == parameter
    assert server.requests == []


async def test_person_without_credentials_is_not_provisioned(server: ScriptedServer) -> None:
    person: Any = ds.IDProofedIndividual(id=5)
    async with open_suite(server) as suite:
        error = await catch_error(suite.registration.provision_id_proofed_patient(DOMAIN, person))
    assert isinstance(error, ds.InvalidArgumentError)
    assert server.requests == []
