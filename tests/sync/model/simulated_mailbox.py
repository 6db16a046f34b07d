"""A mailbox on a server, and everything that can happen to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from directsuite.messaging.models import MessageDetail

MAILBOX = "jane@clinic.example"
FOLDERS = ("INBOX", "Archive", "Sent")
_DAY_ONE = datetime(2026, 1, 1, tzinfo=UTC)
_TWINS_DATE = datetime(2025, 6, 1, tzinfo=UTC)

Act = tuple[str, tuple[Any, ...]]
"""Something that happens: a method of World, and its arguments."""


@attrs.define(eq=False)
class Message:
    detail: MessageDetail
    content: str
    folder: str = ""
    uid: int = 0
    hops: int = 0
    is_poison: bool = False
    is_present: bool = True


@attrs.define(eq=False)
class SimulatedFolder:
    messages: dict[int, Message] = attrs.field(factory=dict[int, Message])
    next_uid: int = 1
    is_hidden: bool = False


class SimulatedMailbox:
    """The mailbox on the server.

    copy_counts: the copies that ever existed, by content. known_contents: every content that a uid ever had.
    reused_folders: folders in which a uid got another message; folders_reused_in_round: during a round.
    audit_only_folders: folders with changes that perhaps only an audit detects.
    ambiguous_contents: contents that metadata do not identify. returned_uids: folders and uids that exist again.
    """

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.boxes = {name: SimulatedFolder() for name in folders}
        self.copy_counts = Counter[str]()
        self.known_contents = set[tuple[str, int, str]]()
        self.messages_by_uid = dict[tuple[str, int], tuple[Message, int]]()
        self.reused_folders = set[str]()
        self.folders_reused_in_round = set[str]()
        self.audit_only_folders = set[str]()
        self.ambiguous_contents = set[str]()
        self.ambiguous_kinds = frozenset[str]()
        self.returned_uids = set[tuple[str, int]]()
        self._dull = set[str]()
        self.last_deleted: Message | None = None
        self._number = 0

    def act(self, act: Act, *, amid: bool = False) -> None:
        there = list(self.boxes)
        name, arguments = act
        meant = [there[FOLDERS.index(each) % len(there)] if each in FOLDERS else each for each in arguments]
        if amid and name == "show":  # perhaps between the list of folders and what is made of it
            self.reused_folders |= {each for each, box in self.boxes.items() if box.is_hidden}
        method: Callable[..., None] = getattr(self, name)
        method(*meant)
        if amid and name in ("recreate", "replace", "renumber", "permute"):
            self.folders_reused_in_round.add(meant[0])
            self.audit_only_folders.add(meant[0])

    def deliver(self, folder: str, count: int, kind: str = "strong") -> None:
        for _ in range(count):
            self._number += 1
            number = self._number
            message = self._make_message(number, kind, _DAY_ONE + timedelta(seconds=0.4 * number), 100 + number % 7)
            if kind in self.ambiguous_kinds:
                self.ambiguous_contents.add(message.content)
            self._add_message(folder, message)

    def twins(self, folder: str) -> None:
        for _ in range(2):
            self._number += 1
            message = self._make_message(self._number, "twin", _TWINS_DATE, 7)
            self.ambiguous_contents.add(message.content)
            self._add_message(folder, message)

    def delete(self, folder: str, index: int) -> None:
        message = self._remove_message(folder, index)
        if message is not None:
            self.last_deleted = message

    def undelete(self) -> None:
        message, self.last_deleted = self.last_deleted, None
        if message is not None and message.uid not in self.boxes[message.folder].messages:
            self.reused_folders.add(message.folder)
            self.returned_uids.add((message.folder, message.uid))
            self._record_place(message.folder, message.uid, message)

    def wipe(self, folder: str) -> None:
        for message in self.boxes[folder].messages.values():
            message.is_present = False
        self.boxes[folder].messages.clear()

    def recreate(self, folder: str, count: int, kind: str) -> None:
        weird = folder in self.audit_only_folders
        self._note_renumbering(folder)
        if not weird and folder not in self._dull:
            self.audit_only_folders.remove(folder)  # every message differs, and can be fetched
        self.wipe(folder)
        self.boxes[folder].next_uid = 1
        self.deliver(folder, count, kind)

    def replace(self, folder: str) -> None:
        self.recreate(folder, max(self.boxes[folder].messages, default=1), "strong")

    def renumber(self, folder: str, start: int, reverse: bool) -> None:
        self._note_renumbering(folder)
        box = self.boxes[folder]
        messages = [box.messages[uid] for uid in sorted(box.messages, reverse=reverse)]
        box.messages = {}
        box.next_uid = start
        for message in messages:
            self._add_message(folder, message, made=0)

    def permute(self, folder: str, index: int | None) -> None:
        weird = folder in self.audit_only_folders
        self._note_renumbering(folder)
        box = self.boxes[folder]
        uids = sorted(box.messages)
        messages = [box.messages[uid] for uid in uids]
        if index is None:
            messages.reverse()
            copies = len(messages) - len({message.content for message in messages})
            if not weird and not copies and folder not in self._dull:
                self.audit_only_folders.remove(
                    folder
                )  # the newest and the oldest known are others, or nothing known has changed
        elif len(uids) > 1:
            here = index % (len(uids) - 1)
            messages[here], messages[here + 1] = messages[here + 1], messages[here]
        for uid, message in zip(uids, messages, strict=True):
            self._record_place(folder, uid, message)

    def move(self, source: str, target: str, index: int) -> None:
        message = self._remove_message(source, index)
        if message is not None:
            message.hops += 1
            self._add_message(target, message, made=0)

    def copy(self, source: str, target: str, index: int) -> None:
        uids = sorted(self.boxes[source].messages)
        if uids:
            message = self.boxes[source].messages[uids[index % len(uids)]]
            self._add_message(target, Message(message.detail, message.content))

    def spoil(self, folder: str, index: int) -> None:
        uids = sorted(self.boxes[folder].messages)
        if uids:
            self.boxes[folder].messages[uids[index % len(uids)]].is_poison = True
            self._dull.add(folder)

    def mend(self) -> None:
        for box in self.boxes.values():
            for message in box.messages.values():
                message.is_poison = False

    def hide(self, folder: str) -> None:
        self.boxes[folder].is_hidden = True
        self.returned_uids |= {(folder, uid) for uid in self.boxes[folder].messages}

    def show(self) -> None:
        for box in self.boxes.values():
            box.is_hidden = False

    def _make_message(self, number: int, kind: str, received: datetime, size: int) -> Message:
        content = f"B{number}"
        detail = MessageDetail(
            msg_id=f"<{number}@x>" if kind in ("strong", "dateless") else None,
            received_date=None if kind == "dateless" else received,
            size=size,
            sender="a@b.example",
            subject="same" if kind == "twin" else f"s{number}",
            body=content,
        )
        return Message(detail, content)

    def _add_message(self, folder: str, message: Message, made: int = 1) -> None:
        box = self.boxes[folder]
        self.copy_counts[message.content] += made
        self._record_place(folder, box.next_uid, message)
        box.next_uid += 1

    def _record_place(self, folder: str, uid: int, message: Message) -> None:
        message.folder, message.uid, message.is_present = folder, uid, True
        if message.is_poison or message.detail.received_date is None:
            self._dull.add(folder)
        self.boxes[folder].messages[uid] = message
        self.known_contents.add((folder, uid, message.content))
        self.messages_by_uid[folder, uid] = (message, message.hops)

    def _remove_message(self, folder: str, index: int) -> Message | None:
        messages = self.boxes[folder].messages
        if not messages:
            return None
        message = messages.pop(sorted(messages)[index % len(messages)])
        message.is_present = False
        return message

    def has_ambiguous_uids(self, folder: str) -> bool:
        return folder in self.reused_folders and any(
            name == folder and content in self.ambiguous_contents for name, _, content in self.known_contents
        )

    def _note_renumbering(self, folder: str) -> None:
        self.audit_only_folders.add(folder)
        self.reused_folders.add(folder)
        self.last_deleted = None
