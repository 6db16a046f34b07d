"""`directsuite.testing.response`: each operation accepts its own response."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
from yarl import URL

import directsuite as ds
from directsuite.core.outcome import interpret
from directsuite.core.session import BufferedResponse
from directsuite.messaging import operations as messaging
from directsuite.registration import operations as registration
from directsuite.testing import mocked_services, response
from directsuite.testing.responses import (
    ServiceResponse,
    _get_codec,
    _get_operations,
    describe_request,
    find_parameters,
    find_required_fields,
)
from tests.core.responses import encode_body
from tests.operations import OPERATIONS
from tests.operations.case import OperationCase


def test_response_has_the_request_and_the_fields() -> None:
    answer = response("GetUIDs", folder="In box", uids=[1, 2])
    assert (answer.method, answer.path, answer.status) == ("POST", "GetUIDs/In%20box", 200)
    assert answer.json == {"success": True, "uids": [1, 2]}
    assert response("GetDoc", identifier="d", pdf=b"%PDF-1.7").body == b"JVBERi0xLjc="


def test_request_is_described_by_its_operation_and_parameters() -> None:
    operations = {
        "POST https://a.test/x/GetUIDs/Gr%C3%B6%C3%9Fe%20(50%25)%20%26%20a%2Fb": "GetUIDs (folder='Größe (50%) & a/b')",
        "POST https://a.test/CreateFolder/login": "CreateFolder (folder='login')",
        "POST https://a.test/login": "login",
        "GET https://a.test/login": "GET https://a.test/login",
    }
    for request, described in operations.items():
        method, url = request.split()
        assert describe_request(method, URL(url, encoded=True)) == described


def read(operation: str, answer: ServiceResponse) -> object:
    """Return what the package reads from the response: its value, or a typed error."""
    received = BufferedResponse(answer.status, {}, answer.body)
    return interpret(_get_operations()[operation], received, 10_000, _get_codec())


STATUS_ERRORS = {
    400: ds.BadRequestError,
    401: ds.AuthenticationError,
    403: ds.PermissionDeniedError,
    404: ds.NotFoundError,
    500: ds.ServerError,
}
DOCUMENT = {"identifier": "d"}
FAX = {"fax_number": "1", "message_handle": "2"}


@pytest.mark.parametrize(("status", "expected"), STATUS_ERRORS.items())
@pytest.mark.parametrize(("operation", "values"), [("Save", {}), ("Sign", DOCUMENT), ("getSingleMessageInfo", FAX)])
def test_errors_of_signing_and_fax(
    operation: str, values: dict[str, Any], status: int, expected: type[ds.ServiceError]
) -> None:
    answer = response(operation, status=status, error="invalid_action", description="it is signed already", **values)
    error = read(operation, answer)
    assert type(error) is expected
    assert isinstance(error, ds.ServiceError)
    assert (answer.status, error.status, error.message) == (status, status, "invalid_action: it is signed already")
    assert type(read(operation, response(operation, status=status, **values))) is expected


def test_error_of_an_operation_that_returns_a_pdf() -> None:
    answer = response("GetDoc", identifier="d", error="no such document")
    assert (answer.status, answer.json) == (400, {"error": "no such document"})
    assert type(read("GetDoc", answer)) is ds.DocumentNotFoundError
    assert type(read("SignAndPull", response("SignAndPull", identifier="d", status=403))) is ds.PermissionDeniedError


@pytest.mark.parametrize("status", [None, 400])
@pytest.mark.parametrize("code", messaging.CODES)
def test_errors_of_messaging(code: int, status: int | None) -> None:
    answer = response("GetMessageCount", folder="INBOX", success=False, status=status, code=code, message="wrong")
    error = read("GetMessageCount", answer)
    assert type(error) is messaging.CODES[code][0]
    assert isinstance(error, ds.ServiceError)
    assert (error.status, error.code, error.message) == (status or 200, code, "wrong")


@pytest.mark.parametrize("operation", ["login", "SetPatientsPasswords"])
@pytest.mark.parametrize("code", registration.CODES)
def test_errors_of_registration(code: str, operation: str) -> None:
    path: dict[str, Any] = {} if operation == "login" else {"session_id": "s", "direct_domain": "d"}
    answer = response(operation, success=False, code=code, error_message="wrong", **path)
    error = read(operation, answer)
    assert type(error) is registration.CODES[code][0]
    assert isinstance(error, ds.ServiceError)
    assert (error.status, error.code, error.message) == (200, code, "wrong")


def test_status_alone_is_an_error_of_each_service() -> None:
    assert response("GetUIDs", folder="INBOX", status=404).json == {"success": False}
    assert response("GetUIDs", folder="INBOX", status=503).body == b""
    assert isinstance(read("GetUIDs", response("GetUIDs", folder="INBOX", status=503)), ds.ServerError)
    assert isinstance(read("login", response("login", status=401)), ds.AuthenticationError)
    assert response("Save", status=499).json == {"error": "error"}


async def test_suite_raises_the_error_of_a_failed_login() -> None:
    url = "https://registration.example.test/rest/Patient"
    answer = response("login", success=False, code="011", error_message="wrong password")
    async with ds.DirectSuite(ds.Settings(registration_url=url), login=ds.Login("reseller", "secret")) as suite:
        with mocked_services() as mocked:
            mocked.add(f"{url}/{answer.path}", answer.method, status=answer.status, body=answer.body, repeat=True)
            with pytest.raises(ds.AuthenticationError) as caught:
                await suite.registration.get_patient_address_by_username("direct.example.test", "ada")
    assert (caught.value.operation, caught.value.message) == ("login", "wrong password")


@pytest.mark.parametrize(
    ("operation", "values", "error", "text"),
    [
        ("GetUID", {}, ValueError, "there is no operation 'GetUID'. Similar names: GetUIDs"),
        ("get_uids", {}, ValueError, "Similar names: GetUIDs"),
        ("SendMessage", {}, ValueError, r"Similar names: Send, .*\. The guide `methods` lists"),
        ("Save", {}, TypeError, "the response of Save needs identifier"),
        ("Send", {}, TypeError, "the response of Send needs smtp_id"),
        ("GetMessageCount", {"folder": "INBOX"}, TypeError, "the response of GetMessageCount needs count"),
        ("GetMessageCount", {"folder": "INBOX", "cuont": 3}, TypeError, "has no field cuont"),
        ("GetMessages", {"folder": "INBOX", "messages": [{"subject": "a"}]}, TypeError, r"needs messages\[0\]\.uid"),
        ("GetMessages", {"folder": "INBOX"}, TypeError, "the response of GetMessages needs messages"),
        ("GetFolders", {"root": "INBOX", "subscribed_only": True}, TypeError, "needs folders"),
        ("getSingleMessageInfo", FAX, TypeError, "the response of getSingleMessageInfo needs message_detail"),
        ("GetMessageStatus", {"smtp_id": "<1>"}, TypeError, "the response of GetMessageStatus needs message_logs"),
        ("GetMessageStatus", {"smtp_id": "<1>", "csv_data": "to"}, TypeError, "GetMessageStatus needs bytes in csv_da"),
        ("SignAndPull", DOCUMENT, TypeError, "the response of SignAndPull needs pdf: bytes"),
        ("GetDoc", DOCUMENT | {"pdf": "text"}, TypeError, "the response of GetDoc needs pdf: bytes"),
        ("GetDoc", DOCUMENT | {"pdf": b""}, TypeError, "the response of GetDoc needs pdf: bytes"),
        ("GetUIDs", {"uids": [1]}, ValueError, "the path of GetUIDs needs folder"),
        ("GetUIDs", {"folder": "INBOX", "uid": [1]}, TypeError, "has no field uid. Similar fields: uids"),
        ("GetUIDs", {"folder": "INBOX", "uids": ["a"]}, TypeError, r"\$\.uids\[0\] should be a whole number"),
        ("GetUIDs", {"folder": "INBOX", "success": False, "code": "x"}, TypeError, r"\$\.code cannot be read"),
        ("GetDoc", {"identifier": "d", "content": b""}, TypeError, "is a PDF, and has no field content"),
        ("Sign", {"identifier": "d", "error": "x", "code": 1}, TypeError, "fields error and description, and no code"),
        ("GetUIDs", {"folder": "INBOX", "success": False, "uids": [1]}, TypeError, "uids"),
        ("Send", {"code": 2}, TypeError, "code=2 is an error: give success=False"),
        ("GetUIDs", {"folder": "INBOX", "status": 200, "code": 1, "uids": [1]}, TypeError, "code=1 is an error"),
        ("login", {"code": "011"}, TypeError, "code='011' is an error: give success=False"),
    ],
)
def test_wrong_names_are_rejected(operation: str, values: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        response(operation, **values)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"uid": 1, "subjct": "x"}], r"has no member \$\.messages\[0\]\.subjct\. .*MessageDetail are .*, subject,"),
        ([ds.MessageDetail(uid=1), {"uid": 2, "msg_id": "<a>"}], r"\$\.messages\[1\]\.msg_id"),
        ({"uid": 1, "subject": "x"}, "of GetMessages needs a list in messages"),
        ([{"uid": 1, "subject": "\ud800"}], r"cannot be written as JSON: messages\[0\]\.subject: it contains"),
        ([{"uid": 1, "attachments": [{"filenam": "x"}]}], r"\$\.messages\[0\]\.attachments\[0\]\.filenam\."),
        ([{"uid": "one"}], r"\$\.messages\[\]\.uid cannot be read"),
        (["one"], r"\$\.messages\[\] cannot be read"),
    ],
)
def test_value_that_would_not_be_read_is_rejected_with_its_path(messages: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        response("GetMessages", folder="INBOX", messages=messages)


STATUS = {"to": "a@direct.example.test", "status": "Deliverd"}


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (STATUS, r"unknown value at \$\.messageLogs\[0\]\.status: 'Deliverd'\. Similar values: Delivered"),
        (ds.DirectMessageLog(status=cast("Any", "delivered")), "'delivered'. Similar values: Delivered"),
        (STATUS | {"status": "?"}, r"The values are Delivered, .*pass MessageStatus\('\?'\)"),
    ],
)
def test_unknown_value_of_an_enum_is_rejected_with_similar_ones(log: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        response("GetMessageStatus", smtp_id="<1>", message_logs=[log])


def test_unknown_value_of_an_enum_is_accepted_as_its_member() -> None:
    status = ds.MessageStatus("Deferred")
    logs = [ds.DirectMessageLog(status=status), STATUS | {"status": status}]
    answer = response("GetMessageStatus", smtp_id="<1>", message_logs=logs)
    assert [log["status"] for log in answer.json["messageLogs"]] == ["Deferred", "Deferred"]


@pytest.mark.parametrize(("uids", "sent"), [((1, 2), [1, 2]), (None, None)])
def test_list_may_be_a_tuple_or_null(uids: object, sent: object) -> None:
    assert response("GetUIDs", folder="INBOX", uids=uids).json.get("uids") == sent


def test_tuple_may_contain_models() -> None:
    message = ds.MessageDetail(uid=2, extra={"flag": "y"})
    assert response("GetMessages", folder="INBOX", messages=(message,)).json["messages"][0]["flag"] == "y"


def test_dicts_and_extra_members_of_models_are_accepted() -> None:
    messages = [{"uid": 1, "subject": "x"}, ds.MessageDetail(uid=2, extra={"flag": "y"})]
    answer = response("GetMessages", folder="INBOX", messages=messages, extra={"server": "z"})
    assert answer.json["messages"] == [{"uid": 1, "subject": "x"}, {"htmlBody": False, "uid": 2, "flag": "y"}]
    assert answer.json["server"] == "z"


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("Send", {"code": 0, "smtp_id": ""}),
        ("Send", {"code": None, "smtp_id": "<1>"}),
        ("login", {"code": "000", "session_id": "s"}),
        ("Send", {"success": True, "code": 2, "smtp_id": "<1>"}),
        ("Send", {"status": 400, "code": 2}),
    ],
)
def test_code_of_success_or_beside_a_flag_or_status_is_accepted(operation: str, values: dict[str, Any]) -> None:
    assert response(operation, **values).json["success"] is ("status" not in values)


@pytest.mark.parametrize("case", OPERATIONS.values(), ids=str)
def test_each_operation_accepts_its_response(case: OperationCase) -> None:
    operation = _get_operations()[case.name]
    good: Any = read(case.name, ServiceResponse("", "", 200, encode_body(case.response)))
    fields = {name: good if name == "pdf" else getattr(good, name) for name in find_required_fields(operation)}
    values: dict[str, Any] = dict.fromkeys(find_parameters(operation), "1") | fields
    assert not isinstance(read(case.name, response(case.name, **values)), Exception)


def test_required_member_of_each_element_is_required_of_any_list(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = attrs.evolve(_get_operations()["GetMessageStatus"], required_fields=("message_logs[].message_id",))
    monkeypatch.setitem(_get_operations(), operation.name, operation)
    logs = [{"messageId": "<1@x>"}, {"to": "bob@direct.example.test"}]
    response(operation.name, smtp_id="<1@x>", message_logs=logs[:1])
    with pytest.raises(TypeError, match=r"the response of GetMessageStatus needs message_logs\[1\]\.message_id$"):
        response(operation.name, smtp_id="<1@x>", message_logs=logs)


def test_report_may_be_csv_instead_of_logs() -> None:
    report = read("GetMessageStatus", response("GetMessageStatus", smtp_id="<1>", csv_data=b"to\r\n"))
    assert isinstance(report, ds.DirectMessageStatusReportResponse)
    assert report.csv_data == b"to\r\n"
