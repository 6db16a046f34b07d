"""Resetting the sandbox, and changing its options."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    import aiohttp

    from .conftest import Api

ALICE = "alice@direct.example.test"


async def test_a_reset_preserves_the_demo_account(api: Api) -> None:
    await api.sandbox.add_account(ALICE, "secret")
    await api.sandbox.deliver(ALICE, b"Subject: hello\r\n\r\nhello\r\n")
    await api.sandbox.add_fax("15550100100", account="other")
    api.sandbox.inject_fault("login", "status", status=500)
    await api.sandbox.reset()
    assert (api.sandbox.faults(), await api.sandbox.ledger()) == ([], [])
    assert await api.list_faxes("15550100100") == 200
    await api.sandbox.add_account(ALICE, "secret")


async def test_reset_that_fails_changes_nothing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("in the middle")

    await sandbox.add_account(ALICE, "secret")
    await sandbox.deliver(ALICE, b"Subject: hello\r\n\r\nhello\r\n")
    sandbox.inject_fault("login", "status", status=500)
    with monkeypatch.context() as broken:
        broken.setattr("directsuite.sandbox.oauth.add_client", fails)
        with pytest.raises(KeyError):
            await sandbox.reset()
    assert len(await sandbox.ledger()) == 1
    assert len(sandbox.faults()) == 1


async def test_options_have_initial_values_and_can_be_changed(http: aiohttp.ClientSession) -> None:
    async with Sandbox(profile="java", csv_above=0, missing_status=404) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}"}
        assert (sandbox.profile, sandbox.csv_above, sandbox.missing_status) == ("java", 0, 404)
        statuses: list[int] = []
        for status in (404, 400):
            sandbox.missing_status = status
            async with http.get(f"{sandbox.signing_url}/pdf/unknown", headers=headers) as response:
                statuses.append(response.status)
        assert statuses == [404, 400]
        sandbox.profile, sandbox.csv_above = "strict", 5
        messaging = sandbox._services.messaging
        assert (messaging.profile, messaging.csv_above) == ("strict", 5)


async def test_tokens_are_checked_without_touching_the_filters_of_warnings(
    sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("the filters belong to all threads")

    monkeypatch.setattr(warnings, "catch_warnings", touched)
    async with http.get(f"{sandbox.fax_url}/api/fax/getMessageList/1/0", headers=bearer) as response:
        assert (response.status, (await response.json())["Username"]) == (200, "demo")


async def test_reset_of_one_account_leaves_the_others(api: Api) -> None:
    bob = "bob@direct.example.test"
    for address in (ALICE, bob):
        await api.sandbox.add_account(address, "secret")
        await api.sandbox.deliver(address, b"Subject: hello\r\n\r\nhello\r\n")
    assert await api.sandbox.reset(ALICE)
    bobs = await api.message("GetMessageCount/INBOX", username=bob, password="secret")
    assert ((await api.message("GetMessageCount/INBOX"))[1]["count"], bobs[1]["count"]) == (0, 1)
    assert not await api.sandbox.reset("nobody@direct.example.test")
