"""The rows of the messaging service: operations that send, or change a mailbox."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import directsuite as ds

from .matrix_row import ALICE, BOB, DOMAIN, DRAFTS, PASSWORD, TUSER, Effect, MatrixContext, MatrixRow, PlainRequest

_CREDENTIALS = {"username": ALICE, "password": PASSWORD}


def _make_message(number: int) -> ds.Message:
    return ds.Message(subject=f"number {number}", body="once", recipients=[ds.Recipient(BOB)])


def _make_message_with_header(number: int) -> ds.MessageWithHeader:
    recipients, headers = [ds.Recipient(BOB)], [ds.MessageHeader("X-Case", str(number))]
    return ds.MessageWithHeader(subject=f"number {number}", body="once", recipients=recipients, headers=headers)


async def _prepare_nothing(_: MatrixContext) -> None: ...


async def _expose_request_id(context: MatrixContext) -> None:
    """Add a marked message to the folder, so that the server shows custom headers."""
    await context.box.send_once(_make_message(context.number))


def _has_smtp_id(response: Any, effect: Effect) -> bool:
    return bool(response.smtp_id == effect["subject"])


def _make_sending_row(
    operation: str,
    variant: str,
    call: Callable[[MatrixContext, None], Awaitable[Any]],
    *,
    prepare: Callable[[MatrixContext], Awaitable[None]] = _prepare_nothing,
) -> MatrixRow:
    async def plain(context: MatrixContext, _: None) -> PlainRequest:
        of_tuser = {"username": TUSER, "password": PASSWORD, "directAddr": ALICE}
        message: dict[str, Any] = {
            "sender": ALICE,
            "subject": f"number {context.number}",
            "body": "once",
            "htmlBody": False,
            "recipients": [{"email": BOB, "type": "TO"}],
            "attachmentList": [],
        }
        if "Header" in operation:
            message["headers"] = [{"name": "X-Case", "value": str(context.number)}]
        authentication = of_tuser if "Tuser" in operation else _CREDENTIALS
        body = {"authentication": authentication, "message": message}
        return PlainRequest(method="PUT", url=f"{context.sandbox.message_url}/{operation}", json=body)

    return MatrixRow(
        operation=operation,
        variant=variant,
        prepare=prepare,
        call=call,
        plain_request=plain,
        is_consistent=_has_smtp_id,
    )


def _make_raw(number: int) -> bytes:
    return (
        f"From: {BOB}\r\nTo: {ALICE}\r\nSubject: number {number}\r\nMessage-ID: <{number}@{DOMAIN}>\r\n\r\nOnce.\r\n"
    ).encode()


async def _deliver(context: MatrixContext) -> list[int]:
    return [await context.sandbox.deliver(ALICE, _make_raw(context.number))]


async def _forward(context: MatrixContext, uids: list[int]) -> PlainRequest:
    body = {"auth": _CREDENTIALS, "uids": uids, "recipients": [{"email": BOB, "type": "TO"}]}
    return PlainRequest(method="PUT", url=f"{context.sandbox.message_url}/Forward/INBOX", json=body)


async def _copy(context: MatrixContext, uids: list[int]) -> PlainRequest:
    url = f"{context.sandbox.message_url}/CopyMessagesByUIDs/INBOX/{DRAFTS}"
    return PlainRequest(method="POST", url=url, json={"auth": _CREDENTIALS, "uids": uids})


async def _save_raw(context: MatrixContext, message: ds.RawMessage) -> PlainRequest:
    content = base64.b64encode(message.data or b"").decode()
    body = {"auth": _CREDENTIALS, "messages": [{"data": content}]}
    return PlainRequest(method="POST", url=f"{context.sandbox.message_url}/SaveRawMessages/{DRAFTS}", json=body)


async def _make_raw_message(context: MatrixContext) -> ds.RawMessage:
    return ds.RawMessage(data=_make_raw(context.number))


async def _create_folder(context: MatrixContext) -> str:
    folder = f"INBOX.Case{context.number}"
    await context.box.create_folder(folder)
    return folder


async def _delete_folder(context: MatrixContext, folder: str) -> PlainRequest:
    return PlainRequest(method="POST", url=f"{context.sandbox.message_url}/DeleteFolder/{folder}", json=_CREDENTIALS)


def _returns_none(answer: Any, _: Effect) -> bool:
    return answer is None


def _make_mailbox_rows() -> list[MatrixRow]:
    rows = [
        MatrixRow(
            operation="Forward",
            variant="",
            prepare=_deliver,
            call=lambda context, uids: context.box.forward("INBOX", uids, [BOB]),
            plain_request=_forward,
            is_consistent=_has_smtp_id,
        ),
        MatrixRow(
            operation="DeleteFolder",
            variant="",
            prepare=_create_folder,
            call=lambda context, folder: context.box.delete_folder(folder),
            plain_request=_delete_folder,
            is_consistent=_returns_none,
        ),
    ]
    for verify in (False, True):
        variant = "verify=True" if verify else ""

        async def copy(context: MatrixContext, uids: list[int], verify: bool = verify) -> None:
            await context.box.copy_messages_by_uids("INBOX", DRAFTS, uids, verify=verify)

        async def save(context: MatrixContext, message: ds.RawMessage, verify: bool = verify) -> None:
            await context.box.save_raw_messages(DRAFTS, [message], verify=verify)

        rows.append(
            MatrixRow(
                operation="CopyMessagesByUIDs",
                variant=variant,
                prepare=_deliver,
                call=copy,
                plain_request=_copy,
                is_consistent=_returns_none,
            )
        )
        rows.append(
            MatrixRow(
                operation="SaveRawMessages",
                variant=variant,
                prepare=_make_raw_message,
                call=save,
                plain_request=_save_raw,
                is_consistent=_returns_none,
            )
        )
    return rows


MESSAGING_ROWS: list[MatrixRow] = [
    _make_sending_row("Send", "", lambda context, _: context.box.send(_make_message(context.number))),
    _make_sending_row(
        "SendWithHeader", "", lambda context, _: context.box.send_with_header(_make_message_with_header(context.number))
    ),
    _make_sending_row(
        "SendWithHeader", "send_once", lambda context, _: context.box.send_once(_make_message(context.number))
    ),
    _make_sending_row(
        "SendWithHeader",
        "send_once, resend=True",
        lambda context, _: context.box.send_once(_make_message(context.number), settle=20, resend=True),
        prepare=_expose_request_id,
    ),
    _make_sending_row("SendWithTuser", "", lambda context, _: context.tuser.send(_make_message(context.number))),
    _make_sending_row(
        "SendWithHeaderWithTuser",
        "",
        lambda context, _: context.tuser.send_with_header(_make_message_with_header(context.number)),
    ),
    *_make_mailbox_rows(),
]
