"""The mailbox facade: empty arguments, absent lists, reports as CSV, and error codes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import directsuite as ds
from tests.fake_services import ALICE, BOB, MESSAGE, SUCCESS, FakeServices

_NOON, _ONE = datetime(2026, 5, 1, 12, tzinfo=UTC), datetime(2026, 5, 1, 13, tzinfo=UTC)


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

ABSENT_LISTS: dict[str, tuple[str, str, Callable[[ds.Mailbox], Awaitable[Any]]]] = {
    "messages": ("GetMessages/INBOX", "messages", lambda box: box.get_messages()),
    "uids": ("GetUIDs/INBOX", "uids", lambda box: box.get_uids()),
    "folders": ("GetFolders/INBOX/false", "folders", lambda box: box.get_folders()),
    "raw messages": ("GetRawMessagesByUIDs/INBOX", "messages", lambda box: box.get_raw_messages_by_uids("INBOX", [1])),
}


@pytest.mark.parametrize("uid", [-5, "-1", 2**63, 1e30, "9" * 30, None, "1\xff"])
async def test_a_listing_with_a_uid_that_can_t_be_names_its_place(
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["missing", "null"])
@pytest.mark.parametrize(("path", "name", "call"), ABSENT_LISTS.values(), ids=ABSENT_LISTS)
async def test_absent_list_is_an_empty_list(
    path: str,
    name: str,
    call: Callable[[ds.Mailbox], Awaitable[Any]],
    form: str,
    services: FakeServices,
    box: ds.Mailbox,
) -> None:
    services.add_response("POST", f"{MESSAGE}/{path}", SUCCESS | ({} if form == "missing" else {name: None}))
    assert await call(box) == []


async def test_report_as_csv_has_the_same_records(services: FakeServices, box: ds.Mailbox) -> None:
    csv = (
        "From,To,Message ID,Message Size,Status,Sent Time,XDR Message ID,XDR Source ID,XDR Unique ID,XDR Patient ID\r\n"
        f'{ALICE},{BOB},<m@x>,99,NO MDN Received,2026-05-01T12:00:00Z,,,,"p1"\r\n'
    )
    answer = SUCCESS | {"hasCvData": True, "csvData": b64encode(csv.encode()).decode(), "messageLogs": None}
    services.add_response("POST", f"{MESSAGE}/GetMessageStatus/", answer)
    (record,) = (await box.get_message_statuses(["<m@x>"])).records
    assert (record.from_, record.to, record.message_size, record.status) == (ALICE, BOB, 99, "NO MDN Received")
    assert (record.ts, record.patient_id, record.xdr_id) == (_NOON, "p1", None)


async def test_count_without_a_number_is_no_answer(services: FakeServices, box: ds.Mailbox) -> None:
    services.add_response("POST", f"{MESSAGE}/GetMessageCount/INBOX", SUCCESS)
    with pytest.raises(ds.ResponseDecodeError) as caught:
        await box.get_message_count()
    assert caught.value.path == "$.count"


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
