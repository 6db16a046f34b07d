"""Verify a change of a mailbox whose response was lost: list the folders or messages that it affects.

A Confirmation's `verify` returns a successful response if the change is proven, otherwise None. It calls the methods
that are the first parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from directsuite.core.call import Confirmation
from directsuite.messaging.models import APIResponse, MessageDetail
from directsuite.messaging.send_once import Deadline

_SUCCESS = APIResponse(success=True, code=0)
"""The response to return for a change whose own response was lost, but which is proven to have happened."""

GetFolders = Callable[..., Awaitable[list[str]]]
GetUids = Callable[..., Awaitable[list[int]]]
GetMetadata = Callable[..., Awaitable[list[MessageDetail]]]


def folder_created(get_folders: GetFolders, folder: str) -> Confirmation[APIResponse]:
    """Return a Confirmation that a folder was created: it is listed."""

    async def verify() -> APIResponse | None:
        return _SUCCESS if _is_listed(folder, await get_folders()) else None

    return Confirmation(verify=verify)


def folder_moved(get_folders: GetFolders, folder: str, new_folder: str) -> Confirmation[APIResponse]:
    """Return a Confirmation that a folder was renamed: only the new name is listed."""

    async def verify() -> APIResponse | None:
        names = await get_folders()
        is_moved = _is_listed(new_folder, names) and not _is_listed(folder, names) and "" not in names
        return _SUCCESS if is_moved else None

    return Confirmation(verify=verify)


def folder_deleted(get_folders: GetFolders, folder: str, settle: float) -> Confirmation[APIResponse] | None:
    """Return a Confirmation that a folder was deleted: its parent lists neither the folder nor a subfolder.

    Return None if nothing can be proven: folders outside `INBOX.` are never listed, and names that IMAP encodes may be
    listed in modified UTF-7.
    """
    if not folder.lower().startswith("inbox.") or not folder.isascii() or "&" in folder:
        return None

    async def verify() -> APIResponse | None:
        return _SUCCESS if _is_deleted(folder, await get_folders(folder.rpartition(".")[0])) else None

    return Confirmation(verify=verify, seconds=settle)


def messages_removed(get_uids: GetUids, folder: str, uids: list[int]) -> Confirmation[APIResponse]:
    """Return a Confirmation that messages were deleted or moved: none of their uids is listed."""

    async def verify() -> APIResponse | None:
        return _SUCCESS if set(uids).isdisjoint(await get_uids(folder)) else None

    return Confirmation(verify=verify)


async def messages_arrived(
    get_uids: GetUids,
    get_metadata: GetMetadata,
    folder: str,
    message_ids: Iterable[str | None],
    deadline: Deadline,
    settle: float,
) -> Confirmation[APIResponse] | None:
    """List a folder, and return a Confirmation that messages with these Message-IDs were added later.

    Return None if `message_ids` is empty or contains None, because then nothing can be proven. Raises the errors of
    `get_uids`, and DeadlineExceededError.
    """
    listed = list(message_ids)
    expected = Counter(message_id.strip() for message_id in listed if message_id is not None)
    if not expected or None in listed:
        return None
    existing = frozenset(await get_uids(folder, timeout=deadline.require_time_left()))

    async def verify() -> APIResponse | None:
        now = await get_metadata(folder, timeout=deadline.require_time_left())
        new = Counter(message.msg_id for message in now if message.uid not in existing)
        return _SUCCESS if all(new[message_id] >= times for message_id, times in expected.items()) else None

    return Confirmation(verify=verify, seconds=settle)


def _is_listed(folder: str, names: Iterable[str]) -> bool:
    return folder.lower() in (name.lower() for name in names)


def _is_deleted(folder: str, names: Iterable[str]) -> bool:
    """Return True if a listing of the parent folder proves that this folder and its subfolders are absent.

    An empty listing of INBOX, or one with an empty name, which stands for an unreadable one, proves nothing.
    """
    levels = folder.lower().split(".")
    spellings = {".".join(levels[start:]) for start in range(len(levels))}  # a listing may omit the parents
    listed = [name.lower() for name in names]
    is_listed = any(name.startswith(f"{spelling}.") or name == spelling for spelling in spellings for name in listed)
    # A listing of INBOX always has reserved folders, so an empty one proves nothing.
    is_parent_listed = bool(listed) or len(levels) > 2
    return is_parent_listed and not is_listed and "" not in listed
