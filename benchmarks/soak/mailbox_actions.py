"""Messaging: every operation, listings read whole and left early, attachments in memory and on disk."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import directsuite as ds
from benchmarks.soak.action_context import BOB, DOMAIN, ActionContext, SoakAction

if TYPE_CHECKING:
    from collections.abc import Callable

    from directsuite.core.iteration import Listing

_INBOX, _SENT, _TRASH = "INBOX", "INBOX.Sent", "INBOX.Trash"
_LARGE_BYTES = 60_000  # bytes of an attachment
_MAX_MESSAGES_KEPT = 12  # messages that stay in Bob's inbox
_SETTLE_SECONDS = 1.0  # seconds to look for a message whose answer got lost


async def counts(stage: ActionContext) -> None:
    """All three counts at once."""
    box = stage.alice
    await asyncio.gather(
        box.get_message_count(),
        box.get_unread_message_count(_SENT),
        box.get_deleted_message_count(_TRASH),
    )


async def read_some(stage: ActionContext) -> None:
    """A few messages, read and marked."""
    box = stage.alice
    uids = (await box.get_uids())[:4]
    found = await box.get_messages_by_uids(_INBOX, uids)
    assert {message.uid for message in found} <= set(uids)
    await box.mark_messages_as_read_by_uids(_INBOX, uids)
    await box.mark_messages_as_unread_by_uids(_INBOX, uids[:1])


async def read_whole(stage: ActionContext) -> None:
    """A folder in one answer each: all, the unread, the metadata."""
    box = stage.alice
    await stage.rng.choice((box.get_messages, box.get_unread_messages, box.get_message_metadata))()


async def search(stage: ActionContext) -> None:
    """One of the six searches."""
    box, now = stage.alice, datetime.now(UTC)
    await stage.rng.choice(
        (
            lambda: box.get_messages_by_received_date(_INBOX, now - timedelta(hours=1), None),
            lambda: box.get_messages_by_received_date_utc(_INBOX, None, now + timedelta(hours=1)),
            lambda: box.search_messages_metadata_by_received_date(_INBOX, None, None),
            lambda: box.search_messages_metadata_by_received_date_utc(_INBOX, now, None),
            lambda: box.get_messages_by_sender(_INBOX, BOB),
            lambda: box.get_messages_by_subject(_INBOX, "Welcome to the sandbox"),
        )
    )()


async def list_whole(stage: ActionContext) -> None:
    """One listing to its end."""
    async with _open_listing(stage) as messages:
        async for _ in messages:
            pass


async def list_in_part(stage: ActionContext) -> None:
    """One listing that is left early, with requests under way, by its own context or the generator's end."""
    leave_after = stage.rng.randint(1, 5)
    messages = _open_listing(stage)
    async with messages if stage.rng.random() < 0.5 else aclosing(messages):
        async for _ in messages:
            leave_after -= 1
            if not leave_after:
                break


async def list_slowly(stage: ActionContext) -> None:
    """A stream whose reader takes its time, and calls for each message."""
    async with stage.alice.stream_messages() as messages:
        async for message in messages:
            await asyncio.sleep(0.005)
            if message.uid is not None and stage.rng.random() < 0.2:
                await stage.alice.get_messages_by_uids(_INBOX, [message.uid])


async def send(stage: ActionContext) -> None:
    """A message, now and then with attachments of both kinds."""
    message = _make_message(stage)
    await stage.alice.send(message)
    _record_acknowledged(stage, message)


async def send_with_header(stage: ActionContext) -> None:
    """A message with a header of its own."""
    message = _make_message(stage, ds.MessageWithHeader, headers=[ds.MessageHeader("X-Soak", "1")])
    await stage.alice.send_with_header(message)
    _record_acknowledged(stage, message)


async def send_once(stage: ActionContext) -> None:
    """A message that is looked for where its answer got lost."""
    message = _make_message(stage)
    await stage.alice.send_once(message, key=stage.make_name(), settle=_SETTLE_SECONDS)
    _record_acknowledged(stage, message)


