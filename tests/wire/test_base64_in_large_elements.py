"""Base64 text that is decoded from where it stands gives the same models, and refuses the same, as the parser would."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.messaging import operations
from directsuite.messaging.listings import MessageReader
from directsuite.messaging.models import MessageDetail
from directsuite.wire import parsing
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import ArraySplitter, MismatchError, parse

CODEC = Codec()

LONG = 12
MEMBER = ("attachments", "content")

CODED = st.binary(min_size=9, max_size=40).map(lambda content: base64.b64encode(content).decode())
TEXTS = st.one_of(
    CODED,
    CODED.map(lambda text: text[:8] + "\r\n" + text[8:]),
    CODED.map(lambda text: text[:-1]),
    st.text(max_size=40),
    st.sampled_from(["null", "", "QUJD", "A" * 16, "AB=" * 8, "/" * 16]),
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXTS | st.none() | st.integers(),
        "filename": TEXTS,
        "contentType": CODED,
        "unheardOf": TEXTS | st.dictionaries(CODED, CODED, max_size=2),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"uid": st.integers(0, 9)},
    optional={
        "subject": TEXTS,
        "body": CODED,
        "attachments": st.lists(MEMBERS, max_size=3) | MEMBERS | st.none(),
        "attachmentList": st.lists(MEMBERS, max_size=2),
        "content": CODED,
        "unheardOf": st.lists(CODED, max_size=2),
    },
)


@pytest.fixture(autouse=True, scope="module")
def short_strings_are_long() -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parsing, "_MIN_LONG_STRING_BYTES", LONG)
        yield


def read(document: bytes, cuts: list[int], *, shape: bool) -> list[MessageDetail] | str:
    splitter = ArraySplitter("messages", base64_member=MEMBER if shape else None)
    edges = [0, *sorted(cut % (len(document) + 1) for cut in cuts), len(document)]
    messages: list[MessageDetail] = []
    try:
        for begin, end in itertools.pairwise(edges):
            messages += [CODEC.structure(MessageDetail, element) for element in splitter.feed(document[begin:end])]
        splitter.finish()
    except MismatchError as mismatch:
        return f"{mismatch.path}: {mismatch.expected}"
    return messages


@given(messages=st.lists(MESSAGES, max_size=3), cuts=st.lists(st.integers(0), max_size=4), slashes=st.booleans())
def test_models_are_the_same(messages: list[Any], cuts: list[int], slashes: bool) -> None:
    text = json.dumps({"success": True, "messages": messages})
    document = (text.replace("/", "\\/") if slashes else text).encode()
    assert read(document, cuts, shape=True) == read(document, cuts, shape=False)


@given(
    messages=st.lists(MESSAGES, min_size=1, max_size=2),
    place=st.integers(0),
    inserted=st.binary(max_size=2),
    removed=st.integers(0, 2),
)
def test_malformed_documents_are_rejected_alike(messages: list[Any], place: int, inserted: bytes, removed: int) -> None:
    document = json.dumps({"success": True, "messages": messages}).encode()
    place %= len(document)
    spoilt = document[:place] + inserted + document[place + removed :]
    assert read(spoilt, [], shape=True) == read(spoilt, [], shape=False)


@pytest.mark.parametrize(
    "member",
    [
        '"content": "QUJDQUJDQUJDQUJD", "content": "REVGREVGREVGREVG"',
        '"QUJDQUJDQUJDQUJD": "REVGREVGREVGREVG", "content": "QUJDQUJDQUJDQUJD"',
        '"content": ["QUJDQUJDQUJDQUJD"]',
        '"content": {"content": "QUJDQUJDQUJDQUJD"}',
    ],
)
def test_odd_places_of_long_strings(member: str) -> None:
    document = f'{{"messages": [{{"uid": 1, "attachments": [{{{member}}}]}}]}}'.encode()
    assert read(document, [], shape=True) == read(document, [], shape=False)


def test_content_is_decoded_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counted(text: bytes | bytearray | memoryview) -> Any:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr(parsing, "parse", counted)
    content = base64.b64encode(bytes(3000)).decode()
    document = json.dumps({"success": True, "messages": [{"uid": 1, "attachments": [{"content": content}]}]}).encode()
    reader = MessageReader(operations.GET_MESSAGES, CODEC)
    (message,) = reader.feed(document)
    assert message.attachments[0].content == bytes(3000)
    assert max(parsed) < 200
