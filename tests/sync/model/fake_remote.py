"""The world as a remote: what a synchronisation asks, and how it fails."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import attrs

from directsuite.errors import ConnectionLostError, NotFoundError, Outcome, ResponseDecodeError, ServerError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.remote import Listing

from .world import Act, Box, Message, World


class DiedError(BaseException):
    """The process is no more."""


@attrs.define
class Fuse:
    """Ends a process at its n-th step, a call or a part of a commit; whatever it does afterwards fails as well."""

    steps: int | None = None

    def burn(self) -> None:
        """One step."""
        if self.steps is not None:
            if self.steps <= 0:
                raise DiedError
            self.steps -= 1


class FakeRemote:
    """Answers from the world.

    fault: "lost", "partial", "short" (a listing that lacks a uid) or "vague" (metadata that lack a message), of the
    next call that it fits once so many calls went well. limit: bytes of an answer, None for any. disturbance: an act,
    and before which of the calls from now on it happens. calls: since the beginning, by method. troubled: folders whose
    calls failed in this round.
    """

    def __init__(self, world: World, fuse: Fuse) -> None:
        self._world = world
        self._fuse = fuse
        self.fault: tuple[int, str] | None = None
        self.limit: int | None = None
        self.disturbance: tuple[int, Act] | None = None
        self.calls = Counter[str]()
        self.troubled = set[str]()

    async def folders(self) -> list[str]:
        """Those that are there."""
        self._called("folders", "")
        return sorted(name for name, box in self._world.boxes.items() if not box.hidden)

    async def count(self, folder: str) -> int:
        """Return the number of messages of a folder."""
        return len(self._asked("count", folder).messages)

    async def uids(self, folder: str, mark: bytes | None = None) -> Listing | None:
        """All uids of a folder."""
        listed = array("q", sorted(self._asked("uids", folder).messages))
        if self._is_due("short") and listed:
            self.fault = None
            self.troubled.add(folder)
            self._world.late.add((folder, listed.pop(len(listed) // 2)))
            self._world.weird.add(folder)
        now = hashlib.sha1(listed.tobytes(), usedforsecurity=False).digest()
        return None if now == mark else Listing(listed, now)

    async def metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """All messages of a folder, without their contents."""
        messages = list(self._asked("metadata", folder).messages.items())
        if self._is_due("vague") and messages:
            self.fault = None
            self.troubled.add(folder)
            self._world.weird.add(folder)
            messages.pop(len(messages) // 2)
        for uid, message in reversed(messages):
            yield attrs.evolve(message.detail, uid=uid, folder=folder, body=None)

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """Those received in a window of whole seconds."""
        messages = self._asked("metadata_between", folder).messages
        begin, end = begin_ms // 1000, end_ms // 1000
        return [
            attrs.evolve(message.detail, uid=uid, folder=folder, body=None)
            for uid, message in messages.items()
            if message.detail.received_date is not None
            and begin <= int(message.detail.received_date.timestamp()) <= end
        ]

    async def messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Those of the messages that are there; in no order."""
        messages, _ = await self.measured_messages(folder, uids)
        if isinstance(messages, ResponseDecodeError):
            raise messages
        return messages

    async def measured_messages(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """Those of the messages that are there, in no order; and their size."""
        box = self._asked("messages", folder)
        found = [(uid, box.messages[uid]) for uid in uids if uid in box.messages]
        size = sum(message.detail.size or 0 for _, message in found)
        if self.limit is not None and size > self.limit:
            if len(found) == 1:  # it is quarantined, as one that can't be fetched
                self.troubled.add(folder)
                self._world.weird.add(folder)
            return ResponseDecodeError("too large", too_large=True), size
        if any(message.poison for _, message in found):
            raise ServerError("failed", status=500, outcome=Outcome.FAILED)
        if self._is_due("partial") and found:
            self.fault = None
            self.troubled.add(folder)
            found.pop()
        return [_whole(uid, message) for uid, message in reversed(found)], size

    def _asked(self, method: str, folder: str) -> Box:
        self._called(method, folder)
        box = self._world.boxes[folder]
        if box.hidden:
            self.troubled.add(folder)
            raise NotFoundError("no such folder", status=404, outcome=Outcome.FAILED)
        return box

    def _is_due(self, fault: str) -> bool:
        return self.fault is not None and self.fault[0] < 0 and self.fault[1] == fault

    def _called(self, method: str, folder: str) -> None:
        self._fuse.burn()
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


def _whole(uid: int, message: Message) -> MessageDetail:
    return attrs.evolve(message.detail, uid=uid, folder=message.folder)
