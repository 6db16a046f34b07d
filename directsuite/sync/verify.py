"""Checking whether the uids of a folder still identify the recorded messages.

Sentinels are the newest and the oldest recorded message, because a renumbered folder rarely has both unchanged.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.commits import ChangeStep, Commits
from directsuite.sync.decide import (
    Certainty,
    FolderMemory,
    FolderSnapshot,
    carried_over_pairs,
    has_contradicting_metadata,
    may_have_same_numbering,
    revived_rows,
    rows_to_compare,
    unproven_rows,
)
from directsuite.sync.identity import Match, Metadata, find_match, has_content, to_hex
from directsuite.sync.model import Change, ChangeSet, Kind, MessageRow, MessageState, RoundReport, Store
from directsuite.sync.remote import (
    Remote,
    UidListing,
    find_count,
    may_be_about_messages,
    require_agreement,
    split_in_half,
)

_DATE_TOLERANCE_MS = 1000
"""Servers may store dates in seconds."""
_COMPARE_BATCH_MESSAGES = 20


async def verify_sentinels(store: Store, remote: Remote, state: FolderMemory, listed: Collection[int] | None) -> bool:
    """Return True if the newest and the oldest listed message with a row are unchanged, or if there is none.

    If a uid has another message, the folder is SUSPECT. listed: None for all uids.
    """
    rows = await store.sentinels(state.folder)
    if listed is not None and any(row.uid not in listed for row in rows):
        comparable = [row for row in await store.rows(state.folder) if row.uid in listed and _can_be_sentinel(row)]
        rows = [*comparable[:1], *comparable[1:][-1:]]
    for row in rows:
        if not await _is_unchanged(remote, state, row):
            return False
    return True


def _can_be_sentinel(row: MessageRow) -> bool:
    return row.state is MessageState.LIVE and row.identity is not None and row.received_ms is not None


async def _is_unchanged(remote: Remote, state: FolderMemory, row: MessageRow) -> bool:
    is_same = await _has_same_message(remote, state.name, row)
    if is_same is False:
        state.certainty = Certainty.SUSPECT
    return is_same is True


async def is_still_there(remote: Remote, folder: str, row: MessageRow) -> bool:
    """Return True if a uid still has the row's message, by its metadata or its content."""
    return await _has_same_message(remote, folder, row) is True


async def _has_same_message(remote: Remote, folder: str, row: MessageRow) -> bool | None:
    """Return whether a uid still has the row's message; None if nothing can be compared."""
    if row.identity is None:
        return await compare_contents(remote, folder, [row]) is not False
    if row.received_ms is None and row.digest is not None:  # cheaper than the metadata of all messages
        content_is_same = await compare_contents(remote, folder, [row])
        if content_is_same is not None:
            return content_is_same
    message = await _fetch_metadata_near(remote, folder, row)
    match = Match.DIFFERENT if message is None else find_match(message, row)
    if match is Match.SAME:
        return True
    content_is_same = await compare_contents(remote, folder, [row])
    return True if content_is_same is None and match is not Match.DIFFERENT else content_is_same


async def _fetch_metadata_near(remote: Remote, folder: str, row: MessageRow) -> MessageDetail | None:
    if row.received_ms is None:
        return await _scan_metadata(remote, folder, row.uid)
    near = await remote.list_metadata_between(
        folder, row.received_ms - _DATE_TOLERANCE_MS, row.received_ms + _DATE_TOLERANCE_MS
    )
    return next((each for each in near if each.uid == row.uid), None)


async def _scan_metadata(remote: Remote, folder: str, uid: int) -> MessageDetail | None:
    metadata = None
    async for message in remote.iter_metadata(folder):  # no early return: a response must be read to its end
        if message.uid == uid:
            metadata = message
    return metadata


async def compare_contents(remote: Remote, folder: str, rows: Sequence[MessageRow]) -> bool | None:
    """Return whether the uids have the contents of the rows; None if no message could be fetched and compared."""
    comparable, result = [row for row in rows if row.digest is not None], None
    for start in range(0, len(comparable), _COMPARE_BATCH_MESSAGES):
        compared = await _compare_batch_contents(remote, folder, comparable[start : start + _COMPARE_BATCH_MESSAGES])
        if compared is False:
            return False
        result = compared or result
    return result


