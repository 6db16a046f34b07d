"""A sandbox with sample content, and clients of its page."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from directsuite.sandbox.page.site import NOTICE_COOKIE
from directsuite.sandbox.samples import ALICE, BOB, MAILBOX_LOGIN, add_sample_content
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.sandbox.signing.documents import make_consent_form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

CREDENTIALS = {"username": ALICE, "password": MAILBOX_LOGIN}
SLOW_RECIPIENT = "slow+30m@clinic.example.test"


@pytest.fixture
async def populated_sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=add_sample_content) as sandbox:
        yield sandbox


def make_referral(recipients: Mapping[str, str]) -> dict[str, object]:
    """Return the body of Send for a message from Alice. recipients: the types, by address."""
    message = {
        "sender": ALICE,
        "subject": "Referral of A. Example",
        "body": "Please see her soon.",
        "htmlBody": False,
        "recipients": [{"email": email, "type": kind} for email, kind in recipients.items()],
    }
    return {"authentication": CREDENTIALS, "message": message}


@pytest.fixture
async def sent_message_id(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """The smtpId of a message to Bob and to a recipient who confirms after half an hour."""
    body = make_referral({BOB: "TO", SLOW_RECIPIENT: "TO"})
    async with http.put(f"{populated_sandbox.message_url}/Send", json=body) as response:
        return str((await response.json())["smtpId"])


async def save_document(sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """Save a document with form fields and signature fields. Return its identifier."""
    headers = {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}", "Content-Type": "text/plain"}
    content = base64.b64encode(make_consent_form())
    async with http.post(f"{sandbox.signing_url}/pdf", data=content, headers=headers) as response:
        return str((await response.json())["identifier"])


@pytest.fixture
async def signed_document_id(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    """The identifier of a document with form fields, signature fields and a signature."""
    identifier = await save_document(populated_sandbox, http)
    headers = {"Authorization": f"Bearer {populated_sandbox.environment['DIRECTSUITE_TOKEN']}"}
    signature = {"name": "Approval", "widget": {"x": 72, "y": 300, "width": 200, "height": 60, "page": 1}}
    async with http.patch(
        f"{populated_sandbox.signing_url}/pdf/{identifier}/sign", json=signature, headers=headers
    ) as response:
        assert response.status == 200
    return identifier


@pytest.fixture
async def patient_address(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> str:
    login = dict(zip(("username", "password"), DEMO_LOGIN, strict=True))
    async with http.post(f"{populated_sandbox.registration_url}/login", json=login) as response:
        session = (await response.json())["sessionId"]
    url = f"{populated_sandbox.registration_url}/ProvisionIDProofedPatient/{session}/direct.example.test"
    ada = {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29", "directUsername": "ada"}
    async with http.post(url, json={**ada, "directPassword": "hush-hush-hush"}) as response:
        assert (await response.json())["success"]
    return "ada@direct.example.test"


class PageClient:
    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox, self.http, self.root = sandbox, http, sandbox.root_url
        self.notice_cookie: str | None = None

    async def view(self, path: str, **options: Any) -> str:
        async with self.http.get(f"{self.root}{path}", **options) as response:
            assert response.status == 200, await response.text()
            return await response.text()

    async def submit(self, path: str, members: dict[str, Any], **changed: Any) -> tuple[int, str]:
        """Send a form. Return the status, and the address of a redirect or else the body."""
        found = re.search(r'name="form_token" value="([^"]+)"', await self.view("/page/controls"))
        assert found is not None
        form = {"form_token": found[1], "back": "/page/controls", **members, **changed.pop("form", {})}
        headers = {"Origin": self.root, "Sec-Fetch-Site": "same-origin", **changed}
        url = f"{self.root}/page/do/{path}"
        async with self.http.post(url, data=form, headers=headers, allow_redirects=False) as response:
            self.notice_cookie = response.cookies[NOTICE_COOKIE].value if NOTICE_COOKIE in response.cookies else None
            return response.status, response.headers.get("Location", "") or await response.text()


@pytest.fixture
def page(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> PageClient:
    return PageClient(populated_sandbox, http)


@pytest.fixture
def empty_page(sandbox: Sandbox, http: aiohttp.ClientSession) -> PageClient:
    """A client of a sandbox without content, whose clock is frozen."""
    return PageClient(sandbox, http)
