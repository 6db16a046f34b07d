"""One mailbox, round after round: what changed on the server since the last round becomes changes for the sink.

    list every folder ──► as it was ───────────────────────► idle: one request, nothing written
        │                 odd, or a sentinel differs ──────► full resync: perhaps a new numbering
        ▼
    missing ──► listed once more ──► MISSING
        ▼
    new ──► fetched, ascending, in batches ──► NEW, or by its content MOVED or RESTORED ──► commit
        ▼
    confirm deletions ──► MISSING for a whole round, UNRESOLVED in a folder that is complete ──► GONE

What is to be done is decided in `decide`. Nothing is done before it is committed, and a commit is one transaction:
whoever dies between two begins with the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence

import attrs

from directsuite.core.clock import Clock
from directsuite.core.failures import HOPELESS, scope_of
from directsuite.errors import DirectSuiteError
from directsuite.sync.commits import Commits, Deliver, SinkHealth, Step
from directsuite.sync.decide import (
    FolderSnapshot,
    FolderState,
    FolderStep,
    NamedRow,
    confirm_deletions,
    is_audit_due,
    is_retry_due,
    missing_rows,
    next_step,
    sample,
)
from directsuite.sync.fetch import FolderFetch, retry_quarantined
from directsuite.sync.identity import hex_of
from directsuite.sync.model import (
    LISTED,
    QUARANTINED,
    Change,
    ChangeSet,
    Folder,
    Kind,
    RoundReport,
    Row,
    State,
    Store,
)
from directsuite.sync.remote import (
    ContradictionError,
    Remote,
    find_count,
    find_name_problem,
    require_absence,
    require_agreement,
    says_no_such_folder,
)
from directsuite.sync.verify import full_resync, verify_sentinels

_VERIFICATION = 600.0  # seconds between two verifications of a folder in which nothing happens
_RETRIES = 20  # quarantined messages that a round asks for again


class MailboxRounds:
    """The rounds of one mailbox, one after the other, while its lease holds.

    folders: their names; None for all that there are. now_ms: the time of day, in milliseconds since 1970. health: of
    the sink, as other mailboxes have seen it.
    """

    def __init__(
        self,
        remote: Remote,
        store: Store,
        *,
        name: str,
        folders: Sequence[str] | None,
        deliver: Deliver | None,
        clock: Clock,
        now_ms: Callable[[], int],
        health: SinkHealth | None = None,
    ) -> None:
        self._remote = remote
        self._store = store
        self._name = name
        self._names = None if folders is None else list(dict.fromkeys(folders))
        self._deliver = deliver
        self._clock = clock
        self._now_ms = now_ms
        self._health = health or SinkHealth()
        self.mailbox: int | None = None
        """The store's number of the mailbox, once it was claimed."""
        self._commits: Commits | None = None
        self._number = 0
        self._in_doubt = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._folders: dict[str, FolderState] = {}
        self._recorded: set[str] | None = None  # names of folders, where all are looked at
        self._waiting_since: Mapping[tuple[int, int, int], int] = {}
        self._unsettled = True  # there may be rows that wait for something

    async def round(self, *, audit: bool = False) -> RoundReport:
        """One round. Raises what concerns the whole mailbox; what concerns one folder stands in the report."""
        try:
            return await self._round(audit=audit)
        except BaseException:  # cancelled, too: nobody knows whether the commit under way was written
            self._begin_anew()
            self._in_doubt = True
            raise

    async def _round(self, *, audit: bool) -> RoundReport:
        self._number += 1
        report = RoundReport()
        if self._commits is None:
            lease = await self._store.claim(self._name)
            self.mailbox = lease.mailbox
            self._commits = Commits(
                self._store, lease, self._deliver, clock=self._clock, now_ms=self._now_ms, health=self._health
            )
        commits = self._commits
        commits.begin()
        if self._in_doubt:
            await commits.write(ChangeSet())  # it waits for that commit, and what is read afterwards has seen it
            self._in_doubt = False
        snapshots = await self._snapshots(commits, report, audit=audit)
        for snapshot in snapshots:
            with self._reported(report, snapshot.state.name):
                await self._confirm_missing(commits, snapshot)
        for snapshot in snapshots:
            with self._reported(report, snapshot.state.name):
                await self._fetch(commits, snapshot, report)
                await self._finish(commits, snapshot)
        if self._unsettled:
            await self._retry_quarantined(commits, report)
            incomplete = {each.state.name for each in snapshots if not each.complete} | report.failed.keys()
            await self._confirm_deletions(commits, incomplete, report, several_folders=len(self._folders) > 1)
        report.quarantined += commits.quarantined
        report.failed.update(commits.unsure)
        self._unsettled |= bool(commits.unsure or commits.quarantined)
        unfinished = any(not (each.complete and each.settled) for each in snapshots)
        report.more |= unfinished or any(state.suspect for state in self._folders.values())
        return report

    @contextlib.contextmanager
    def _reported(self, report: RoundReport, name: str) -> Generator[None]:
        try:
            yield
        except DirectSuiteError as error:
            if scope_of(error) in HOPELESS:  # no other folder would be spared
                raise
            report.failed[name] = error

    async def _snapshots(self, commits: Commits, report: RoundReport, *, audit: bool) -> list[FolderSnapshot]:
        """Of each folder that isn't as it was."""
        names: Sequence[str] | None = self._names
        if names is None:
            names = await self._listed_names(commits, report)
        snapshots = list[FolderSnapshot]()
        for name in names:
            with self._reported(report, name):
                snapshot = await self._snapshot(commits, name, report, audit=audit)
                if snapshot is None:
                    report.idle += 1
                else:
                    snapshots.append(snapshot)
                    if snapshot.carried_over:
                        report.changes[Kind.MOVED] += snapshot.carried_over
        return snapshots

    async def _listed_names(self, commits: Commits, report: RoundReport) -> Sequence[str]:
        """Return the names of all folders that are synchronised in this round. Record folders that were deleted."""
        listed = await self._remote.folders()
        problems = {name: problem for name in listed if (problem := find_name_problem(name)) is not None}
        for name, problem in problems.items():
            report.failed[name] = ContradictionError(
                f"GetFolders lists a folder whose name {problem}. No request can name it, so that its messages are not "
                "synchronised. Rename the folder on the server."
            )
        names = {name: None for name in listed if name not in problems}
        if self._recorded is None:
            self._recorded = {folder.name for folder in await self._store.folders(commits.lease)}
        for name in sorted(self._recorded - names.keys()):
            if await self._has_vanished(commits, name):
                self._recorded.remove(name)
            else:
                names[name] = None
        self._recorded |= names.keys()
        return list(names)

    async def _has_vanished(self, commits: Commits, name: str) -> bool:
        """Return True if a folder that GetFolders does not list was deleted. Record its messages as missing.

        Its messages may be in another folder, as after it was renamed. The list alone is not believed: while other
        operations still find the folder, it is synchronised like any other.
        """
        state = self._folders.get(name) or FolderState(await self._store.folder(commits.lease, name))
        rows = [row for row in await self._store.rows(state.folder) if row.state in LISTED]
        try:
            if rows:
                await self._remote.count(name)
                return False
        except DirectSuiteError as error:
            if not says_no_such_folder(error):
                return False  # the listing of the folder's messages fails as well, and is reported
        self._folders.pop(name, None)
        await self._write_missing(commits, state, rows)
        self._unsettled = True
        return True

    async def _snapshot(
        self, commits: Commits, name: str, report: RoundReport, *, audit: bool
    ) -> FolderSnapshot | None:
        """What the folder shows; None where that is what it was."""
        state = self._folders.get(name)
        if state is None:
            state = self._folders[name] = FolderState(await self._store.folder(commits.lease, name))
        state.outdated = False
        audit = audit or is_audit_due(state.folder, self._now_ms())
        changed = await self._changed(state, report)
        match next_step(state, changed, audit=audit, sentinels_due=self._are_sentinels_due(state)):
            case FolderStep.NONE:
                return None
            case FolderStep.VERIFY:
                listed = None if changed is None else changed.uids
                if await verify_sentinels(self._store, self._remote, state, listed):
                    state.verified_at = self._clock.monotonic()
                    return changed
            case FolderStep.FULL_RESYNC:
                pass
        self._unsettled = True  # it may leave MISSING and UNRESOLVED rows
        snapshot = await full_resync(commits, self._remote, state, audit=audit)
        state.verified_at = self._clock.monotonic()
        if audit:
            await self._write(commits, state, attrs.evolve(state.folder, audited_ms=self._now_ms()))
        return snapshot

    async def _changed(self, state: FolderState, report: RoundReport) -> FolderSnapshot | None:
        """What the folder lists; None where that is what it listed when everything up to it was done."""
        listed = await self._remote.uids(state.name, state.mark)
        if listed is None:
            return None
        if listed.unusable:
            report.failed[state.name] = ContradictionError(
                f"GetUIDs lists {listed.unusable} values that are not uids. The other messages are synchronised, and "
                "nothing is deleted in this folder. Ask the service's provider."
            )
        if listed.fingerprint == state.folder.fingerprint:
            state.mark = listed.mark
            return None
        return FolderSnapshot(
            state=state,
            uids=frozenset(listed.uids),
            recorded=await self._store.states(state.folder),
            fingerprint=listed.fingerprint,
            mark=listed.mark,
        )

    def _are_sentinels_due(self, state: FolderState) -> bool:
        return state.verified_at is None or self._clock.monotonic() - state.verified_at >= _VERIFICATION

    async def _confirm_missing(self, commits: Commits, snapshot: FolderSnapshot) -> None:
        """What a second listing lacks, too, has left the folder; where to is not known yet.

        GetMessagesByUIDs must not return it, and if many messages are missing, another operation must agree as well.

        What that one has more was new a moment ago, or moved within the folder: it counts from here on.
        """
        missing = snapshot.missing
        if not missing:
            snapshot.state.unsure = False
            return
        snapshot.settled = False
        count = await find_count(self._remote, snapshot.state.name) if snapshot.has_lost_many else 0
        second = await self._remote.uids(snapshot.state.name)
        if second is None or second.unusable or not snapshot.is_confirmed_by(second.uids):
            return  # it changed meanwhile: the next round sees more
        await require_agreement(self._remote, snapshot.state.name, frozenset(second.uids), count)
        await require_absence(self._remote, snapshot.state.name, sample(sorted(missing)))
        snapshot.uids, snapshot.fingerprint, snapshot.mark = frozenset(second.uids), second.fingerprint, second.mark
        snapshot.state.unsure = False
        self._unsettled = True
        await self._write_missing(commits, snapshot.state, await self._store.rows(snapshot.state.folder, missing))
        snapshot.settled = True

    async def _write_missing(self, commits: Commits, state: FolderState, rows: Sequence[Row]) -> None:
        await commits.write_each(missing_rows(rows), state.forget_listing())

    async def _fetch(self, commits: Commits, snapshot: FolderSnapshot, report: RoundReport) -> None:
        """Fetch and commit what is new."""
        try:
            await FolderFetch(commits, self._remote, snapshot, self._folders).fetch_new(report)
        finally:
            self._unsettled = self._unsettled or report.quarantined > 0

    async def _finish(self, commits: Commits, snapshot: FolderSnapshot) -> None:
        """Write that everything up to this listing is done."""
        state = snapshot.state
        snapshot.complete = snapshot.complete and not state.outdated
        if not (snapshot.complete and snapshot.settled) or state.suspect:
            return
        if state.folder.fingerprint != snapshot.fingerprint or state.folder.audited_ms is None:
            audited = self._now_ms() if state.folder.audited_ms is None else state.folder.audited_ms
            folder = attrs.evolve(state.folder, fingerprint=snapshot.fingerprint, audited_ms=audited)
            await self._write(commits, state, folder)
        state.mark = snapshot.mark

    async def _write(self, commits: Commits, state: FolderState, folder: Folder) -> None:
        await commits.write(ChangeSet(folders=[folder]))
        state.folder = folder

    async def _retry_quarantined(self, commits: Commits, report: RoundReport) -> None:
        """Ask for quarantined messages, where it is time: so many, and the next ones in the next round."""
        due, now_ms = list[tuple[FolderState, Row]](), self._now_ms()
        for name, row in await self._quarantined(commits, report.failed):
            state = self._folders.get(name)
            is_due = is_retry_due(row, now_ms)
            if self._health.has_taken_others_since(commits.key(name, row)):
                is_due = True  # nothing showed that it was to blame, and not the sink
            if is_due and state is not None and row.uid_validity == state.folder.uid_validity:
                due.append((state, row))
        report.more = len(due) > _RETRIES
        for state, row in due[:_RETRIES]:
            if state.name not in report.failed:
                with self._reported(report, state.name):
                    changes = await retry_quarantined(commits, self._remote, state, row, self._folders)
                    report.changes.update(changes)

    async def _confirm_deletions(
        self, commits: Commits, incomplete: Collection[str], report: RoundReport, *, several_folders: bool
    ) -> None:
        """Tell what is gone. incomplete: folders not seen whole in this round; what they lack waits until they are."""
        missing = [
            each
            for state in (State.MISSING, State.UNRESOLVED)
            for each in await commits.store.in_state(commits.lease, state, but=incomplete)
        ]
        deletions = confirm_deletions(
            missing,
            self._waiting_since,
            round_number=self._number,
            now_ms=self._now_ms(),
            several_folders=several_folders,
            some_incomplete=bool(incomplete),
        )
        self._waiting_since = deletions.waiting_since
        changes = await commits.tell(_deletion(commits, name, row) for name, row in deletions.confirmed)
        report.changes[Kind.GONE] += len(changes)
        report.waiting = bool(deletions.waiting_since)
        postponed = deletions.postponed or len(changes) < len(deletions.confirmed)
        self._unsettled = report.waiting or postponed or bool(incomplete or await self._quarantined(commits))

    async def _quarantined(self, commits: Commits, but: Collection[str] = ()) -> Sequence[NamedRow]:
        """Messages that are quarantined. but: folders to leave out."""
        return [each for state in QUARANTINED for each in await self._store.in_state(commits.lease, state, but=but)]


def _deletion(commits: Commits, name: str, row: Row) -> Step:
    change = Change(kind=Kind.GONE, key=commits.key(name, row), digest=hex_of(row.digest))
    return Step(change=change, before=row)
