"""Server dialects, each of which `doctor --deep` finds and a sandbox imitates."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.sandbox.quirks import _change_member
from directsuite.sandbox.server import Sandbox
from directsuite.wire.values import read_datetime
from tests.cli.doctor.test_deep import (
    DeepRunner,
    ResponseChange,
    ServerResponse,
    is_array,
    is_object,
    list_differences,
    make_specification,
)
from tests.cli.doctor.test_deep import deep as deep
from tests.integration.scenario import ALICE, PASSWORD, open_populated_sandbox
from tests.sandbox.signing.documents import make_plain_pages

pytestmark = pytest.mark.wide

DATES = frozenset({"receivedDate", "sentDate", "ts", "updated_ts"})
EPOCH = 1_777_636_800  # 2026-05-01T12:00:00Z


def changed(value: Any, change: Callable[[str, Any], Any]) -> Any:
    if is_object(value):
        return {name: change(name, changed(each, change)) for name, each in value.items()}
    return [changed(each, change) for each in value] if is_array(value) else value


def each_member(change: Callable[[str, Any], Any]) -> ResponseChange:
    def apply(answer: ServerResponse) -> None:
        if is_object(answer.body) and answer.status == 200 and answer.body.get("success") is not False:
            answer.body = changed(answer.body, change)

    return apply


def dates(date: object) -> ResponseChange:
    return each_member(lambda name, each: date if name in DATES and each is not None else each)


def lines(text: str) -> str:
    return "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))


def refused(status: int, operation: str) -> ResponseChange:
    def apply(answer: ServerResponse) -> None:
        is_refusal = answer.status != 200 or (is_object(answer.body) and answer.body.get("success") is False)
        if is_refusal and answer.operation == operation:
            answer.status = status

    return apply


MOMENTS = [
    EPOCH * 1000,
    EPOCH,
    EPOCH + 0.5,
    str(EPOCH * 1000),
    str(EPOCH),
    "2026-05-01T12:00:00Z",
    "20260501120000",
    "20260501T120000Z",
    "Fri, 01 May 2026 12:00:00 +0000",
    "Fri, 1 May 2026 12:00:00 GMT",
    "May 1, 2026 12:00:00 PM",
    "May 1, 2026, 12:00:00\u202fPM",
]
"""Noon of 1 May 2026 in the formats that the SDK reads."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_imitated_moment_is_the_same_for_the_sdk(moment: object) -> None:
    specification, headers = make_specification(), {"Date": "x", "Content-Type": "application/json"}
    body = json.dumps({"success": True, "code": 0, "messages": [{"receivedDate": moment}]}).encode()
    differences = specification.compare("GetMessages", 200, headers, body)
    (what,) = [each.what for each in differences if each.path == "$.messages[].receivedDate"]
    message = {"receivedDate": "2026-05-01T12:00:00.000+0000"}
    _change_member(message, "receivedDate", what)
    assert type(message["receivedDate"]) is type(moment)
    assert read_datetime(message["receivedDate"]) == datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("value", "imitated"), [([], []), ([7], 7), ([7, 8], [7, 8]), ("text", 1)])
def test_number_is_imitated_only_in_place_of_an_array_of_one(value: Any, imitated: Any) -> None:
    message = {"uids": value}
    _change_member(message, "uids", "is integer, not array or null")
    assert message == {"uids": imitated}


DIALECTS: dict[str, ResponseChange] = {
    "milliseconds": dates(EPOCH * 1000),
    "seconds": dates(EPOCH),
    "ISO with Z": dates("2026-05-01T12:00:00Z"),
    "ISO with a colon": dates("2026-05-01T12:00:00.000+00:00"),
    "ISO with microseconds": dates("2026-05-01T12:00:00.000000+00:00"),
    "no zone": dates("2026-05-01T12:00:00"),
    "no T": dates("2026-05-01 12:00:00"),
    "day last": dates("05/01/2026 12:00:00"),
    "base64 with line breaks": each_member(
        lambda name, each: lines(each) if name in ("data", "content") and isinstance(each, str) else each
    ),
    "PDF with line breaks": lambda answer: (
        setattr(answer, "body", lines(answer.body)) if isinstance(answer.body, str) else None
    ),
    "null for empty lists": each_member(lambda _, each: None if each == [] else each),
    "null for texts": each_member(lambda name, each: None if name in ("subject", "description") else each),
    "numbers as texts": each_member(
        lambda name, each: str(each) if name in ("size", "uid", "count") and each is not None else each
    ),
    "HTTP 404 for a folder": refused(404, "GetMessageCount"),
    "HTTP 500 for a document": refused(500, "GetDocInfo"),
}
"""Fifteen server dialects."""


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("name", DIALECTS)
async def test_dialect_is_found_and_imitated(name: str, deep: DeepRunner) -> None:
    found = all_found((await deep.examine(DIALECTS[name])).document)
    assert found
    assert all_found((await deep.examine_imitation()).document) == found


