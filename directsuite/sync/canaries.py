"""Canaries: the newest and the oldest message known, looked at again. A folder numbered anew seldom spares both."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.identity import digest_of, identity_of, is_strong
from directsuite.sync.model import Row, State, Store
from directsuite.sync.place import Place
from directsuite.sync.remote import NOBODYS_FAULT, Remote, whole

_WIDTH = 1000
"""Milliseconds before and after its date in which a message is looked for: servers may keep dates by the second."""
_AT_ONCE = 20
"""Messages whose contents are compared in one request."""


async def are_well(store: Store, remote: Remote, place: Place, listed: Collection[int] | None) -> bool:
    """Whether the newest and the oldest message known that are listed are what they were. listed: None for all."""
    rows = await store.canaries(place.folder)
    if listed is not None and any(row.uid not in listed for row in rows):
        known = [row for row in await store.rows(place.folder) if row.uid in listed and _can_be_one(row)]
        rows = [*known[:1], *known[1:][-1:]]
    for row in rows:
        if not await _is_well(remote, place, row):
            return False
    return True


def _can_be_one(row: Row) -> bool:
    return row.state is State.LIVE and row.identity is not None and row.received_ms is not None


async def _is_well(remote: Remote, place: Place, row: Row) -> bool:
    found = await _seen(remote, place.folder.name, row)
    if found is None or is_strong(found) or await have_content(remote, place.folder.name, [row]):
        return found is not None
    place.suspect = True
    return False


async def is_still_there(remote: Remote, folder: str, row: Row) -> bool:
    """Whether a uid that is listed still has the row's message: its metadata tells even where it can't be fetched."""
    if row.identity is None:
        return await have_content(remote, folder, [row])
    if row.received_ms is None and row.digest is not None:  # one message costs less than the metadata of all
        came = await whole(remote, folder, row.uid)
        if came is not None:
            return digest_of(came) == row.digest
    found = await _seen(remote, folder, row)
    return found is not None and (is_strong(found) or await have_content(remote, folder, [row]))


async def _seen(remote: Remote, folder: str, row: Row) -> MessageDetail | None:
    """The metadata of the message under the row's uid, received when the row says, if it has the row's identity."""
    if row.received_ms is None:
        found = await _metadata_of(remote, folder, row.uid)
        return found if found is not None and identity_of(found) == row.identity else None
    near = await remote.metadata_between(folder, row.received_ms - _WIDTH, row.received_ms + _WIDTH)
    return next((each for each in near if each.uid == row.uid and identity_of(each) == row.identity), None)


async def _metadata_of(remote: Remote, folder: str, uid: int) -> MessageDetail | None:
    """The metadata of one message whose date nobody knows; of all, for an answer is read to its end."""
    found = None
    async for message in remote.metadata(folder):
        if message.uid == uid:
            found = message
    return found


async def have_content(remote: Remote, folder: str, rows: Sequence[Row]) -> bool:
    """Whether the messages under these uids still have the contents of the rows. One that can't be fetched may have."""
    for start in range(0, len(rows), _AT_ONCE):
        if not await _have_content(remote, folder, rows[start : start + _AT_ONCE]):
            return False
    return True


async def _have_content(remote: Remote, folder: str, rows: Sequence[Row]) -> bool:
    try:
        messages = await remote.messages(folder, [row.uid for row in rows])
    except NOBODYS_FAULT:
        raise
    except DirectSuiteError:
        half = len(rows) // 2
        parts = (rows[:half], rows[half:]) if half else ()
        return all([await _have_content(remote, folder, part) for part in parts])
    digests = {message.uid: digest_of(message) for message in messages}
    return all(row.digest in (None, digests.get(row.uid, row.digest)) for row in rows)
