"""What the fuzzer starts from: a good answer of each operation, and what the tests hold to be hostile."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.fuzz.inputs import HEAD, TARGETS, Target, answer, date, headers, report, stream
from tests.property.hostile import BODIES, CODES, DIGITS, RETRY_AFTERS, VALUES
from tests.property.whole_answers import ANSWERS, OPERATIONS, member_names

_LONGEST = 8192
_REPORT = b'from,to,messageId,messageSize,status,ts\r\na@example.test,"b\r\n",<1>,12,dispatched,1467740835000\r\n'


def inputs() -> Iterator[bytes]:
    """Every seed: its head, then its body."""
    good = {
        name: text.encode() if isinstance(text, str) else msgspec.json.encode(text) for name, text in ANSWERS.items()
    }
    for number, operation in enumerate(OPERATIONS):
        yield _head(answer, number) + good[operation.name]
        yield _head(answer, number) + b'{"success":false,"code":1,"error":"e","message":"m"}'
    for body in {*BODIES, *VALUES, *good.values()}:
        yield _head(stream) + body
        yield _head(answer) + body
    for code in (*CODES, *DIGITS):
        yield _head(answer, len(OPERATIONS) - 1) + b'{"success":false,"code":%s}' % code
    for value in VALUES:
        yield _head(date) + value.strip(b'"')
        yield _head(stream) + b'{"messages":[%s,%s],"success":true}' % (value, value)
    for text in RETRY_AFTERS:
        yield _head(headers) + text.encode("utf-8", "surrogateescape")
    yield _head(report) + _REPORT


def _head(target: Target, operation: int = 0) -> bytes:
    return bytes([TARGETS.index(target), operation, 3, 1, 1]).ljust(HEAD, b"\x40")


def words() -> Iterator[str]:
    """libFuzzer's dictionary: names of members, and pieces of JSON."""
    names = set[str]().union(*map(member_names, ANSWERS.values()))
    yield from sorted(f'"{name}":' for name in names | {"code", "error", "description", "errorMessage"})
    yield from ('"messages":[{', "},{", "null", "true", "false", '"null"', "\\ud800", "1e308", "[[[[", "]]]]", "==")


def write(folder: Path) -> int:
    """Write the corpus to a folder, and the dictionary beside it; how many seeds there are."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {seed for seed in inputs() if len(seed) <= _LONGEST}
    for seed in seeds:
        (folder / hashlib.sha256(seed).hexdigest()[:24]).write_bytes(seed)
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words())
    folder.with_suffix(".dict").write_text("".join(f'"{word}"\n' for word in escaped))
    return len(seeds)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} seeds")
