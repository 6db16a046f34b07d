"""The programs of the guides `errors`, `extending`, `sandbox` and `settings`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import attrs
import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_CLIENT
from tests.guides.documents import execute_programs, find_code_blocks

ALICE = "alice@direct.example.test"
FAX_NUMBER = "15550100100"
ENDPOINTS = "https://login.example.org"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as running:
        await running.add_account(ALICE, "secret")
        yield running


def letter() -> ds.Message:
    return ds.Message(recipients=[ds.Recipient(ALICE)], sender=ALICE, subject="Referral", body="See you on Monday.")


@pytest.mark.parametrize(
    ("password", "fault", "words"),
    [
        ("secret", None, "sent as <"),
        ("secret", {"kind": "reset_after"}, "it may have been sent: look in INBOX.Sent"),
        ("secret", {"kind": "status", "status": 200, "body": {"success": False, "code": 2}}, "the service knows no"),
        ("wrong", None, "the password is wrong"),
        ("secret", {"kind": "status", "status": 200, "body": {"success": False, "code": 3}}, "the service refuses it"),
    ],
)
async def test_each_error_is_reported_separately(
    sandbox: Sandbox, password: str, fault: dict[str, Any] | None, words: str
) -> None:
    [program] = find_code_blocks("errors")
    if fault is not None:
        sandbox.inject_fault("Send", **fault)
    settings = ds.Settings(message_url=sandbox.message_url, retry=ds.RetryPolicy.none())
    async with ds.DirectSuite(settings) as suite:
        result: str = await execute_programs(program)["send"](suite.mailbox(ALICE, password), letter())
    assert result.startswith(words)


async def test_hook_a_policy_and_a_listener_do_their_work(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    conversion, retries, events = find_code_blocks("extending")
    converter = execute_programs(conversion)["settings"].converter
    assert converter.structure(" cc ", ds.RecipientType) is ds.RecipientType.CC
    settings = attrs.evolve(execute_programs(retries)["settings"], fax_url=None, message_url=sandbox.message_url)
    assert settings.retry.attempts == 6
    sandbox.inject_fault("Send", "reset_after")
    async with execute_programs(events)["watched"](settings) as suite:
        with pytest.raises(ds.OutcomeUnknownError):
            await suite.mailbox(ALICE, "secret").send(letter())
    assert capsys.readouterr().out.startswith("Send: it may have happened: look in INBOX.Sent")


async def test_sandbox_tells_what_really_happened() -> None:
    [program] = find_code_blocks("sandbox")
    assert await execute_programs(program)["rehearse"]() == "sent 1 time"


async def test_any_client_can_send(sandbox: Sandbox) -> None:
    (body,) = (
        block.partition("-d '")[2].partition("'")[0] for block in find_code_blocks("sandbox", "sh") if "curl" in block
    )
    url = f"{sandbox.message_url}/Send"
    async with aiohttp.ClientSession() as http:
        for password, success in (("sandbox", False), ("secret", True)):
            content = body.replace('"sandbox"', f'"{password}"').replace("bob@", "alice@")
            async with http.put(url, data=content, headers={"Content-Type": "application/json"}) as answer:
                assert (answer.status, (await answer.json())["success"]) == (200, success)
    assert [(call.operation, call.is_rejected) for call in sandbox.calls.records] == [("Send", True), ("Send", False)]


async def test_both_grants_give_tokens(sandbox: Sandbox) -> None:
    await sandbox.add_client(*DEMO_CLIENT)
    of_the_program, of_the_user = (
        execute_programs(block.replace(ENDPOINTS, sandbox.token_url.removesuffix("/token")))
        for block in find_code_blocks("settings")
    )

    async def uses(token: Any) -> None:
        async with ds.DirectSuite(ds.Settings(fax_url=sandbox.fax_url), token=token) as suite:
            await suite.fax.get_multiple_message_info(FAX_NUMBER)

    await uses(of_the_program["of_the_program"](*DEMO_CLIENT))
    request = of_the_user["ask"](DEMO_CLIENT[0], "https://app.example.test/back")
    async with aiohttp.ClientSession() as http, http.get(request.url, allow_redirects=False) as answer:
        redirected_url = answer.headers["Location"]
    await uses(of_the_user["of_the_user"](request, redirected_url, DEMO_CLIENT[1]))