@pytest.mark.parametrize("profile", ["java", "attachment-list"])
async def test_profile_is_found_and_imitated(profile: str, deep: DeepRunner) -> None:
    deep.sandbox.profile = profile  # type: ignore[assignment]  # one of the literals
    found = all_found((await deep.examine()).document)
    assert found
    assert all_found((await deep.examine_imitation()).document) == found
    assert not [each for each in found if "SDK" in each[2]]


def all_found(document: Any) -> set[tuple[str, str, str]]:
    forms = {(each["operation"], one["path"], one["what"]) for each in document["operations"] for one in each["forms"]}
    return list_differences(document) | forms


async def test_forms_are_not_differences(deep: DeepRunner) -> None:
    told = await deep.examine(DIALECTS["milliseconds"])
    assert (told.status, list_differences(told.document)) == (0, set())


async def test_differences_that_do_not_apply_change_nothing(tmp_path: Path) -> None:
    paths = ("$.uids[]", "$[]", "$.uids.x", "$.uids[].x", "header")
    report = write_report(tmp_path, "GetUIDs", *((path, "is missing") for path in paths))
    async with open_populated_sandbox(imitate=report) as imitation:
        uid = await imitation.deliver(ALICE, b"Subject: Lab\r\n\r\nfine\r\n")
        async with ds.DirectSuite(ds.Settings(message_url=imitation.message_url)) as suite:
            uids = await suite.mailbox(ALICE, PASSWORD).get_uids()
    assert uids == [uid]


def write_report(folder: Path, operation: str, *differences: tuple[str, str]) -> Path:
    report = folder / "report.json"
    members = [{"path": path, "what": what} for path, what in differences]
    report.write_text(json.dumps({"operations": [{"operation": operation, "differences": members}]}))
    return report


async def request_document(imitation: Sandbox, token: str | None = None) -> int:
    headers = {"Authorization": f"Bearer {token or imitation.environment['DIRECTSUITE_TOKEN']}"}
    url = f"{imitation.signing_url}/pdf/nowhere/info"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
        return response.status


async def test_imitated_rejection_keeps_other_statuses(tmp_path: Path) -> None:
    report = write_report(tmp_path, "GetDocInfo", ("refusal status", "is 404, not 400"))
    async with open_populated_sandbox(imitate=report) as imitation:
        assert await request_document(imitation) == 404
        assert await request_document(imitation, "wrong") == 401
        imitation.inject_fault("GetDocInfo", "status", status=503)
        assert await request_document(imitation) == 503


@pytest.mark.parametrize("status", ["000", "100", "101", "600", "999"])
async def test_impossible_statuses_are_not_imitated(status: str, tmp_path: Path) -> None:
    differences = ("refusal status", f"is {status}, not 400"), ("status", f"is {status}, which is not among 200")
    async with open_populated_sandbox(imitate=write_report(tmp_path, "GetDocInfo", *differences)) as imitation:
        assert await request_document(imitation) == 400
        async with ds.DirectSuite.from_env(imitation.environment) as suite:
            stored = await suite.signing.save(make_plain_pages())
            assert (await suite.signing.get_doc_info(stored.identifier)).identifier == stored.identifier


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Content-Encoding"])
async def test_headers_of_the_connection_are_not_imitated(name: str, tmp_path: Path) -> None:
    report = write_report(tmp_path, "GetUIDs", (f"header {name}", "is not described"))
    async with (
        open_populated_sandbox(imitate=report) as imitation,
        ds.DirectSuite.from_env(imitation.environment) as suite,
    ):
        assert await suite.mailbox(ALICE, PASSWORD).with_options(retry=ds.RetryPolicy.none()).get_uids() == []


async def test_fault_reaches_a_client_of_an_imitation(deep: DeepRunner) -> None:
    await deep.examine(DIALECTS["milliseconds"])
    async with open_populated_sandbox(imitate=deep.folder / "report.json") as imitation:
        imitation.inject_fault("GetMessages", "malformed")
        async with ds.DirectSuite(ds.Settings(message_url=imitation.message_url)) as suite:
            box = suite.mailbox(ALICE, PASSWORD).with_options(retry=ds.RetryPolicy.none())
            with pytest.raises(ds.ResponseDecodeError):
                await box.get_messages()
