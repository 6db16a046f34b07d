"""The fax types."""

from __future__ import annotations

import json

import pytest

import directsuite as ds
from directsuite.wire.codec import Codec


@pytest.mark.parametrize("member", ["MessageHandle", "messageHandle", "message_handle"])
def test_handle_is_read_under_any_of_its_names(member: str) -> None:
    message = Codec().decode(ds.FaxMessage, json.dumps({member: "h7"}).encode())
    assert (message.message_handle, message.extra) == ("h7", {})
