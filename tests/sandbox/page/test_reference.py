"""The page's reference of the API: its examples, and the search for operations."""

from __future__ import annotations

import asyncio
import html
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import jsonschema_rs
import pytest

from directsuite.sandbox.control import build_control_document
from directsuite.sandbox.page.reference import _ExampleRequest, build_example, find_example, list_operations
from directsuite.sandbox.samples import ALICE, MAILBOX_LOGIN, add_sample_content
from directsuite.sandbox.server import Sandbox, load_openapi_document
from tests.sandbox.page.conftest import PageClient

OPERATIONS = {
    each.name: each for each in [*list_operations(load_openapi_document()), *list_operations(build_control_document())]
}


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[tuple[Sandbox, dict[str, str]]]:
    """A sandbox with samples, and the environment of a shell in which curl fails on HTTP errors."""
    async with Sandbox(seed=add_sample_content) as sandbox:
        (tmp_path / ".curlrc").write_text("fail\n")
        own = {"PATH": os.environ["PATH"], "CURL_HOME": str(tmp_path)}
        mailbox = {"DIRECTSUITE_MAILBOX": ALICE, "DIRECTSUITE_MAILBOX_PASSWORD": MAILBOX_LOGIN}
        yield sandbox, {**own, **sandbox.environment, **mailbox}


@pytest.mark.process
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_example_works_in_a_shell(
    operation: str, shell: tuple[Sandbox, dict[str, str]], http: aiohttp.ClientSession
) -> None:
    sandbox, environment = shell
    page = await PageClient(sandbox, http).view(f"/docs/{operation}")
    command = html.unescape(page.partition('id="example">')[2].partition("</pre>")[0])
    bash = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", command, env=environment, stdout=asyncio.subprocess.PIPE
    )
    response, _ = await bash.communicate()
    assert bash.returncode == 0
    assert response
    assert not any(call.is_rejected for call in sandbox.calls.records)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_an_example(operation: str) -> None:
    commands = [each.format_command("http://127.0.0.1:1", "TOKEN") for each in build_example(OPERATIONS, operation)]
    words = [shlex.split(command.partition("=$(")[2].removesuffix(")") or command) for command in commands]
    assert all(each[:2] == ["curl", "-sS"] for each in words)


def test_examples_conform_to_the_schemas() -> None:
    checked = 0
    for operation in OPERATIONS.values():
        content = operation.definition.get("requestBody", {}).get("content", {})
        for part in (*operation.definition["parameters"], *content.values()):
            value = find_example(operation.document, part, [])
            if "schema" in part and value is not None:
                schema = {**part["schema"], "components": operation.document["components"]}
                jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(value)
                checked += 1
            else:
                assert not part.get("required"), f"{operation.name} has no example for {part['name']}"
    assert checked > 100


def test_a_command_quotes_its_body_for_the_shell() -> None:
    body = 'it\'s $(id) `id` \\ "x"\n! $smtpId'
    words = shlex.split(
        _ExampleRequest("PUT", "/message-rest/api/message/Send", "text/plain", body, True, None).format_command("")
    )
    assert words[words.index("-d") + 1] == body
    assert words[:5] == ["curl", "-sS", "-X", "PUT", "$DIRECTSUITE_MESSAGE_URL/Send"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SENDwith", {"SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser"}),
        ("fax messages", {"getMultipleMessageInfo"}),
        ("clock/adv", {"advance"}),
        ("patch pull", {"FlattenAndPull", "ClearUnsignedFieldsAndPull", "SignAndPull", "MultiSignAndPull"}),
        ("registration find", {"GetPatientAddressByMeta", "GetPatientAddressByUsername"}),
        ("'\"><b>", set[str]()),
        (" ", set(OPERATIONS)),
    ],
)
async def test_operations_are_found(text: str, found: set[str], sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sandbox.root_url}/docs", params={"q": text}) as response:
        page = await response.text()
    assert set(re.findall(r'href="/docs/(\w+)"', page)) == found
    assert ("No operations match" in page) == (not found)
    assert "<b>" not in page


async def test_both_openapi_documents_are_shown_without_other_servers(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    pages = [await PageClient(sandbox, http).view(path) for path in ("/docs", "/docs/Send", "/docs/advance")]
    assert "/_sandbox/clock/advance" in pages[0]
    for page in pages:
        assert "http://" not in page.replace(sandbox.root_url, "")
        assert len(page) < 40_000
    async with http.get(f"{sandbox.root_url}/docs/Nothing") as response:
        assert response.status == 404


async def test_examples_of_controls_contain_the_token_variable(http: aiohttp.ClientSession) -> None:
    token = "a token of the sandbox"
    async with Sandbox(token=token) as sandbox:
        form = {"token": token}
        async with http.post(f"{sandbox.root_url}/page/token", data=form, allow_redirects=False) as response:
            cookies = {name: morsel.value for name, morsel in response.cookies.items()}
        shown = dict[str, str]()
        for name in ("clock", "Send"):
            async with http.get(f"{sandbox.root_url}/docs/{name}", cookies=cookies) as response:
                shown[name] = html.unescape(await response.text())
        assert '-H "Authorization: Bearer $DIRECTSUITE_SANDBOX_TOKEN"' in shown["clock"]
        assert "SANDBOX_TOKEN" not in shown["Send"]
        assert token not in shown["clock"]
