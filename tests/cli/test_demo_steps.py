"""Each step of the demo notices a service that does not behave as specified."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from directsuite.cli.demo import StepResult, _run_step
from directsuite.cli.demo_steps import STEPS, DemoContext, build_consent_form, open_context, verify_signatures
from directsuite.cli.options import DemoOptions
from directsuite.sandbox.signing.keys import FileKeyStore

pytestmark = pytest.mark.wide

DONE: dict[str, Any] = {"success": True, "code": 0}
REGISTERED: dict[str, Any] = {"success": True, "code": "000"}
ACTIVE = {"username": "ada", "UserStateType": "activated"}
UNSIGNED_PDF = base64.b64encode(build_consent_form(1)).decode()
OTHER_PDF = base64.b64encode(b"%PDF-1.7\n% another document\n").decode()


@pytest.fixture
async def opened_demo(tmp_path: Path) -> AsyncIterator[DemoContext]:
    async with open_context(tmp_path, DemoOptions(messages=3, documents=2, faxes=12)) as opened:
        yield opened


async def run_step(name: str, context: DemoContext) -> StepResult:
    return await _run_step(name, STEPS[name], context)


def _lie(name: str, operation: str, body: Any, problem: str, **rule: Any) -> Any:
    """Inject a fault. rule: its members, such as the number of requests to skip."""
    return pytest.param(name, operation, {"body": body, **rule}, problem, id=f"{name}-{operation}-{problem}")


def _metadata(**members: str) -> dict[str, Any]:
    messages = [{"uid": number, "subject": f"Résultat {number:04d}", **members} for number in (1, 2, 3)]
    return DONE | {"messages": messages}


@pytest.mark.parametrize(
    ("name", "operation", "rule", "problem"),
    [
        _lie("patient", "ProvisionIDProofedPatient", REGISTERED, "not active"),
        _lie("patient", "ProvisionIDProofedPatient", REGISTERED | {"users": [ACTIVE]}, "no payment"),
        _lie("patient", "GetMessageCount", DONE | {"count": 1}, "the mailbox is not empty"),
        _lie("patient", "GetPatientAddressByMeta", REGISTERED, "not found by name and birth date"),
        _lie("patient", "GetPatientAddressByUsername", REGISTERED, "not found by username"),
        _lie("patient", "ProvisionIDProofedPatient", REGISTERED, "provisioned twice", skip=1),
        _lie("patient", "ProvisionIDProofedPatient", {"success": False, "code": "002"}, "not 014", skip=1),
        _lie("message", "GetMessageStatus", DONE, "after 0 minutes the statuses are , not"),
        _lie("message", "GetMessagesByUIDs", DONE, "instead of one"),
        _lie("mailbox", "GetMessageCount", DONE | {"count": 4}, "does not count 3"),
        _lie("mailbox", "GetUIDs", DONE | {"uids": [1, 2]}, "the uids are not those"),
        _lie("mailbox", "GetMessagesByUIDs", DONE, "iter_messages returned 0 messages"),
        _lie("mailbox", "GetMessages", DONE | {"messages": [{"uid": 2}]}, "stream_messages returned 1 messages"),
        _lie("mailbox", "GetMessageMetaData", DONE, "iter_metadata returns wrong"),
        _lie("mailbox", "GetMessageMetaData", _metadata(subject="Other"), "iter_metadata returns wrong"),
        _lie("mailbox", "GetMessageMetaData", _metadata(body="Told too much"), "or message bodies"),
        _lie("mailbox", "GetRawMessagesByUIDs", DONE, "iter_raw returned 0 messages"),
        _lie("signing", "GetDocInfo", {"identifier": "1", "signatures": []}, "GetDocInfo does not report exactly"),
        _lie("signing", "SignAndPull", OTHER_PDF, "has changed", processed=True),
        _lie("signing", "SignAndPull", UNSIGNED_PDF, "pyHanko does not find exactly", processed=True),
        _lie("signing", "SignAndPull", OTHER_PDF, "GetDocInfo does not report exactly"),
        _lie("signing", "Delete", {"documentDigest": "still there"}, "returned a digest for the deleted document"),
        _lie("fax", "getMultipleMessageInfo", {"MessageDetail": []}, "the page at offset 0 does not contain"),
        _lie("fax", "getSingleMessageInfo", {"MessageDetail": []}, "the wrong status or description"),
        _lie("fax", "getMultipleMessageInfo", {"MessageDetail": []}, "the listing of 10 records", skip=3),
    ],
)
async def test_step_notices_a_false_response(
    name: str, operation: str, rule: dict[str, Any], problem: str, opened_demo: DemoContext
) -> None:
    if name == "message":  # it writes to the patient of the first step
        assert (await run_step("patient", opened_demo)).problem is None
    media_type = "text/plain" if isinstance(rule["body"], str) else "application/json"
    opened_demo.sandbox.inject_fault(operation, "status", status=200, media_type=media_type, times=None, **rule)
    result = await run_step(name, opened_demo)
    assert result.count is None
    assert problem in (result.problem or "")


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("patient", "SetPatientsPasswords"),
        ("message", "Send"),
        ("mailbox", "GetMessages"),
        ("signing", "Save"),
        ("fax", "getMultipleMessageInfo"),
    ],
)
async def test_step_tells_of_a_service_that_rejects(name: str, operation: str, opened_demo: DemoContext) -> None:
    opened_demo.sandbox.inject_fault(operation, "status", status=400, times=None)
    result = await run_step(name, opened_demo)
    assert (result.problem or "").startswith(f"{operation}: ")


async def test_document_that_outlives_its_deletion_is_noticed(opened_demo: DemoContext) -> None:
    opened_demo.sandbox.inject_fault("Delete", "status", status=200, body={"documentDigest": ""}, times=None)
    result = await run_step("signing", opened_demo)
    assert result.problem == "a document can still be read after its deletion"


async def test_signature_of_a_foreign_authority_is_not_accepted(opened_demo: DemoContext) -> None:
    assert (await run_step("signing", opened_demo)).problem is None
    content = (opened_demo.output / "signed" / "consent-002.pdf").read_bytes()
    authority = (opened_demo.output / "sandbox-ca.pem").read_bytes()
    changed = content.replace(b"Ada Example", b"Bob Example")
    foreign = FileKeyStore(None).authority_pem()
    arguments = ((content, authority), (content, foreign), (changed, authority))
    verified, untrusted, spoilt = [await asyncio.to_thread(verify_signatures, *each) for each in arguments]
    assert verified == {"PatientSignature": True, "ClinicSignature": True}
    assert set(untrusted.values()) == {False}
    assert False in spoilt.values()


async def test_sandbox_is_back_in_the_present_after_a_step(opened_demo: DemoContext) -> None:
    before = opened_demo.sandbox.clock.now()
    opened_demo.sandbox.clock.advance(timedelta(hours=5))
    result = await run_step("fax", opened_demo)
    assert result.problem is None
    assert (opened_demo.sandbox.clock.now() - before).total_seconds() < 600


async def test_steps_count_what_they_did(opened_demo: DemoContext) -> None:
    results = [await run_step(name, opened_demo) for name in STEPS]
    assert [(result.problem, result.count) for result in results] == [(None, count) for count in (1, 4, 3, 2, 12)]
