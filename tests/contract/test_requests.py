"""Each operation's request on a real socket, against a table written by hand from the specification."""

from __future__ import annotations

import json

import pytest

import directsuite as ds
from tests.specification import METHODS

from .mailbox_rows import MAILBOX_ROWS
from .recorder import CannedResponse, RecordedRequest, Recorder
from .registration_rows import LOGIN_BODY, LOGIN_RESPONSE, LOGIN_TARGET, REGISTRATION_ROWS
from .row import LOGIN, TOKEN, RequestRow, make_settings
from .sending_rows import SENDING_ROWS
from .signing_rows import FAX_ROWS, SIGNING_ROWS
from .variant_rows import VARIANT_ROWS

ROWS = [*SIGNING_ROWS, *FAX_ROWS, *SENDING_ROWS, *MAILBOX_ROWS, *REGISTRATION_ROWS]


def test_the_table_has_each_operation_once() -> None:
    assert sorted(row.operation for row in ROWS) == sorted(METHODS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.operation)
async def test_request_is_the_specification_s(row: RequestRow) -> None:
    await _assert_sends(row)


@pytest.mark.parametrize("row", VARIANT_ROWS, ids=lambda row: f"{row.operation}:{row.target.rpartition('/')[2]}")
async def test_optional_parts_of_requests(row: RequestRow) -> None:
    await _assert_sends(row)


async def _assert_sends(row: RequestRow) -> None:
    """Make the row's call and compare everything that the server saw with the row."""

    def answer(request: RecordedRequest) -> CannedResponse:
        return LOGIN_RESPONSE if request.target == LOGIN_TARGET else row.response

    async with (
        Recorder(answer) as recorder,
        ds.DirectSuite(make_settings(recorder.url), token=TOKEN, login=LOGIN) as suite,
    ):
        await row.call(suite)

    *before, request = recorder.requests
    assert [(login.target, json.loads(login.body)) for login in before] == (
        [(LOGIN_TARGET, LOGIN_BODY)] if row.logs_in else []
    )
    assert (request.method, request.target) == (row.method, row.target)
    assert {name: request.headers.get(name) for name in row.headers} == dict(row.headers)
    assert [name for name in row.absent_headers if name in request.headers] == []
    if isinstance(row.body, bytes):
        assert request.body == row.body
    else:
        # As text with sorted keys: Python holds True equal to 1, and 1 to 1.0.
        assert json.dumps(json.loads(request.body), sort_keys=True) == json.dumps(row.body, sort_keys=True)
