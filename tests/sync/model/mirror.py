"""A sink that compares every change with earlier changes and with the simulated mailbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from directsuite.sync.model import Change, Key, Kind

from .fake_remote import CrashPoint, FakeRemote
from .simulated_mailbox import MAILBOX, SimulatedMailbox


class Mirror:
    """The mailbox according to the changes: content by key.

    aside: folder, uid_validity and uid of every message that was ever quarantined.
    again: True if changes may be repeated, because a process may die after a delivery.
    """

    def __init__(
        self,
        world: SimulatedMailbox,
        remote: FakeRemote,
        fuse: CrashPoint,
        aside: AbstractSet[tuple[str, int, int]],
        *,
        again: bool,
    ) -> None:
        self._world = world
        self._remote = remote
        self._fuse = fuse
        self._aside = aside
        self._again = again
        self.messages: dict[Key, str] = {}
        self.deleted: dict[Key, str] = {}
        self.log: list[Change] = []
        self.failure: AssertionError | None = None
        self._times_reported = Counter[str]()
        self._digests: dict[str, str] = {}
        self._last: dict[tuple[str, int], int] = {}

    def write(self, changes: Sequence[Change]) -> None:
        self._fuse.advance()
        for number, change in enumerate(changes):
            if self._again and number:
                self._fuse.advance()
            try:
                self._apply(change)
            except AssertionError as failure:
                self.failure = failure
                raise
            self.log.append(change)

    def _apply(self, change: Change) -> None:
        assert change.key.mailbox == MAILBOX
        assert change.key.folder in self._world.boxes
        take = {
            Kind.NEW: self._apply_new,
            Kind.GONE: self._apply_gone,
            Kind.MOVED: self._apply_moved,
            Kind.RESTORED: self._apply_restored,
        }
        if not (self._again and self._is_repeated(change)):
            take[change.kind](change)

    def _is_repeated(self, change: Change) -> bool:
        if change.kind is Kind.GONE:
            return change.key not in self.messages
        if change.kind is Kind.MOVED and change.previous in self.messages:
            return False  # perhaps it has received the new key as a copy
        return change.key in self.messages and (
            change.message is None or self.messages[change.key] == change.message.body
        )

    def _apply_new(self, change: Change) -> None:
        content = self._get_content(change)
        assert change.previous is None
        self._times_reported[content] += 1
        # Between two requests of a round, a content can change its uid, so that both uids have it.
        is_renumbered = change.key.folder in self._world.folders_reused_in_round
        if not (self._again or is_renumbered or content in self._world.ambiguous_contents):
            assert self._times_reported[content] <= self._world.copy_counts[content], (
                f"{content} told as new once more: {change.key!r}"
            )
        place = (change.key.folder, change.key.uid_validity)
        late = change.key.uid < self._last.get(place, 0)
        returned = (
            self._again
            or (change.key.folder, change.key.uid) in self._world.returned_uids
            or change.key.folder in self._world.folders_reused_in_round
        )
        excused = (
            returned or (*place, change.key.uid) in self._aside or self._world.has_ambiguous_uids(change.key.folder)
        )
        assert not late or excused, f"{change.key!r} told late"
        self._last[place] = max(change.key.uid, self._last.get(place, 0))
        assert change.key not in self.deleted or content in self._world.ambiguous_contents, (
            f"{change.key!r} was another message's"
        )
        self._add(change.key, content)

    def _apply_restored(self, change: Change) -> None:
        content = self._get_content(change)
        assert change.previous is not None
        gone = self.deleted.pop(change.previous, None)
        assert gone == content or self._again, f"{change.previous!r} restored, and not gone"
        self._add(change.key, content)

    def _apply_moved(self, change: Change) -> None:
        assert change.previous is not None
        known = self.messages.pop(change.previous, None)
        content = known if change.message is None else self._get_content(change)
        assert content is not None, f"{change.previous!r} moved, and is not here"
        assert known == content or (known is None and self._again), "another message moved"
        self._add(change.key, content)

    def _apply_gone(self, change: Change) -> None:
        assert change.previous is None
        assert change.message is None
        assert change.key in self.messages, f"{change.key!r} gone, and was not here"
        self.deleted[change.key] = self.messages.pop(change.key)
        self._is_really_deleted(change.key)

    def _is_really_deleted(self, key: Key) -> None:
        if key.folder in self._world.reused_folders or self._world.boxes[key.folder].is_hidden:
            return
        message, hops = self._world.messages_by_uid[key.folder, key.uid]
        elsewhere = self._world.boxes[message.folder]
        assert key.uid not in self._world.boxes[key.folder].messages, f"{key!r} told gone, and is there"
        if (
            not message.is_present
            or message.is_poison
            or message.hops != hops + 1
            or message.folder in self._world.reused_folders
        ):
            return
        if message.folder != key.folder and (elsewhere.is_hidden or message.folder in self._remote.troubled):
            return
        if self._again:
            return
        if (message.folder, message.uid, message.content) in self._list_places():
            return  # an equal copy was reported as moved there
        aside = {(folder, uid) for folder, _, uid in self._aside}
        assert (message.folder, message.uid) in aside, f"{key!r} told gone, and has moved"

    def _list_places(self) -> set[tuple[str, int, str]]:
        return {(key.folder, key.uid, content) for key, content in self.messages.items()}

    def _get_content(self, change: Change) -> str:
        assert change.message is not None, f"{change.kind} without its message"
        content = change.message.body
        assert content is not None
        assert change.digest is not None
        assert self._digests.setdefault(content, change.digest) == change.digest, "two digests of one content"
        return content

    def _add(self, key: Key, content: str) -> None:
        assert key not in self.messages or (self._again and self.messages[key] == content), f"{key!r} twice"
        assert (key.folder, key.uid, content) in self._world.known_contents, f"{content} was never at {key!r}"
        self.messages[key] = content
