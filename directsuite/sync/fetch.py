"""What is new in a folder: fetched and committed in its order, past messages that can't be fetched.

uids ──► batches ──► messages ──► by its content each is new, moved or restored ──► one commit for a batch
             └─ what can't be fetched, or is listed and never returned ──► quarantined, and asked for again later
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import attrs

from directsuite.errors import AuthenticationError, DirectSuiteError, ResponseDecodeError, ServiceError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.commits import Commits, Step
from directsuite.sync.decide import (
    FolderSnapshot,
    FolderState,
    NamedRow,
    has_surely_left,
    kind_of,
    ranked_origins,
    tried_in_vain,
)
from directsuite.sync.identity import Metadata, digest_of, has_content, hex_of, identity_of, received_ms, size_of
from directsuite.sync.model import LISTED, Change, ChangeSet, Folder, Kind, RoundReport, Row, State
from directsuite.sync.remote import (
    MOST,
    Fetched,
    Remote,
    SupportsReadState,
    fetch_batches,
    fetch_one,
    may_be_about_messages,
    says_no_such_folder,
)
from directsuite.sync.verify import is_still_there

BATCHES = 16
"""Batches that a round fetches of a folder at least, so that one large mailbox leaves others their turn."""
ROUNDS = 64
"""Rounds that the whole of a folder takes at most: each reads the listing and the states of all that it has."""

_NOT_RETURNED = 3  # rounds in which a uid is listed and not in the answer, until it is quarantined
_HELD_UP = 3  # rounds in which a folder waits for another that cannot be read, and may have its message
_IN_VAIN = 5  # messages in a row that can't be fetched, until another shows whether any can

_MAY_BE_TOLD = (State.IN_DOUBT, State.UNRESOLVED, State.POISON_IN_DOUBT)
"""States of a listed uid's row whose key a sink may know."""


@attrs.frozen
class Received:
    """What became of messages that were fetched."""

    done: int
    """How many are done, the first of them."""
    changes: Counter[Kind]
    """What the sink was told of them, by kind."""


