"""Is a folder still what it was? Its sentinels tell, or, where they don't, everything that can be compared.

Sentinels are the newest and the oldest message that is recorded. A folder numbered anew seldom spares both.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.commits import Commits, Step
from directsuite.sync.decide import (
    FolderSnapshot,
    FolderState,
    have_different_metadata,
    may_number_as_before,
    returned_rows,
    rows_carried_over,
    rows_to_compare,
    unproven_rows,
)
from directsuite.sync.identity import Match, Metadata, find_match, has_content, hex_of
from directsuite.sync.model import Change, ChangeSet, Kind, Row, State, Store
from directsuite.sync.remote import Listing, Remote, find_count, halves, may_be_about_messages, require_agreement

_WIDTH = 1000
"""Milliseconds before and after its date in which a message is looked for: servers may keep dates by the second."""
_AT_ONCE = 20
"""Messages whose contents are compared in one request."""


async def verify_sentinels(store: Store, remote: Remote, state: FolderState, listed: Collection[int] | None) -> bool:
    """Return True if the newest and the oldest recorded message that are listed are what they were.

    listed: None for all uids. A sentinel with other contents makes the folder suspect.
    """
    rows = await store.sentinels(state.folder)
    if listed is not None and any(row.uid not in listed for row in rows):
        comparable = [row for row in await store.rows(state.folder) if row.uid in listed and _can_be_sentinel(row)]
        rows = [*comparable[:1], *comparable[1:][-1:]]
    for row in rows:
        if not await _is_unchanged(remote, state, row):
            return False
    return True


def _can_be_sentinel(row: Row) -> bool:
    return row.state is State.LIVE and row.identity is not None and row.received_ms is not None


async def _is_unchanged(remote: Remote, state: FolderState, row: Row) -> bool:
    is_same = await _has_same_message(remote, state.name, row)
    state.suspect = state.suspect or is_same is False
    return is_same is True


async def is_still_there(remote: Remote, folder: str, row: Row) -> bool:
    """Return True if a uid still has the row's message. The metadata can prove it even if it cannot be fetched."""
    return await _has_same_message(remote, folder, row) is True


async def _has_same_message(remote: Remote, folder: str, row: Row) -> bool | None:
    """Return whether a uid still has the row's message; None if nothing proves either."""
    if row.identity is None:
        return await have_content(remote, folder, [row]) is not False
    if row.received_ms is None and row.digest is not None:  # one message costs less than the metadata of all
        content_is_same = await have_content(remote, folder, [row])
        if content_is_same is not None:
            return content_is_same
    message = await _metadata_under(remote, folder, row)
    match = Match.DIFFERENT if message is None else find_match(message, row)
    if match is Match.SAME:
        return True
    content_is_same = await have_content(remote, folder, [row])
    return True if content_is_same is None and match is not Match.DIFFERENT else content_is_same


async def _metadata_under(remote: Remote, folder: str, row: Row) -> MessageDetail | None:
    """Return the metadata of the message under the row's uid; None if none of about the same date has the uid."""
    if row.received_ms is None:
        return await _metadata_of(remote, folder, row.uid)
    near = await remote.metadata_between(folder, row.received_ms - _WIDTH, row.received_ms + _WIDTH)
    return next((each for each in near if each.uid == row.uid), None)


async def _metadata_of(remote: Remote, folder: str, uid: int) -> MessageDetail | None:
    """The metadata of one message whose date nobody knows; of all, for an answer is read to its end."""
    metadata = None
    async for message in remote.metadata(folder):
        if message.uid == uid:
            metadata = message
    return metadata


async def have_content(remote: Remote, folder: str, rows: Sequence[Row]) -> bool | None:
    """Return whether the messages under these uids have the contents of the rows; None if none can be compared.

    A message that cannot be fetched, or that is not returned, is not compared.
    """
    comparable, result = [row for row in rows if row.digest is not None], None
    for start in range(0, len(comparable), _AT_ONCE):
        compared = await _have_content(remote, folder, comparable[start : start + _AT_ONCE])
        if compared is False:
            return False
        result = compared or result
    return result


