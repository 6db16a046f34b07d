"""Single JSON values: what is read, what is refused, and that a refusal names the place and never the value."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta, timezone
from typing import Any, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec
from directsuite.wire.models import Field, fields_of
from directsuite.wire.parsing import LARGE, MismatchError, parse
from directsuite.wire.values import read_bool, read_float, read_int, read_pairs
from tests.property.whole_answers import filled
from tests.wire.model_classes import JSON_VALUES, MODEL_CLASSES

CODEC = Codec()


@given(st.integers(-(10**39), 10**39))
def test_whole_numbers_are_read_from_numbers_and_digits(number: int) -> None:
    assert read_int(number) == read_int(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_from_numbers_and_digits(number: float) -> None:
    assert read_float(number) == read_float(repr(number)) == number


@pytest.mark.parametrize("value", ["", "1.5", "1_0", "a", True, None, 1.5, math.inf, [1], {}])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(MismatchError):
        read_int(value)


@pytest.mark.parametrize("value", ["", "NaN", "inf", "-Infinity", "1_0", "a", True, None, [1], 10**400])
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(MismatchError):
        read_float(value)


@pytest.mark.parametrize(("value", "flag"), [(True, True), ("true", True), ("False", False), (False, False)])
def test_flags_are_read_from_text_too(value: object, flag: bool) -> None:
    assert read_bool(value) is flag


@pytest.mark.parametrize("value", [0, 1, "yes", "", None, []])
def test_what_is_no_flag_is_refused(value: object) -> None:
    with pytest.raises(MismatchError):
        read_bool(value)


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


@pytest.mark.parametrize(("value", "pairs"), PAIRS)
def test_pairs_are_read_from_objects_and_lists(value: object, pairs: dict[str, str]) -> None:
    assert read_pairs(value) == pairs


@pytest.mark.parametrize("value", ["text", 1, [1], [{"value": "x"}], [["a", "b"]]])
def test_what_is_no_pairs_is_refused(value: object) -> None:
    with pytest.raises(MismatchError):
        read_pairs(value)


@pytest.mark.parametrize(
    ("cls", "document", "field", "expected"),
    [
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
    ],
)
def test_the_text_null_is_nothing_save_where_it_may_be_a_text(
    cls: type[ds.Model], document: dict[str, Any], field: str, expected: object
) -> None:
    assert getattr(CODEC.decode(cls, json.dumps(document).encode()), field) == expected


def test_a_datetime_for_a_day_is_written_as_its_day() -> None:
    moment = datetime(1980, 1, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
    assert CODEC.encode(ds.IDProofedIndividual(dob=moment)) == b'{"dob":"1980-01-31"}'


SPOILT: list[tuple[type[ds.Model], object, str]] = [
    (ds.Page, [], "$"),
    (ds.Page, None, "$"),
    (ds.StoredDocument, {"createdTime": "Smith"}, "$.createdTime"),
    (ds.Recipient, {"type": "TO"}, "$.email"),
    (ds.Recipient, {"email": None}, "$.email"),
    (types.GetMessageResponse, {"messages": [{}, {"receivedDate": "Smith"}]}, "$.messages[1].receivedDate"),
    (types.GetMessageResponse, {"messages": {"uid": "Smith"}}, "$.messages.uid"),
    (types.GetMessageResponse, {"messages": [{}, {"recipients": [{"email": 1}]}]}, "$.messages[1].recipients[0].email"),
    (ds.MessageDetail, {"attachmentList": [{"content": "Smi*"}]}, "$.attachmentList[0].content"),
    (ds.MessageDetail, {"attachments": [{}], "attachmentList": 1, "size": "S"}, "$.size"),
    (ds.DirectUserDetail, {"userState": 7}, "$.userState"),
    (ds.DirectUserDetail, {"UserStateType": 7}, "$.UserStateType"),
    (ds.DocumentInfo, {"metaData": ["Smith"]}, "$.metaData"),
    (types.SendRequest, {"authentication": {"username": "Smith", "password": "Smith"}, "message": 1}, "$.message"),
    (types.SendRequest, {"authentication": {"username": "Smith"}, "message": {}}, "$.authentication.password"),
    (ds.AddUsersResponseV2, {"paymentConfirmation": {"amount": "Smith"}}, "$.paymentConfirmation.amount"),
]


@pytest.mark.parametrize(("cls", "document", "path"), SPOILT, ids=lambda entry: entry if isinstance(entry, str) else "")
def test_a_mismatch_names_the_place_and_not_the_value(cls: type[ds.Model], document: object, path: str) -> None:
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
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(MismatchError) as caught:
        CODEC.decode(ds.Page, text)
    assert (caught.value.path, caught.value.expected) == ("$", "JSON")


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
@pytest.mark.parametrize("padding", [0, LARGE])
def test_a_broken_character_reads_as_one_that_stands_for_it(text: bytes, read: str, padding: int) -> None:
    document = b'{"x\xff":"%s","messages":[{"subject":"%s"},{"subject":"b"}]}' % (b"x" * padding, text)
    response = CODEC.decode(types.GetMessageResponse, document)
    assert [message.subject for message in response.messages] == [read, "b"]


@pytest.mark.parametrize("text", [b"AAE=\xff", rb"\ud83dAAE=", rb"AA\udc00E="])
def test_base64_with_a_broken_character_is_refused(text: bytes) -> None:
    with pytest.raises(MismatchError, match="base64 text") as caught:
        CODEC.decode(types.GetMessageResponse, b'{"messages":[{"attachments":[{"content":"%s"}]}]}' % text)
    assert caught.value.path == "$.messages[0].attachments[0].content"


@given(st.text(st.characters(), max_size=20), st.booleans())
def test_texts_of_any_characters_are_read_however_they_are_escaped(text: str, ascii_only: bool) -> None:
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


@pytest.mark.parametrize(
    ("cls", "document"),
    [
        (ds.FormField, {"name": "agree", "value": True}),
        (ds.DocumentSignature, {"signatureTime": 1467740835000}),
        (ds.Page, {"index": 1, "rotate": "none"}),
        (ds.FaxMessage, {"fax_number": 15551230001, "updated_ts": "yesterday"}),
        (ds.FaxRecipient, {"PageCount": "many"}),
    ],
)
def test_where_the_specification_shows_no_fields_odd_values_stay_in_extra(
    cls: type[ds.Model], document: dict[str, object]
) -> None:
    model = CODEC.structure(cls, document)
    assert model.extra
    assert CODEC.unstructure(model) == document


A, B = {"content": "QQ==", "contentType": "a/a"}, {"content": "Qg==", "contentType": "b/b"}


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
    assert CODEC.structure(ds.MessageDetail, CODEC.unstructure(message)) == message


@pytest.mark.parametrize("document", [{"attachments": [A], "attachmentList": None}, {"attachmentList": []}], ids=str)
def test_what_is_empty_under_another_name_goes_back_out(document: dict[str, object]) -> None:
    assert (
        CODEC.unstructure(CODEC.structure(ds.MessageDetail, document)).items()
        >= {"attachmentList": document["attachmentList"]}.items()
    )


@pytest.mark.parametrize("document", [{"attachments": [A], "attachmentList": [{"content": "Smi*"}]}])
def test_a_mismatch_in_the_second_of_two_lists_is_found(document: dict[str, object]) -> None:
    with pytest.raises(MismatchError) as caught:
        CODEC.structure(ds.MessageDetail, document)
    assert caught.value.path == "$.attachmentList[0].content"


@pytest.mark.parametrize(
    ("cls", "document", "field", "expected"),
    [
        (ds.DirectUserDetail, {"UserStateType": "null", "userState": "activated"}, "user_state", "activated"),
        (types.ResellerAPIResponse, {"errorMessage": "", "message": "text"}, "error_message", "text"),
        (types.ResellerAPIResponse, {"errorMessage": "null", "message": "text"}, "error_message", "null"),
        (ds.FaxMessage, {"MessageHandle": None, "messageHandle": "h"}, "message_handle", "h"),
    ],
)
def test_of_two_names_the_one_that_says_something_is_read(
    cls: type[ds.Model], document: dict[str, object], field: str, expected: object
) -> None:
    assert getattr(CODEC.structure(cls, document), field) == expected


LISTING = [(cls, field) for cls in MODEL_CLASSES for field in fields_of(cls) if get_origin(field.annotation) is list]


@pytest.mark.parametrize(("cls", "field"), LISTING, ids=lambda each: getattr(each, "__name__", None) or each.name)
def test_null_in_any_list_is_passed_over(cls: type[ds.Model], field: Field) -> None:
    seen: list[int] = []
    model = CODEC.structure(cls, {**filled(cls), field.key: [None, None]}, seen.append)
    assert getattr(model, field.name) == []
    assert seen == [2]


def test_half_a_surrogate_pair_is_refused_by_its_place_and_not_shown() -> None:
    message = ds.Message(subject="fine", recipients=[ds.Recipient("a@b"), ds.Recipient("Smith\ud800")])
    with pytest.raises(ds.InvalidArgumentError) as caught:
        CODEC.encode(message)
    assert caught.value.parameter == "recipients[1].email"
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None
