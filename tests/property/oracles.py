"""Properties of code that reads responses.

Each function receives a response, and raises AssertionError if a property does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from directsuite.core.operation import Operation
from directsuite.core.outcome import interpret
from directsuite.core.session import BufferedResponse
from directsuite.errors import DirectSuiteError, ResponseDecodeError, ServiceError
from directsuite.messaging import operations as messaging
from directsuite.messaging.listings import MessageReader
from directsuite.messaging.models import DirectMessageStatusReportResponse
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError

from .sample_responses import MARKER

MAX_RESPONSE_BYTES = 10**9
CODEC = Codec()

StreamOutcome = tuple[list[Any], object]
"""The elements of a stream, and the rest or the error at its end."""


def check_response_is_typed(operation: Operation[Any], status: int, headers: dict[str, str], body: bytes) -> object:
    result = interpret(operation, BufferedResponse(status, headers, body), MAX_RESPONSE_BYTES, CODEC)
    if isinstance(result, DirectSuiteError):
        check_error_is_printable(result)
        assert isinstance(result, ServiceError | ResponseDecodeError)
        assert result.operation == operation.name
        assert (result.__traceback__, result.__cause__, result.__context__) == (None, None, None)
        wait = result.retry_after
        assert wait is None or 0 <= wait < math.inf
        return result
    assert isinstance(result, operation.response)
    assert 200 <= status < 300
    if isinstance(result, DirectMessageStatusReportResponse):
        _check_records_are_typed(result)
    return result


def check_error_is_printable(error: DirectSuiteError) -> None:
    """Check that the texts of an error are printable and contain nothing of the response."""
    attributes = {name: value for name, value in vars(error).items() if name != "code"}  # the service's own, kept apart
    for text in (str(error), repr(error), repr(error.args), repr(attributes)):
        assert MARKER not in text
    assert str(error).isprintable()
    assert len(str(error)) < 1000
    again = error.copy()
    again.__cause__ = error.__cause__  # the text can refer to it
    assert str(again) == str(error)
    assert error.outcome is not None


def _check_records_are_typed(response: DirectMessageStatusReportResponse) -> None:
    try:
        assert isinstance(response.records, list)
    except ResponseDecodeError as error:
        check_error_is_printable(error)


def split_at(content: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(content) + 1) for position in cuts), len(content)]
    return [content[start:end] for start, end in pairwise(edges)]


def check_split_equals_unsplit(content: bytes, cuts: Iterable[int]) -> None:
    """Check that a stream has the same result, or the same error, however it is divided."""
    assert _decode_messages(split_at(content, cuts)) == _decode_messages([content])


def _decode_messages(pieces: list[bytes]) -> StreamOutcome:
    reader, seen = MessageReader(messaging.GET_MESSAGES, CODEC), list[Any]()
    try:
        for piece in pieces:
            seen.extend(reader.feed(piece))
        reader.finish()
    except MismatchError as mismatch:
        return seen, str(mismatch)
    except DirectSuiteError as error:
        check_error_is_printable(error)
        return seen, str(error)
    return seen, None