async def _compare_batch_contents(remote: Remote, folder: str, rows: Sequence[MessageRow]) -> bool | None:
    try:
        messages = {each.uid: each for each in await remote.fetch_messages(folder, [row.uid for row in rows])}
    except DirectSuiteError as error:
        if not may_be_about_messages(error):
            raise
        if len(rows) == 1:
            return None
        compared = [await _compare_batch_contents(remote, folder, part) for part in split_in_half(rows)]
    else:
        compared = [has_content(messages[row.uid], row) for row in rows if row.uid in messages]
    return False if False in compared else True in compared or None


async def full_resync(
    commits: Commits, remote: Remote, state: FolderMemory, report: RoundReport, *, audit: bool
) -> FolderSnapshot:
    """Compare everything, and return a snapshot of the result.

        metadata or contents match ──► same numbering: MISSING messages that are listed become LIVE again
        contents differ ─────────────► new numbering: messages with a strong and unique identity are carried over;
                                       others are fetched again, and recognised by their contents

    audit: True to compare the contents of all messages whose metadata prove nothing.
    """
    rows = {row.uid: row for row in await commits.store.rows(state.folder)}
    messages = remote.iter_metadata(state.name)
    metadata = {
        message.uid: Metadata.from_message(message, rows.get(message.uid))
        async for message in messages
        if message.uid is not None
    }
    listing = await remote.list_uids(state.name) or UidListing(array("q"), b"")
    listed = frozenset(listing.uids)
    metadata = {uid: each for uid, each in metadata.items() if uid in listed}  # the listing is newer
    may_be_same = state.certainty is not Certainty.SUSPECT
    if may_be_same and await _has_same_numbering(remote, state.name, rows, metadata, listed, audit=audit):
        await _record_revived(commits, state, rows, listed)
    else:
        count = await find_count(remote, state.name)
        await require_agreement(remote, state.name, listed, count)  # renumbering keeps only listed messages
        report.changes[Kind.MOVED] += await _renumber(commits, state, rows, metadata)
    state.etag, state.certainty = None, Certainty.UNCONFIRMED
    return FolderSnapshot(
        state=state,
        uids=listed,
        recorded=await commits.store.states(state.folder),
        fingerprint=listing.fingerprint,
        etag=listing.etag,
    )


async def _has_same_numbering(
    remote: Remote,
    folder: str,
    rows: Mapping[int, MessageRow],
    metadata: Mapping[int, Metadata],
    listed: Collection[int],
    *,
    audit: bool,
) -> bool:
    if not may_have_same_numbering(rows, metadata, listed):
        return False
    content_is_same = await compare_contents(remote, folder, unproven_rows(rows, metadata, audit=audit))
    if content_is_same is False or (content_is_same is None and has_contradicting_metadata(rows, metadata)):
        return False
    return await compare_contents(remote, folder, rows_to_compare(rows, metadata, listed, audit=audit)) is not False


async def _record_revived(
    commits: Commits, state: FolderMemory, rows: Mapping[int, MessageRow], listed: Collection[int]
) -> None:
    if back := revived_rows(rows, listed):
        await commits.write(ChangeSet(rows=back, folders=state.invalidate_listing()))


async def _renumber(
    commits: Commits, state: FolderMemory, rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata]
) -> int:
    folder = attrs.evolve(state.folder, uid_validity=state.folder.uid_validity + 1, fingerprint=None)
    await commits.write(ChangeSet(renumbered=[folder.id], folders=[folder]))
    state.folder = folder
    state.missed_fetches.clear()
    moves = carried_over_pairs(state.folder, rows, metadata)
    return len(await commits.deliver(_make_move_step(commits, state.name, old, row) for old, row in moves))


def _make_move_step(commits: Commits, folder: str, old: MessageRow, row: MessageRow) -> ChangeStep:
    key, previous = commits.make_key(folder, row), commits.make_key(folder, old)
    change = Change(kind=Kind.MOVED, key=key, previous=previous, digest=to_hex(row.digest))
    return ChangeStep(change=change, old_row=attrs.evolve(old, state=MessageState.UNRESOLVED), new_row=row)
