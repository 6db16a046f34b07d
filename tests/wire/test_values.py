"""Single JSON values: which are read, and which are rejected with an error that names the place and not the value."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec
from directsuite.wire.models import get_model_fields
from directsuite.wire.parsing import MismatchError, parse
from directsuite.wire.values import read_bool, read_float, read_int, read_pairs
from tests.wire.model_classes import JSON_VALUES, MODEL_CLASSES

CODEC = Codec()


@given(st.integers(-(10**39), 10**39))
def test_whole_numbers_are_read_from_numbers_and_digits(number: int) -> None:
    assert read_int(number) == read_int(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_from_numbers_and_digits(number: float) -> None:
    assert read_float(number) == read_float(repr(number)) == number


def test_flags_are_read_from_text_too() -> None:
    assert [*map(read_bool, (True, "true", "False", False))] == [True, True, False, False]


PAIRS: list[tuple[object, dict[str, str]]] = [
    (None, {}),
    ([], {}),
    ({}, {}),
    (
        {"Title": "t", "Pages": 3, "Signed": True, "Author": None},
        {"Title": "t", "Pages": "3", "Signed": "true", "Author": ""},
    ),
    ([{"key": "a", "value": "1"}, {"key": "b"}], {"a": "1", "b": ""}),
    ({"key": "a", "value": "1"}, {"a": "1"}),  # one pair, without its list
    ({"a": [1], "b": {"c": None}}, {"a": "[1]", "b": '{"c":null}'}),  # the specification shows no fields of metadata
    ({"value": "x"}, {"value": "x"}),
    ({"key": "x"}, {"key": "x"}),
    ({"key": "a", "value": "1", "more": "x"}, {"key": "a", "value": "1", "more": "x"}),
]


def test_pairs_are_read_from_objects_and_lists() -> None:
    assert [(value, read_pairs(value)) for value, _ in PAIRS] == PAIRS


INVALID: dict[Callable[[Any], object], list[object]] = {
    read_int: ["", "1.5", "1_0", "a", True, None, 1.5, math.inf, [1], {}],
    read_float: ["", "NaN", "inf", "-Infinity", "1_0", "a", True, None, [1], 10**400],
    read_bool: [0, 1, "yes", "", None, []],
    read_pairs: ["text", 1, [1], [{"value": "x"}], [["a", "b"]]],
}


@pytest.mark.parametrize("read", INVALID)
def test_invalid_value_is_rejected(read: Callable[[Any], object]) -> None:
    for value in INVALID[read]:
        with pytest.raises(MismatchError):
            read(value)


READ: list[tuple[type[ds.Model], dict[str, Any], str, object]] = [
    # the text null means no value, except in fields of texts
    (ds.Recipient, {"email": "a@b", "type": "null"}, "type", ds.RecipientType.TO),
    (ds.Message, {"htmlBody": "null", "recipients": "null"}, "html_body", False),
    (ds.Message, {"recipients": "null"}, "recipients", []),
    (ds.MessageDetail, {"subject": "null"}, "subject", "null"),
    (ds.MessageDetail, {"uid": "null"}, "uid", None),
    (ds.MessageDetail, {"receivedDate": "null"}, "received_date", None),
    (ds.IDProofedIndividual, {"dob": "null"}, "dob", None),
    (types.DirectUser, {"userType": "null"}, "user_type", None),
    (types.DirectUser, {"endpointPassword": "null"}, "endpoint_password", ds.Secret("null")),
    (ds.RawMessage, {"data": "null"}, "data", b"\x9e\xe9e"),
    (ds.Attachment, {"content": "null"}, "content", b"\x9e\xe9e"),
    (ds.AddUsersResponseV2, {"paymentConfirmation": "null"}, "payment_confirmation", None),
    (ds.DocumentInfo, {"metaData": "null"}, "meta_data", {}),
    # a number is read as text if text is declared
    (ds.MessageDetail, {"subject": 5}, "subject", "5"),
    (ds.MessageDetail, {"subject": 1.5}, "subject", "1.5"),
    (ds.StoredDocument, {"identifier": 2**70}, "identifier", str(2**70)),
    (types.LoginResponse, {"sessionId": 12}, "session_id", ds.Secret("12")),
    (types.ResellerAPIResponse, {"code": 0}, "code", "0"),
    (ds.DocumentSignature, {"signatureTime": 1467740835000}, "signature_time", "1467740835000"),
    (ds.FaxMessage, {"fax_number": 15551230001}, "fax_number", "15551230001"),
    (ds.FaxMessage, {"status": 3}, "status", "3"),
    (ds.Product, {"startDate": 20160705}, "start_date", "20160705"),
    (types.GetFoldersResponse, {"folders": [1, "a"]}, "folders", ["1", "a"]),
    # of a member with two names the one that is not empty is read
    (ds.DirectUserDetail, {"UserStateType": "null", "userState": "activated"}, "user_state", "activated"),
    (types.ResellerAPIResponse, {"errorMessage": "", "message": "text"}, "error_message", "text"),
    (types.ResellerAPIResponse, {"errorMessage": "null", "message": "text"}, "error_message", "null"),
    (ds.FaxMessage, {"MessageHandle": None, "messageHandle": "h"}, "message_handle", "h"),
    (ds.DocumentSignature, {"SignatureTime": "2016-07-05 17:47:15"}, "signature_time", "2016-07-05 17:47:15"),
    (ds.DocumentSignature, {"Reason": "Approved"}, "reason", "Approved"),
]


@pytest.mark.exhaustive(limit=10)
@pytest.mark.parametrize(("cls", "document", "field", "expected"), READ, ids=str)
def test_value_in_another_form_is_read(
    cls: type[ds.Model], document: dict[str, Any], field: str, expected: object
) -> None:
    assert getattr(CODEC.decode(cls, json.dumps(document).encode()), field) == expected


def test_a_datetime_for_a_day_is_written_as_its_day() -> None:
    moment = datetime(1980, 1, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
    assert CODEC.encode(ds.IDProofedIndividual(dob=moment)) == b'{"dob":"1980-01-31"}'


STRICT: list[tuple[type[ds.Model], object, str]] = [
    (ds.Page, [], "$"),
    (ds.Page, None, "$"),
    (ds.StoredDocument, {"createdTime": 0}, "$.identifier"),
    (ds.StoredDocument, {"identifier": ["Smith"]}, "$.identifier"),
    (types.LoginResponse, {"sessionId": True}, "$.sessionId"),
    (ds.Recipient, {"type": "TO"}, "$.email"),
    (ds.Recipient, {"email": None}, "$.email"),
    (types.GetCountResponse, {"count": "Smith"}, "$.count"),
    (types.SendMessageResponse, {"smtpId": []}, "$.smtpId"),
    (ds.DocumentInfo, {"documentDigest": True}, "$.documentDigest"),
    (types.GetUIDResponse, {"uids": [1, None]}, "$.uids[1]"),
    (types.GetUIDResponse, {"uids": [1, 2, "Smith"]}, "$.uids[2]"),
    (types.GetUIDResponse, {"uids": [-1]}, "$.uids[0]"),
    (types.GetUIDResponse, {"uids": [2**63]}, "$.uids[0]"),
    (types.SendRequest, {"authentication": {"username": "Smith", "password": "Smith"}, "message": 1}, "$.message"),
    (types.SendRequest, {"authentication": {"username": "Smith"}, "message": {}}, "$.authentication.password"),
]


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize(("cls", "document", "path"), STRICT, ids=lambda entry: entry if isinstance(entry, str) else "")
def test_mismatch_has_the_path_and_not_the_value(cls: type[ds.Model], document: object, path: str) -> None:
    with pytest.raises(MismatchError) as caught:
        CODEC.decode(cls, json.dumps(document).encode())
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} should be ")
    assert "Smi" not in f"{caught.value!s}{caught.value!r}{caught.value.args}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{}x", b"[" * 100_000, b"\xff{}", b'{"a":"\xff}', b'"\\ud800', b'"\\ud80"', b"NaN"]
)
def test_invalid_json_is_rejected(text: bytes) -> None:
    with pytest.raises(MismatchError) as caught:
        CODEC.decode(ds.Page, text)
    assert (caught.value.path, caught.value.expected) == ("$", "JSON")


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"M\xfcller", "M\ufffdller"),
        (b"a\xff\\n\xc3", "a\ufffd\n\ufffd"),
        (b"\xed\xa0\xbd!", "\ufffd\ufffd\ufffd!"),
        (rb"a\ud83d", "a\ufffd"),
        (rb"\uDE00b", "\ufffdb"),
        (rb"\ud83d\u0041", "\ufffdA"),
        (rb"\ud83d\ud83d\ude00\ude00", "\ufffd\N{GRINNING FACE}\ufffd"),
        (rb"\\ud83d\\\ud83d\"", '\\ud83d\\\ufffd"'),
        (rb"\\ud83d\ude00", "\\ud83d\ufffd"),
    ],
)
def test_broken_character_is_replaced(text: bytes, read: str) -> None:
    document = b'{"x\xff":"","messages":[{"subject":"%s"},{"subject":"b"}]}' % text
    response = CODEC.decode(types.GetMessageResponse, document)
    assert [message.subject for message in response.messages] == [read, "b"]


UNREADABLE: list[tuple[type[ds.Model], dict[str, Any], str]] = [
    (ds.StoredDocument, {"identifier": "1", "createdTime": "Smith"}, "createdTime"),
    (ds.MessageDetail, {"sentDate": ""}, "sentDate"),
    (ds.MessageDetail, {"uid": "Smith"}, "uid"),
    (ds.MessageDetail, {"size": []}, "size"),
    (ds.MessageDetail, {"subject": True}, "subject"),
    (ds.MessageDetail, {"htmlBody": "yes"}, "htmlBody"),
    (ds.Recipient, {"email": "a@b", "type": {}}, "type"),
    (ds.Attachment, {"content": "Smi*", "contentType": None, "filename": None}, "content"),
    (ds.DirectUserDetail, {"UserStateType": []}, "UserStateType"),
    (ds.DocumentInfo, {"metaData": ["Smith"]}, "metaData"),
    (ds.AddUsersResponseV2, {"paymentConfirmation": "Smith"}, "paymentConfirmation"),
    (ds.PaymentConfirmation, {"amount": 10**400}, "amount"),
    (ds.FormField, {"name": "agree", "value": True}, "value"),
    (ds.Page, {"index": 1, "rotate": "none"}, "rotate"),
    (ds.FaxMessage, {"updated_ts": "yesterday"}, "updated_ts"),
    (ds.FaxRecipient, {"PageCount": "many"}, "PageCount"),
]


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize(("cls", "document", "key"), UNREADABLE, ids=str)
def test_unreadable_value_gets_the_default_and_stays_in_extra(
    cls: type[ds.Model], document: dict[str, Any], key: str
) -> None:
    [field] = [field for field in get_model_fields(cls) if field.key == key]
    report = Counter[str]()
    model = CODEC.structure(cls, document, report)
    assert getattr(model, field.name) == field.make_default()
    assert model.extra == {key: document[key]}
    assert report == {f"$.{key}": 1}
    assert CODEC.converter.unstructure(model).items() >= document.items()
    assert CODEC.decode(cls, CODEC.encode(model)) == model


def test_a_new_value_replaces_an_unreadable_one_when_written() -> None:
    message = CODEC.structure(ds.MessageDetail, {"htmlBody": "yes", "size": "Smith"})
    assert CODEC.converter.unstructure(attrs.evolve(message, html_body=True, size=1)) == {"htmlBody": True, "size": 1}


def test_unreadable_values_are_counted_by_path_without_indices() -> None:
    good = {"email": "a@b"}
    document: dict[str, Any] = {
        "code": {},
        "messages": [
            {"uid": 1, "sentDate": "", "recipients": [good, 5, {"type": "TO"}, {"email": "a@b", "type": []}]},
            None,
            {"uid": 2, "sentDate": "", "attachments": [{"content": "*"}, None], "headers": "x"},
            {"uid": 3, "recipients": good},
            [],
        ],
    }
    report = Counter[str]()
    response = CODEC.structure(types.GetMessageResponse, document, report)
    assert [message.uid for message in response.messages] == [1, 2, 3]
    assert [len(message.recipients) for message in response.messages] == [2, 0, 1]
    assert report == {
        "$.code": 1,
        "$.messages[]": 2,
        "$.messages[].sentDate": 2,
        "$.messages[].recipients[]": 2,
        "$.messages[].recipients[].type": 1,
        "$.messages[].attachments[]": 1,
        "$.messages[].attachments[].content": 1,
        "$.messages[].headers[]": 1,
    }


@pytest.mark.parametrize("unreadable", [None, {}, [], True])
def test_a_list_of_texts_keeps_its_length(unreadable: object) -> None:
    report = Counter[str]()
    response = CODEC.structure(types.GetFoldersResponse, {"folders": ["a", unreadable, "b"]}, report)
    assert response.folders == ["a", "", "b"]
    assert report == {"$.folders[]": 1}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("text", [b"a\xff", rb"\ud83da", rb"a\udc00"])
@pytest.mark.parametrize(
    ("cls", "document", "path"),
    [
        (ds.StoredDocument, b'{"identifier":"%s"}', "$.identifier"),
        (ds.DocumentInfo, b'{"documentDigest":"%s"}', "$.documentDigest"),
        (ds.DocumentUpdate, b'{"documentDigest":"%s"}', "$.documentDigest"),
        (types.LoginResponse, b'{"sessionId":"%s"}', "$.sessionId"),
        (types.SendMessageResponse, b'{"smtpId":"%s"}', "$.smtpId"),
        (types.GetFoldersResponse, b'{"folders":["INBOX","%s"]}', "$.folders[1]"),
        (types.GetUIDResponse, b'{"uids":["%s"]}', "$.uids[0]"),
    ],
)
def test_broken_utf_8_in_an_identifier_is_an_error(
    cls: type[ds.Model], document: bytes, path: str, text: bytes
) -> None:
    with pytest.raises(MismatchError) as caught:
        CODEC.decode(cls, document % text)
    assert caught.value.path == path


def test_folder_with_broken_utf_8_gets_the_default() -> None:
    [message] = CODEC.decode(
        types.GetMessageResponse, b'{"messages":[{"uid":1,"folder":"\xff","subject":"\xff"}]}'
    ).messages
    assert (message.folder, message.subject) == (None, "\ufffd")
    assert message.extra == {"folder": "\ufffd"}
    assert json.loads(CODEC.encode(message))["folder"] == "\ufffd"


def test_replacement_character_in_a_response_is_text() -> None:
    document = '{"folders":["INBOX.\ufffd"],"message":"x"}'.encode()
    assert CODEC.decode(types.GetFoldersResponse, document).folders == ["INBOX.\ufffd"]
    assert CODEC.decode(types.GetFoldersResponse, document[:-3] + b'\xff"}').folders == ["INBOX.\ufffd"]


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" * 5000, b"1" * 400, b"1" * 25])
def test_too_large_number_leaves_other_values_readable(number: bytes) -> None:
    document = b'{"orderId":7,"amount":%s,"detail":%s,"other":%s}' % (number, number, number)
    read = CODEC.decode(ds.PaymentConfirmation, document)
    assert read.order_id == 7
    assert read.amount is None or len(number) == 25
    assert read.detail == number.decode()
    assert CODEC.decode(ds.PaymentConfirmation, CODEC.encode(read)) == read


@given(st.text(st.characters(), max_size=20), st.booleans())
def test_text_is_read_with_and_without_escapes(text: str, ascii_only: bool) -> None:
    document = json.dumps([text, "b"], ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if ascii_only:  # escaped halves that happen to fit together are a character
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert parse(document) == [re.sub("[\ud800-\udfff]", "\ufffd", text), "b"]
    else:
        assert parse(document) == [re.sub("[\ud800-\udfff]", "\ufffd" * 3, text), "b"]


@given(cls=st.sampled_from(MODEL_CLASSES), value=JSON_VALUES)
def test_any_json_is_a_model_or_a_mismatch(cls: type[ds.Model], value: Any) -> None:
    try:
        model = CODEC.structure(cls, value)
    except MismatchError:
        return
    assert CODEC.decode(cls, CODEC.encode(model)) == model


A, B = {"content": "QQ==", "contentType": "a/a"}, {"content": "Qg==", "contentType": "b/b"}


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize(
    ("document", "contents"),
    [
        ({"attachmentList": [A, B]}, [b"A", b"B"]),
        ({"attachments": [], "attachmentList": [A]}, [b"A"]),
        ({"attachments": None, "attachmentList": A}, [b"A"]),
        ({"attachments": "null", "attachmentList": [A]}, [b"A"]),
        ({"attachments": [A], "attachmentList": []}, [b"A"]),
        ({"attachments": [A], "attachmentList": None}, [b"A"]),
        ({"attachments": [A, B], "attachmentList": [A, B]}, [b"A", b"B"]),
        ({"attachments": [A, A], "attachmentList": [A, A]}, [b"A", b"A"]),
        ({"attachments": [A], "attachmentList": [B, A, A]}, [b"A", b"B", b"A"]),
        ({"attachments": A, "attachmentList": B}, [b"A", b"B"]),
        ({"attachments": [None, A], "attachmentList": [None, B]}, [b"A", b"B"]),
    ],
    ids=str,
)
def test_no_attachment_is_lost_under_either_of_two_names(document: dict[str, object], contents: list[bytes]) -> None:
    message = CODEC.structure(ds.MessageDetail, document)
    assert sorted(each.content for each in message.attachments) == sorted(contents)
    assert CODEC.structure(ds.MessageDetail, CODEC.converter.unstructure(message)) == message


@pytest.mark.parametrize("document", [{"attachments": [A], "attachmentList": None}, {"attachmentList": []}], ids=str)
def test_empty_member_under_another_name_is_written_back(document: dict[str, object]) -> None:
    assert (
        CODEC.converter.unstructure(CODEC.structure(ds.MessageDetail, document)).items()
        >= {"attachmentList": document["attachmentList"]}.items()
    )


def test_error_about_a_lone_surrogate_has_the_path_but_not_the_text() -> None:
    message = ds.Message(subject="fine", recipients=[ds.Recipient("a@b"), ds.Recipient("Smith\ud800")])
    with pytest.raises(ds.InvalidArgumentError) as caught:
        CODEC.encode(message)
    assert caught.value.parameter == "recipients[1].email"
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None
