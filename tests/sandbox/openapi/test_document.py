"""The OpenAPI document itself: valid, complete, and neither too strict nor too lax about the specification's types."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import jsonschema_rs
import pytest
import schemathesis

from directsuite.registration.models import SUCCESS_CODE
from directsuite.registration.operations import CODES
from directsuite.sandbox.rejections import RegistrationCode
from tests.operations import METHODS
from tests.wire import specification_types

from .documented import DOCUMENT, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

LOG = {"from": "a@x.test", "to": "b@x.test", "status": "Delivered", "ts": "2026-05-01T12:00:00.000+0000"}
DETAIL: dict[str, Any] = {"sender": "a@x.test", "htmlBody": False, "recipients": []}
USER = {
    "firstName": "Zoe",
    "lastName": "O'Neil",
    "email": "z@x.test",
    "username": "zoe",
    "userType": "SMTP",
    "UserStateType": "activated",
}

VALID: list[tuple[str, Any]] = [
    ("APIResponse", {"success": True, "code": 0, "message": None, "another": [1]}),
    ("GetMessageResponse", {"success": True, "code": 0}),
    ("GetMessageResponse", {"success": True, "code": 0, "messages": None}),
    ("GetMessageResponse", {"success": False, "code": 1, "message": "no"}),
    ("DirectMessageLog", LOG),
    ("DirectMessageLog", {**LOG, "ts": 1777636800000}),
    ("MessageDetail", {**DETAIL, "body": None, "msgID": None, "size": -1, "attachments": [{"filename": "a"}]}),
    ("MessageWithHeader", {**DETAIL, "headers": [{"name": "X-A", "value": "1"}]}),
    ("IDProofedIndividual", {"id": 1}),
    ("IDProofedIndividual", {"firstName": "Z", "lastName": "O", "ssn4": "0123", "dob": "1980-02-29"}),
    ("GetPatientAddressesResponseType", {"code": "000", "success": True, "patient": [USER]}),
    ("AdminUser", {"firstName": "Z", "lastName": "O", "email": "z@x.test", "phone": "1"}),
    ("MetaDataObject", [{"key": "Title", "value": None}]),
    ("MetaDataObject", {"Title": "a"}),
]

INVALID: list[tuple[str, Any]] = [
    ("APIResponse", {"success": True, "code": 7}),
    ("APIResponse", {"code": 0}),
    ("GetUIDResponseType", {"success": True, "code": 0, "uids": ["1"]}),
    ("DirectMessageLog", {**LOG, "status": "delivered"}),
    ("DirectMessageLog", {**LOG, "ts": "1 May 2026"}),
    ("Message", {"sender": "a@x.test", "recipients": []}),
    ("MessageWithHeader", {**DETAIL, "headers": [{"name": 1}]}),
    ("Message", {**DETAIL, "attachmentList": [{"content": "", "filename": "a"}]}),
    ("Recipient", {"email": "a@x.test", "type": "to"}),
    ("UidsRequestType", {"auth": {"username": "a"}, "uids": []}),
    ("UidsRequestType", {"auth": {"username": "a", "password": "b"}, "uids": [1.5]}),
    ("IDProofedIndividual", {"firstName": "Z", "lastName": "O", "dob": "1980-02-29"}),
    ("IDProofedIndividualRESTful", {"directUsername": "zoe"}),
    ("ResellerAPIResponseType", {"code": "001", "success": False}),
    ("GetPatientAddressesResponseType", {"code": "000", "success": True, "patient": [{**USER, "UserStateType": ""}]}),
    ("AdminUser", {"firstName": "Z", "lastName": "O", "email": "z@x.test"}),
    ("DocumentDeletion", {"documentDigest": "abc", "description": ""}),
]


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def test_document_is_valid_openapi_3_1() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_schema_is_valid_json_schema_and_its_references_resolve() -> None:
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
        _validator(schema).is_valid({})


def test_each_operation_of_the_specification_is_there_once() -> None:
    assert sorted((each.name, each.method) for each in OPERATIONS) == sorted(METHODS.items())


def test_objects_allow_additional_members() -> None:
    objects = [schema for schema in SCHEMAS.values() if schema.get("type") == "object"]
    assert [schema for schema in objects if schema["additionalProperties"] is not True] == []


def test_a_success_without_its_result_is_invalid() -> None:
    response = DOCUMENT["paths"]["/message-rest/api/message/Send"]["put"]["responses"]["200"]
    send = _validator(response["content"]["application/json"]["schema"])
    assert send.is_valid({"success": True, "code": 0, "smtpId": "<1@x.test>"})
    assert send.is_valid({"success": False, "code": 2})
    assert not send.is_valid({"success": True, "code": 0})


def test_only_values_that_the_specification_allows_are_valid() -> None:
    for name, value in VALID + INVALID:
        assert _validator(SCHEMAS[name]).is_valid(value) == ((name, value) in VALID), (name, value)


@pytest.mark.process
def test_starting_the_sandbox_reads_no_yaml() -> None:
    program = "import sys; import directsuite.sandbox.server; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def arrays(schema: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    """Yield the schemas that allow an array, with their paths."""
    children: Any = ()
    if isinstance(schema, dict):
        members = cast("Mapping[str, Any]", schema)
        if "array" in (members.get("type") or ()):
            yield path, members
        children = members.items()
    elif isinstance(schema, list):
        children = enumerate(cast("Sequence[Any]", schema))
    for name, child in children:
        yield from arrays(child, f"{path}/{name}")


def test_every_array_describes_its_elements() -> None:
    found = dict(arrays(DOCUMENT))
    assert len(found) > 20
    assert [path for path, schema in found.items() if "items" not in schema] == []


NAMES = {
    "Signature": "SignBody",
    "MultiSignRequest": "MultiSignBody",
    "DocumentSignature": "SignatureObject",
    "FaxMessageInformation": "MessageInformation",
    "FaxMessage": "MessageObject",
    "FaxRecipient": "RecipientObject",
}
"""Schemas with other names than the types of the package."""
NO_SCHEMA = {"MessageStatusLog"}
"""Types without a named schema."""
READ_OTHERWISE = {
    "DocumentSignature": {"modification"},  # the sandbox has more values than the specification
    "DocumentUpdate": {"identifier"},  # some servers send it
    "FormField": {"type"},  # the specification doesn't show its fields
    "GetAuditFileResponse": {"message", "errorMessage"},  # the specification doesn't name its base
    "MessageDetail": {"attachmentList"},  # the sandbox can response so, as some servers do
}
"""Members of only one reading of the specification, which is not clear in these points."""


def members_of(schema: Mapping[str, Any]) -> set[str]:
    if "$ref" in schema:
        return members_of(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    return set(schema.get("properties", {})).union(*(members_of(part) for part in schema.get("allOf", ())))


def test_two_readings_of_the_specification_have_the_same_members() -> None:
    for name in sorted(specification_types.TYPES.keys() - NO_SCHEMA):
        written = {field.split()[0] for field in specification_types.TYPES[name].split(";") if field.strip()}
        called = (NAMES.get(name, name), f"{name}Object", f"{name}Type", name.replace("Response", "ResponseType"))
        schema = next(SCHEMAS[each] for each in called if each in SCHEMAS)
        assert written ^ members_of(schema) == READ_OTHERWISE.get(name, set()), name


def test_both_readings_have_the_same_registration_codes() -> None:
    documented = set(SCHEMAS["ResellerAPIResponseType"]["properties"]["code"]["enum"])
    assert documented == {SUCCESS_CODE, *CODES}
    assert {str(code.value) for code in RegistrationCode} <= documented


def list_parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that an `allOf` puts together, at any depth."""
    if "$ref" in schema:
        yield from list_parts(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    elif "allOf" in schema:
        for part in schema["allOf"]:
            yield from list_parts(part)
    else:
        yield schema


def test_generators_can_merge_the_parts_of_a_type() -> None:
    """Each part is a plain object, and no two parts describe a member differently: some generators drop such types."""
    for name in [name for name, schema in SCHEMAS.items() if "allOf" in schema]:
        members = dict[str, Any]()
        for schema in list_parts(SCHEMAS[name]):
            assert schema["type"] == "object", name
            assert not {"anyOf", "oneOf"} & schema.keys(), name
            for member, described in schema["properties"].items():
                assert members.setdefault(member, described) == described, name
