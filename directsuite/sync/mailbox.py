"""One mailbox, round after round: what changed on the server since the last round becomes changes for the sink.

    list every folder ──► as it was ───────────────────────► idle: one request, nothing written
        │                 odd, or a canary not well ───────► compare all (rebuild): perhaps another generation
        ▼
    missing ──► listed once more ──► LEFT
        ▼
    new ──► fetched, ascending, in batches ──► NEW, or by its content MOVED or RESTORED ──► commit
        ▼
    settle ──► LEFT for a whole round, ORPHANs of a folder that is complete ──► GONE

Nothing is done before it is committed, and a commit is one transaction: whoever dies between two begins with the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Sequence

import attrs

from directsuite.core.clock import Clock
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    PermissionDeniedError,
)
from directsuite.sync.arrivals import Arrivals
from directsuite.sync.aside import Aside
from directsuite.sync.canaries import are_well
from directsuite.sync.commits import Commits, Deliver, SinkError, SinkHealth
from directsuite.sync.model import (
    LEAVING,
    SET_ASIDE,
    Delta,
    Folder,
    Kind,
    Report,
    Row,
    StaleLeaseError,
    Store,
    StoreError,
)
from directsuite.sync.place import Look, Place
from directsuite.sync.rebuild import rebuild
from directsuite.sync.remote import Remote
from directsuite.sync.settling import Settling

_CANARIES = 600.0  # seconds between two looks at the canaries of a folder in which nothing happens
_AUDIT = 86_400_000  # milliseconds between two comparisons of everything
_TRIES = 20  # messages set aside that a round asks for again

_OF_THE_MAILBOX = (
    AuthenticationError,
    PermissionDeniedError,
    ClosedError,
    ConfigurationError,
    SinkError,
    StaleLeaseError,
    StoreError,
)
"""Failures that no other folder would be spared."""


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
        self._folders = folders
        self._deliver = deliver
        self._clock = clock
        self._now_ms = now_ms
        self._health = health or SinkHealth()
        self._commits: Commits | None = None
        self._number = 0
        self._in_doubt = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._places: dict[str, Place] = {}
        self._known: set[str] | None = None  # names of folders, where all are looked at
        self._settling = Settling()
        self._unsettled = True  # there may be rows that wait for something

    async def round(self, *, audit: bool = False) -> Report:
        """One round. Raises what concerns the whole mailbox; what concerns one folder stands in the report."""
        try:
            return await self._round(audit=audit)
        except BaseException:  # cancelled, too: nobody knows whether the commit under way was written
            self._begin_anew()
            self._in_doubt = True
            raise

    async def _round(self, *, audit: bool) -> Report:
        self._number += 1
        report = Report()
        if self._commits is None:
            lease = await self._store.claim(self._name)
            self._commits = Commits(self._store, lease, self._deliver, now_ms=self._now_ms, health=self._health)
        self._commits.begin()
        if self._in_doubt:
            await self._commits.write(Delta())  # it waits for that commit, and what is read afterwards has seen it
            self._in_doubt = False
        names = self._folders
        if names is None:
            names = await self._remote.folders()
            await self._note_vanished(self._commits, names)
        looks = list[Look]()
        for name in names:
            with self._reported(report, name):
                look = await self._look(self._commits, name, audit=audit)
                if look is None:
                    report.idle += 1
                else:
                    looks.append(look)
                    if look.carried_over:
                        report.changes[Kind.MOVED] += look.carried_over
        for look in looks:
            with self._reported(report, look.place.folder.name):
                await self._confirm_missing(self._commits, look)
        for look in looks:
            with self._reported(report, look.place.folder.name):
                await self._receive(self._commits, look, report)
                await self._finish(self._commits, look)
        if self._unsettled:
            await self._try_again(self._commits, report)
            incomplete = {look.place.folder.name for look in looks if not look.complete} | report.failed.keys()
            await self._settle(self._commits, incomplete, report, several=len(self._places) > 1)
        report.poison += self._commits.set_aside
        report.failed.update(self._commits.unsure)
        self._unsettled |= bool(self._commits.unsure or self._commits.set_aside)
        unfinished = any(not (look.complete and look.settled) for look in looks)
        report.more |= unfinished or any(place.suspect for place in self._places.values())
        return report

    @contextlib.contextmanager
    def _reported(self, report: Report, name: str) -> Generator[None]:
        try:
            yield
        except _OF_THE_MAILBOX:
            raise
        except DirectSuiteError as error:
            report.failed[name] = error

    async def _note_vanished(self, commits: Commits, names: Sequence[str]) -> None:
        """A folder that is no more, as two lists say, has lost its messages: to another, as after a change of name."""
        if self._known is None:
            self._known = {folder.name for folder in await self._store.folders(commits.lease)}
        vanished = self._known - set(names)
        if vanished:
            vanished -= set(await self._remote.folders())
        for name in vanished:
            place = self._places.pop(name, None) or Place(await self._store.folder(commits.lease, name))
            await self._note_missing(commits, place, await self._store.rows(place.folder))
            self._unsettled = True
        self._known = (self._known - vanished) | set(names)

    async def _look(self, commits: Commits, name: str, *, audit: bool) -> Look | None:
        """What the folder has, where that isn't what it had."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = Place(await self._store.folder(commits.lease, name))
        place.outdated = False
        audit = audit or self._audit_is_due(place)
        compare = audit or place.suspect
        listed = await self._remote.uids(name, place.mark)
        if listed is not None and listed.fingerprint == place.folder.fingerprint:
            place.mark, listed = listed.mark, None
        if listed is None and not compare:
            if not self._canaries_are_due(place):
                return None
            if await are_well(self._store, self._remote, place, None):
                place.looked_at = self._clock.monotonic()
                return None
            return await self._rebuilt(commits, place, audit=False)
        if listed is not None and not compare:
            states = await self._store.states(place.folder)
            look = Look(
                place=place,
                uids=frozenset(listed.uids),
                states=states,
                fingerprint=listed.fingerprint,
                mark=listed.mark,
            )
            if not look.is_odd and await are_well(self._store, self._remote, place, look.uids):
                place.looked_at = self._clock.monotonic()
                return look
        look = await self._rebuilt(commits, place, audit=audit)
        if audit:
            await self._note(commits, place, attrs.evolve(place.folder, audited_ms=self._now_ms()))
        return look

    async def _rebuilt(self, commits: Commits, place: Place, *, audit: bool) -> Look:
        self._unsettled = True  # it may leave LEFT and ORPHAN rows
        look = await rebuild(commits, self._remote, place, audit=audit)
        place.looked_at = self._clock.monotonic()  # it has seen more than the canaries
        return look

    def _canaries_are_due(self, place: Place) -> bool:
        return place.looked_at is None or self._clock.monotonic() - place.looked_at >= _CANARIES

    def _audit_is_due(self, place: Place) -> bool:
        return place.folder.audited_ms is not None and self._now_ms() - place.folder.audited_ms >= _AUDIT

    async def _confirm_missing(self, commits: Commits, look: Look) -> None:
        """What a second listing lacks, too, has left the folder; where to is not known yet.

        What that one has more was new a moment ago, or moved within the folder: it counts from here on.
        """
        missing = look.missing
        if not missing:
            look.place.unsure = False
            return
        look.settled = False
        second = await self._remote.uids(look.place.folder.name)
        if second is None or not look.confirms(second.uids):
            return  # it changed meanwhile: the next round sees more
        look.uids, look.fingerprint, look.mark = frozenset(second.uids), second.fingerprint, second.mark
        look.place.unsure = False
        self._unsettled = True
        await self._note_missing(commits, look.place, await self._store.rows(look.place.folder, missing))
        look.settled = True

    async def _note_missing(self, commits: Commits, place: Place, rows: Sequence[Row]) -> None:
        missing = [row for row in rows if row.state in LEAVING]
        left = (attrs.evolve(row, state=LEAVING[row.state], attempts=0, retry_ms=None) for row in missing)
        await commits.write_each(left, place.reopened())

    async def _receive(self, commits: Commits, look: Look, report: Report) -> None:
        """Fetch and commit what is new."""
        try:
            await Arrivals(commits, self._remote, look, self._places).take_in(report)
        finally:
            self._unsettled = self._unsettled or report.poison > 0

    async def _finish(self, commits: Commits, look: Look) -> None:
        """Note that everything up to this listing is done."""
        place = look.place
        look.complete = look.complete and not place.outdated
        if not (look.complete and look.settled) or place.suspect:
            return
        if place.folder.fingerprint != look.fingerprint or place.folder.audited_ms is None:
            audited = self._now_ms() if place.folder.audited_ms is None else place.folder.audited_ms
            folder = attrs.evolve(place.folder, fingerprint=look.fingerprint, audited_ms=audited)
            await self._note(commits, place, folder)
        place.mark = look.mark

    async def _note(self, commits: Commits, place: Place, folder: Folder) -> None:
        await commits.write(Delta(folders=[folder]))
        place.folder = folder

    async def _try_again(self, commits: Commits, report: Report) -> None:
        """Ask for messages that were set aside, where it is time: so many, and the next ones in the next round."""
        aside = Aside(commits, self._remote)
        due = list[tuple[Place, Row]]()
        for name, row in await self._set_aside(commits, report.failed):
            place = self._places.get(name)
            if place is not None and row.generation == place.folder.generation and aside.is_due(row):
                due.append((place, row))
        report.more = len(due) > _TRIES
        for place, row in due[:_TRIES]:
            if place.folder.name not in report.failed:
                with self._reported(report, place.folder.name):
                    report.changes.update(await aside.try_again(place, row, self._places))

    async def _settle(self, commits: Commits, incomplete: Collection[str], report: Report, *, several: bool) -> None:
        gone = await self._settling.settle(commits, self._number, incomplete, several=several)
        report.changes[Kind.GONE] += gone.told
        report.waiting = gone.waiting
        self._unsettled = gone.waiting or gone.set_aside or bool(incomplete or await self._set_aside(commits))

    async def _set_aside(self, commits: Commits, but: Collection[str] = ()) -> Sequence[tuple[str, Row]]:
        """Messages that were set aside. but: folders to leave out."""
        return [each for state in SET_ASIDE for each in await self._store.in_state(commits.lease, state, but=but)]