class FolderFetch:
    """Fetches the new messages of one snapshot. Copies of a message are messages of their own."""

    def __init__(
        self, commits: Commits, remote: Remote, snapshot: FolderSnapshot, folders: Mapping[str, FolderState]
    ) -> None:
        """folders: the mailbox's folders, by their names."""
        self._commits = commits
        self._remote = remote
        self._snapshot = snapshot
        self._state = snapshot.state
        self._folders = folders
        self._new = snapshot.new
        self._batches = max(BATCHES, len(snapshot.uids) // (ROUNDS * MOST))
        self._unread: frozenset[int] | None = None
        self._listed_elsewhere: dict[str, frozenset[int] | None] = {}
        self._unreadable = set[str]()
        self._metadata: dict[int | None, Metadata] | None = None
        self._in_vain = 0

    async def fetch_new(self, report: RoundReport) -> None:
        """Fetch and commit them, up to one that is listed and not returned, or as many as a round may.

        Raises why they can't be fetched where that is no fault of theirs.
        """
        done = 0
        if self._new and self._commits.needs_read_state and isinstance(self._remote, SupportsReadState):
            self._unread = await self._unread_uids(self._remote)
        answers = fetch_batches(self._remote, self._state.name, self._new, batches=self._batches)
        async with contextlib.aclosing(answers):
            async for answer in answers:
                taken = await self._take(answer, report)
                done += taken
                if taken < len(answer.uids):
                    break
        self._snapshot.complete = done == len(self._new) and self._state.name not in self._commits.unsure

    async def _unread_uids(self, remote: SupportsReadState) -> frozenset[int] | None:
        """Return the uids of unread messages; None if there are many, or the service does not return them.

        The service returns them only with their contents. Until the folder is complete for the first time, the limit is
        a batch. Afterwards it is the number of new messages, because the folder may have many old unread ones.
        """
        is_first_time = self._state.folder.audited_ms is None
        try:
            return await remote.unread_uids(self._state.name, MOST if is_first_time else min(len(self._new), MOST))
        except AuthenticationError:  # a password that is sent again and again may lock the account
            raise
        except DirectSuiteError:
            return None

    async def _take(self, answer: Fetched, report: RoundReport) -> int:
        """How many of the messages asked for are done; where not all, the next round goes on."""
        if answer.failure is not None:
            await self._quarantine(answer.uids[0], report, type(answer.failure).__name__)
            self._in_vain += 1
            if self._in_vain % _IN_VAIN == 0 and not await self._can_any_be_fetched():
                raise answer.failure
            return 1
        by_uid = {each.uid: (each, digest) for each, digest in zip(answer.messages, answer.digests, strict=True)}
        self._state.not_returned.update(_not_returned(answer.uids, by_uid))
        done = 0
        while done < len(answer.uids):
            returned = list(itertools.takewhile(by_uid.__contains__, answer.uids[done:]))
            self._in_vain = 0 if returned else self._in_vain
            received = await self.commit(returned, [by_uid[uid] for uid in returned])
            report.changes.update(received.changes)
            done += received.done
            if received.done < len(returned) or done == len(answer.uids):
                break
            if not await self._skip_not_returned(answer.uids[done], report, is_empty=not by_uid):
                break
            done += 1
        return done

    async def commit(self, uids: Sequence[int], messages: Sequence[tuple[MessageDetail, bytes]]) -> Received:
        """Commit messages, each with its digest, which have these uids, in their order.

        Up to one that is another than was told under its uid: its folder is suspect.
        """
        recorded = await self._recorded(uids)
        digests = {digest for _, digest in messages} | {row.digest for row in recorded.values() if row.digest}
        origins: defaultdict[bytes | None, list[NamedRow]] = defaultdict(list)
        for name, row in await self._commits.store.with_digests(self._commits.lease, digests):
            origins[row.digest].append((name, row))
        steps, folders = list[Step](), list[Folder]()
        for uid, (message, digest) in zip(uids, messages, strict=True):
            own = recorded.get(uid)
            row = self._row(uid, message, digest, 0 if own is None else own.attempts)
            if own is not None and own.digest not in (None, digest):
                if not has_content(message, own):
                    self._state.suspect = True
                    break
                row = attrs.evolve(own, state=State.LIVE, retry_ms=None)  # the date or size could not be read this time
            origin = await self._origin(row, origins[row.digest])
            if origin is not None:
                origins[row.digest].remove(origin)
                folders += self._taken_over(*origin)
            before = None if origin is None else origin[1]
            steps.append(Step(change=self._change(message, row, origin), before=before, here=row))
        if steps:
            folders += self._state.forget_listing()
        changes = await self._commits.tell(steps, folders)
        return Received(len(steps), Counter(change.kind for change in changes))

    async def _recorded(self, uids: Sequence[int]) -> dict[int, Row]:
        """The rows of those of the uids that have one."""
        recorded = self._snapshot.recorded.keys() & uids
        rows = await self._commits.store.rows(self._state.folder, recorded) if recorded else ()
        return {row.uid: row for row in rows}

    async def _origin(self, row: Row, candidates: Sequence[NamedRow]) -> NamedRow | None:
        """Where this content was before, and is no more; None for a copy, or what was never seen."""
        for origin in ranked_origins(row, candidates):
            if has_surely_left(row, origin[1]) or not await self._may_be_there(*origin):
                return origin
        return None

    async def _may_be_there(self, name: str, row: Row) -> bool:
        """Return True if a message is still there, or if its folder cannot be read in this and in earlier rounds.

        A folder that cannot be read must not keep another from being synchronised.
        """
        if name in self._unreadable:
            return True
        try:
            is_there = await self._is_there(name, row)
        except DirectSuiteError as error:
            if row.folder == self._state.folder.id or not may_be_about_messages(error):
                raise
            self._state.held_up_by[name] += 1
            if self._state.held_up_by[name] < _HELD_UP and not says_no_such_folder(error):
                raise
            self._unreadable.add(name)
            return True
        del self._state.held_up_by[name]
        return is_there

    async def _is_there(self, name: str, row: Row) -> bool:
        """Whether a message that was there is still, so that this one is a copy of it."""
        if row.folder == self._state.folder.id:
            listed = self._snapshot.uids if self._snapshot.settled else None
        else:  # listed after this folder was: what has moved here is no more there
            if name not in self._listed_elsewhere:
                self._listed_elsewhere[name] = await self._listed(name)
            listed = self._listed_elsewhere[name]
        if listed is not None and row.uid not in listed:
            return False
        if await is_still_there(self._remote, name, row):
            return True
        if listed is not None and name in self._folders:
            self._folders[name].suspect = True
        return False

    async def _listed(self, name: str) -> frozenset[int] | None:
        """Return the uids of another folder; none if there is no such folder any more, None if they are in doubt."""
        try:
            listed = await self._remote.uids(name)
        except ServiceError as error:
            if not says_no_such_folder(error) or name in await self._remote.folders():
                raise
            return frozenset()
        if listed is None or listed.unusable:
            return None
        uids = frozenset(listed.uids)
        state = self._folders.get(name)
        if state is not None:
            recorded = await self._commits.store.states(state.folder)
            snapshot = FolderSnapshot(state=state, uids=uids, recorded=recorded, fingerprint=b"")
            if snapshot.has_lost_many and await self._remote.count(name) > len(uids):
                return None
        return uids

    def _taken_over(self, name: str, row: Row) -> list[Folder]:
        """Another folder that lost a message to this one: should it be listed there again, it is a message anew."""
        if row.state not in LISTED or name not in self._folders or row.folder == self._state.folder.id:
            return []
        self._folders[name].outdated = True
        return self._folders[name].forget_listing()

    def _row(self, uid: int, message: MessageDetail, digest: bytes, attempts: int) -> Row:
        return Row(
            folder=self._state.folder.id,
            uid_validity=self._state.folder.uid_validity,
            uid=uid,
            state=State.LIVE,
            identity=identity_of(message),
            digest=digest,
            size=size_of(message),
            received_ms=received_ms(message),
            attempts=attempts,
        )

    def _change(self, message: MessageDetail, row: Row, origin: NamedRow | None) -> Change:
        return Change(
            kind=kind_of(row, None if origin is None else origin[1]),
            key=self._commits.key(self._state.name, row),
            previous=None if origin is None else self._commits.key(*origin),
            message=message,
            digest=hex_of(row.digest),
            is_read=None if self._unread is None else row.uid not in self._unread,
        )

    async def _can_any_be_fetched(self) -> bool:
        """Whether a message that was fetched once still can be, or the newest. If not, all wait for the service."""
        recorded = [row.uid for row in await self._commits.store.sentinels(self._state.folder)]
        for uid in (*recorded, self._new[-1]):
            with contextlib.suppress(DirectSuiteError):
                if await self._remote.messages(self._state.name, [uid]):
                    return True
        return False

    async def _skip_not_returned(self, uid: int, report: RoundReport, *, is_empty: bool) -> bool:
        """Quarantine a message that the responses of several rounds lacked. Return False if it is too early for that.

        It was deleted a moment ago, or the response is partial: only the next listings show which. is_empty: True if
        the response has no messages.
        """
        if self._state.not_returned[uid] < _NOT_RETURNED:
            return False
        if is_empty and len(self._new) > 1 and not await self._can_any_be_fetched():
            raise ResponseDecodeError("The service lists messages, and returns none of them: ask its provider.")
        del self._state.not_returned[uid]
        await self._quarantine(uid, report, "the service lists it, and does not return it")
        return True

    async def _quarantine(self, uid: int, report: RoundReport, problem: str) -> None:
        """Record that a message can't be fetched, so that it holds up no other, and is asked for again later.

        The metadata of all that the round may fetch is read for the first of them: it shows that the service answers.
        If the service rejects that operation, the row has no metadata.
        """
        if self._metadata is None:
            expected = frozenset(self._new[: self._batches * MOST])
            messages = self._remote.metadata(self._state.name)
            try:
                self._metadata = {each.uid: Metadata.of(each) async for each in messages if each.uid in expected}
            except ServiceError as error:
                if not says_no_such_folder(error):
                    raise
                self._metadata = {}
        metadata, recorded = self._metadata.get(uid), await self._recorded_before(uid)
        row = Row(
            folder=self._state.folder.id,
            uid_validity=self._state.folder.uid_validity,
            uid=uid,
            state=State.POISON_IN_DOUBT if recorded is not None and recorded.state in _MAY_BE_TOLD else State.POISON,
            identity=None if metadata is None else metadata.identity,
            digest=None if recorded is None else recorded.digest,
            size=-1 if metadata is None else metadata.size,
            received_ms=None if metadata is None else metadata.received_ms,
        )
        row = tried_in_vain(row, self._commits.now_ms())
        problems = {row.key: problem}
        await self._commits.write(ChangeSet(rows=[row], problems=problems, folders=self._state.forget_listing()))
        report.quarantined += 1

    async def _recorded_before(self, uid: int) -> Row | None:
        """The row of a message that was told gone, and is back, or of which a sink may have been told."""
        rows = await self._commits.store.rows(self._state.folder, [uid])
        return rows[0] if rows else None


def _not_returned(uids: Sequence[int], returned: Collection[int | None]) -> list[int]:
    """Return which of the uids a response lacks: the first one, and all before the last message that it has.

    The others are not counted, because a service may return only some of the messages in one response.
    """
    last = max((place for place, uid in enumerate(uids) if uid in returned), default=0)
    absent = [(place, uid) for place, uid in enumerate(uids) if uid not in returned]
    return [uid for number, (place, uid) in enumerate(absent) if number == 0 or place < last]


async def retry_quarantined(
    commits: Commits, remote: Remote, state: FolderState, row: Row, folders: Mapping[str, FolderState]
) -> Counter[Kind]:
    """Ask for a quarantined message again; what it turned out to be, where it came. folders: as for FolderFetch."""
    message = await fetch_one(remote, state.name, row.uid)
    listed = None if message is None else await remote.uids(state.name)
    if message is not None and listed is not None:  # what else the folder has is not what this one was before
        uids, recorded = frozenset(listed.uids), {row.uid: row.state}
        snapshot = FolderSnapshot(state=state, uids=uids, recorded=recorded, fingerprint=b"", settled=False)
        return (
            await FolderFetch(commits, remote, snapshot, folders).commit([row.uid], [(message, digest_of(message))])
        ).changes
    commits.health.forget_rejection(commits.key(state.name, row))  # otherwise it is due in every round
    await commits.write(ChangeSet(rows=[tried_in_vain(row, commits.now_ms())]))
    return Counter()
