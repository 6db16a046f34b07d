"""Request bodies divided while they come, and messages read from files: the same as from memory, whatever they hold."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from directsuite.sandbox.files import FileRange
from directsuite.sandbox.messaging import parsing, receiving
from directsuite.sandbox.messaging.parsing import content_of
from directsuite.sandbox.messaging.receiving import DividedBody
from tests.examples import examples
from tests.sandbox.messaging.test_mailbox_mime import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("small_things_are_large")

LARGE = 12


@pytest.fixture(scope="module")
def small_things_are_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiving, "LARGE", LARGE)
        patch.setattr(parsing, "LARGE", LARGE)
        patch.setattr(parsing, "_WINDOW", 7)
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


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=_json, data=st.data())
@example(value={"content": "QUJD" * 9, "data": ["\\" * 30, '\\"' * 9]}, data=None)
def test_json_divided_is_the_json_with_its_contents_put_back(file: Path, value: Any, data: Any) -> None:
    def draw(strategy: Any) -> Any:
        return None if data is None else data.draw(strategy)

    text = json.dumps(value, ensure_ascii=bool(draw(st.booleans())), indent=draw(st.none() | st.integers(0, 2)))
    if draw(st.booleans()):
        text = text.replace("/", "\\/")
    octets = text.encode("utf-8", "surrogatepass")
    cuts = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=6)) or [])
    with file.open("wb") as written:
        divided = DividedBody(written, file, 10**6)
        for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            divided.feed(octets[start:end])
    contents = {
        name: None if content is None else b"".join(content.octets()) for name, content in divided.contents.items()
    }
    put_back = set[object]()
    rest = json.loads(divided.rest.decode("utf-8", "surrogatepass"))
    for (place, found), (original_place, original) in zip(_leaves(rest), _leaves(json.loads(text)), strict=True):
        assert place == original_place
        if found in contents:
            put_back.add(found)
            assert contents[found] == _decoded(original) or (contents[found] is None and not original.isascii())
        else:
            assert found == original
    assert put_back == contents.keys()


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """What a JSON value has that has no members, and where."""
    kind: Any = type(value)
    if kind not in {dict, list}:
        yield place, value
        return
    yield f"{place} {kind.__name__} of {len(value)}", None
    for name, member in value.items() if kind is dict else enumerate(value):
        yield from _leaves(member, f"{place}.{name}")


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(octets=st.binary(max_size=80), data=st.data())
def test_what_is_no_json_passes_as_it_is(file: Path, octets: bytes, data: st.DataObject) -> None:
    """Nothing is made valid that was not: what is left out is the inside of strings."""
    text = data.draw(st.sampled_from([b"", b'{"content":"', b'"data" : "AAAA'])) + octets
    with file.open("wb") as written:
        divided = DividedBody(written, file, 10**6)
        divided.feed(text)
    assert bytes(divided.rest) == text or divided.contents or divided.rest == text[: len(divided.rest)]


def _resolved(detail: bytes, file: Path) -> Any:
    """The members of a MessageDetail with what is in the file."""
    members = msgspec.json.decode(detail)
    for part in members["attachments"]:
        if isinstance(part["content"], list):
            found = FileRange(file, *part["content"])
            octets, text = b"".join(found.octets()), b"".join(found.base64())
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


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=_PARTS | HOSTILE)
@example(
    raw=b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\nContent-Type: a/b\r\n\r\n"
    + bytes(30)
)
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD\r\n" * 9 + b"QQ==\r\n\r\n")
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD " * 9)
@example(raw=b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QQ==" * 9)
def test_a_message_in_a_file_is_read_as_one_in_memory(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    there, here = content_of(file), content_of(raw)
    assert there._replace(raw=raw, file=None, detail=b"") == here._replace(detail=b"")
    assert _resolved(there.detail, file) == msgspec.json.decode(here.detail)
