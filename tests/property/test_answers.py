"""Any response to any operation leads to a value, or to a typed error that shows nothing of the response."""

from __future__ import annotations

import sys

import msgspec
import pytest

from directsuite.core.operation import Operation
from directsuite.errors import DirectSuiteError, ResponseDecodeError
from directsuite.messaging import operations as messaging
from directsuite.registration import operations as registration
from directsuite.signing import operations as signing
from tests.operations import METHODS
from tests.operations import OPERATIONS as CASES

from .hostile import BODIES, CODES, CONTENT_TYPES, NON_INTEGER_DIGITS, RETRY_AFTERS, STATUSES, VALUES
from .inputs import BODY, HEADERS, OPERATION, STATUS
from .oracles import check_response_is_typed
from .run_lengths import check_property, parametrize_examples
from .sample_responses import OPERATIONS, SAMPLE_RESPONSES, list_places, remove_value, replace_value

pytestmark = pytest.mark.wide

ONE_OF_EACH_ANSWER = list({(operation.response, operation.service): operation for operation in OPERATIONS}.values())


def _encoded(document: object) -> bytes:
    return document.encode() if isinstance(document, str) else msgspec.json.encode(document)


def test_every_operation_is_tried() -> None:
    assert sorted((operation.name, operation.method) for operation in OPERATIONS) == sorted(METHODS.items())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_complete_response_is_read(operation: Operation[object]) -> None:
    result = check_response_is_typed(operation, 200, {}, _encoded(SAMPLE_RESPONSES[operation.name]))
    assert not isinstance(result, DirectSuiteError)


@pytest.mark.parametrize("status", [0, 99, 101, 199, 300, 304])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_complete_response_with_another_status_is_an_error(operation: Operation[object], status: int) -> None:
    result = check_response_is_typed(operation, status, {}, _encoded(SAMPLE_RESPONSES[operation.name]))
    assert isinstance(result, DirectSuiteError)


@pytest.mark.parametrize("operation", ONE_OF_EACH_ANSWER, ids=lambda operation: operation.name)
def test_wrong_value_at_any_place_is_typed(operation: Operation[object]) -> None:
    document = SAMPLE_RESPONSES[operation.name]
    for place in list_places(document):
        for value in VALUES:
            check_response_is_typed(
                operation, 200, {}, msgspec.json.encode(replace_value(document, place, msgspec.Raw(value)))
            )


UNREADABLE = [b"null", b'""', b"0", b'"x"', b"[]", b"{}", b"%d" % 2**70, b"%d" % 10**400, b"1e400", rb'"\ud83d"']
BROKEN = b'"x\xff"'


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_only_a_value_that_a_later_call_needs_makes_a_response_an_error(operation: Operation[object]) -> None:
    document, required = SAMPLE_RESPONSES[operation.name], CASES[operation.name].required
    for place in list_places(document):
        if not place:
            continue
        changed = [replace_value(document, place, msgspec.Raw(value)) for value in (*UNREADABLE, BROKEN)]
        *results, broken = (
            check_response_is_typed(operation, 200, {}, msgspec.json.encode(each))
            for each in (remove_value(document, place), *changed)
        )
        if place[0] not in ("success", *required):
            assert not any(isinstance(each, DirectSuiteError) for each in (*results, broken))
        elif len(place) == 1 and place[0] != "success":
            assert isinstance(broken, ResponseDecodeError)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_hostile_body_is_typed_whatever_the_status(operation: Operation[object]) -> None:
    for body in BODIES:
        for status in (200, 400, 503):
            check_response_is_typed(operation, status, {}, body)
    for status in STATUSES:
        check_response_is_typed(operation, status, {}, b'{"success": false, "error": "e"}')


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_hostile_header_is_typed(operation: Operation[object]) -> None:
    for text in (*RETRY_AFTERS, *CONTENT_TYPES):
        for status in (200, 429, 503):
            check_response_is_typed(operation, status, {"Retry-After": text, "Content-Type": text}, b"-")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("code", CODES)
def test_hostile_code_is_typed(operation: Operation[object], code: bytes) -> None:
    for status in (200, 400, 500):
        check_response_is_typed(operation, status, {}, b'{"success": false, "code": %s, "error": "e"}' % code)
        check_response_is_typed(operation, status, {}, b'{"code": %s}' % code)


@pytest.mark.parametrize("operation", [messaging.SEND, registration.LOGIN], ids=lambda operation: operation.name)
@pytest.mark.parametrize("code", NON_INTEGER_DIGITS)
def test_code_of_odd_digits_is_typed(operation: Operation[object], code: bytes) -> None:
    check_response_is_typed(operation, 200, {}, b'{"success": false, "code": %s}' % code)


@parametrize_examples
def test_any_response_is_typed(examples: int) -> None:
    check_property(examples, check_response_is_typed, OPERATION, STATUS, HEADERS, BODY)


def test_nesting_of_every_depth_is_typed() -> None:
    """At some depth, the stack is just deep enough for the parser, and not for a reader."""
    for depth in range(sys.getrecursionlimit() - 100, sys.getrecursionlimit() + 10):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            body = b'{"metaData": {"a": %b0%b}}' % (opening * depth, closing * depth)
            check_response_is_typed(signing.GET_DOC_INFO, 200, {}, body)


SHOWN = [
    ("text/html; charset=utf-8", "(text/html, 6 bytes)"),
    ("application/vnd.a+json", "(application/vnd.a+json, 6 bytes)"),
    ("", "(no media type, 6 bytes)"),
    ("html", "(no media type, 6 bytes)"),
    ("text/\x1b[31m", "(no media type, 6 bytes)"),
    ("text/\udcff", "(no media type, 6 bytes)"),
    (f"text/{'a' * 8000}", "(no media type, 6 bytes)"),
]


@pytest.mark.parametrize(("header", "shown"), SHOWN)
def test_media_type_is_named_where_it_is_one(header: str, shown: str) -> None:
    error = check_response_is_typed(signing.GET_DOC_INFO, 200, {"Content-Type": header}, b"<html>")
    assert isinstance(error, ResponseDecodeError)
    assert shown in str(error)
