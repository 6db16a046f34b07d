"""What has to hold of everything that reads a server's bytes, whichever bytes: shared with the fuzzer.

Each function takes what was sent, and raises AssertionError, or whatever the code let through, where it doesn't hold.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from datetime import UTC, timedelta
from datetime import date as day
from itertools import pairwise
from typing import Any

from directsuite.core.operation import Operation
from directsuite.core.outcome import interpret
from directsuite.core.response import Answer
from directsuite.core.retry import retry_after
from directsuite.errors import DirectSuiteError, ResponseDecodeError, ServiceError
from directsuite.messaging import operations as messaging
from directsuite.messaging.listings import MessageReader
from directsuite.messaging.models import DirectMessageStatusReportResponse, MessageStatus
from directsuite.messaging.report import COLUMNS, rows
from directsuite.wire import base64
from directsuite.wire.codec import Codec
from directsuite.wire.dates import read_datetime, read_day
from directsuite.wire.parsing import ArraySplitter, MismatchError, without_byte_order_mark

from .whole_answers import MARKER

LIMIT = 10**9
CODEC = Codec()

Seen = tuple[list[Any], object]
"""What a stream gave, and how it ended: with a rest, or with the words of its refusal."""


def answer_is_typed(operation: Operation[Any], status: int, headers: dict[str, str], body: bytes) -> object:
    """An answer is a response or a typed error, which shows nothing of the body."""
    result = interpret(operation, Answer(status, headers, body), LIMIT, CODEC)
    if isinstance(result, DirectSuiteError):
        error_is_fit_to_be_seen(result)
        assert isinstance(result, ServiceError | ResponseDecodeError)
        assert result.operation == operation.name
        assert (result.__traceback__, result.__cause__, result.__context__) == (None, None, None)
        wait = result.retry_after
        assert wait is None or 0 <= wait < math.inf
        return result
    assert isinstance(result, operation.response)
    assert 200 <= status < 300
    if isinstance(result, DirectMessageStatusReportResponse):
        _records_are_typed(result)
    return result


def error_is_fit_to_be_seen(error: DirectSuiteError) -> None:
    """Its texts can be printed on a line of any log, and hold no part of what was answered."""
    attributes = {name: value for name, value in vars(error).items() if name != "code"}  # the service's own, kept apart
    for text in (str(error), repr(error), repr(error.args), repr(attributes)):
        assert MARKER not in text
    assert str(error).isprintable()
    assert len(str(error)) < 1000
    assert str(error.copy()) == str(error)
    assert error.outcome is not None


def _records_are_typed(response: DirectMessageStatusReportResponse) -> None:
    try:
        assert isinstance(response.records, list)
    except ResponseDecodeError as error:
        error_is_fit_to_be_seen(error)


def cut(content: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The content in pieces."""
    edges = [0, *sorted(position % (len(content) + 1) for position in cuts), len(content)]
    return [content[start:end] for start, end in pairwise(edges)]


def pieces_are_as_the_whole(content: bytes, cuts: Iterable[int]) -> None:
    """However a stream is cut, its readers see the same, and refuse the same for the same reason."""
    pieces = cut(content, cuts)
    assert _split(pieces) == _split([content])
    assert _messages(pieces) == _messages([content])
    assert _decoded(pieces) == _decoded([content]) == _decoded_whole(content)


def _split(pieces: list[bytes]) -> Seen:
    splitter, seen = ArraySplitter("messages"), list[Any]()
    try:
        for piece in pieces:
            seen.extend(splitter.feed(piece))  # keeps what came before a failure, too
        return seen, splitter.finish()
    except MismatchError as mismatch:
        return seen, str(mismatch)


def _messages(pieces: list[bytes]) -> Seen:
    reader, seen = MessageReader(messaging.GET_MESSAGES, CODEC), list[Any]()
    try:
        for piece in pieces:
            seen.extend(reader.feed(piece))
        reader.finish()
    except MismatchError as mismatch:
        return seen, str(mismatch)
    except DirectSuiteError as error:
        error_is_fit_to_be_seen(error)
        return seen, str(error)
    return seen, None


def _decoded(pieces: list[bytes]) -> bytes | None:
    decoder, content = base64.Decoder(), b""
    try:
        for piece in pieces:
            content += decoder.feed(piece)
        decoder.finish()
    except MismatchError:
        return None
    return content


def _decoded_whole(content: bytes) -> bytes | None:
    try:
        return base64.decode(without_byte_order_mark(content))
    except MismatchError:
        return None


def date_is_typed(value: object) -> None:
    """Anything in a date's place is an aware moment in UTC, or a mismatch; in a day's, a day or text."""
    with contextlib.suppress(MismatchError):
        assert read_datetime(value).tzinfo is UTC
    with contextlib.suppress(MismatchError):
        assert isinstance(read_day(value), day | str)


def retry_after_is_seconds(header: str, now: float) -> None:
    """A Retry-After is a finite number of seconds, not below zero, or nothing."""
    seconds = retry_after(header, now=lambda: now)
    assert seconds is None or 0 <= seconds <= timedelta.max.total_seconds()


def report_is_typed(document: bytes) -> None:
    """A report's rows have the columns' names; what is no CSV is a typed error."""
    try:
        for row in rows(document, MessageStatus):
            assert row.keys() <= {*COLUMNS, "extra"}
    except ResponseDecodeError as error:
        error_is_fit_to_be_seen(error)
