"""Verify a change of a mailbox whose response was lost: list the folders or messages that it affects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

import attrs

from directsuite.core.call import Confirmation
from directsuite.errors import DeadlineExceededError, Outcome
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.models import APIResponse, MessageDetail
from directsuite.wire.models import NULL_VALUES

T = TypeVar("T")


@attrs.frozen(eq=False)
class Deadline:
    """The deadline of a method that makes several requests."""

    expires_at: float
    """Seconds of the event loop's clock."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return a deadline `seconds` from now."""
        return cls(asyncio.get_running_loop().time() + seconds)

    @property
    def passed(self) -> bool:
        """True if no time is left."""
        return self.expires_at <= asyncio.get_running_loop().time()

    def require_time_left(self) -> float:
        """Return the seconds left. Raises DeadlineExceededError if there are none."""
        if self.passed:
            raise DeadlineExceededError("the call's time is up: nothing was sent", outcome=Outcome.NOT_SENT)
        return self.expires_at - asyncio.get_running_loop().time()

    async def run_in_time(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, which must not send a message.

        Raises DeadlineExceededError if the deadline passes first.
        """
        limit = asyncio.timeout_at(self.expires_at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        raise DeadlineExceededError("the call's time is up: nothing was sent", outcome=Outcome.NOT_SENT)


class _ListableMailbox(Protocol):
    async def get_folders(self, root: str = INBOX) -> list[str]: ...
    async def get_uids(self, folder: str, *, timeout: float | None = None) -> list[int]: ...
    async def get_message_metadata(self, folder: str, *, timeout: float | None = None) -> list[MessageDetail]: ...


def _confirm(
    fetch: Callable[[], Awaitable[list[T]]], is_proven: Callable[[list[T]], bool], seconds: float = 0.0
) -> Confirmation[APIResponse]:
    async def verify() -> APIResponse | None:
        return APIResponse(success=True, code=0) if is_proven(await fetch()) else None

    return Confirmation(verify=verify, seconds=seconds)


def folder_created(box: _ListableMailbox, folder: str) -> Confirmation[APIResponse]:
    """Return a Confirmation that a folder was created: its parent lists it."""
    return _confirm(partial(box.get_folders, _get_parent(folder)), partial(_is_listed, folder))


def folder_moved(box: _ListableMailbox, folder: str, new_folder: str) -> Confirmation[APIResponse] | None:
    """Return a Confirmation that a folder was renamed: the old name is deleted, and the parent of the new one lists it.

    Return None if nothing can be proven, as for `folder_deleted`.
    """
    if not _is_deletion_provable(folder):
        return None
    parents = _get_parent(folder), _get_parent(new_folder)

    async def list_parents() -> list[list[str]]:
        listed = {parent: await box.get_folders(parent) for parent in dict.fromkeys(parents)}
        return [listed[parent] for parent in parents]

    def is_moved(listed: list[list[str]]) -> bool:
        return _is_deleted(folder, listed[0]) and _is_listed(new_folder, listed[1])

    return _confirm(list_parents, is_moved)


def folder_deleted(box: _ListableMailbox, folder: str, settle: float) -> Confirmation[APIResponse] | None:
    """Return a Confirmation that a folder was deleted: its parent lists neither the folder nor a subfolder.

    Return None if nothing can be proven.
    """
    if not _is_deletion_provable(folder):
        return None
    return _confirm(partial(box.get_folders, _get_parent(folder)), partial(_is_deleted, folder), settle)


def messages_removed(box: _ListableMailbox, folder: str, uids: list[int]) -> Confirmation[APIResponse]:
    """Return a Confirmation that messages were deleted or moved: none of their uids is listed."""
    return _confirm(partial(box.get_uids, folder), set(uids).isdisjoint)


async def messages_arrived(
    box: _ListableMailbox,
    folder: str,
    message_ids: list[str | None],
    deadline: Deadline,
    settle: float,
) -> Confirmation[APIResponse] | None:
    """List a folder, and return a Confirmation that messages with these Message-IDs were added later.

    Return None if `message_ids` is empty or one is missing, because then nothing can be proven. Raises the errors of
    GetUIDs, and DeadlineExceededError.
    """
    expected = Counter(map(_normalize_message_id, message_ids))
    if not expected or "" in expected:
        return None
    existing = frozenset(await box.get_uids(folder, timeout=deadline.require_time_left()))

    def are_new(messages: list[MessageDetail]) -> bool:
        new = Counter(_normalize_message_id(message.msg_id) for message in messages if message.uid not in existing)
        return all(new[message_id] >= times for message_id, times in expected.items())

    return _confirm(lambda: box.get_message_metadata(folder, timeout=deadline.require_time_left()), are_new, settle)


def _normalize_message_id(message_id: str | None) -> str:
    """Return a Message-ID without blanks around it. Return "" if the message has none."""
    return "" if message_id is None or message_id in NULL_VALUES else message_id.strip()


def _get_parent(folder: str) -> str:
    return folder.rpartition(".")[0]


def _is_deletion_provable(folder: str) -> bool:
    """Return False for folders outside `INBOX.`, which are never listed, and for names that a listing may encode."""
    return folder.lower().startswith("inbox.") and folder.isascii() and "&" not in folder  # IMAP encodes others


def _is_listed(folder: str, names: Iterable[str]) -> bool:
    return folder.lower() in (name.lower() for name in names)


def _is_deleted(folder: str, names: Iterable[str]) -> bool:
    """Return True if a listing of the parent folder proves that this folder and its subfolders are absent."""
    levels = folder.lower().split(".")
    spellings = {".".join(levels[start:]) for start in range(len(levels))}  # a listing may omit the parents
    listed = [name.lower() for name in names]
    is_listed = any(name.startswith(f"{spelling}.") or name == spelling for spelling in spellings for name in listed)
    # INBOX always has reserved folders, so an empty listing of it proves nothing. An empty name is an unreadable one.
    is_parent_listed = bool(listed) or len(levels) > 2
    return is_parent_listed and not is_listed and "" not in listed
