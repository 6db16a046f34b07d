"""Each step notices a service that does not do what it should."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from directsuite.cli.demo import DemoOptions, services
from directsuite.cli.demo.command import STEPS, run_step
from directsuite.cli.demo.context import (
    CLINIC,
    MAILBOX_PASSWORD,
    CheckFailedError,
    DemoContext,
    NoStepProgress,
    open_context,
)
from directsuite.cli.demo.documents import Form, build_consent_form
from directsuite.messaging.models import Attachment
from directsuite.sandbox.signing.keys import FileKeyStore

pytestmark = pytest.mark.wide

BY_NAME = {step.name: step for step in STEPS}
DONE: dict[str, Any] = {"success": True, "code": 0}
REGISTERED: dict[str, Any] = {"success": True, "code": "000"}
ACTIVE = {"username": "ada", "UserStateType": "activated"}
UNSIGNED_PDF = base64.b64encode(build_consent_form(Form.from_number(1))).decode()
OTHER_PDF = base64.b64encode(b"%PDF-1.7\n% another document\n").decode()


@pytest.fixture
async def opened_demo(tmp_path: Path) -> AsyncIterator[DemoContext]:
    async with open_context(tmp_path, DemoOptions(messages=3, documents=2, faxes=12), NoStepProgress()) as opened:
        yield opened


def _lie(name: str, operation: str, body: Any, problem: str, **rule: Any) -> Any:
    """rule: members of the sandbox's fault, such as how many requests it lets through first."""
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
        _lie("mailbox", "GetMessagesByUIDs", DONE, "iter_messages returns 0 of 3 messages"),
        _lie("mailbox", "GetMessages", DONE | {"messages": [{"uid": 2}]}, "instead of 1"),
        _lie("mailbox", "GetMessages", DONE | {"messages": [{"uid": 1}]}, "changes the message"),
        _lie("mailbox", "GetMessageMetaData", DONE, "returns other uids"),
        _lie("mailbox", "GetMessageMetaData", _metadata(subject="Other"), "returns other subjects"),
        _lie("mailbox", "GetMessageMetaData", _metadata(body="Told too much"), "returns bodies"),
        _lie("mailbox", "GetRawMessagesByUIDs", DONE, "iter_raw returns 0 of 3 messages"),
        _lie("signing", "GetDocInfo", {"identifier": "1", "signatures": []}, "GetDocInfo reports other"),
        _lie("signing", "SignAndPull", OTHER_PDF, "has changed", processed=True),
        _lie("signing", "SignAndPull", UNSIGNED_PDF, "pyHanko finds other signatures", processed=True),
        _lie("signing", "SignAndPull", OTHER_PDF, "GetDocInfo reports other"),
        _lie("signing", "Delete", {"documentDigest": "still there"}, "the digest is not empty"),
        _lie("fax", "getMultipleMessageInfo", {"MessageDetail": []}, "the page at offset 0 contains other faxes"),
        _lie("fax", "getSingleMessageInfo", {"MessageDetail": []}, "not the waiting one"),
        _lie("fax", "getMultipleMessageInfo", {"MessageDetail": []}, "the listing has 10 records", skip=3),
    ],
)
async def test_step_notices_a_false_answer(
    name: str, operation: str, rule: dict[str, Any], problem: str, opened_demo: DemoContext
) -> None:
    if name == "message":  # it writes to the patient of the first step
        assert (await run_step(BY_NAME["patient"], opened_demo)).passed
    media_type = "text/plain" if isinstance(rule["body"], str) else "application/json"
    opened_demo.sandbox.inject_fault(operation, "status", status=200, media_type=media_type, times=None, **rule)
    result = await run_step(BY_NAME[name], opened_demo)
    assert not result.passed
    assert result.outcome is None
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
async def test_step_tells_of_a_service_that_refuses(name: str, operation: str, opened_demo: DemoContext) -> None:
    opened_demo.sandbox.inject_fault(operation, "status", status=400, times=None)
    result = await run_step(BY_NAME[name], opened_demo)
    assert (result.problem or "").startswith(f"{operation}: ")


async def test_document_that_outlives_its_deletion_is_noticed(opened_demo: DemoContext) -> None:
    opened_demo.sandbox.inject_fault("Delete", "status", status=200, body={"documentDigest": ""}, times=None)
    result = await run_step(BY_NAME["signing"], opened_demo)
    assert result.problem == "a document can still be read after its deletion"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"subject": "Another"}, "the received subject differs"),
        ({"attachment_list": [Attachment(content=b"x", filename="x")]}, "the received attachments differ"),
    ],
)
async def test_message_that_changes_on_the_way_is_noticed(
    changes: dict[str, Any], problem: str, opened_demo: DemoContext
) -> None:
    assert (await run_step(BY_NAME["patient"], opened_demo)).passed
    sent = services._make_message()
    answer = await opened_demo.suite.mailbox(CLINIC, MAILBOX_PASSWORD).send(sent)
    with pytest.raises(CheckFailedError, match=problem):
        await services._check_received_message(opened_demo, attrs.evolve(sent, **changes), answer.smtp_id or "")
    with pytest.raises(CheckFailedError, match="a different message"):
        await services._check_received_message(opened_demo, sent, "<other@direct.example.test>")


async def test_signature_of_a_foreign_authority_is_noticed(
    opened_demo: DemoContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = FileKeyStore(None).authority_pem()

    def authority(_: DemoContext) -> bytes:
        return foreign

    monkeypatch.setattr(services, "_get_authority_pem", authority)
    result = await run_step(BY_NAME["signing"], opened_demo)
    assert "pyHanko does not accept" in (result.problem or "")
    assert "trusted=False" in (result.problem or "")


async def test_sandbox_is_back_in_the_present_after_a_step(opened_demo: DemoContext) -> None:
    before = opened_demo.sandbox.clock.now()
    opened_demo.advance_clock(hours=5)
    result = await run_step(BY_NAME["fax"], opened_demo)
    assert result.passed
    assert (opened_demo.sandbox.clock.now() - before).total_seconds() < 600


async def test_steps_count_what_they_did(opened_demo: DemoContext) -> None:
    results = [await run_step(step, opened_demo) for step in STEPS]
    assert [(result.problem, result.outcome and result.outcome.count) for result in results] == [
        (None, count) for count in (1, 4, 3, 2, 12)
    ]
