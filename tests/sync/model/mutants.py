"""The engine and its store, each with one of its reasons taken away: what the machine must not let pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import pytest

from directsuite.errors import NotFoundError
from directsuite.messaging.models import MessageDetail
from directsuite.sync import decide, model, remote
from directsuite.sync import round as rounds
from directsuite.sync.commits import ChangeStep, Commits
from directsuite.sync.decide import Certainty, FolderMemory, FolderSnapshot
from directsuite.sync.fetch import FetchedBatch, FolderFetch
from directsuite.sync.model import Change, ChangeSet, Lease, MessageRow, MessageState, StoredFolder
from directsuite.sync.remote import Remote
from directsuite.sync.round import MailboxRounds

from .stores import DictStore

Mutate = Callable[[pytest.MonkeyPatch], None]

MUTANTS: dict[str, Mutate] = {}


def _register_mutant(name: str) -> Callable[[Mutate], Mutate]:
    def add(mutate: Mutate) -> Mutate:
        MUTANTS[name] = mutate
        return mutate

    return add


async def _return_true(*_: object) -> bool:
    return True


@_register_mutant("no fence check")
def _no_fence(patch: pytest.MonkeyPatch) -> None:
    commit = DictStore.commit

    async def unfenced(self: DictStore, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        await commit(self, attrs.evolve(lease, lease_number=self.fence), change_set, changes)

    patch.setattr(DictStore, "commit", unfenced)


@_register_mutant("sink outside the transaction")
def _sink_outside(patch: pytest.MonkeyPatch) -> None:
    async def tell(self: Commits, steps: Sequence[ChangeStep], folders: Sequence[StoredFolder] = ()) -> None:
        done = ChangeSet(rows=[row for step in steps for row in step.final_rows()], folders=list(folders))
        await self.store.commit(self.lease, done, ())
        await self.store.commit(self.lease, ChangeSet(), [step.change for step in steps])

    patch.setattr(Commits, "_deliver_batch", tell)


@_register_mutant("resets ignored")
def _resets_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FolderSnapshot, "may_be_renumbered", False)
    patch.setattr(MailboxRounds, "_verify_sentinels", _return_true)


@_register_mutant("sentinels not looked at")
def _no_canaries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MailboxRounds, "_verify_sentinels", _return_true)


@_register_mutant("late uids are not odd")
def _late_is_fine(patch: pytest.MonkeyPatch) -> None:
    def is_odd(self: FolderSnapshot) -> bool:
        returned = any(self.recorded.get(uid) in (MessageState.DELETED, MessageState.MISSING) for uid in self.uids)
        return returned or self.has_lost_many

    patch.setattr(FolderSnapshot, "may_be_renumbered", property(is_odd))


@_register_mutant("uids that come back are not odd")
def _returned_is_fine(patch: pytest.MonkeyPatch) -> None:
    def is_odd(self: FolderSnapshot) -> bool:
        highest = max(self.recorded, default=0)
        return any(uid <= highest for uid in self.uids - self.recorded.keys()) or self.has_lost_many

    patch.setattr(FolderSnapshot, "may_be_renumbered", property(is_odd))


@_register_mutant("contents not matched")
def _no_digests(patch: pytest.MonkeyPatch) -> None:
    async def with_digests(*_: object) -> list[tuple[str, MessageRow]]:
        return []

    patch.setattr(DictStore, "with_digests", with_digests)


@_register_mutant("fingerprint of an incomplete round")
def _early_fingerprint(patch: pytest.MonkeyPatch) -> None:
    fetch_new = FolderFetch.fetch_new

    async def early(self: FolderFetch) -> bool:
        await fetch_new(self)
        return True

    patch.setattr(FolderFetch, "fetch_new", early)


@_register_mutant("high-water in place of the difference")
def _high_water(patch: pytest.MonkeyPatch) -> None:
    def new(self: FolderSnapshot) -> list[int]:
        return sorted(uid for uid in self.uids if uid > max(self.recorded, default=0))

    patch.setattr(FolderSnapshot, "uids_to_fetch", property(new))


@_register_mutant("a partial answer counts as done")
def _partial_is_done(patch: pytest.MonkeyPatch) -> None:
    def partial(*, uids: Sequence[int], messages: Sequence[Any] = (), failure: Any = None) -> FetchedBatch:
        there = [message.uid for message, _ in messages if message.uid is not None]
        return FetchedBatch(
            uids=uids if failure else [uid for uid in uids if uid in there], messages=messages, failure=failure
        )

    patch.setattr("directsuite.sync.fetch.FetchedBatch", partial)
    _early_fingerprint(patch)


@_register_mutant("weak identities trusted")
def _weak_is_strong(patch: pytest.MonkeyPatch) -> None:
    def strong(_: MessageDetail) -> bool:
        return True

    patch.setattr(decide, "is_strong", strong)


@_register_mutant("what has left is gone at once")
def _gone_at_once(patch: pytest.MonkeyPatch) -> None:
    settle = MailboxRounds._confirm_deletions

    async def at_once(self: MailboxRounds, incomplete: Collection[str], *, several_folders: bool) -> None:
        await settle(self, incomplete, several_folders=False)

    patch.setattr(MailboxRounds, "_confirm_deletions", at_once)


@_register_mutant("gone although its own folder is incomplete")
def _gone_incomplete(patch: pytest.MonkeyPatch) -> None:
    settle = MailboxRounds._confirm_deletions

    async def anyway(self: MailboxRounds, incomplete: Collection[str], *, several_folders: bool) -> None:
        await settle(self, (), several_folders=several_folders)

    patch.setattr(MailboxRounds, "_confirm_deletions", anyway)


@_register_mutant("no second listing")
def _one_listing(patch: pytest.MonkeyPatch) -> None:
    async def told(self: MailboxRounds, snapshot: FolderSnapshot) -> None:
        rows = [row for row in await self._store.rows(snapshot.state.folder) if row.uid in snapshot.uids_missing]
        left = {MessageState.LIVE: MessageState.MISSING, MessageState.POISON: MessageState.DELETED}
        snapshot.state.certainty = Certainty.CONFIRMED
        await self._commits.write_batches(attrs.evolve(row, state=left.get(row.state, row.state)) for row in rows)

    patch.setattr(MailboxRounds, "_confirm_missing", told)


@_register_mutant("sentinels compared by uid and date alone")
def _no_window(patch: pytest.MonkeyPatch) -> None:
    async def has_same_message(remote: Remote, folder: str, row: MessageRow) -> bool | None:
        received = row.received_ms or 0
        near = await remote.list_metadata_between(folder, received - 1000, received + 1000)
        return any(message.uid == row.uid for message in near) or None

    patch.setattr(rounds, "has_same_message", has_same_message)


@_register_mutant("revived without proof")
def _revived(patch: pytest.MonkeyPatch) -> None:
    def revived_rows(rows: Mapping[int, MessageRow], listed: Collection[int]) -> list[MessageRow]:
        back = (MessageState.MISSING, MessageState.DELETED)
        return [attrs.evolve(r, state=MessageState.LIVE) for r in rows.values() if r.uid in listed and r.state in back]

    patch.setattr(decide, "revived_rows", revived_rows)


@_register_mutant("poison never asked for again")
def _no_second_try(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    patch.setattr(MailboxRounds, "_retry_quarantined", nothing)


@_register_mutant("poison blocks what follows")
def _poison_blocks(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    patch.setattr(FolderFetch, "_quarantine", nothing)


@_register_mutant("copies taken for moves")
def _copies_moved(patch: pytest.MonkeyPatch) -> None:
    async def unlisted(*_: object) -> bool:
        return False

    patch.setattr(FolderFetch, "_is_there", unlisted)


@_register_mutant("a uid_validity that ends leaves its rows")
def _no_renumbering(patch: pytest.MonkeyPatch) -> None:
    commit = DictStore.commit

    async def kept(self: DictStore, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        change_set.renumbered.clear()
        await commit(self, lease, change_set, changes)

    patch.setattr(DictStore, "commit", kept)


@_register_mutant("a round that failed is remembered")
def _remembered(patch: pytest.MonkeyPatch) -> None:
    begin_anew = MailboxRounds._reset

    def once(self: MailboxRounds) -> None:
        if not hasattr(self, "_folders"):
            begin_anew(self)

    patch.setattr(MailboxRounds, "_reset", once)


@_register_mutant("a fingerprint outlives what it stood for")
def _kept_fingerprint(patch: pytest.MonkeyPatch) -> None:
    def forget_listing(_: FolderMemory) -> list[StoredFolder]:
        return []

    patch.setattr(FolderMemory, "invalidate_listing", forget_listing)


@_register_mutant("what is quarantined has no content")
def _content_forgotten(patch: pytest.MonkeyPatch) -> None:
    quarantine = FolderFetch._quarantine

    async def forget(self: Any, uid: int, problem: str) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(FolderFetch, "_read_rows", read_none)
            await quarantine(self, uid, problem)

    async def read_none(*_: object) -> dict[int, MessageRow]:
        return {}

    patch.setattr(FolderFetch, "_quarantine", forget)


@_register_mutant("any message may come back under a uid")
def _any_comes_back(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> dict[int, MessageRow]:
        return {}

    patch.setattr(FolderFetch, "_read_rows", nothing)


@_register_mutant("a suspect folder counts as done")
def _suspect_is_done(patch: pytest.MonkeyPatch) -> None:
    fetch_new = FolderFetch.fetch_new

    async def done(self: FolderFetch) -> bool:
        certainty = self._state.certainty
        try:
            return await fetch_new(self) or self._state.certainty is Certainty.SUSPECT
        finally:
            self._state.certainty = certainty

    patch.setattr(FolderFetch, "fetch_new", done)


@_register_mutant("nothing says that a sink may have been told")
def _no_intent(patch: pytest.MonkeyPatch) -> None:
    def nothing(_: ChangeStep) -> list[MessageRow]:
        return []

    patch.setattr(ChangeStep, "rows_in_doubt", nothing)


@_register_mutant("nothing says which keys a sink may have been told of")
def _no_new_keys(patch: pytest.MonkeyPatch) -> None:
    in_doubt = ChangeStep.rows_in_doubt

    def of_old_keys(self: ChangeStep) -> list[MessageRow]:
        return in_doubt(attrs.evolve(self, new_row=None))

    patch.setattr(ChangeStep, "rows_in_doubt", of_old_keys)


@_register_mutant("nothing says which keys a sink may take for gone")
def _no_old_keys(patch: pytest.MonkeyPatch) -> None:
    in_doubt = ChangeStep.rows_in_doubt

    def of_new_keys(self: ChangeStep) -> list[MessageRow]:
        return in_doubt(attrs.evolve(self, old_row=None))

    patch.setattr(ChangeStep, "rows_in_doubt", of_new_keys)


@_register_mutant("what a sink may have been told of leaves without a word")
def _unsettled(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(model.STATE_AFTER_LEAVING, MessageState.IN_DOUBT, MessageState.DELETED)


async def _do_nothing(*_: object) -> None:
    return None


@_register_mutant("an empty listing is believed")
def _empty_listing_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("directsuite.sync.round.require_agreement", _do_nothing)
    patch.setattr("directsuite.sync.round.require_absence", _do_nothing)


@_register_mutant("a list of folders is believed")
def _list_of_folders_believed(patch: pytest.MonkeyPatch) -> None:
    has_vanished = MailboxRounds._has_vanished

    async def at_once(self: MailboxRounds, name: str) -> bool:
        count, self._remote.count_messages = self._remote.count_messages, _no_such_folder  # type: ignore[method-assign]  # for a call
        try:
            return await has_vanished(self, name)
        finally:
            self._remote.count_messages = count  # type: ignore[method-assign]  # for a call

    patch.setattr(MailboxRounds, "_has_vanished", at_once)


async def _no_such_folder(folder: str) -> int:
    raise NotFoundError("no such folder", status=404)


@_register_mutant("metadata decide")
def _metadata_decide(patch: pytest.MonkeyPatch) -> None:
    def find_match(message: MessageDetail, row: MessageRow) -> decide.Match:
        is_same = row.identity == decide.compute_identity(message)
        return decide.Match.SAME if is_same and message.msg_id else decide.Match.DIFFERENT

    async def nothing(*_: object) -> None:
        return None

    for module in (decide, remote):
        patch.setattr(module, "find_match", find_match)
    for module in (remote, rounds):
        patch.setattr(module, "compare_contents", nothing)


@_register_mutant("a time in the future is waited for")
def _future_waited_for(patch: pytest.MonkeyPatch) -> None:
    def is_due(due_ms: int, now_ms: int, _: int) -> bool:
        return due_ms <= now_ms

    patch.setattr("directsuite.sync.decide.is_due", is_due)
