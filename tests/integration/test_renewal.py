"""Tokens and sessions that expire while they are used: renewed automatically, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import directsuite as ds

from .scenario import ADA, DOMAIN, Scenario, make_settings

if TYPE_CHECKING:
    from directsuite.sandbox.server import Sandbox


class Tokens:
    """An async callable that returns a new token of the sandbox, and counts its calls."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.given = 0
        self._sandbox = sandbox

    async def __call__(self) -> str:
        self.given += 1
        return await self._sandbox.issue_token()


async def test_session_expired_during_provisioning_is_renewed(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "expire_session")
    response = await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    assert [user.username for user in response.users] == ["ada"]
    assert len(await scenario.list_effects("ProvisionIDProofedPatient")) == 1


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("policy", [ds.RetryPolicy(), ds.RetryPolicy.none()], ids=["retries", "no retries"])
async def test_expired_token_is_renewed_and_the_call_replayed_once(policy: ds.RetryPolicy, scenario: Scenario) -> None:
    tokens = Tokens(scenario.sandbox)
    async with ds.DirectSuite(
        make_settings(scenario.sandbox, retry=policy), token=tokens, clock=scenario.clock
    ) as suite:
        document = await suite.signing.save(await scenario.suite.signing.get_doc(await scenario.save()))
        scenario.sandbox.inject_fault("Sign", "expire_token")
        update = await suite.signing.sign(document, ds.Signature(name="PatientSig"))
    assert update.document_digest != document.document_digest
    assert tokens.given == 2
    assert len(await scenario.list_effects("Sign")) == 1
    assert scenario.clock.sleeps == []


async def test_token_that_is_always_rejected_is_renewed_once_only(scenario: Scenario) -> None:
    tokens = Tokens(scenario.sandbox)
    scenario.sandbox.inject_fault("GetDoc", "expire_token", times=None)
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=tokens, clock=scenario.clock) as suite:
        with pytest.raises(ds.AuthenticationError) as caught:
            await suite.signing.get_doc("d1")
    assert (caught.value.attempts, tokens.given) == (2, 2)
    assert "The token source was called again, but its new token was also rejected" in str(caught.value)
