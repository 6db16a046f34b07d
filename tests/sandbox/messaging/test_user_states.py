"""The effect of a patient's state on sending and receiving (specification section 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from directsuite.sandbox.patients import USER_STATES
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.sandbox.messaging.mailbox_server import RAW_MESSAGE, encode_base64

DOMAIN = "direct.example.test"
ADA, BOB = f"ada@{DOMAIN}", f"bob@{DOMAIN}"
PASSWORD = "secret"
WITHOUT_CERTIFICATE = ["provisioned_cert_expired", "provisioned_cert_revoked"]


class Mail:
    """The sandbox with ada, a patient, and bob, an ordinary mailbox; a T-User acts for both."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http

    async def provision(self) -> None:
        """Make ada a patient."""
        username, password = DEMO_LOGIN
        base = self.sandbox.registration_url
        async with self.http.post(f"{base}/login", json={"username": username, "password": password}) as response:
            session = (await response.json())["sessionId"]
        body = {"id": 7, "directUsername": "ada", "directPassword": PASSWORD}
        async with self.http.post(f"{base}/ProvisionIDProofedPatient/{session}/{DOMAIN}", json=body) as response:
            assert (await response.json())["code"] == "000"

    async def call(self, path: str, body: dict[str, Any], method: str = "POST") -> dict[str, Any]:
        """Call an operation. Return the response."""
        async with self.http.request(method, f"{self.sandbox.message_url}/{path}", json=body) as response:
            members: dict[str, Any] = await response.json()
            return members

    async def uids(self, owner: str) -> dict[str, Any]:
        """Call GetUIDs for INBOX."""
        return await self.call("GetUIDs/INBOX", {"username": owner, "password": PASSWORD})

    async def send(self, sender: str, recipient: str, operation: str = "Send") -> dict[str, Any]:
        """Call Send or one of its variants."""
        message = {"sender": sender, "htmlBody": False, "recipients": [{"email": recipient, "type": "TO"}]}
        username = "desk" if operation.endswith("WithTuser") else sender
        credentials = {"username": username, "password": PASSWORD, "directAddr": sender}
        return await self.call(operation, {"authentication": credentials, "message": message}, "PUT")

    async def status(self, smtp_id: str, sender: str) -> str:
        """Return the delivery status of a message to one recipient."""
        response = await self.call(f"GetMessageStatus/{smtp_id}", {"username": sender, "password": PASSWORD})
        return str(response["messageLogs"][0]["status"])


@pytest.fixture
async def mail() -> AsyncIterator[Mail]:
    async with Sandbox() as sandbox, aiohttp.ClientSession() as http:
        await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
        await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
        await sandbox.add_account(BOB, PASSWORD)
        await sandbox.add_tuser("desk", PASSWORD, [ADA, BOB])
        running = Mail(sandbox, http)
        await running.provision()
        yield running


async def test_a_disabled_user_receives_mail_and_cannot_log_in(mail: Mail) -> None:
    assert await mail.sandbox.set_patient_state(ADA, "disabled")
    assert (await mail.uids(ADA))["code"] == 1
    assert (await mail.uids(ADA.upper()))["code"] == 1
    assert (await mail.send(ADA, BOB))["code"] == 1
    assert (await mail.send(ADA, BOB, "SendWithTuser"))["code"] == 2
    sent = await mail.send(BOB, ADA)
    assert await mail.status(sent["smtpId"], BOB) == "Delivered"
    assert await mail.sandbox.deliver(ADA, RAW_MESSAGE) == 2
    await mail.sandbox.set_patient_state(ADA, None)
    assert (await mail.uids(ADA))["uids"] == [1, 2]


@pytest.mark.parametrize("state", WITHOUT_CERTIFICATE)
async def test_a_user_without_a_certificate_can_only_read_mail(mail: Mail, state: str) -> None:
    assert await mail.sandbox.deliver(ADA, RAW_MESSAGE) == 1
    await mail.sandbox.set_patient_state(ADA, state)
    assert (await mail.uids(ADA))["uids"] == [1]
    for operation in ("Send", "SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser"):
        assert (await mail.send(ADA, BOB, operation))["code"] == 2
        assert await mail.sandbox.ledger(operation) == []
    credentials = {"username": ADA, "password": PASSWORD}
    forward = {"auth": credentials, "uids": [1], "recipients": [{"email": BOB, "type": "TO"}]}
    assert (await mail.call("Forward/INBOX", forward, "PUT"))["code"] == 2
    assert (await mail.uids(BOB))["uids"] == []
    sent = await mail.send(BOB, ADA)
    assert await mail.status(sent["smtpId"], BOB) == "Remotely Failed"
    with pytest.raises(ValueError, match="certificate"):
        await mail.sandbox.deliver(ADA, RAW_MESSAGE)
    saved = {"auth": credentials, "messages": [{"data": encode_base64(RAW_MESSAGE)}]}
    assert (await mail.call("SaveRawMessages/INBOX.Drafts", saved))["code"] == 0
    assert (await mail.uids(ADA))["uids"] == [1]


@pytest.mark.parametrize("state", sorted({*USER_STATES, None} - {"disabled", *WITHOUT_CERTIFICATE}, key=str))
async def test_other_states_allow_everything(mail: Mail, state: str | None) -> None:
    await mail.sandbox.set_patient_state(ADA, state)
    for sender, recipient in ((ADA, BOB), (BOB, ADA)):
        sent = await mail.send(sender, recipient)
        assert await mail.status(sent["smtpId"], sender) == "Delivered"
        assert (await mail.uids(recipient))["uids"] == [1]


async def test_the_certificate_expires_with_the_clock(mail: Mail) -> None:
    mail.sandbox.clock.advance(timedelta(days=367))
    assert (await mail.send(ADA, BOB))["code"] == 2
    assert (await mail.send(BOB, BOB))["code"] == 0
