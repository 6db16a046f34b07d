"""The rounds of one mailbox: changes on the server since the last round become changes for the sink.

    list every folder ──► unchanged ────────────────────────────────► idle: one request, nothing written
        │                 maybe renumbered, or a sentinel differs ──► full resync
        ▼
    missing ──► confirmed by a second listing ──► MISSING
        ▼
    new ──► fetched, ascending, in batches ──► NEW, or by its content MOVED or RESTORED ──► commit
        ▼
    confirm deletions ──► MISSING or UNRESOLVED for a complete round ──► GONE

The decisions are in `decide`. A full resync compares everything:

    metadata or contents match ──► same numbering: MISSING messages that are listed become LIVE again
    contents differ ─────────────► new numbering: messages with a strong and unique identity are carried over;
                                   others are fetched again, and recognised by their contents

After a crash, a new process continues from the last commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

import attrs

from directsuite.core.outcome import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.errors import DirectSuiteError, ResponseDecodeError, ServiceError, TransportError
from directsuite.sync import decide
from directsuite.sync.commits import ChangeStep, Commits
from directsuite.sync.decide import (
    Certainty,
    Comparison,
    FolderMemory,
    FolderSnapshot,
    Match,
    Metadata,
    UidListing,
    split_in_half,
)
from directsuite.sync.model import (
    LISTED_STATES,
    QUARANTINED_STATES,
    Change,
    ChangeSet,
    Kind,
    MessageRow,
    MessageState,
    RoundReport,
    StoredFolder,
)
from directsuite.sync.remote import (
    FolderFetch,
    Remote,
    compare_contents,
    has_same_message,
    has_unreadable_content,
    may_mean_missing_folder,
)

_VERIFICATION_INTERVAL = 600.0  # seconds between two verifications of an unchanged folder
_MAX_RETRIES_PER_ROUND = 20


class ContradictionError(ResponseDecodeError):
    """Responses of the service contradict each other. What they do not affect is synchronised."""


@attrs.define(eq=False, repr=False, slots=False)
class MailboxRounds:
    """The rounds of one mailbox while its lease is valid.

    folders: their names; None for all.
    """

    remote: Remote
    _commits: Commits = attrs.field(alias="commits")
    _names: Sequence[str] | None = attrs.field(alias="folders")
    _round_number: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._store, self._now_ms, self._clock = self._commits.store, self._commits.now_ms, self._commits.clock
        self._folders: dict[str, FolderMemory] = {}
        self._recorded_names: dict[str, str] = {}
        """The names of the folders that were once synchronised completely, by name in lower case."""
        self._compared_at: dict[str, float] = {}
        """When names were last found to be those of folders recorded in another case, in monotonic seconds."""
        self._waiting_since: Mapping[tuple[int, int, int], int] = {}
        self._has_waiting_rows = True  # a store may have waiting rows from earlier

    async def run_round(self) -> RoundReport:
        """Run one round. Raises errors that affect the entire mailbox; the report has those of single folders.

        If this raises or is cancelled, continue with a new lease, which waits for a commit in progress.
        """
        self._round_number += 1
        report = self._report = self._commits.begin_round()
        if self._round_number == 1:
            for folder in await self._store.folders(self._commits.lease):
                if self._names is None or folder.name in self._names:
                    self._folders[folder.name] = FolderMemory(folder)
                if folder.audited_ms is not None:
                    self._recorded_names[folder.name.lower()] = folder.name
        snapshots = await self._take_snapshots()
        for snapshot in snapshots:
            with self._report_errors(snapshot.state.name):
                await self._confirm_missing(snapshot)
        for snapshot in snapshots:
            with self._report_errors(snapshot.state.name):
                await self._fetch(snapshot)
        unfinished = {each.state.name for each in snapshots if each.state.certainty is not Certainty.COMPLETE}
        self._has_waiting_rows |= bool(snapshots)
        if self._has_waiting_rows:
            await self._retry_quarantined()
            incomplete = unfinished | report.failed_folders.keys()
            await self._confirm_deletions(incomplete, several_folders=len(self._folders) > 1)
        report.failed_folders.update(self._commits.undecided)
        is_any_suspect = any(state.certainty is Certainty.SUSPECT for state in self._folders.values())
        report.has_more |= bool(unfinished) or is_any_suspect
        return report

    @contextlib.contextmanager
    def _report_errors(self, name: str) -> Generator[None]:
        try:
            yield
        except DirectSuiteError as error:
            if find_error_scope(error) in NOT_RETRYABLE:  # it affects all folders
                raise
            self._report.failed_folders[name] = error

    async def _take_snapshots(self) -> list[FolderSnapshot]:
        names = await self._list_names() if self._names is None else await self._find_recorded_names(self._names)
        snapshots = list[FolderSnapshot]()
        for name in names:
            with self._report_errors(name):
                snapshot = await self._take_snapshot(name)
                if snapshot is None:
                    self._report.idle_folders += 1
                else:
                    snapshots.append(snapshot)
        return snapshots

    async def _list_names(self) -> Collection[str]:
        """Return the folders to synchronise. Record deleted ones, and report invalid names."""
        listed = await self.remote.list_folders()
        problems = {name: problem for name in listed if (problem := _find_name_problem(name)) is not None}
        for name, problem in problems.items():
            self._report.failed_folders[name] = ContradictionError(
                f"GetFolders lists a folder whose name {problem}. No request can contain that name, so the folder's "
                "messages are not synchronised. Rename the folder on the server."
            )
        names = await self._find_recorded_names([name for name in listed if name not in problems])
        for name in sorted(self._folders.keys() - names.keys()):
            if not await self._has_vanished(self._folders[name]):
                names[name] = None
        return names

    async def _find_recorded_names(self, names: Iterable[str]) -> dict[str, None]:
        """Return the names, each in the case in which its folder is recorded, because the service ignores case."""
        given = dict.fromkeys(names)
        found = dict[str, None]()
        for name in given:
            recorded = self._recorded_names.get(name.lower(), name)
            if name not in self._folders and recorded not in given and await self._is_same_folder(recorded, name):
                name = recorded
            found[name] = None
        return found

    async def _is_same_folder(self, recorded: str, name: str) -> bool:
        """Return False if two names that differ only in case have different listings, or GetFolders lists both."""
        now = self._clock.monotonic()
        if now - self._compared_at.get(name, -_VERIFICATION_INTERVAL) < _VERIFICATION_INTERVAL:
            return True
        try:
            first, other = [await _list_existing_uids(self.remote, each) for each in (recorded, name)]
            if first != other and other is not None:
                # The folder may have changed between the two requests.
                return first is not None and await _list_existing_uids(self.remote, recorded) != first
            # Two folders of a service that does not ignore case can also have the same uids.
            if self._names is not None and {recorded, name} <= set(await self.remote.list_folders()):
                return False
        except DirectSuiteError as error:
            if find_error_scope(error) in NOT_RETRYABLE:
                raise
            return True  # reading the folder may fail as well, and is reported; most services ignore case
        if first and other:
            self._compared_at[name] = now
        return True

    async def _has_vanished(self, state: FolderMemory) -> bool:
        """Return True if a folder that GetFolders does not list was deleted. Record its messages as missing.

        False if GetMessageCount counts them, or fails for another reason.
        """
        rows = [row for row in await self._store.rows(state.folder) if row.state in LISTED_STATES]
        try:
            if rows:
                await self.remote.count_messages(state.name)
                return False
        except DirectSuiteError as error:
            if not may_mean_missing_folder(error):
                return False  # listing its messages fails as well, and is reported
        del self._folders[state.name]
        await self._write_missing(state, rows)
        self._has_waiting_rows = True
        return True

    async def _take_snapshot(self, name: str) -> FolderSnapshot | None:
        state = self._folders.get(name)
        if state is None:
            state = self._folders[name] = FolderMemory(await self._store.make_folder(self._commits.lease, name))
        audit = decide.is_audit_due(state.folder, self._now_ms())
        changed = await self._read_changed_listing(state)
        if not decide.needs_full_resync(state, changed, audit=audit):
            now = self._clock.monotonic()
            is_verified = state.verified_at is not None and now - state.verified_at < _VERIFICATION_INTERVAL
            if changed is None and is_verified:
                state.certainty = Certainty.COMPLETE
                return None
            if await self._verify_sentinels(state, None if changed is None else changed.uids):
                state.verified_at = self._clock.monotonic()
                state.certainty = Certainty.COMPLETE if changed is None else Certainty.UNCONFIRMED
                return changed
        snapshot = await self._full_resync(state, audit=audit)
        state.verified_at = self._clock.monotonic()
        if audit:
            await self._write(state, attrs.evolve(state.folder, audited_ms=self._now_ms()))
        return snapshot

    async def _read_changed_listing(self, state: FolderMemory) -> FolderSnapshot | None:
        listed = await self.remote.list_uids(state.name, state.etag)
        if listed is None:
            return None
        if listed.unusable_count:
            self._report.failed_folders[state.name] = ContradictionError(
                f"GetUIDs lists {listed.unusable_count} values that are not uids. The other messages are synchronised, "
                "but no deletions in this folder are reported. Ask the service's provider."
            )
        if listed.fingerprint == state.folder.fingerprint:
            state.etag = listed.etag
            return None
        return FolderSnapshot(state, listed, await self._store.states(state.folder))

    async def _confirm_missing(self, snapshot: FolderSnapshot) -> None:
        """Record messages as missing if a second listing lacks them, and GetMessagesByUIDs returns none of a sample.

        If many are missing, GetMessageCount or GetMessageMetaData must agree as well. Raises ContradictionError.
        """
        missing = snapshot.uids_missing
        if not missing:
            snapshot.state.certainty = Certainty.CONFIRMED
            return
        count = await _find_count(self.remote, snapshot.state.name) if snapshot.has_lost_many else 0
        second = await self.remote.list_uids(snapshot.state.name)
        if second is None or second.unusable_count or not snapshot.is_confirmed_by(second.uids):
            return  # the folder has changed again
        await _require_agreement(self.remote, snapshot.state.name, second.uids, count)
        await _require_absence(self.remote, snapshot.state.name, decide.sample(sorted(missing)))
        snapshot.listing = second
        await self._write_missing(snapshot.state, await self._store.rows(snapshot.state.folder, missing))
        snapshot.state.certainty = Certainty.CONFIRMED

    async def _write_missing(self, state: FolderMemory, rows: Sequence[MessageRow]) -> None:
        await self._commits.write_batches(decide.rows_after_leaving(rows), state.invalidate_listing())

    async def _fetch(self, snapshot: FolderSnapshot) -> None:
        state = snapshot.state
        is_done = await FolderFetch(self._commits, self.remote, snapshot, self._folders).fetch_new()
        if not is_done or state.certainty is not Certainty.CONFIRMED:
            return
        audited = self._now_ms() if state.folder.audited_ms is None else state.folder.audited_ms
        folder = attrs.evolve(state.folder, fingerprint=snapshot.listing.fingerprint, audited_ms=audited)
        if folder != state.folder:
            await self._write(state, folder)
        state.etag, state.certainty = snapshot.listing.etag, Certainty.COMPLETE

    async def _write(self, state: FolderMemory, folder: StoredFolder) -> None:
        await self._commits.write(ChangeSet(folders=[folder]))
        state.folder = folder

    async def _retry_quarantined(self) -> None:
        due, now_ms, failed = list[tuple[FolderMemory, MessageRow]](), self._now_ms(), self._report.failed_folders
        for name, row in await self._store.unfinished(self._commits.lease):
            state = self._folders.get(name)
            if row.state not in QUARANTINED_STATES or state is None or state.certainty is not Certainty.COMPLETE:
                continue
            is_due = decide.is_retry_due(row, now_ms)
            if is_due and name not in failed and row.uid_validity == state.folder.uid_validity:
                due.append((state, row))
        self._report.has_more = len(due) > _MAX_RETRIES_PER_ROUND
        for state, row in due[:_MAX_RETRIES_PER_ROUND]:
            if state.name not in failed:
                with self._report_errors(state.name):
                    snapshot = FolderSnapshot(state, UidListing(), {row.uid: row.state})
                    await FolderFetch(self._commits, self.remote, snapshot, self._folders).retry(row)

    async def _confirm_deletions(self, incomplete: Collection[str], *, several_folders: bool) -> None:
        found = await self._store.unfinished(self._commits.lease)
        # Messages of other folders were not searched for.
        rows = [each for each in found if self._names is None or each[0] in self._folders]
        confirmed, self._waiting_since = decide.confirm_deletions(
            [each for each in rows if each[1].state not in QUARANTINED_STATES and each[0] not in incomplete],
            self._waiting_since,
            round_number=self._round_number,
            now_ms=self._now_ms(),
            several_folders=several_folders,
            any_folder_incomplete=bool(incomplete),
        )
        count = await self._commits.deliver(self._make_deletion_step(name, row) for name, row in confirmed)
        self._report.has_waiting = bool(self._waiting_since)
        self._has_waiting_rows = count < len(rows) or bool(incomplete)

    def _make_deletion_step(self, name: str, row: MessageRow) -> ChangeStep:
        change = Change(kind=Kind.GONE, key=self._commits.make_key(name, row), digest=decide.to_hex(row.digest))
        return ChangeStep(change=change, row=row)

    async def _verify_sentinels(self, state: FolderMemory, listed: Collection[int] | None) -> bool:
        """Return True if the newest and the oldest listed message with a row are unchanged, or if there is none.

        False also if one cannot be compared. If one is another message, the folder is SUSPECT. listed: None for all
        uids.
        """
        rows = await self._store.sentinels(state.folder)
        if listed is not None and any(row.uid not in listed for row in rows):
            known = await self._store.rows(state.folder)
            comparable = [row for row in known if row.uid in listed and decide.can_be_sentinel(row)]
            rows = [*comparable[:1], *comparable[1:][-1:]]
        for row in rows:
            is_same = await has_same_message(self.remote, state.name, row)
            if is_same is False:
                state.certainty = Certainty.SUSPECT
            if not is_same:
                return False
        return True

    async def _full_resync(self, state: FolderMemory, *, audit: bool) -> FolderSnapshot:
        """Compare everything, commit what changed, and return a snapshot.

        audit: True to compare all contents that metadata do not prove.
        """
        rows = {row.uid: row for row in await self._store.rows(state.folder)}
        messages = self.remote.iter_metadata(state.name)
        metadata = {
            uid: Metadata(
                decide.make_row(message, state.folder, uid),
                bool(message.msg_id),
                decide.find_match(message, rows[uid]) if uid in rows else Match.UNPROVEN,
            )
            async for message in messages
            if (uid := message.uid) is not None
        }
        listing = await self.remote.list_uids(state.name) or UidListing()
        metadata = {uid: each for uid, each in metadata.items() if uid in listing.uids}  # the listing is newer
        comparison = Comparison(rows, metadata, listing.uids, audit)
        if state.certainty is not Certainty.SUSPECT and await self._has_same_numbering(state.name, comparison):
            if revived := comparison.revived_rows:
                await self._commits.write(ChangeSet(rows=revived, folders=state.invalidate_listing()))
        else:
            count = await _find_count(self.remote, state.name)
            # Renumbering keeps only listed messages.
            await _require_agreement(self.remote, state.name, listing.uids, count)
            await self._renumber(state, comparison)
        state.etag, state.certainty = None, Certainty.UNCONFIRMED
        return FolderSnapshot(state, listing, await self._store.states(state.folder))

    async def _has_same_numbering(self, folder: str, comparison: Comparison) -> bool:
        if not comparison.is_possible:
            return False
        content_is_same = await compare_contents(self.remote, folder, comparison.unproven_rows)
        if content_is_same is False or (content_is_same is None and comparison.has_contradicting_metadata):
            return False
        return await compare_contents(self.remote, folder, comparison.weakly_proven_rows) is not False

    async def _renumber(self, state: FolderMemory, comparison: Comparison) -> None:
        folder = attrs.evolve(state.folder, uid_validity=state.folder.uid_validity + 1, fingerprint=None)
        await self._commits.write(ChangeSet(renumbered=[folder.id], folders=[folder]))
        state.folder = folder
        state.missed_fetches.clear()
        moves = comparison.carried_over_pairs(folder)
        await self._commits.deliver(self._make_move_step(state.name, old, row) for old, row in moves)

    def _make_move_step(self, folder: str, old: MessageRow, row: MessageRow) -> ChangeStep:
        key, previous = self._commits.make_key(folder, row), self._commits.make_key(folder, old)
        change = Change(kind=Kind.MOVED, key=key, previous=previous, digest=decide.to_hex(row.digest))
        return ChangeStep(change=change, row=row, origin=attrs.evolve(old, state=MessageState.UNRESOLVED))


def _find_name_problem(folder: str) -> str | None:
    """Return why no request can contain a folder's name, as a predicate; None if one can."""
    if folder in ("", ".", ".."):
        return "consists of dots" if folder else "is empty"
    return "contains NUL" if "\0" in folder else None


