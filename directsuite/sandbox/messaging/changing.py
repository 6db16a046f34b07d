"""The mailbox operations that change something at once: folders, and copying, moving, deleting, marking messages.

Each records its effect in the ledger in the same transaction; where it changed nothing there is no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox.messaging import folders, store
from directsuite.sandbox.messaging.reading import boolean_segment

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.messaging.call import Answer, Call
    from directsuite.sandbox.messaging.requests import MailboxRequest, SetFoldersSubscribedRequest, UidsRequest


def set_folders_subscribed(connection: sqlite3.Connection, call: Call[SetFoldersSubscribedRequest]) -> Answer:
    """Subscribe to folders or unsubscribe from them: all or none."""
    request = call.request
    names, changed = folders.subscribe(connection, call.account, request.folders, subscribed=request.subscribed)
    if changed:
        call.record(connection, ",".join(changed), folders=changed, subscribed=request.subscribed)
    return {"folders": names}


def create_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """Make a folder."""
    call.record(connection, folders.create(connection, call.account, call.path["folderName"]))
    return {}


def move_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """Rename a folder."""
    old, new = folders.rename(connection, call.account, call.path["folderName"], call.path["newFolderName"])
    call.record(connection, old, new_name=new)
    return {}


def delete_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """Delete a folder with everything in it."""
    call.record(connection, folders.delete(connection, call.account, call.path["folderName"]))
    return {}


def copy_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Copy messages to another folder; within one nothing is copied."""
    return _transfer(connection, call, store.copy)


def move_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Move messages to another folder; within one nothing is moved."""
    return _transfer(connection, call, store.move)


def delete_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Move messages to INBOX.Trash, or remove them for good."""
    forever = boolean_segment(call.path["deleteForever"])
    folder = call.folder(connection)
    if forever:
        removed = store.remove(connection, folder.id, call.request.uids)
    else:
        trash = folders.trash_id(connection, call.account)
        removed = list(store.move(connection, folder.id, trash, call.request.uids))
    if removed:
        call.record(connection, folder.name, uids=removed, forever=forever)
    return {}


def mark_read(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Mark messages as read."""
    return _mark(connection, call, seen=True)


def mark_unread(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Mark messages as unread."""
    return _mark(connection, call, seen=False)


def _transfer(connection: sqlite3.Connection, call: Call[UidsRequest], transfer: store.Transfer) -> Answer:
    source = call.folder(connection)
    destination = folders.folder(connection, call.account, call.path["destFolderName"])
    transferred = transfer(connection, source.id, destination.id, call.request.uids)
    if transferred:
        new_uids = list(transferred.values())
        uids = list(transferred)
        call.record(connection, source.name, uids=uids, destination=destination.name, new_uids=new_uids)
    return {}


def _mark(connection: sqlite3.Connection, call: Call[UidsRequest], *, seen: bool) -> Answer:
    folder = call.folder(connection)
    marked = store.mark(connection, folder.id, call.request.uids, store.Flag.SEEN, value=seen)
    if marked:
        call.record(connection, folder.name, uids=marked)
    return {}
