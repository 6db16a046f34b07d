"""Bodies that are divided while they are received, and messages in files, compared with those in memory."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from directsuite.sandbox.files import FileRange
from directsuite.sandbox.messaging import parsing, requests
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.messaging.requests import BodyDivider
from tests.examples import scale_examples
from tests.sandbox.messaging.test_mailbox_mime import HOSTILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("small_things_are_large")

LARGE = 12


@pytest.fixture(scope="module")
def small_things_are_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "MAX_INLINE_BYTES", LARGE)
        patch.setattr(parsing, "MAX_INLINE_BYTES", LARGE)
        patch.setattr(parsing, "_SEARCH_WINDOW_BYTES", 7)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "file"


_names = st.sampled_from(["content", "data", "body", 'x"content', "content\\", "\\"]) | st.text(max_size=3)
_base64 = st.binary(max_size=60).map(base64.encodebytes).map(bytes.decode)
_strings = (
    _base64
    | _base64.map(lambda text: text.replace("\n", ""))
    | st.text(st.sampled_from('\\"/: {}[],uAB=\n\té€😀'), max_size=40)
    | st.text(max_size=30)
)
_json = st.recursive(
    _strings | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()).encode("ascii"), validate=True)
    except ValueError:
        return None


_CLEAN = "QUJD" * 9
_TEXTS = [
    *(_CLEAN, "QUJD\r\n" * 9, _CLEAN + "QQ==" + _CLEAN, _CLEAN + '"' + _CLEAN, _CLEAN + "\\u12", _CLEAN + "é" + _CLEAN),
    *("\\" * 30, "\\" * 31, '\\"' * 9, '"' * 20 + "\\", _CLEAN + "\\" + _CLEAN, _CLEAN + '\\"' + _CLEAN, _CLEAN + "\\"),
]
_CONTENTS = [{"content": text} for text in _TEXTS]
_MEMBERS = [{name: text} for text in _TEXTS for name in ('x"data', "body")]


def _divide(file: Path, *pieces: bytes) -> tuple[bytes, dict[object, bytes | None]]:
    with file.open("wb") as written:
        divided = BodyDivider(written, file, 10**6)
        for piece in pieces:
            divided.feed(piece)
    contents = divided.contents.items()
    return bytes(divided.rest), {
        name: None if found is None else b"".join(found.iter_octets()) for name, found in contents
    }


@settings(max_examples=scale_examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=_json | st.dictionaries(_names, _strings, min_size=1),
    plain=st.booleans(),
    indent=st.none() | st.integers(0, 2),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
@example(value=_CONTENTS, plain=True, indent=None, cuts=[])
@example(value=_CONTENTS, plain=False, indent=1, cuts=[*range(3000)])
@example(value=_MEMBERS, plain=True, indent=None, cuts=[*range(3000)])
def test_divided_json_with_its_contents_is_the_original(
    file: Path, value: Any, plain: bool, indent: int | None, cuts: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent)
    if plain:
        text = text.replace("/", "\\/")
    octets = text.encode("utf-8", "surrogatepass")
    places = [0, *sorted(cuts), max(len(octets), *cuts, 0)]
    divided, contents = _divide(file, *(octets[start:end] for start, end in pairwise(places)))
    put_back = set[object]()
    rest = json.loads(divided.decode("utf-8", "surrogatepass"))
    for (place, found), (original_place, original) in zip(_leaves(rest), _leaves(json.loads(text)), strict=True):
        assert place == original_place
        if found in contents:
            put_back.add(found)
            assert contents[found] == _decoded(original) or (contents[found] is None and not original.isascii())
        else:
            assert found == original
    assert put_back == contents.keys()


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values without members in a JSON value, with their places."""
    is_object, is_array = isinstance(value, dict), isinstance(value, list)
    if not (is_object or is_array):
        yield place, value
        return
    members: Any = value
    yield f"{place} {type(members).__name__} of {len(members)}", None
    for name, member in members.items() if is_object else enumerate(members):
        yield from _leaves(member, f"{place}.{name}")


def _resolved(detail: bytes, file: Path) -> Any:
    members = msgspec.json.decode(detail)
    for part in members["attachments"]:
        if isinstance(part["content"], list):
            found = FileRange(file, *part["content"])
            octets, text = b"".join(found.iter_octets()), b"".join(found.iter_base64())
            assert (found.size, found.base64_size) == (len(octets), len(text))
            assert base64.b64decode(text, validate=True) == octets
            part["content"] = text.decode()
    return members


_PARTS = st.lists(
    st.sampled_from([b"--b\r\n", b"--b--", b"\r\n", b"\n", b"\r", b"--", b"-", b"x" * 20])
    | st.sampled_from([b"QUJD" * 8, b"QUJD\r\n", b"=", b"==\r\n"])
    | st.sampled_from(
        [
            b"Content-Type: multipart/mixed; boundary=b\r\n",
            b"Content-Transfer-Encoding: base64\r\n\r\n",
            b"Content-Transfer-Encoding: BASE64\r\nContent-Type: a/b\r\n\r\n",
            b"Content-Transfer-Encoding: quoted-printable\r\nContent-Type: a/b\r\n\r\n=41=42=43=44=45=46=",
            b"Content-Type: application/pdf\r\n\r\n",
        ]
    )
    | st.binary(max_size=20),
    max_size=14,
).map(b"".join)


@settings(max_examples=scale_examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=_PARTS | HOSTILE_BYTES)
@example(
    raw=b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\nContent-Type: a/b\r\n\r\n"
    + bytes(30)
)
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD\r\n" * 9 + b"QQ==\r\n\r\n")
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD " * 9)
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD" * 9 + b"QQ")
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QQ==" * 9)
def test_a_message_in_a_file_is_read_as_one_in_memory(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    there, here = build_content(file), build_content(raw)
    assert there._replace(raw=raw, file=None, detail=b"") == here._replace(detail=b"")
    assert _resolved(there.detail, file) == msgspec.json.decode(here.detail)