async def _list_existing_uids(remote: Remote, folder: str) -> frozenset[int] | None:
    """Return the uids of a folder, or None if it may not exist."""
    try:
        listing = await remote.list_uids(folder)
    except ServiceError as error:
        if not may_mean_missing_folder(error):
            raise
        return None
    return None if listing is None else listing.uids


async def _find_count(remote: Remote, folder: str) -> int | None:
    """Return the number of messages, or None if the service rejects this operation."""
    try:
        return await remote.count_messages(folder)
    except ServiceError as error:
        if find_error_scope(error) is not ErrorScope.ITEM:
            raise
        return None


async def _require_agreement(remote: Remote, folder: str, listing: Collection[int], count: int | None) -> None:
    """Raise ContradictionError if no other operation agrees with a listing that lost many messages.

    Services have listed no uids although they still had the messages. If GetMessageCount reports more messages than are
    listed or is rejected, GetMessageMetaData must return messages, and only listed ones.

    count: the result of GetMessageCount; None if it is rejected.
    """
    if count is not None and count <= len(listing):
        return
    uids = {message.uid async for message in remote.iter_metadata(folder)}
    if not uids or not uids.issubset(listing):
        counts = "is rejected" if count is None else f"reports {count}"
        raise ContradictionError(
            f"GetUIDs lists {len(listing)} messages and GetMessageCount {counts}. No deletions "
            "were reported, and the folder is read again. If this continues, ask the service's provider."
        )


async def _require_absence(remote: Remote, folder: str, uids: Sequence[int]) -> None:
    """Raise ContradictionError if GetMessagesByUIDs returns messages that GetUIDs does not list."""
    try:
        messages = await remote.fetch_messages(folder, uids)
    except DirectSuiteError as error:
        if isinstance(error, TransportError) or find_error_scope(error) not in (ErrorScope.ITEM, ErrorScope.UNCERTAIN):
            raise
        is_returned = has_unreadable_content(error) or (isinstance(error, ResponseDecodeError) and error.too_large)
        if not is_returned and len(uids) > 1:  # a service may reject all because of one missing message
            for part in split_in_half(uids):
                await _require_absence(remote, folder, part)
    else:
        is_returned = any(message.uid in uids and not message.expunged for message in messages)
    if is_returned:
        raise ContradictionError(
            "GetMessagesByUIDs returns messages that GetUIDs does not list. No deletions were reported, and "
            "the folder is read again. If this continues, ask the service's provider."
        )
