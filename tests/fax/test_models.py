"""The fax types on the wire: their own capitals, and a handle under any of its names."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import directsuite as ds
from directsuite.wire.codec import Codec

CODEC = Codec()

ANSWER: dict[str, Any] = {
    "Username": "alice",
    "MessageHandle": "h1",
    "MessageDetail": [
        {
            "fax_number": "+15550100",
            "status": "complete",
            "updated_ts": "2016-07-05T17:47:15.000Z",
            "recipients": [{"Address": "+15550101", "Name": "Bob", "PageCount": 3, "description": "sent"}],
            "description": "done",
        }
    ],
    "description": "ok",
}


def test_response_is_read_and_goes_back_out_as_it_came() -> None:
    information = CODEC.decode(ds.FaxMessageInformation, json.dumps(ANSWER).encode())
    assert (information.username, information.message_handle, information.description) == ("alice", "h1", "ok")
    (message,) = information.message_detail
    assert (message.fax_number, message.message_handle, message.description) == ("+15550100", None, "done")
    assert message.status is ds.FaxStatus.COMPLETE
    assert message.updated_ts == datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)
    assert message.recipients == [ds.FaxRecipient(address="+15550101", name="Bob", page_count=3, description="sent")]
    assert json.loads(CODEC.encode(information)) == ANSWER


@pytest.mark.parametrize("member", ["MessageHandle", "messageHandle", "message_handle"])
def test_fax_may_carry_its_handle_under_any_of_its_names(member: str) -> None:
    message = CODEC.decode(ds.FaxMessage, json.dumps({member: "h7"}).encode())
    assert message.message_handle == "h7"
    assert message.extra == {}


def test_status_that_nobody_listed_keeps_its_text() -> None:
    message = CODEC.decode(ds.FaxMessage, b'{"status":"busy"}')
    assert message.status == "busy"
    assert message.status is not None
    assert not message.status.is_known
    assert CODEC.encode(message) == b'{"status":"busy"}'


def test_repr_shows_states_and_no_numbers() -> None:
    shown = repr(CODEC.decode(ds.FaxMessageInformation, json.dumps(ANSWER).encode()))
    assert "FaxStatus.COMPLETE" in shown
    assert "+1555" not in shown
    assert "Bob" not in shown
