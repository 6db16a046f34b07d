"""The mailbox facade: empty arguments, absent lists, reports as CSV, and error codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import directsuite as ds
from tests.fake_services import MESSAGE, SUCCESS, FakeServices

NOTHING_TO_DO: dict[str, tuple[Callable[[ds.Mailbox], Awaitable[Any]], Any]] = {
    "get_messages_by_uids": (lambda box: box.get_messages_by_uids("INBOX", []), []),
    "get_raw_messages_by_uids": (lambda box: box.get_raw_messages_by_uids("INBOX", iter(())), []),
    "copy_messages_by_uids": (lambda box: box.copy_messages_by_uids("INBOX", "INBOX.a", ()), None),
    "move_messages_by_uids": (lambda box: box.move_messages_by_uids("INBOX", "INBOX.a", ()), None),
    "delete_messages_by_uids": (lambda box: box.delete_messages_by_uids("INBOX", (), forever=True), None),
    "mark_messages_as_read_by_uids": (lambda box: box.mark_messages_as_read_by_uids("INBOX", ()), None),
    "mark_messages_as_unread_by_uids": (lambda box: box.mark_messages_as_unread_by_uids("INBOX", ()), None),
    "save_raw_messages": (lambda box: box.save_raw_messages("INBOX", ()), None),
    "set_folders_subscribed": (lambda box: box.set_folders_subscribed((), False), []),
    "get_message_statuses": (
        lambda box: box.get_message_statuses(()),
        ds.DirectMessageStatusReportResponse(success=True),
    ),
}


@pytest.mark.parametrize("uid", [-5, "-1", 2**63, 1e30, "9" * 30, None, "1\xff"])
async def test_listing_with_a_uid_that_cannot_be_names_its_place(
    uid: object, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": [1, 2, uid]})
    with pytest.raises(ds.ResponseDecodeError, match="uid") as caught:
        await anext(box.iter_messages())
    assert caught.value.path == "$.uids[2]"


@pytest.mark.parametrize(("call", "gives"), NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
async def test_nothing_to_do_sends_nothing(
    call: Callable[[ds.Mailbox], Awaitable[Any]], gives: Any, services: FakeServices, box: ds.Mailbox
) -> None:
    assert await call(box) == gives
    assert services.requests_by_url == []


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (200, 1, ds.AuthenticationError),
        (500, 1, ds.AuthenticationError),
        (200, 2, ds.AddressError),
        (200, 3, ds.ServiceError),
        (400, 4, ds.ServiceError),
        (200, 77, ds.ServiceError),
        (200, None, ds.ServiceError),
    ],
)
async def test_code_decides_the_class_whatever_the_status(
    status: int, code: int | None, expected: type[ds.ServiceError], services: FakeServices, box: ds.Mailbox
) -> None:
    answer = {"success": False, "code": code, "message": "for alice only"}
    services.add_response("POST", f"{MESSAGE}/GetMessageCount/INBOX", answer, status=status)
    with pytest.raises(ds.ServiceError) as caught:
        await box.get_message_count()
    error = caught.value
    assert type(error) is expected
    assert (error.operation, error.status, error.code, error.attempts) == ("GetMessageCount", status, code, 1)
    assert error.message == "for alice only"
    assert "alice" not in f"{error} {error!r} {error.args}"