async def send_as_tuser(stage: ActionContext) -> None:
    """A message of either kind from who acts for Alice, and its status."""
    if stage.rng.random() < 0.5:
        message = _make_message(stage)
        answer = await stage.tuser.send(message)
    else:
        message = _make_message(stage, ds.MessageWithHeader, headers=[ds.MessageHeader("X-Soak", "2")])
        answer = await stage.tuser.send_with_header(message)
    _record_acknowledged(stage, message)
    await stage.tuser.get_message_status(answer.smtp_id or "")


async def status(stage: ActionContext) -> None:
    """The status of one message, and of many, which comes as CSV."""
    message = _make_message(stage, small=True)
    answer = await stage.alice.send(message)
    _record_acknowledged(stage, message)
    await stage.alice.get_message_status(answer.smtp_id or "")
    await stage.alice.get_message_statuses([answer.smtp_id or ""] * stage.rng.choice((2, 120)))


async def forward(stage: ActionContext) -> None:
    """Two messages as attachments of another."""
    uids = (await stage.alice.get_uids())[:2]
    if uids:
        await stage.alice.forward(_INBOX, uids, [BOB])


async def folders(stage: ActionContext) -> None:
    """The life of a folder: made, filled, renamed, deleted; some of it without looking for proof."""
    box, verify = stage.bob, stage.rng.random() < 0.5
    folder, renamed = f"INBOX.{stage.make_name()}", f"INBOX.{stage.make_name()}"
    await box.create_folder(folder)
    await box.set_folders_subscribed([folder], subscribed=True)
    await box.get_folders(subscribed_only=True)
    uids = (await box.get_uids())[:3]
    await box.copy_messages_by_uids(_INBOX, folder, uids, verify=verify)
    await box.move_messages_by_uids(_INBOX, folder, uids[:1])
    await box.move_folder(folder, renamed)
    await box.delete_folder(renamed)


async def raw_messages(stage: ActionContext) -> None:
    """Messages as they stand on the server, saved once more."""
    box = stage.bob
    raw = await box.get_raw_messages_by_uids(_INBOX, (await box.get_uids())[:2])
    await box.save_raw_messages("INBOX.Drafts", raw, verify=stage.rng.random() < 0.5)


async def tidy(stage: ActionContext) -> None:
    """All but the newest messages out of Bob's folders."""
    box = stage.bob
    for folder, forever in ((_INBOX, True), ("INBOX.Drafts", False), (_TRASH, True)):
        uids = await box.get_uids(folder)
        await box.delete_messages_by_uids(folder, uids[:-_MAX_MESSAGES_KEPT], forever=forever)


ACTIONS: tuple[tuple[int, SoakAction], ...] = (
    (6, counts),
    (6, read_some),
    (4, read_whole),
    (6, search),
    (6, list_whole),
    (5, list_in_part),
    (1, list_slowly),
    (4, send),
    (3, send_with_header),
    (4, send_once),
    (3, send_as_tuser),
    (2, status),
    (2, forward),
    (4, folders),
    (2, raw_messages),
    (4, tidy),
)
"""How often, and what."""


def _open_listing(stage: ActionContext) -> Listing[Any]:
    box, batch = stage.alice, stage.rng.choice((1, 3, 50))
    listings: tuple[Callable[[], Listing[Any]], ...] = (
        lambda: box.iter_messages(batch_size=batch),
        lambda: box.iter_raw(batch_size=batch),
        box.iter_metadata,
        box.stream_messages,
    )
    return stage.rng.choice(listings)()


def _make_message(
    stage: ActionContext, kind: type[ds.Message] = ds.Message, *, small: bool = False, **more: Any
) -> Any:
    attachments: list[ds.Attachment] = []
    if not small and stage.rng.random() < 0.3:
        attachments = [
            ds.Attachment(content=stage.rng.randbytes(_LARGE_BYTES), content_type="image/png", filename="scan.png"),
            ds.Attachment.from_path(stage.form_file),
        ]
    return kind(
        subject=stage.sent.make_subject(),
        body="Please see the attachments.",
        recipients=[ds.Recipient(BOB), ds.Recipient(f"carol@{DOMAIN}", ds.RecipientType.CC)],
        attachment_list=attachments,
        **more,
    )


def _record_acknowledged(stage: ActionContext, message: ds.Message) -> None:
    stage.sent.acknowledged.add(message.subject or "")
