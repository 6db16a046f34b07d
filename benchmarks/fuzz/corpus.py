"""What the fuzzer starts from: a good answer of each operation, and what the tests hold to be hostile."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.fuzz.inputs import (
    HEAD_BYTES,
    TARGETS,
    Target,
    check_date,
    check_headers,
    check_report,
    check_response,
    check_stream,
)
from tests.property.hostile import BODIES, CODES, NON_INTEGER_DIGITS, RETRY_AFTERS, VALUES
from tests.property.sample_responses import OPERATIONS, SAMPLE_RESPONSES, list_member_names

_MAX_SEED_BYTES = 8192
_REPORT = b'from,to,messageId,messageSize,status,ts\r\na@example.test,"b\r\n",<1>,12,dispatched,1467740835000\r\n'


def yield_seeds() -> Iterator[bytes]:
    """Every seed: its head, then its body."""
    good = {
        name: text.encode() if isinstance(text, str) else msgspec.json.encode(text)
        for name, text in SAMPLE_RESPONSES.items()
    }
    for number, operation in enumerate(OPERATIONS):
        yield _make_head(check_response, number) + good[operation.name]
        yield _make_head(check_response, number) + b'{"success":false,"code":1,"error":"e","message":"m"}'
    for body in {*BODIES, *VALUES, *good.values()}:
        yield _make_head(check_stream) + body
        yield _make_head(check_response) + body
    for code in (*CODES, *NON_INTEGER_DIGITS):
        yield _make_head(check_response, len(OPERATIONS) - 1) + b'{"success":false,"code":%s}' % code
    for value in VALUES:
        yield _make_head(check_date) + value.strip(b'"')
        yield _make_head(check_stream) + b'{"messages":[%s,%s],"success":true}' % (value, value)
    for text in RETRY_AFTERS:
        yield _make_head(check_headers) + text.encode("utf-8", "surrogateescape")
    yield _make_head(check_report) + _REPORT


def _make_head(target: Target, operation: int = 0) -> bytes:
    return bytes([TARGETS.index(target), operation, 3, 1, 1]).ljust(HEAD_BYTES, b"\x40")


def yield_dictionary() -> Iterator[str]:
    """libFuzzer's dictionary: names of members, and pieces of JSON."""
    names = set[str]().union(*map(list_member_names, SAMPLE_RESPONSES.values()))
    yield from sorted(f'"{name}":' for name in names | {"code", "error", "description", "errorMessage"})
    yield from ('"messages":[{', "},{", "null", "true", "false", '"null"', "\\ud800", "1e308", "[[[[", "]]]]", "==")


def write(folder: Path) -> int:
    """Write the corpus to a folder, and the dictionary beside it; how many seeds there are."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {seed for seed in yield_seeds() if len(seed) <= _MAX_SEED_BYTES}
    for seed in seeds:
        (folder / hashlib.sha256(seed).hexdigest()[:24]).write_bytes(seed)
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in yield_dictionary())
    folder.with_suffix(".dict").write_text("".join(f'"{word}"\n' for word in escaped))
    return len(seeds)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} seeds")
