"""Tokens and sessions that expire while they are used: renewed by themselves, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import aiohttp
import pytest

import directsuite as ds

from .scenario import ADA, DOMAIN, Scenario, make_settings

if TYPE_CHECKING:
    from directsuite.sandbox.server import Sandbox


class Tokens:
    """An async callable that returns a new token of the sandbox, and counts its calls."""

    def __init__(self, sandbox: Sandbox, expires_in: float | None = None) -> None:
        self.given = 0
        self._sandbox = sandbox
        self._expires_in = expires_in

    async def __call__(self) -> str | ds.AccessToken:
        self.given += 1
        token = await self._sandbox.issue_token()
        return token if self._expires_in is None else ds.AccessToken(token, self._expires_in)


def logins(world: Scenario) -> int:
    (rule,) = (fault for fault in world.sandbox.faults() if fault["operation"] == "login")
    return int(rule["applied"])


def count_logins(world: Scenario) -> None:
    world.sandbox.inject_fault("login", "latency", seconds=0, times=None)


async def renewed() -> None:
    """Wait for the renewal in the background, if there is one; calls don't."""
    for task in asyncio.all_tasks():
        if task.get_name() == "directsuite-token":
            await task


async def test_session_that_expired_on_the_server_is_renewed(scenario: Scenario) -> None:
    count_logins(scenario)
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    assert await scenario.sandbox.expire_sessions() == 1
    raw = await scenario.suite.registration.with_raw_response.get_patient_address_by_username(DOMAIN, "ada")
    assert [user.username for user in raw.value] == ["ada"]
    assert raw.attempts == 2
    assert logins(scenario) == 2
    assert scenario.clock.slept == []


async def test_session_is_renewed_before_its_ten_minutes_are_over(scenario: Scenario) -> None:
    count_logins(scenario)
    await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    for passed, expected in ((539, 1), (2, 2)):
        scenario.clock.now += passed
        scenario.sandbox.clock.advance(timedelta(seconds=passed))
        raw = await scenario.suite.registration.with_raw_response.get_patient_address_by_username(DOMAIN, "ada")
        await renewed()
        assert (raw.attempts, logins(scenario)) == (1, expected)


async def test_session_expired_during_provisioning_is_renewed(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("ProvisionIDProofedPatient", "expire_session")
    response = await scenario.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    assert [user.username for user in response.users] == ["ada"]
    assert len(await scenario.list_effects("ProvisionIDProofedPatient")) == 1


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
    assert scenario.clock.slept == []


async def test_token_that_is_always_rejected_is_renewed_once_only(scenario: Scenario) -> None:
    tokens = Tokens(scenario.sandbox)
    scenario.sandbox.inject_fault("GetDoc", "expire_token", times=None)
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=tokens, clock=scenario.clock) as suite:
        with pytest.raises(ds.AuthenticationError) as caught:
            await suite.signing.get_doc("d1")
    assert (caught.value.attempts, tokens.given) == (2, 2)
    assert "the token source was called again, but its new token was also rejected" in str(caught.value)


async def test_token_is_renewed_before_it_expires(scenario: Scenario) -> None:
    document = await scenario.save()
    tokens = Tokens(scenario.sandbox, expires_in=300)
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=tokens, clock=scenario.clock) as suite:
        for passed, expected in ((0, 1), (239, 1), (2, 2), (239, 2), (2, 3)):
            scenario.clock.now += passed
            await suite.signing.get_doc(document)
            assert tokens.given == expected


async def test_many_calls_with_one_expired_token_renew_it_once(scenario: Scenario) -> None:
    document = await scenario.save()
    tokens = Tokens(scenario.sandbox)
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=tokens, clock=scenario.clock) as suite:
        await suite.signing.get_doc(document)
        await scenario.sandbox.expire_tokens()
        await asyncio.gather(*(suite.signing.get_doc(document) for _ in range(20)))
    assert tokens.given == 2


class BrokenSource:
    """An async callable that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [KeyError("TOKEN"), ValueError(), aiohttp.ServerDisconnectedError()], ids=repr)
async def test_exception_of_the_token_function_ends_the_call_and_is_the_cause(
    scenario: Scenario, error: Exception
) -> None:
    token = BrokenSource(error)
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=token, clock=scenario.clock) as suite:
        for _ in range(2):  # the second call gets the same error, during the back-off
            with pytest.raises(ds.TransportError, match=f"the token source raised {type(error).__name__}") as caught:
                await suite.signing.get_doc("d1")
            assert caught.value.__cause__ is error
            assert (token.calls, scenario.clock.slept) == (1, [])


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), aiohttp.ClientOSError()], ids=repr)
async def test_os_error_of_the_token_function_is_tried_again_and_is_the_cause(
    scenario: Scenario, error: Exception
) -> None:
    token = BrokenSource(error)
    settings = make_settings(scenario.sandbox, retry=ds.RetryPolicy(attempts=2, wait=lambda _: 1.5))
    async with ds.DirectSuite(settings, token=token, clock=scenario.clock) as suite:
        with pytest.raises(ds.TransportError, match=f"the token source raised {type(error).__name__}") as caught:
            await suite.signing.get_doc("d1")
    assert caught.value.__cause__ is error
    assert token.calls == 2
