"""The sandbox's rejections as typed errors of the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import directsuite as ds

from .scenario import ALICE, BOB, DOMAIN, FAX_NUMBER, PASSWORD, Scenario, make_message, make_settings

HOURS = timedelta(hours=1)
Call = Callable[[Scenario], Awaitable[Any]]


async def _forward_to_nobody(world: Scenario) -> None:
    await world.box.forward("INBOX", await world.deliver("a"))


# What is asked, the error, the operation that it names, and the service's code.
REJECTED: dict[str, tuple[Call, type[ds.ServiceError], str, int | str | None]] = {
    "wrong mailbox password": (
        lambda world: world.suite.mailbox(ALICE, "wrong").get_message_count(),
        ds.AuthenticationError,
        "GetMessageCount",
        1,
    ),
    "wrong password of a send": (
        lambda world: world.suite.mailbox(ALICE, "wrong").send(make_message()),
        ds.AuthenticationError,
        "Send",
        1,
    ),
    "wrong T-User password": (
        lambda world: world.suite.tuser("front-desk", "wrong", ALICE).send(make_message()),
        ds.AuthenticationError,
        "SendWithTuser",
        1,
    ),
    "T-User for another's address": (
        lambda world: world.suite.tuser("front-desk", PASSWORD, BOB).send(make_message("Hi", ALICE)),
        ds.AddressError,
        "SendWithTuser",
        2,
    ),
    "unknown folder": (lambda world: world.box.get_uids("INBOX.nowhere"), ds.ServiceError, "GetUIDs", 3),
    "folder that exists": (lambda world: world.box.create_folder("INBOX.Trash"), ds.ServiceError, "CreateFolder", 4),
    "no message of this uid": (lambda world: world.box.forward("INBOX", [999], [BOB]), ds.ServiceError, "Forward", 4),
    "nobody to forward to": (_forward_to_nobody, ds.AddressError, "Forward", 2),
    "missing document": (
        lambda world: world.suite.signing.get_doc("00000000-0000-0000-0000-000000000000"),
        ds.DocumentNotFoundError,
        "GetDoc",
        None,
    ),
    "damaged PDF": (lambda world: world.suite.signing.save(b"%PDF-1.7 nothing"), ds.BadRequestError, "Save", None),
    "unknown domain": (
        lambda world: world.suite.registration.get_patient_address_by_username("direct.nowhere.test", "ada"),
        ds.NotFoundError,
        "GetPatientAddressByUsername",
        "208",
    ),
    "unknown Direct username": (
        lambda world: world.suite.registration.get_patient_address_by_username(DOMAIN, "nobody"),
        ds.NotFoundError,
        "GetPatientAddressByUsername",
        "210",
    ),
    "password of nobody": (
        lambda world: world.suite.registration.set_patients_passwords(DOMAIN, [ds.UserPassword("nobody", "x")]),
        ds.NotFoundError,
        "SetPatientsPasswords",
        "210",
    ),
    "person who is not proofed": (
        lambda world: world.suite.registration.provision_id_proofed_patient(
            DOMAIN, ds.IDProofedIndividualRESTful(id=999)
        ),
        ds.BadRequestError,
        "ProvisionIDProofedPatient",
        "205",
    ),
}


async def test_rejection_is_a_typed_error(scenario: Scenario) -> None:
    for case, (call, kind, operation, code) in REJECTED.items():
        with pytest.raises(ds.ServiceError) as caught:
            await call(scenario)
        error = caught.value
        assert type(error) is kind, case
        assert (error.operation, error.code, error.attempts) == (operation, code, 1), case
        assert error.message, case
        assert error.message not in str(error), case
        assert scenario.clock.sleeps == [], case


async def test_wrong_token_is_an_authentication_error(scenario: Scenario) -> None:
    async with ds.DirectSuite(make_settings(scenario.sandbox), token="wrong", clock=scenario.clock) as suite:
        for call in (suite.signing.get_doc("d1"), suite.fax.get_multiple_message_info(FAX_NUMBER)):
            with pytest.raises(ds.AuthenticationError) as caught:
                await call
            assert (caught.value.status, caught.value.attempts) == (401, 1)
            assert "wrong" not in f"{caught.value} {caught.value!r}"
    assert scenario.clock.sleeps == []


async def test_wrong_login_is_an_authentication_error(scenario: Scenario) -> None:
    login = ds.Login("demo-reseller", "wrong")
    async with ds.DirectSuite(make_settings(scenario.sandbox), login=login, clock=scenario.clock) as suite:
        with pytest.raises(ds.AuthenticationError) as of_login:
            await suite.registration.login()
        with pytest.raises(ds.AuthenticationError) as of_call:
            await suite.registration.get_patient_address_by_username(DOMAIN, "ada")
    assert (of_login.value.operation, of_login.value.code) == ("login", "011")
    assert of_call.value.code == "011"


async def test_another_account_may_not_touch_a_document(scenario: Scenario) -> None:
    document = await scenario.save()
    number = await scenario.sandbox.add_fax(FAX_NUMBER)
    token = await scenario.sandbox.issue_token("another")
    async with ds.DirectSuite(make_settings(scenario.sandbox), token=token, clock=scenario.clock) as suite:
        for call in (
            suite.signing.get_doc(document),
            suite.signing.delete(document),
            suite.fax.get_single_message_info(FAX_NUMBER, number),
        ):
            with pytest.raises(ds.PermissionDeniedError) as caught:
                await call
            assert (caught.value.status, caught.value.attempts) == (403, 1)
    assert await scenario.suite.signing.get_doc(document)