async def _have_content(remote: Remote, folder: str, rows: Sequence[Row]) -> bool | None:
    try:
        messages = {each.uid: each for each in await remote.messages(folder, [row.uid for row in rows])}
    except DirectSuiteError as error:
        if not may_be_about_messages(error):
            raise
        if len(rows) == 1:
            return None
        compared = [await _have_content(remote, folder, part) for part in halves(rows)]
    else:
        compared = [has_content(messages[row.uid], row) for row in rows if row.uid in messages]
    return False if False in compared else True in compared or None


async def full_resync(commits: Commits, remote: Remote, state: FolderState, *, audit: bool) -> FolderSnapshot:
    """Compare everything, and give the folder as it is then.

        metadata or contents agree ──► the same numbering: late uids are new, those that came back are fetched again
        contents disagree ───────────► a new numbering: who can be told by a strong identity that no other message has
                                       is carried over; all others are fetched again, and known by their content

    audit: contents of messages without a Message-ID, too, which otherwise are only compared where nothing else is.
    """
    rows = {row.uid: row for row in await commits.store.rows(state.folder)}
    messages = remote.metadata(state.name)
    metadata = {
        message.uid: Metadata.of(message, rows.get(message.uid))
        async for message in messages
        if message.uid is not None
    }
    listing = await remote.uids(state.name) or Listing(array("q"), b"")
    listed = frozenset(listing.uids)
    metadata = {uid: each for uid, each in metadata.items() if uid in listed}  # it may be of some of them only
    carried_over = 0
    if not state.suspect and await _numbers_as_before(remote, state.name, rows, metadata, listed, audit=audit):
        await _record_returned(commits, state, rows, listed)
    else:
        count = await find_count(remote, state.name)
        await require_agreement(remote, state.name, listed, count)  # a renumbered folder keeps only what is listed
        carried_over = await _renumber(commits, state, rows, metadata)
    state.mark, state.suspect = None, False
    return FolderSnapshot(
        state=state,
        uids=listed,
        recorded=await commits.store.states(state.folder),
        fingerprint=listing.fingerprint,
        mark=listing.mark,
        carried_over=carried_over,
    )


async def _numbers_as_before(
    remote: Remote,
    folder: str,
    rows: Mapping[int, Row],
    metadata: Mapping[int, Metadata],
    listed: Collection[int],
    *,
    audit: bool,
) -> bool:
    """Return True if the uids identify the same messages as before."""
    if not may_number_as_before(rows, metadata, listed):
        return False
    content_is_same = await have_content(remote, folder, unproven_rows(rows, metadata, audit=audit))
    if content_is_same is False or (content_is_same is None and have_different_metadata(rows, metadata)):
        return False
    return await have_content(remote, folder, rows_to_compare(rows, metadata, listed, audit=audit)) is not False


async def _record_returned(
    commits: Commits, state: FolderState, rows: Mapping[int, Row], listed: Collection[int]
) -> None:
    """Record what came back before anybody was told. What is missing a second listing confirms, as ever."""
    if back := returned_rows(rows, listed):
        await commits.write(ChangeSet(rows=back, folders=state.forget_listing()))


async def _renumber(
    commits: Commits, state: FolderState, rows: Mapping[int, Row], metadata: Mapping[int, Metadata]
) -> int:
    """How many messages were carried over."""
    folder = attrs.evolve(state.folder, uid_validity=state.folder.uid_validity + 1, fingerprint=None)
    await commits.write(ChangeSet(renumbered=[folder.id], folders=[folder]))
    state.folder = folder
    state.not_returned.clear()
    moves = rows_carried_over(state.folder, rows, metadata)
    return len(await commits.tell(_step(commits, state.name, old, row) for old, row in moves))


def _step(commits: Commits, folder: str, old: Row, row: Row) -> Step:
    key, previous = commits.key(folder, row), commits.key(folder, old)
    change = Change(kind=Kind.MOVED, key=key, previous=previous, digest=hex_of(row.digest))
    return Step(change=change, before=attrs.evolve(old, state=State.UNRESOLVED), here=row)
