"""A sandbox with something of everything, and what a browser's requests look like."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from directsuite.sandbox.samples import ALICE, BOB, MAILBOX_LOGIN, add_sample_content
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.sandbox.signing.documents import make_consent_form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CREDENTIALS = {"username": ALICE, "password": MAILBOX_LOGIN}
SLOW_RECIPIENT = "slow+30m@clinic.example.test"


@pytest.fixture
async def populated_sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=add_sample_content) as sandbox:
        yield sandbox


@pytest.fixture
async def sent_message_id(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """The smtpId of a message to Bob and to one who confirms after half an hour."""
    message = {
        "sender": ALICE,
        "subject": "Referral of A. Example",
        "body": "Please see her soon.",
        "htmlBody": False,
        "recipients": [{"email": BOB, "type": "TO"}, {"email": SLOW_RECIPIENT, "type": "TO"}],
    }
    async with http.put(
        f"{populated_sandbox.message_url}/Send", json={"authentication": CREDENTIALS, "message": message}
    ) as answer:
        return str((await answer.json())["smtpId"])


@pytest.fixture
async def signed_document_id(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """The identifier of a document with form fields, signature fields and a signature."""
    headers = {"Authorization": f"Bearer {populated_sandbox.environment['DIRECTSUITE_TOKEN']}"}
    as_text = {**headers, "Content-Type": "text/plain"}
    async with http.post(
        f"{populated_sandbox.signing_url}/pdf", data=base64.b64encode(make_consent_form()), headers=as_text
    ) as answer:
        identifier = str((await answer.json())["identifier"])
    signature = {"name": "Approval", "widget": {"x": 72, "y": 300, "width": 200, "height": 60, "page": 1}}
    async with http.patch(
        f"{populated_sandbox.signing_url}/pdf/{identifier}/sign", json=signature, headers=headers
    ) as answer:
        assert answer.status == 200
    return identifier


@pytest.fixture
async def patient_address(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """The Direct address of a patient."""
    login = dict(zip(("username", "password"), DEMO_LOGIN, strict=True))
    async with http.post(f"{populated_sandbox.registration_url}/login", json=login) as answer:
        session = (await answer.json())["sessionId"]
    url = f"{populated_sandbox.registration_url}/ProvisionIDProofedPatient/{session}/direct.example.test"
    ada = {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29", "directUsername": "ada"}
    async with http.post(url, json={**ada, "directPassword": "hush-hush-hush"}) as answer:
        assert (await answer.json())["success"]
    return "ada@direct.example.test"


async def get_view(sandbox: Sandbox, http: aiohttp.ClientSession, path: str) -> str:
    """The HTML of a view."""
    async with http.get(f"{sandbox.root_url}{path}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


async def submit_form(
    sandbox: Sandbox, http: aiohttp.ClientSession, path: str, members: dict[str, Any], **changed: Any
) -> tuple[int, str]:
    """Send a form as the page does; status and body, or where it leads."""
    found = re.search(r'name="form_token" value="([^"]+)"', await get_view(sandbox, http, "/page/controls"))
    assert found is not None
    form = {"form_token": found[1], "back": "/page/controls", **members, **changed.pop("form", {})}
    headers = {"Origin": sandbox.root_url, "Sec-Fetch-Site": "same-origin", **changed}
    url = f"{sandbox.root_url}/page/do/{path}"
    async with http.post(url, data=form, headers=headers, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location", "") or await answer.text()
