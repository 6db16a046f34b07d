"""Documents that are read in parts, or while they are received, are read like those that are parsed completely."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite import types
from directsuite.messaging import operations
from directsuite.messaging.listings import MessageReader
from directsuite.messaging.models import GetMessageResponse
from directsuite.wire import codec, parsing
from directsuite.wire.codec import Codec
from directsuite.wire.models import get_model_fields, is_model
from directsuite.wire.parsing import ArraySplitter, MismatchError
from tests.examples import scale_examples
from tests.wire.split_documents import split_at

from .model_classes import MODEL_CLASSES, build_instances

CODEC = Codec()
LISTING = [cls for cls in MODEL_CLASSES if any(is_model(field.item) for field in get_model_fields(cls))]
"""Models with lists of models. Others are always parsed completely."""

ENCODED = st.binary(min_size=9, max_size=40).map(lambda content: base64.b64encode(content).decode())
TEXTS = st.one_of(
    ENCODED,
    ENCODED.map(lambda text: text[:8] + "\r\n" + text[8:]),
    ENCODED.map(lambda text: text[:-1]),
    st.text(max_size=40),
    st.sampled_from(["null", "", "QUJD", "A" * 16, "AB=" * 8, "/" * 16]),
)
VALUES = st.none() | st.integers(0, 9) | TEXTS | st.lists(ENCODED, max_size=2) | st.dictionaries(ENCODED, ENCODED)
ATTACHMENT = st.dictionaries(st.sampled_from(["content", "filename", "contentType", "unheardOf"]), VALUES)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "uid": st.integers(0, 9) | VALUES,
        "subject": TEXTS,
        "attachments": st.lists(ATTACHMENT, max_size=3) | ATTACHMENT | VALUES,
        "attachmentList": st.lists(ATTACHMENT, max_size=2),
        "content": ENCODED,
        "unheardOf": VALUES,
    },
)
DOCUMENT = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE | VALUES, max_size=3) | VALUES | MESSAGE},
    optional={"code": VALUES, "message": VALUES, "unheardOf": VALUES},
)


@pytest.fixture(autouse=True, scope="module")
def twelve_bytes_are_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parsing, "_LONG_BYTES", 12)
        yield


def read(cls: type[ds.Model], document: Any) -> tuple[ds.Model | None, Counter[str]]:
    report = Counter[str]()
    with contextlib.suppress(MismatchError):
        return CODEC.structure(cls, document, report), report
    return None, report


def parse_completely(document: bytes) -> Any:
    with contextlib.suppress(MismatchError):
        return parsing.parse(document)
    return None


def parse_in_turns(cls: type[ds.Model], document: bytes) -> tuple[Any, Counter[str], int]:
    """Return the parsed document, its unreadable values, and the number of turns of the event loop."""
    reading = CODEC.parse_in_turns(cls, document)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "_PART_BYTES", 7)
        for turns in itertools.count():
            try:
                reading.send(None)
            except StopIteration as ended:
                parsed: tuple[Any, dict[str, int]] = ended.value or (None, {})
                return parsed[0], Counter(parsed[1]), turns
    raise AssertionError


def assert_read_alike_in_turns(cls: type[ds.Model], document: bytes) -> None:
    parsed, report, turns = parse_in_turns(cls, document)
    expected, expected_report = read(cls, parse_completely(document))
    if parsed is None:
        lists = [field for field in get_model_fields(cls) if is_model(field.item)]
        assert expected is None or len(lists) > 1 or lists[0].wire.aliases
        return
    assert turns == math.ceil(len(document) / 7)
    found, rest = read(cls, parsed)
    assert (found, report + rest) == (expected, expected_report)


def read_elements(document: bytes, cuts: list[int], member: tuple[str, str] | None) -> object:
    splitter, messages = ArraySplitter("messages", base64_member=member), list[ds.MessageDetail]()
    try:
        for piece in split_at(document, cuts):
            messages += [CODEC.structure(ds.MessageDetail, element) for element in splitter.feed(piece)]
        splitter.finish()
    except MismatchError as mismatch:
        return f"{mismatch.path}: {mismatch.expected}"
    return messages


def assert_read_alike(document: bytes, cuts: list[int]) -> None:
    assert_read_alike_in_turns(GetMessageResponse, document)
    assert read_elements(document, cuts, ("attachments", "content")) == read_elements(document, [], None)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("cls", LISTING, ids=lambda cls: cls.__name__)
@settings(max_examples=scale_examples(40))
@given(data=st.data())
def test_model_with_lists_is_the_same(cls: type[ds.Model], data: st.DataObject) -> None:
    assert_read_alike_in_turns(cls, CODEC.encode(data.draw(build_instances(cls))))


@given(document=DOCUMENT, cuts=st.lists(st.integers(0), max_size=4), slashes=st.booleans())
def test_messages_are_the_same(document: dict[str, Any], cuts: list[int], slashes: bool) -> None:
    text = json.dumps(document)
    assert_read_alike((text.replace("/", "\\/") if slashes else text).encode(), cuts)


@pytest.mark.parametrize(
    ("cls", "document"),
    [
        (GetMessageResponse, b'{"messages": [{"uid": 1}], "messages": [{"uid": 2}]}'),
        (GetMessageResponse, b'{"messages": [{"uid": 1}], "messages": []}'),
        (types.GetPatientAddressesResponse, b'{"patient": [{"city": "A"}], "addresses": [{"city": "B"}]}'),
        (types.GetPatientAddressesResponse, b'{"patient": [], "addresses": [{"city": "B"}]}'),
    ],
)
def test_document_with_a_list_in_two_places_is_parsed_completely(cls: type[ds.Model], document: bytes) -> None:
    assert parse_in_turns(cls, document)[0] is None


@given(document=DOCUMENT, place=st.integers(0), inserted=st.binary(max_size=2), removed=st.integers(0, 2))
def test_damaged_document_is_rejected_alike(
    document: dict[str, Any], place: int, inserted: bytes, removed: int
) -> None:
    text = json.dumps(document).encode()
    place %= len(text)
    assert_read_alike(text[:place] + inserted + text[place + removed :], [])


@pytest.mark.parametrize(
    "member",
    [
        '"content": "QUJDQUJDQUJDQUJD", "content": "REVGREVGREVGREVG"',
        '"QUJDQUJDQUJDQUJD": "REVGREVGREVGREVG", "content": "QUJDQUJDQUJDQUJD"',
        '"content": ["QUJDQUJDQUJDQUJD"]',
        '"content": {"content": "QUJDQUJDQUJDQUJD"}',
    ],
)
def test_base64_at_an_odd_place_is_read_alike(member: str) -> None:
    assert_read_alike(f'{{"messages": [{{"uid": 1, "attachments": [{{{member}}}]}}]}}'.encode(), [])


def test_content_is_decoded_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parse = list[int](), parsing.parse

    def record_and_parse(text: bytes | bytearray | memoryview) -> Any:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr(parsing, "parse", record_and_parse)
    content = base64.b64encode(bytes(3000)).decode()
    document = json.dumps({"success": True, "messages": [{"uid": 1, "attachments": [{"content": content}]}]})
    (message,) = MessageReader(operations.GET_MESSAGES, CODEC).feed(document.encode())
    assert message.attachments[0].content == bytes(3000)
    assert max(parsed) < 200
