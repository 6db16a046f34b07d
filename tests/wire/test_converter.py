"""The converter of all responses and requests: the package's own, and those of programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, cast

import attrs
import cattrs
import cattrs.preconf.json
import cattrs.preconf.msgspec
import cattrs.preconf.orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError
from tests.examples import scale_examples

from .model_classes import MODEL_CLASSES, build_instances

MOMENT = datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)


def _with_hooks(converter: cattrs.Converter) -> cattrs.Converter:
    ds.register_hooks(converter)
    return converter


CONVERTERS: dict[str, Callable[[], cattrs.Converter]] = {
    "own": ds.make_converter,
    "plain": lambda: _with_hooks(cattrs.Converter()),
    "no detailed validation": lambda: _with_hooks(cattrs.Converter(detailed_validation=False)),
    "json": lambda: _with_hooks(cattrs.preconf.json.make_converter()),
    "msgspec": lambda: _with_hooks(cattrs.preconf.msgspec.make_converter()),
    "orjson": lambda: _with_hooks(cattrs.preconf.orjson.make_converter()),
}
MADE = {name: make() for name, make in CONVERTERS.items()}

every_converter = pytest.mark.parametrize("make", CONVERTERS.values(), ids=CONVERTERS.keys())


def _text_of(converter: Any, model: ds.Model) -> bytes:
    text = converter.dumps(model) if hasattr(converter, "dumps") else json.dumps(converter.unstructure(model))
    return text.encode() if isinstance(text, str) else text


def _model_of(converter: Any, text: bytes, cls: type[ds.Model]) -> ds.Model:
    loaded = hasattr(converter, "loads")
    return cast("ds.Model", converter.loads(text, cls) if loaded else converter.structure(json.loads(text), cls))


def _within_64_bits(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_within_64_bits, cast("dict[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_within_64_bits, cast("list[object]", value)))
    return not isinstance(value, int) or -(2**63) <= value < 2**64


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("name", CONVERTERS)
@pytest.mark.parametrize("cls", MODEL_CLASSES, ids=lambda cls: cls.__name__)
@settings(
    max_examples=scale_examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(draw=st.data())
def test_every_converter_reads_what_it_writes(name: str, cls: type[ds.Model], draw: st.DataObject) -> None:
    converter = MADE[name]
    model = draw.draw(build_instances(cls))
    plain = converter.unstructure(model)
    assert plain == MADE["own"].unstructure(model)
    assert converter.structure(plain, cls) == model
    if name != "orjson" or _within_64_bits(plain):
        text = _text_of(converter, model)
        assert _model_of(converter, text, cls) == model
        assert Codec().decode(cls, text) == model


@pytest.mark.exhaustive(limit=2)
@every_converter
def test_preconfigured_converter_writes_values_as_services_do(make: Callable[[], cattrs.Converter]) -> None:
    converter = make()
    message = ds.MessageDetail(
        received_date=MOMENT,
        attachments=[ds.Attachment(content=b"\x00\x01", content_type="a/b")],
        recipients=[ds.Recipient("a@b", ds.RecipientType("LATER"))],
        extra={"importance": 1},
    )
    document = {
        "htmlBody": False,
        "recipients": [{"email": "a@b", "type": "LATER"}],
        "receivedDate": "2016-07-05T17:47:15.000Z",
        "attachments": [{"content": "AAE=", "contentType": "a/b", "filename": None}],
        "importance": 1,
    }
    assert converter.unstructure(message) == document
    assert converter.structure(document, ds.MessageDetail) == message
    login = ds.Login("a", "hunter2")
    assert converter.structure(converter.unstructure(login), ds.Login) == login
    assert converter.unstructure(ds.IDProofedIndividual(dob=date(1970, 1, 31))) == {"dob": "1970-01-31"}
    assert type(converter.unstructure(ds.RecipientType.TO)) is str


@attrs.frozen
class Filed:
    """A class of a program with a field of the package's type."""

    checksum: bytes
    at: datetime
    message: ds.MessageDetail


def test_types_of_the_program_are_read_as_before() -> None:
    converter = cattrs.preconf.json.make_converter()
    filed = Filed(b"\x00\x01", MOMENT, ds.MessageDetail(uid=1, attachments=[ds.Attachment(content=b"\x00\x01")]))
    before = converter.unstructure(filed.checksum)
    ds.register_hooks(converter)
    document = converter.unstructure(filed)
    assert document["checksum"] == before
    assert document["message"]["attachments"][0]["content"] == "AAE="
    assert converter.loads(converter.dumps(filed), Filed) == filed


MESSAGE = {
    "uid": 1,
    "subject": "Subject",
    "expunged": True,
    "size": 5,
    "receivedDate": "2016-07-05T17:47:15Z",
    "recipients": [{"email": "a@b", "type": "TO"}],
    "attachments": [{"content": "AAE="}],
}


def _told(value: Any) -> str:
    return f"read from {value!r}"


