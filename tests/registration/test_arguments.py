"""Arguments of the wrong type, which are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import directsuite as ds
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite

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
