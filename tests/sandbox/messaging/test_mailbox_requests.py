"""Invalid requests, credentials, and the profiles of responses."""

from __future__ import annotations

from typing import Any

import pytest

from directsuite.sandbox.messaging.mailboxes import AccountExists
from tests.sandbox.messaging.mailbox_server import (
    ALICE,
    BOB,
    PASSWORD,
    MessagingServer,
    encode_base64,
    make_credentials,
    open_messaging_server,
)


async def test_missing_credentials_are_rejected(mail: MessagingServer) -> None:
    cases: list[dict[str, Any]] = [{}, {"auth": None}, {"username": ALICE}, {"password": PASSWORD}, {"other": 1}]
    for body in cases:
        assert await mail.call_rejected("GetUIDs", "INBOX", body=body) == 1, body


@pytest.mark.exhaustive
@pytest.mark.parametrize("wrap", ["auth", "authentication", None])
@pytest.mark.parametrize(
    ("operation", "segments"),
    [
        ("CreateFolder", ["INBOX.B"]),
        ("MoveFolder", ["INBOX.A", "INBOX.B"]),
        ("DeleteFolder", ["INBOX.A"]),
        ("GetFolders", ["INBOX", "false"]),
        ("GetMessageCount", ["INBOX.A"]),
    ],
)
async def test_mailbox_operations_take_credentials_bare_or_wrapped(
    mail: MessagingServer, operation: str, segments: list[str], wrap: str | None
) -> None:
    await mail.call_ok("CreateFolder", "INBOX.A")
    await mail.call_ok(operation, *segments, body=make_credentials() if wrap is None else {wrap: make_credentials()})


async def test_invalid_json_is_a_bad_request(mail: MessagingServer) -> None:
    for body in (b"", b"{", b"nonsense", b"\xff\xfe", b'"\\ud800"', b"[" * 100_000, b"NaN"):
        for headers in ({"Content-Type": "application/json"}, {}):
            status, response = await mail.request("POST", "GetUIDs/INBOX", data=body, headers=headers)
            assert (status, response["success"], response["code"]) == (400, False, 4), body


async def test_other_json_and_media_types_are_code_4(mail: MessagingServer) -> None:
    for body, media_type, status in (
        *((body, "application/json;charset=UTF-8", 200) for body in ("[]", "5", '"x"', "null", '{"username": 5}')),
        *((body, "application/json", 200) for body in ('{"auth": []}', '{"auth": {"username": null}}')),
        ('{"username": "a", "password": "b"}', "text/plain", 415),
    ):
        headers = {"Content-Type": media_type}
        received, response = await mail.request("POST", "GetUIDs/INBOX", data=body.encode(), headers=headers)
        assert (received, response["success"], response["code"]) == (status, False, 4), (body, media_type, status)


async def test_uids_are_a_list_of_whole_numbers(mail: MessagingServer) -> None:
    cases: list[Any] = [[], None, ["1"], [1.5], [True], [-1], [2**63], [2**70], 5, {"1": 1}]
    for uids in cases:
        for operation in ("GetMessagesByUIDs", "MarkMessagesAsReadByUIDs", "GetRawMessagesByUIDs"):
            assert await mail.call_rejected(operation, "INBOX", uids=uids) == 4, uids


async def test_folders_that_do_not_exist_are_rejected_with_code_3(mail: MessagingServer) -> None:
    for folder in ("", "INBOX.Missing", "inbo", "INBOX.sen", "..", "a/b", "\0", "%00", "ü"):
        for operation in ("GetMessageCount", "GetUIDs", "GetMessages", "GetMessageMetaData", "GetUnreadMessages"):
            assert await mail.call_rejected(operation, folder) == 3, folder


async def test_addresses_are_the_same_in_any_normal_form_and_case(mail: MessagingServer) -> None:
    written, other = "Jose\u0301@x.test", "JOS\u00c9@x.test"
    await mail.sandbox.add_account(written, PASSWORD)
    with pytest.raises(AccountExists):
        await mail.sandbox.add_account(other, PASSWORD)
    await mail.sandbox.add_tuser("desk", PASSWORD, [other])
    assert await mail.get_uids(username=other) == []
    tuser = make_credentials("desk") | {"directAddr": written}
    assert (await mail.call_ok("GetMessageStatusWithTuser", "<x@y>", body=tuser))["messageLogs"] == []


async def test_the_java_profile_has_responses_of_java_servers() -> None:
    async with open_messaging_server(profile="java") as mail:
        empty = await mail.call_ok("GetMessages", "INBOX")
        assert (empty["messages"], empty["message"]) == (None, None)
        assert (await mail.call_ok("GetUIDs", "INBOX"))["uids"] is None
        smtp_id = await mail.send()
        one = (await mail.call_ok("GetMessages", "INBOX.Sent"))["messages"]
        assert one["receivedDate"] == one["sentDate"] == 1_777_636_800_000
        assert one["attachments"] is None
        assert one["recipients"]["type"] == "TO"
        assert (one["modified"], one["saved"], one["strict"]) == (False, True, True)
        log = (await mail.call_ok("GetMessageStatus", smtp_id))["messageLogs"]
        assert log["ts"] == 1_777_636_800_000
        assert (await mail.call_ok("GetUIDs", "INBOX.Sent"))["uids"] == [1]
        await mail.send()
        assert len((await mail.call_ok("GetMessages", "INBOX.Sent"))["messages"]) == 2
        assert await mail.call_rejected("GetUIDs", "INBOX.Missing") == 3


ATTACHED = [{"content": encode_base64(b"<ccd/>"), "contentType": "text/xml", "filename": "ccd.xml"}]


async def test_the_attachment_list_profile_renames_attachments() -> None:
    async with open_messaging_server(profile="attachment-list") as mail:
        await mail.send(attachmentList=ATTACHED)
        await mail.send()
        for username, folder in ((BOB, "INBOX"), (ALICE, "INBOX.Sent")):
            first, second = await mail.get_messages(folder, username)
            assert "attachments" not in first | second
            assert (first["attachmentList"], second["attachmentList"]) == (ATTACHED, [])
        (metadata, _) = (await mail.call_ok("GetMessageMetaData", "INBOX.Sent"))["messages"]
        assert metadata["attachmentList"] == [{"filename": "ccd.xml", "contentType": "text/xml"}]
        assert (await mail.call_ok("GetMessages", "INBOX"))["messages"] == []
        (raw,) = (await mail.call_ok("GetRawMessagesByUIDs", "INBOX.Sent", uids=[2]))["messages"]
        assert set(raw) == {"uid", "msgID", "folder", "data"}


async def test_profiles_combine() -> None:
    async with open_messaging_server(profile=["java", "attachment-list"]) as mail:
        await mail.send(attachmentList=ATTACHED)
        one = (await mail.call_ok("GetMessages", "INBOX.Sent"))["messages"]
        assert (one["attachmentList"], one["recipients"]["email"]) == (ATTACHED[0], BOB)
        mail.sandbox.profile = "strict"
        (one,) = (await mail.call_ok("GetMessages", "INBOX.Sent"))["messages"]
        assert one["attachments"] == ATTACHED
