"""How long a change whose outcome is unknown is verified."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import directsuite as ds

from . import responses
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import ALICE, INDIVIDUAL, MESSAGE, PASSWORD, catch_error, expect_error, open_suite
from .virtual_time import measure_elapsed

STORED = ds.StoredDocument(identifier="doc", document_digest="old")
SIGNATURE = ds.Signature(name="PatientSig")
RAW = ds.RawMessage(data=b"Message-ID: <2@x>\r\n\r\n")
CHANGES: dict[str, tuple[object, ...]] = {
    "signing.flatten": (STORED,),
    "signing.flatten_and_pull": (STORED,),
    "signing.clear_unsigned_fields": (STORED,),
    "signing.clear_unsigned_fields_and_pull": (STORED,),
    "signing.sign": (STORED, SIGNATURE),
    "signing.sign_and_pull": (STORED, SIGNATURE),
    "signing.multi_sign": (STORED, [SIGNATURE]),
    "signing.multi_sign_and_pull": (STORED, [SIGNATURE]),
    "signing.sign_pdf": (b"%PDF-", SIGNATURE),
    "mailbox.delete_folder": ("INBOX.Old",),
    "mailbox.copy_messages_by_uids": ("INBOX", "INBOX.Old", [1]),
    "mailbox.save_raw_messages": ("INBOX.Old", [RAW]),
    "mailbox.send_once": (MESSAGE,),
    "registration.provision_id_proofed_patient": ("direct.example.test", INDIVIDUAL),
}
VERIFY_IF_REQUESTED = ("copy_messages_by_uids", "save_raw_messages")
FAILING = ("DeleteFolder", "CopyMessagesByUIDs", "SaveRawMessages", "SendWithHeader", "ProvisionIDProofedPatient")
UNCHANGED = {
    "success": True,
    "code": "000",
    "sessionId": "session",
    "folders": ["INBOX.Old"],
    "uids": [1],
    "messages": [{"uid": 1, "msgID": "<1@x>"}],
    "identifier": "doc",
    "documentDigest": "old",
}


async def call(suite: ds.DirectSuite, change: str, **options: Any) -> None:
    service, method = change.split(".")
    facade = suite.mailbox(ALICE, PASSWORD) if service == "mailbox" else getattr(suite, service)
    if method in VERIFY_IF_REQUESTED:
        options["verify"] = True
    await getattr(facade, method)(*CHANGES[change], **options)


async def fail_changes(exchange: Exchange) -> None:
    """Respond with 500 to changes, and to other requests as if nothing had changed."""
    request = exchange.request
    fails = request.method == "PATCH" or any(name in request.path for name in FAILING)
    await (responses.respond(b"", 500) if fails else responses.respond(UNCHANGED))(exchange)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("settings", "options", "seconds"),
    [({"settle": 5}, {"settle": 2.5}, 2.5), ({"settle": 5}, {}, 5), ({"settle": 0}, {}, 0), ({}, {}, 30)],
    ids=str,
)
@pytest.mark.parametrize("change", CHANGES)
async def test_change_is_verified_for_the_settle_time(
    server: ScriptedServer, change: str, settings: dict[str, Any], options: dict[str, Any], seconds: float
) -> None:
    server.default_responder = fail_changes
    errors: list[ds.DirectSuiteError] = []
    async with open_suite(server, **settings) as suite:

        async def fail() -> None:
            errors.append(await catch_error(call(suite, change, **options)))

        assert await measure_elapsed(fail()) == pytest.approx(seconds, abs=0.1)
    [error] = errors
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.looked


async def test_invalid_settle_time_is_rejected_before_anything_is_sent(
    server: ScriptedServer, suite: ds.DirectSuite
) -> None:
    for change in CHANGES:
        for settle in (-1, float("nan"), Decimal("sNaN"), "30", True):
            error = await expect_error(ds.InvalidArgumentError, call(suite, change, settle=settle))
            assert error.parameter == "settle"
    assert server.requests == []