def _fail_with(error: type[Exception]) -> Callable[..., Any]:
    def fail(value: Any, _: Any = None) -> Any:
        raise error(f"{value} Smith")

    return fail


def test_a_hook_for_a_type_holds_inside_models() -> None:
    converter = ds.make_converter()
    assert converter.structure(MESSAGE, ds.MessageDetail).subject == "Subject"  # an existing function is created again
    converter.register_structure_hook(str, lambda value, _: value.upper())
    converter.register_structure_hook(int, lambda value, _: value + 100)
    converter.register_structure_hook(datetime, lambda value, _: _told(value))
    converter.register_structure_hook(bytes, lambda value, _: _told(value).encode())
    message: Any = converter.structure(MESSAGE, ds.MessageDetail)
    assert message.subject == "SUBJECT"
    assert (message.uid, message.size) == (101, 105)
    assert message.expunged is True  # a bool is an int for cattrs alone
    assert message.received_date == "read from '2016-07-05T17:47:15Z'"
    assert message.recipients == [ds.Recipient("A@B")]
    assert message.attachments[0].content == b"read from 'AAE='"
    assert converter.structure({"uids": [1, 2]}, types.GetUIDResponse).uids == [101, 102]
    assert converter.structure({"folders": ["a"]}, types.GetFoldersResponse).folders == ["A"]
    assert converter.structure({"metaData": {"a": "b"}}, ds.DocumentInfo).meta_data == {"a": "B"}


def test_hook_for_date_does_not_apply_to_datetime() -> None:
    converter = ds.make_converter()
    converter.register_structure_hook(date, lambda value, _: date.fromisoformat(value).replace(year=2000))
    assert converter.structure(MESSAGE, ds.MessageDetail).received_date == MOMENT
    assert converter.structure({"startDate": "1970-01-31"}, ds.Product).start_date == date(2000, 1, 31)
    assert converter.structure({"startDate": "soon"}, ds.Product).start_date == "soon"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (ds.RecipientType, "recipients"),
        (ds.OpenEnum, "recipients"),
        (ds.Recipient, "recipients"),
        (ds.Attachment, "attachments"),
    ],
    ids=str,
)
def test_hook_for_the_type_of_a_field_is_called(kind: Any, field: str) -> None:
    converter = ds.make_converter()
    seen: list[Any] = []

    def hook(value: Any, _: Any) -> Any:
        seen.append(value)
        return "from the hook"

    converter.register_structure_hook(kind, hook)
    message = converter.structure(MESSAGE, ds.MessageDetail)
    assert len(seen) == 1
    read: Any = getattr(message, field)
    assert "from the hook" in (read, read[0], getattr(read[0], "type", None))


def test_earlier_hook_of_plain_converter_applies_inside_models() -> None:
    converter = cattrs.Converter()
    converter.register_structure_hook(datetime, lambda value, _: _told(value))
    converter.register_structure_hook(ds.Recipient, lambda value, _: value["email"])
    converter.register_unstructure_hook(datetime, str)
    ds.register_hooks(converter)
    message: Any = converter.structure(MESSAGE, ds.MessageDetail)
    assert message.received_date == "read from '2016-07-05T17:47:15Z'"
    assert message.recipients == ["a@b"]
    assert converter.unstructure(ds.MessageDetail(received_date=MOMENT))["receivedDate"] == "2016-07-05 17:47:15+00:00"


def test_preconfigured_converter_applies_later_hooks_inside_models() -> None:
    converter = cattrs.preconf.json.make_converter()
    converter.register_structure_hook(datetime, lambda value, _: "earlier")
    converter.register_structure_hook(ds.Recipient, lambda value, _: value["email"])
    ds.register_hooks(converter)
    message: Any = converter.structure(MESSAGE, ds.MessageDetail)
    assert (message.received_date, message.recipients) == (MOMENT, ["a@b"])
    converter.register_structure_hook(datetime, lambda value, _: _told(value))
    message = converter.structure(MESSAGE, ds.MessageDetail)
    assert message.received_date == "read from '2016-07-05T17:47:15Z'"


def test_a_hook_for_writing_holds_inside_models() -> None:
    converter = ds.make_converter()
    message = ds.MessageDetail(
        subject="Subject", received_date=MOMENT, recipients=[ds.Recipient("a@b")], attachments=[ds.Attachment()]
    )
    assert converter.unstructure(message)["subject"] == "Subject"
    converter.register_unstructure_hook(str, str.upper)
    converter.register_unstructure_hook(datetime, datetime.timestamp)
    converter.register_unstructure_hook(ds.RecipientType, lambda kind: kind.value.lower())
    converter.register_unstructure_hook(ds.Attachment, lambda _: "left out")
    converter.register_unstructure_hook(ds.Secret, lambda _: "kept back")
    assert converter.unstructure(message) == {
        "htmlBody": False,
        "subject": "SUBJECT",
        "recipients": [{"email": "A@B", "type": "to"}],
        "receivedDate": MOMENT.timestamp(),
        "attachments": ["left out"],
    }
    assert converter.unstructure(ds.Login("a", "b"))["password"] == "kept back"


