"""The effect of a patient's state on sending and receiving (specification section 3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from directsuite.sandbox.patients import USER_STATES
from directsuite.sandbox.server import DEMO_LOGIN
from tests.sandbox.messaging.mailbox_server import (
    BOB,
    PASSWORD,
    RAW_MESSAGE,
    MessagingServer,
    encode_base64,
    make_credentials,
    make_message,
)

DOMAIN = "direct.clinic.test"
ADA = f"ada@{DOMAIN}"
WITHOUT_CERTIFICATE = ["provisioned_cert_expired", "provisioned_cert_revoked"]


@pytest.fixture
async def clinic(mail: MessagingServer) -> MessagingServer:
    """Ada, a patient, and Bob, an ordinary mailbox; the T-User `desk` acts for both."""
    await mail.sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
    await mail.sandbox.add_tuser("desk", PASSWORD, [ADA, BOB])
    base, (username, password) = mail.sandbox.registration_url, DEMO_LOGIN
    async with mail.http.post(f"{base}/login", json={"username": username, "password": password}) as response:
        session = (await response.json())["sessionId"]
    body = {"id": 7, "directUsername": "ada", "directPassword": PASSWORD}
    async with mail.http.post(f"{base}/ProvisionIDProofedPatient/{session}/{DOMAIN}", json=body) as response:
        assert (await response.json())["code"] == "000"
    return mail


async def send(mail: MessagingServer, sender: str, recipient: str, operation: str = "Send") -> dict[str, Any]:
    username = "desk" if operation.endswith("WithTuser") else sender
    credentials = make_credentials(username) | {"directAddr": sender}
    body = {"authentication": credentials, "message": make_message(recipient, sender=sender)}
    return await mail.call(operation, body=body)


async def get_status(mail: MessagingServer, smtp_id: str, sender: str) -> str:
    response = await mail.call_ok("GetMessageStatus", smtp_id, body=make_credentials(sender))
    return str(response["messageLogs"][0]["status"])


async def test_a_disabled_user_receives_mail_and_cannot_log_in(clinic: MessagingServer) -> None:
    assert await clinic.sandbox.set_patient_state(ADA, "disabled")
    for username in (ADA, ADA.upper()):
        assert await clinic.call_rejected("GetUIDs", "INBOX", body=make_credentials(username)) == 1
    assert (await send(clinic, ADA, BOB))["code"] == 1
    assert (await send(clinic, ADA, BOB, "SendWithTuser"))["code"] == 2
    sent = await send(clinic, BOB, ADA)
    assert await get_status(clinic, sent["smtpId"], BOB) == "Delivered"
    assert await clinic.sandbox.deliver(ADA, RAW_MESSAGE) == 2
    await clinic.sandbox.set_patient_state(ADA, None)
    assert await clinic.get_uids(username=ADA) == [1, 2]


@pytest.mark.parametrize("state", WITHOUT_CERTIFICATE)
async def test_a_user_without_a_certificate_can_only_read_mail(clinic: MessagingServer, state: str) -> None:
    assert await clinic.sandbox.deliver(ADA, RAW_MESSAGE) == 1
    await clinic.sandbox.set_patient_state(ADA, state)
    for operation in ("Send", "SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser"):
        assert (await send(clinic, ADA, BOB, operation))["code"] == 2
        assert await clinic.list_effects(operation) == []
    forward = {"auth": make_credentials(ADA), "uids": [1], "recipients": [{"email": BOB, "type": "TO"}]}
    assert await clinic.call_rejected("Forward", "INBOX", body=forward) == 2
    assert await clinic.get_uids(username=BOB) == []
    sent = await send(clinic, BOB, ADA)
    assert await get_status(clinic, sent["smtpId"], BOB) == "Remotely Failed"
    with pytest.raises(ValueError, match="certificate"):
        await clinic.sandbox.deliver(ADA, RAW_MESSAGE)
    saved = {"auth": make_credentials(ADA), "messages": [{"data": encode_base64(RAW_MESSAGE)}]}
    await clinic.call_ok("SaveRawMessages", "INBOX.Drafts", body=saved)
    assert await clinic.get_uids(username=ADA) == [1]


@pytest.mark.parametrize("state", sorted({*USER_STATES, None} - {"disabled", *WITHOUT_CERTIFICATE}, key=str))
async def test_other_states_allow_everything(clinic: MessagingServer, state: str | None) -> None:
    await clinic.sandbox.set_patient_state(ADA, state)
    for sender, recipient in ((ADA, BOB), (BOB, ADA)):
        sent = await send(clinic, sender, recipient)
        assert await get_status(clinic, sent["smtpId"], sender) == "Delivered"
        assert await clinic.get_uids(username=recipient) == [1]


async def test_the_certificate_expires_with_the_clock(clinic: MessagingServer) -> None:
    clinic.clock.advance(timedelta(days=367))
    assert (await send(clinic, ADA, BOB))["code"] == 2
    assert (await send(clinic, BOB, BOB))["code"] == 0
