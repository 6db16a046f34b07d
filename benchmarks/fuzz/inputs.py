"""One input of the fuzzer, taken apart: which reader gets it, and with what beside it.

    target │ operation │ status │ Retry-After │ Content-Type │ cuts │ the bytes themselves
    one byte each                                            four   the rest

A head of fixed size leaves the rest to the fuzzer as it would stand on the wire.
"""

from __future__ import annotations

from collections.abc import Callable

from directsuite.wire.parsing import MismatchError, parse
from tests.property import oracles
from tests.property.hostile import CONTENT_TYPES, RETRY_AFTERS, STATUSES
from tests.property.sample_responses import OPERATIONS

HEAD_BYTES = 9

Target = Callable[[bytes, bytes], None]


def check_response(head: bytes, body: bytes) -> None:
    """The body as an answer to an operation."""
    operation = OPERATIONS[head[1] % len(OPERATIONS)]
    headers = dict[str, str]()
    if head[3] & 1:
        headers["Retry-After"] = RETRY_AFTERS[head[3] // 2 % len(RETRY_AFTERS)]
    if head[4] & 1:
        headers["Content-Type"] = CONTENT_TYPES[head[4] // 2 % len(CONTENT_TYPES)]
    oracles.check_response_is_typed(operation, STATUSES[head[2] % len(STATUSES)], headers, body)


def check_headers(head: bytes, body: bytes) -> None:
    """The bytes as the text of a header, read as aiohttp does."""
    text = body.decode("utf-8", "surrogateescape")
    operation = OPERATIONS[head[1] % len(OPERATIONS)]
    both = {"Retry-After": text, "Content-Type": text}
    oracles.check_response_is_typed(operation, STATUSES[head[2] % len(STATUSES)], both, b"{}")
    oracles.check_retry_after_is_seconds(text, now=1_500_000_000.0)


def check_stream(head: bytes, body: bytes) -> None:
    """The bytes as a stream, cut in several places."""
    oracles.check_split_equals_unsplit(body, (position * len(body) // 256 for position in head[5:9]))


def check_date(_: bytes, body: bytes) -> None:
    """The bytes as a date's text, or as JSON in its place."""
    oracles.check_date_is_typed(body.decode("utf-8", "surrogateescape"))
    try:
        value = parse(body)
    except MismatchError:
        return
    oracles.check_date_is_typed(value)


def check_report(_: bytes, body: bytes) -> None:
    """The bytes as a delivery report."""
    oracles.check_report_is_typed(body)


TARGETS: tuple[Target, ...] = (
    check_response,
    check_response,
    check_response,
    check_stream,
    check_stream,
    check_headers,
    check_date,
    check_report,
)
"""Some twice: their space is larger."""


def run(content: bytes) -> None:
    """Give one input of the fuzzer to its target."""
    head, body = content[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0"), content[HEAD_BYTES:]
    TARGETS[head[0] % len(TARGETS)](head, body)