def test_a_class_has_one_function_for_each_converter() -> None:
    first, second = ds.make_converter(), ds.make_converter()
    assert first.get_structure_hook(ds.Recipient) is first.get_structure_hook(ds.Recipient)
    assert first.get_structure_hook(ds.Recipient) is not second.get_structure_hook(ds.Recipient)
    second.register_structure_hook(str, lambda value, _: value.upper())
    assert first.structure({"email": "a@b"}, ds.Recipient) == ds.Recipient("a@b")


def test_copy_of_a_converter_has_its_hooks() -> None:
    copied = ds.make_converter().copy()
    copied.register_structure_hook(str, lambda value, _: value.upper())
    assert copied.structure(MESSAGE, ds.MessageDetail).recipients == [ds.Recipient("A@B")]


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, MismatchError, ZeroDivisionError])
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (bytes, "$.messages[].attachments[].content"),
        (datetime, "$.messages[].receivedDate"),
        (ds.RecipientType, "$.messages[].recipients[].type"),
        (ds.Recipient, "$.messages[].recipients[]"),
        (ds.MessageDetail, "$.messages[]"),
    ],
    ids=str,
)
def test_value_that_a_hook_rejects_is_skipped_and_counted(kind: Any, path: str, error: type[Exception]) -> None:
    converter = ds.make_converter()
    converter.register_structure_hook(kind, _fail_with(error))
    report = Counter[str]()
    response = Codec(converter).structure(types.GetMessageResponse, {"messages": [MESSAGE]}, report)
    assert len(response.messages) == (kind is not ds.MessageDetail)
    assert report == {path: 1}


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, ZeroDivisionError])
@pytest.mark.parametrize(
    ("kind", "cls", "document", "path"),
    [
        (str, ds.StoredDocument, {"identifier": "Smith"}, "$.identifier"),
        (int, types.GetUIDResponse, {"uids": [1]}, "$.uids[0]"),
        (types.GetMessageResponse, types.GetMessageResponse, {"messages": []}, "$"),
    ],
    ids=str,
)
def test_hook_error_for_required_value_is_mismatch_without_value(
    kind: Any, cls: type[ds.Model], document: dict[str, Any], path: str, error: type[Exception]
) -> None:
    converter = ds.make_converter()
    converter.register_structure_hook(kind, _fail_with(error))
    with pytest.raises(MismatchError) as caught:
        Codec(converter).structure(cls, document)
    assert caught.value.path == path
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None


def test_value_rejected_by_hook_stays_in_extra_of_open_type() -> None:
    converter = ds.make_converter()
    converter.register_structure_hook(int, lambda value, _: 1 // 0)
    assert converter.structure({"index": 3}, ds.Page).extra == {"index": 3}


def test_failing_hook_rejects_the_request_without_its_value() -> None:
    converter = ds.make_converter()
    converter.register_unstructure_hook(str, _fail_with(ValueError))
    with pytest.raises(ds.InvalidArgumentError, match="ValueError") as caught:
        Codec(converter).encode(ds.Message(subject="Smith"))
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None


def test_models_in_the_result_of_a_hook_are_written() -> None:
    converter = ds.make_converter()
    converter.register_unstructure_hook(
        ds.Message, lambda message: {"body": "Hello", "attachmentList": tuple(message.attachment_list)}
    )
    attachment = ds.Attachment(content=b"\x00\x01", content_type="a/b", filename="f")
    written = Codec(converter).encode([ds.Message(attachment_list=[attachment])])
    assert json.loads(written) == [
        {"body": "Hello", "attachmentList": [{"content": "AAE=", "contentType": "a/b", "filename": "f"}]}
    ]


@pytest.mark.parametrize("left", [object(), {object(): 1}], ids=["a value", "a name"])
def test_unserializable_value_is_rejected_without_the_value(left: object) -> None:
    converter = ds.make_converter()
    converter.register_unstructure_hook(ds.Message, lambda message: {"subject": message.subject, "left": left})
    with pytest.raises(ds.InvalidArgumentError, match="a hook of the converter failed") as caught:
        Codec(converter).encode(ds.Message(subject="Smith"))
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None


def test_hooks_for_whole_numbers_apply_to_uids() -> None:
    converter = ds.make_converter()
    converter.register_structure_hook(int, lambda value, _: int(value) + 1)
    converter.register_unstructure_hook(int, lambda value: value - 1)
    response = converter.structure({"uids": [2, 1]}, types.GetUIDResponse)
    assert response.uids == [3, 2]
    assert converter.unstructure(response) == {"uids": [2, 1]}


def test_invalid_model_value_is_value_error_with_path() -> None:
    with pytest.raises(ValueError, match=r"\$ should be an object"):
        ds.make_converter().structure([], ds.Recipient)
