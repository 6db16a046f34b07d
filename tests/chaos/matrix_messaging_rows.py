"""The rows of the messaging service: what sends, and what changes a mailbox and must not do so twice."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import directsuite as ds

from .matrix_row import ALICE, BOB, DOMAIN, DRAFTS, PASSWORD, TUSER, Effect, Plain, Row, Stage

_CREDENTIALS = {"username": ALICE, "password": PASSWORD}


def _message(number: int) -> ds.Message:
    return ds.Message(subject=f"number {number}", body="once", recipients=[ds.Recipient(BOB)])


def _with_header(number: int) -> ds.MessageWithHeader:
    recipients, headers = [ds.Recipient(BOB)], [ds.MessageHeader("X-Case", str(number))]
    return ds.MessageWithHeader(subject=f"number {number}", body="once", recipients=recipients, headers=headers)


async def _nothing(_: Stage) -> None:
    """What is sent needs no preparation."""


async def _mark_shown(stage: Stage) -> None:
    """The server has been seen to show custom headers, once a marked message is in the folder."""
    await stage.box.send_once(_message(stage.number))


def _smtp_id(response: Any, effect: Effect) -> bool:
    return bool(response.smtp_id == effect["subject"])


def _sending_row(
    operation: str,
    variant: str,
    call: Callable[[Stage, None], Awaitable[Any]],
    *,
    prepare: Callable[[Stage], Awaitable[None]] = _nothing,
) -> Row:
    async def plain(stage: Stage, _: None) -> Plain:
        of_tuser = {"username": TUSER, "password": PASSWORD, "directAddr": ALICE}
        message: dict[str, Any] = {
            "sender": ALICE,
            "subject": f"number {stage.number}",
            "body": "once",
            "htmlBody": False,
            "recipients": [{"email": BOB, "type": "TO"}],
            "attachmentList": [],
        }
        if "Header" in operation:
            message["headers"] = [{"name": "X-Case", "value": str(stage.number)}]
        authentication = of_tuser if "Tuser" in operation else _CREDENTIALS
        body = {"authentication": authentication, "message": message}
        return Plain(method="PUT", url=f"{stage.sandbox.message_url}/{operation}", json=body)

    return Row(
        operation=operation,
        variant=variant,
        prepare=prepare,
        call=call,
        plain=plain,
        agrees=_smtp_id,
    )


def _raw(number: int) -> bytes:
    return (
        f"From: {BOB}\r\nTo: {ALICE}\r\nSubject: number {number}\r\nMessage-ID: <{number}@{DOMAIN}>\r\n\r\nOnce.\r\n"
    ).encode()


async def _delivered(stage: Stage) -> list[int]:
    return [await stage.sandbox.deliver(ALICE, _raw(stage.number))]


async def _forward(stage: Stage, uids: list[int]) -> Plain:
    body = {"auth": _CREDENTIALS, "uids": uids, "recipients": [{"email": BOB, "type": "TO"}]}
    return Plain(method="PUT", url=f"{stage.sandbox.message_url}/Forward/INBOX", json=body)


async def _copy(stage: Stage, uids: list[int]) -> Plain:
    url = f"{stage.sandbox.message_url}/CopyMessagesByUIDs/INBOX/{DRAFTS}"
    return Plain(method="POST", url=url, json={"auth": _CREDENTIALS, "uids": uids})


async def _save_raw(stage: Stage, message: ds.RawMessage) -> Plain:
    content = base64.b64encode(message.data or b"").decode()
    body = {"auth": _CREDENTIALS, "messages": [{"data": content}]}
    return Plain(method="POST", url=f"{stage.sandbox.message_url}/SaveRawMessages/{DRAFTS}", json=body)


async def _raw_message(stage: Stage) -> ds.RawMessage:
    return ds.RawMessage(data=_raw(stage.number))


async def _folder(stage: Stage) -> str:
    folder = f"INBOX.Case{stage.number}"
    await stage.box.create_folder(folder)
    return folder


async def _delete_folder(stage: Stage, folder: str) -> Plain:
    return Plain(method="POST", url=f"{stage.sandbox.message_url}/DeleteFolder/{folder}", json=_CREDENTIALS)


def _silent(answer: Any, _: Effect) -> bool:
    return answer is None


def _mailbox_rows() -> list[Row]:
    rows = [
        Row(
            operation="Forward",
            variant="",
            prepare=_delivered,
            call=lambda stage, uids: stage.box.forward("INBOX", uids, [BOB]),
            plain=_forward,
            agrees=_smtp_id,
        ),
        Row(
            operation="DeleteFolder",
            variant="",
            prepare=_folder,
            call=lambda stage, folder: stage.box.delete_folder(folder),
            plain=_delete_folder,
            agrees=_silent,
        ),
    ]
    for verify in (False, True):
        variant = "verify=True" if verify else ""

        async def copy(stage: Stage, uids: list[int], verify: bool = verify) -> None:
            await stage.box.copy_messages_by_uids("INBOX", DRAFTS, uids, verify=verify)

        async def save(stage: Stage, message: ds.RawMessage, verify: bool = verify) -> None:
            await stage.box.save_raw_messages(DRAFTS, [message], verify=verify)

        rows.append(
            Row(
                operation="CopyMessagesByUIDs",
                variant=variant,
                prepare=_delivered,
                call=copy,
                plain=_copy,
                agrees=_silent,
            )
        )
        rows.append(
            Row(
                operation="SaveRawMessages",
                variant=variant,
                prepare=_raw_message,
                call=save,
                plain=_save_raw,
                agrees=_silent,
            )
        )
    return rows


MESSAGING_ROWS: list[Row] = [
    _sending_row("Send", "", lambda stage, _: stage.box.send(_message(stage.number))),
    _sending_row("SendWithHeader", "", lambda stage, _: stage.box.send_with_header(_with_header(stage.number))),
    _sending_row("SendWithHeader", "send_once", lambda stage, _: stage.box.send_once(_message(stage.number))),
    _sending_row(
        "SendWithHeader",
        "send_once, resend=True",
        lambda stage, _: stage.box.send_once(_message(stage.number), settle=20, resend=True),
        prepare=_mark_shown,
    ),
    _sending_row("SendWithTuser", "", lambda stage, _: stage.tuser.send(_message(stage.number))),
    _sending_row(
        "SendWithHeaderWithTuser", "", lambda stage, _: stage.tuser.send_with_header(_with_header(stage.number))
    ),
    *_mailbox_rows(),
]
