"""Provisioning with a lost response never succeeds, because the payment confirmation is lost."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds

from .verification_scenario import DOMAIN, VerificationScenario

USERNAME = "ada.example"
FAULTS: dict[str, tuple[dict[str, Any], bool]] = {
    "reset_after": ({"kind": "reset_after"}, True),
    "truncate": ({"kind": "truncate"}, True),
    "malformed": ({"kind": "malformed"}, True),
    "502 after it": ({"kind": "status", "status": 502, "processed": True}, True),
    "reset_before": ({"kind": "reset_before"}, False),
    "500 instead": ({"kind": "status", "status": 500}, False),
}


def ada(username: str | None = USERNAME, **others: Any) -> ds.IDProofedIndividualRESTful:
    members: dict[str, Any] = {"first_name": "Ada", "last_name": "Example", "ssn4": "1234", "dob": "1980-02-29"}
    return ds.IDProofedIndividualRESTful(direct_username=username, **(members | others))


async def unknown(world: VerificationScenario, individual: ds.IDProofedIndividualRESTful) -> ds.OutcomeUnknownError:
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.suite.registration.provision_id_proofed_patient(DOMAIN, individual)
    return caught.value


@pytest.mark.parametrize(("fault", "happened"), FAULTS.values(), ids=FAULTS)
async def test_user_is_found_where_the_ledger_has_it(
    scenario: VerificationScenario, fault: dict[str, Any], *, happened: bool
) -> None:
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", times=None, **fault)
    error = await unknown(scenario, ada())
    assert await scenario.count_effects("ProvisionIDProofedPatient") == happened
    assert (error.found is not None) == happened
    assert (error.attempts, error.looked) == (1, not happened)
    assert error.__cause__ is not None
    if error.found is not None:
        assert (error.found.username, error.found.first_name) == (USERNAME, "Ada")
        assert "payment confirmation" in str(error)
        assert "found" in error.how_to_find_out
        assert scenario.clock.now == 0.0


@pytest.mark.parametrize("individual", [ada(None), ada("", id=7)])
async def test_provisioning_without_username_is_not_verified(
    scenario: VerificationScenario, individual: ds.IDProofedIndividualRESTful
) -> None:
    looks = scenario.count_requests("GetPatientAddressByMeta")
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_after")
    error = await unknown(scenario, individual)
    assert (scenario.get_applied_count(looks), error.found, error.looked) == (0, None, False)
    assert "get_patient_address_by_meta" in error.how_to_find_out


async def test_another_user_of_same_person_does_not_confirm(scenario: VerificationScenario) -> None:
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ada("ada.earlier"))
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_before")
    assert (await unknown(scenario, ada())).found is None


async def test_another_person_with_same_names_does_not_confirm(scenario: VerificationScenario) -> None:
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ada())
    await scenario.sandbox.add_individual("Ada", "Example", "9999", "1999-09-09")
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_before")
    error = await unknown(scenario, ada(ssn4="9999", dob="1999-09-09"))
    assert (error.found, error.looked) == (None, True)


async def test_person_is_found_by_the_id_of_the_proofing_record(scenario: VerificationScenario) -> None:
    number = await scenario.sandbox.add_individual("Bea", "Example", "4321", "1981-02-28")
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_after")
    error = await unknown(scenario, ds.IDProofedIndividualRESTful(id=number, direct_username="Bea"))
    assert error.found is not None
    assert error.found.first_name == "Bea"
