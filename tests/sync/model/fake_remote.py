"""A `Remote` of the simulated mailbox, with faults."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import attrs

from directsuite.errors import ConnectionLostError, NotFoundError, Outcome, ResponseDecodeError, ServerError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.decide import UidListing
from directsuite.sync.remote import Remote

from .simulated_mailbox import Act, Message, SimulatedFolder, SimulatedMailbox


class DiedError(BaseException):
    pass


@attrs.define
class CrashPoint:
    steps: int | None = None

    def advance(self) -> None:
        if self.steps is not None:
            if self.steps <= 0:
                raise DiedError
            self.steps -= 1


def _truncate_to_second(message: MessageDetail) -> MessageDetail:
    received = message.received_date
    return attrs.evolve(message, received_date=None if received is None else received.replace(microsecond=0))


METADATA_FORMS: Mapping[str, Callable[[MessageDetail], MessageDetail]] = {
    "same": lambda message: message,
    "size of -1": lambda message: attrs.evolve(message, size=-1),
    "other size": lambda message: attrs.evolve(message, size=(message.size or 0) + 7),
    "date to the second": _truncate_to_second,
    "no date": lambda message: attrs.evolve(message, received_date=None),
    "no Message-ID": lambda message: attrs.evolve(message, msg_id=None),
}


class FakeRemote(Remote):
    """Requests to the simulated mailbox.

    fault: the number of successful calls before it, and "lost", "partial", "short" (a listing without a uid) or "vague"
    (metadata without a message).
    limit: the maximum bytes of a response. disturbance: a number of calls, and the act after them.
    troubled: folders whose calls failed in this round.
    glitch: "empty" (a folder without uids), "unlisted" (a folder is not listed) or "impossible" (invalid names).
    """

    def __init__(self, world: SimulatedMailbox, fuse: CrashPoint) -> None:
        self._world = world
        self._fuse = fuse
        self.fault: tuple[int, str] | None = None
        self.limit: int | None = None
        self.disturbance: tuple[int, Act] | None = None
        self.calls = Counter[str]()
        self.troubled = set[str]()
        self.glitch: tuple[str, str] | None = None
        self.metadata_form = "same"

    async def list_folders(self) -> list[str]:
        self._note_call("folders", "")
        names = {name for name, box in self._world.boxes.items() if not box.is_hidden}
        if self.glitch is not None:
            kind, folder = self.glitch
            names = {"unlisted": names - {folder}, "impossible": names | {"", "..", "\0"}}.get(kind, names)
        return sorted(names)

    async def count_messages(self, folder: str) -> int:
        return len(self._request_folder("count", folder).messages)

    async def list_uids(self, folder: str, etag: bytes | None = None) -> UidListing | None:
        listed = array("q", sorted(self._request_folder("uids", folder).messages))
        if self.glitch == ("empty", folder):
            self.troubled.add(folder)
            listed = array("q")
        if self._is_due("short") and listed:
            self.fault = None
            self.troubled.add(folder)
            self._world.returned_uids.add((folder, listed.pop(len(listed) // 2)))
            self._world.audit_only_folders.add(folder)
        now = hashlib.sha1(listed.tobytes(), usedforsecurity=False).digest()
        return None if now == etag else UidListing(frozenset(listed), now)

    async def iter_metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        messages = list(self._request_folder("metadata", folder).messages.items())
        if self._is_due("vague") and messages:
            self.fault = None
            self.troubled.add(folder)
            self._world.audit_only_folders.add(folder)
            messages.pop(len(messages) // 2)
        for uid, message in reversed(messages):
            yield self._metadata(folder, uid, message)

    async def list_metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        messages = self._request_folder("metadata_between", folder).messages
        begin, end = begin_ms // 1000, end_ms // 1000
        return [
            self._metadata(folder, uid, message)
            for uid, message in messages.items()
            if message.detail.received_date is not None
            and begin <= int(message.detail.received_date.timestamp()) <= end
        ]

    async def fetch_messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        messages, _ = await self.fetch_and_measure(folder, uids)
        if isinstance(messages, ResponseDecodeError):
            raise messages
        return messages

    async def fetch_and_measure(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        box = self._request_folder("messages", folder)
        found = [(uid, box.messages[uid]) for uid in uids if uid in box.messages]
        size = sum(message.detail.size or 0 for _, message in found)
        if self.limit is not None and size > self.limit:
            if len(found) == 1:  # it is quarantined
                self.troubled.add(folder)
                self._world.audit_only_folders.add(folder)
            return ResponseDecodeError("too large", too_large=True), size
        if any(message.is_poison for _, message in found):
            raise ServerError("failed", status=500, outcome=Outcome.FAILED)
        if self._is_due("partial") and found:
            self.fault = None
            self.troubled.add(folder)
            found.pop()
        return [_make_full_message(uid, message) for uid, message in reversed(found)], size

    def _metadata(self, folder: str, uid: int, message: Message) -> MessageDetail:
        return attrs.evolve(METADATA_FORMS[self.metadata_form](message.detail), uid=uid, folder=folder, body=None)

    def _request_folder(self, method: str, folder: str) -> SimulatedFolder:
        self._note_call(method, folder)
        box = self._world.boxes[folder]
        if box.is_hidden:
            self.troubled.add(folder)
            raise NotFoundError("no such folder", status=404, outcome=Outcome.FAILED)
        return box

    def _is_due(self, fault: str) -> bool:
        return self.fault is not None and self.fault[0] < 0 and self.fault[1] == fault

    def _note_call(self, method: str, folder: str) -> None:
        self._fuse.advance()
        self.calls[method] += 1
        if self.disturbance is not None:
            before, act = self.disturbance
            self.disturbance = (before - 1, act) if before else None
            if not before:
                self._world.act(act, amid=True)
        if self.fault is not None:
            self.fault = (self.fault[0] - 1, self.fault[1])
        if self._is_due("lost"):
            self.fault = None
            self.troubled.add(folder)
            raise ConnectionLostError("lost", outcome=Outcome.UNKNOWN)


def _make_full_message(uid: int, message: Message) -> MessageDetail:
    return attrs.evolve(message.detail, uid=uid, folder=message.folder)
