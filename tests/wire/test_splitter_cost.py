"""The cost of splitting: constant work for each byte, and no memory for elements that were yielded."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from directsuite.wire.parsing import ArraySplitter
from tests.wire.split_documents import KEY

pytestmark = pytest.mark.wide

SIZE = 256 * 1024
HEAD, TAIL = b'{"success":true,"messages":[', b'],"code":0}'


def _filled(*elements: bytes) -> bytes:
    row = b",".join(elements)
    return HEAD + b",".join([row] * (SIZE // len(row))) + TAIL


SHAPES = {
    "records": _filled(b'{"uid":1,"to":["a","b"],"subject":"a text"}'),
    "records that hold others": _filled(b'{"uid":1,"parts":[{"uid":2},{"uid":3}]}'),
    "pairs, each begun otherwise": HEAD
    + b",".join(b'{"u%d":1},{"u%d":2}' % (number, number) for number in [*range(SIZE // 36)] * 2)
    + TAIL,
    "numbers": _filled(b"1"),
    "one text": _filled(b'"' + b"A" * (SIZE - 9) + b'"'),
    "one text of escapes": _filled(b'"' + rb"\\" * (SIZE // 2 - 9) + b'"'),
    "one text of quotes": _filled(b'{"a":"' + rb"\"" * (SIZE // 2 - 9) + b'"}'),
    "texts in one element": _filled(b'[{"a":[' + b'"b",' * (SIZE // 4 - 9) + b'"b"]}]'),
    "brackets in one element": _filled(b"[" + b"[]," * (SIZE // 3 - 9) + b"[]]"),
    "deep": _filled(b"[" * 300 + b"]" * 300),
    "not closed": HEAD + b"[" * SIZE,
    "space before the array": HEAD[:-1] + b" " * SIZE + b"[]}",
    "space in the array": HEAD + b" " * SIZE + TAIL,
    "members around": b'{"a":1,' + b'"b":[2],' * (SIZE // 8) + HEAD[1:] + TAIL,
    "one long member": b'{"a":"' + b"b" * SIZE + b'",' + HEAD[1:] + TAIL,
    "after the end": HEAD + TAIL + b" " * SIZE,
}


def _pieces(text: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


@pytest.mark.parametrize("shape", SHAPES)
def test_work_for_each_byte_is_constant(shape: str) -> None:
    splitter, started = ArraySplitter(KEY), time.process_time()
    for piece in _pieces(SHAPES[shape], 1):
        for _ in splitter.feed(piece):
            pass
    assert time.process_time() - started < 50e-6 * len(SHAPES[shape])  # far longer than usual


@pytest.mark.parametrize("size", [100, 2**16])
def test_yielded_elements_are_not_pending(size: int) -> None:
    splitter = ArraySplitter(KEY)
    for piece in _pieces(SHAPES["records"], size):
        for _ in splitter.feed(piece):
            pass
        assert splitter.pending < len(HEAD) + 3 * SIZE // 44 + 44
    splitter.finish()
