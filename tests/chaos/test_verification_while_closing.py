"""Outcomes that are verified while the suite closes: it waits for the calls and their verifications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import directsuite as ds
from tests.core.scripted_suite import expect_error
from tests.core.virtual_time import yield_until

from .verification_scenario import ALICE, DOMAIN, VerificationScenario

PATIENT = ds.IDProofedIndividualRESTful(
    first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29", direct_username="ada"
)
RAW = ds.RawMessage(data=b"Message-ID: <1@direct.example.test>\r\nSubject: x\r\n\r\nbody\r\n")


async def _sign(world: VerificationScenario) -> object:
    return await world.signing.sign(await world.save(), ds.Signature(name="PatientSig"))


async def _sign_and_pull(world: VerificationScenario) -> object:
    return await world.signing.sign_and_pull(await world.save(), ds.Signature(name="PatientSig"))


async def _provision(world: VerificationScenario) -> object:
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.suite.registration.provision_id_proofed_patient(DOMAIN, PATIENT)
    return caught.value.found


async def _send_once(world: VerificationScenario) -> object:
    return await world.box.send_once(ds.Message(subject="x", body="y", recipients=[ds.Recipient(ALICE)]))


async def _delete_folder(world: VerificationScenario) -> object:
    await world.box.create_folder("INBOX.a")
    await world.box.delete_folder("INBOX.a")
    return "deleted"


async def _append(world: VerificationScenario) -> object:
    await world.box.save_raw_messages("INBOX.Drafts", [RAW], verify=True)
    return "saved"


CALLS: dict[str, Callable[[VerificationScenario], Coroutine[Any, Any, object]]] = {
    "Sign": _sign,
    "SignAndPull": _sign_and_pull,
    "ProvisionIDProofedPatient": _provision,
    "SendWithHeader": _send_once,
    "DeleteFolder": _delete_folder,
    "SaveRawMessages": _append,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("operation", "call"), CALLS.items(), ids=CALLS)
async def test_closing_suite_still_verifies_its_calls(
    scenario: VerificationScenario, operation: str, call: Callable[[VerificationScenario], Coroutine[Any, Any, object]]
) -> None:
    lost = scenario.sandbox.inject_fault(operation, "hang", processed=True)
    calling = asyncio.create_task(call(scenario))
    while not await scenario.count_effects(operation):
        assert not calling.done()
    assert scenario.get_applied_count(lost) == 1
    closing = asyncio.create_task(scenario.suite.aclose(grace=60))
    await yield_until(lambda: scenario.suite._session.closed)
    scenario.sandbox._faults.stopped = True  # the hanging connection is cut
    assert await calling
    await closing
    await expect_error(ds.ClosedError, scenario.signing.get_doc_info("d"))


REPEATED: dict[str, Callable[[ds.Mailbox], Awaitable[None]]] = {
    "CreateFolder": lambda box: box.create_folder("INBOX.new"),
    "MoveFolder": lambda box: box.move_folder("INBOX.old", "INBOX.new"),
    "DeleteMessagesByUIDs": lambda box: box.delete_messages_by_uids("INBOX.Drafts", [1], forever=True),
}


@pytest.mark.parametrize(("operation", "call"), REPEATED.items(), ids=REPEATED)
async def test_rejected_retry_is_verified_while_suite_closes(
    scenario: VerificationScenario, operation: str, call: Callable[[ds.Mailbox], Awaitable[None]]
) -> None:
    await scenario.box.create_folder("INBOX.old")
    await scenario.box.save_raw_messages("INBOX.Drafts", [RAW])
    scenario.sandbox.inject_fault(operation, "reset_after")
    scenario.sandbox.inject_fault(operation, "status", status=200, body={"success": False, "code": 3})
    closing: list[asyncio.Task[None]] = []

    async def close() -> None:
        closing.append(asyncio.create_task(scenario.suite.aclose(grace=60)))

    scenario.clock.actions_during_waits.append(close)
    await call(scenario.box)
    await closing[0]
