"""Folders of a mailbox, named in the manner of IMAP with `.` between the levels.

Names are the same in any case, in every level; a folder keeps the spelling that it was made with. It keeps the uid that
its next message gets, too, and never takes it back, so that a uid is not used twice in its life. Its own id is never
used twice either, and serves as the UIDVALIDITY of RFC 3501 section 2.3.1.1: a folder that was deleted and made anew
starts at uid 1 under another id.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from directsuite.sandbox.messaging import Code, Refusal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

INBOX = "INBOX"
SENT = "INBOX.Sent"
TRASH = "INBOX.Trash"
RESERVED = (INBOX, SENT, "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam")

SCHEMA = """
CREATE TABLE IF NOT EXISTS folder(
  id INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL REFERENCES mailbox_account(id) ON DELETE CASCADE,
  name TEXT NOT NULL, next_uid INTEGER NOT NULL DEFAULT 1, subscribed INTEGER NOT NULL DEFAULT 1,
  UNIQUE(account, name));
"""

_LONGEST_NAME = 255


class Folder(NamedTuple):
    """A folder: its id, which is its UIDVALIDITY, and its name as it is kept."""

    id: int
    name: str


class Subscriptions(NamedTuple):
    """Folders by their names as they are kept, each once: all that were named, and those that this changed."""

    names: list[str]
    changed: list[str]


def create_initial(connection: sqlite3.Connection, account: int) -> None:
    """The folders that a mailbox is born with."""
    for name in (*RESERVED, TRASH):
        _insert(connection, account, name)


def folder(connection: sqlite3.Connection, account: int, name: str) -> Folder:
    """The folder of this name. Refuses with code 3 if the mailbox has no such folder."""
    found = _find(connection, account, name)
    if found is None:
        raise Refusal(Code.FOLDER, f"There is no folder {name!r}")
    return found


def folder_id(connection: sqlite3.Connection, account: int, name: str) -> int:
    """The id of a folder, which is its UIDVALIDITY. Refuses with code 3 if the mailbox has no such folder."""
    return folder(connection, account, name).id


def trash_id(connection: sqlite3.Connection, account: int) -> int:
    """The id of INBOX.Trash, which is made anew if it was deleted or renamed."""
    found = _find(connection, account, TRASH)
    return _insert(connection, account, TRASH) if found is None else found.id


def take_uids(connection: sqlite3.Connection, folder: int, count: int) -> range:
    """The next `count` uids of a folder, which are never given out again."""
    row = connection.execute(
        "UPDATE folder SET next_uid = next_uid + ? WHERE id = ? RETURNING next_uid", (count, folder)
    ).fetchone()
    following: int = row["next_uid"]
    return range(following - count, following)


def create(connection: sqlite3.Connection, account: int, name: str) -> str:
    """Make a folder, and its parents if they are missing; the name as it is kept."""
    kept = _name_for_new(connection, account, name)
    _create_parents(connection, account, kept)
    _insert(connection, account, kept)
    return kept


def rename(connection: sqlite3.Connection, account: int, name: str, new_name: str) -> tuple[str, str]:
    """Rename a folder and everything below it; both names as they are kept. Messages keep their uids."""
    old = folder(connection, account, name).name
    _require_not_reserved(old)
    if f"{new_name}.".casefold().startswith(f"{old}.".casefold()):
        raise Refusal(Code.OTHER, "A folder cannot be moved into itself")
    new = _name_for_new(connection, account, new_name)
    _create_parents(connection, account, new)
    connection.execute(
        "UPDATE folder SET name = :new || substr(name, length(:old) + 1)"
        " WHERE account = :account AND (name = :old OR substr(name, 1, length(:old) + 1) = :old || '.')",
        {"account": account, "old": old, "new": new},
    )
    return old, new


def delete(connection: sqlite3.Connection, account: int, name: str) -> str:
    """Delete a folder with its messages and sub-folders; the name as it was kept."""
    kept = folder(connection, account, name).name
    _require_not_reserved(kept)
    connection.execute(
        "DELETE FROM folder"
        " WHERE account = :account AND (name = :name OR substr(name, 1, length(:name) + 1) = :name || '.')",
        {"account": account, "name": kept},
    )
    return kept


def names_below(connection: sqlite3.Connection, account: int, root: str, *, subscribed_only: bool) -> list[str]:
    """All sub-folders of `root` at any depth, by full name, in order."""
    kept = folder(connection, account, root).name
    rows = connection.execute(
        "SELECT name FROM folder WHERE account = :account AND substr(name, 1, length(:root) + 1) = :root || '.'"
        " AND subscribed >= :subscribed ORDER BY name",
        {"account": account, "root": kept, "subscribed": subscribed_only},
    )
    return [row["name"] for row in rows]


def subscribe(connection: sqlite3.Connection, account: int, names: Iterable[str], *, subscribed: bool) -> Subscriptions:
    """Subscribe to folders or unsubscribe from them, all or none."""
    kept = list(dict.fromkeys(folder(connection, account, name) for name in names))
    changed: list[str] = []
    for found in kept:
        update = "UPDATE folder SET subscribed = :subscribed WHERE id = :folder AND subscribed != :subscribed"
        if connection.execute(update, {"subscribed": subscribed, "folder": found.id}).rowcount:
            changed.append(found.name)
    return Subscriptions([found.name for found in kept], changed)


def _find(connection: sqlite3.Connection, account: int, name: str) -> Folder | None:
    row = connection.execute("SELECT id, name FROM folder WHERE account = ? AND name = ?", (account, name)).fetchone()
    if row is None:  # another spelling, which SQLite can't compare beyond ASCII
        rows = connection.execute("SELECT id, name FROM folder WHERE account = ?", (account,))
        row = next((row for row in rows.fetchall() if row["name"].casefold() == name.casefold()), None)
    return None if row is None else Folder(row["id"], row["name"])


def _insert(connection: sqlite3.Connection, account: int, name: str) -> int:
    row = connection.execute("INSERT INTO folder(account, name) VALUES(?, ?) RETURNING id", (account, name)).fetchone()
    inserted: int = row["id"]
    return inserted


def _create_parents(connection: sqlite3.Connection, account: int, name: str) -> None:
    levels = name.split(".")
    for depth in range(2, len(levels)):
        parent = ".".join(levels[:depth])
        if _find(connection, account, parent) is None:
            _insert(connection, account, parent)


def _name_for_new(connection: sqlite3.Connection, account: int, name: str) -> str:
    """The name that a folder is made with: below its nearest parent as that is spelt, and else as it is given."""
    if (existing := _find(connection, account, name)) is not None:
        _require_not_reserved(existing.name)
        raise Refusal(Code.OTHER, f"The folder {existing.name!r} exists already")
    if not name.casefold().startswith(f"{INBOX}.".casefold()):
        raise Refusal(Code.OTHER, "The name of a folder starts with INBOX.")
    if len(name) > _LONGEST_NAME or not all(name.split(".")):
        raise Refusal(Code.OTHER, f"The name of a folder has at most {_LONGEST_NAME} characters and no empty level")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise Refusal(Code.OTHER, "The name of a folder has no control characters")
    levels = name.split(".")
    for depth in range(len(levels) - 1, 0, -1):
        parent = _find(connection, account, ".".join(levels[:depth]))
        if parent is not None:
            return ".".join((parent.name, *levels[depth:]))
    return name


def _require_not_reserved(name: str) -> None:
    if name in RESERVED:
        raise Refusal(Code.OTHER, f"The folder {name!r} is reserved")
