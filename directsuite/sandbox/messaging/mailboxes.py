"""Mailboxes in SQLite: accounts and T-Users, folders, and the messages in them.

The functions run in the caller's transaction. Addresses and folder names are compared in NFC, ignoring case. The levels
of a folder's name are separated by `.`. Its stored spelling is the one with which it was created. Functions raise
MessagingError with code 3 for an unknown folder, and with code 4 if a name is invalid, in use or reserved.

A folder stores its next uid, so that no uid is used twice in it. Its id is never reused, and serves as the UIDVALIDITY
of RFC 3501 section 2.3.1.1.

A message is a row (folder, uid) that refers to its content: the bytes, and metadata ready for responses. Messages with
the same bytes share one content. A trigger removes content without messages. `content_file` names the files of large
messages.
"""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from directsuite.sandbox.credentials import check_password, hash_password
from directsuite.sandbox.files import make_abandoned_schema
from directsuite.sandbox.messaging.headers import fold
from directsuite.sandbox.rejections import MessagingCode, MessagingError

if TYPE_CHECKING:
    from directsuite.sandbox.messaging.parsing import StoredContent

INBOX = "INBOX"
SENT = "INBOX.Sent"
TRASH = "INBOX.Trash"
_TOO_LARGE_TEXT = (
    "The message is larger than the sandbox can store: without its large attachments, it must fit into one row"
)
RESERVED_FOLDERS = (INBOX, SENT, "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS mailbox_account(
  id INTEGER PRIMARY KEY AUTOINCREMENT, address TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, domain TEXT NOT NULL,
  password BLOB NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS mailbox_account_domain ON mailbox_account(domain);
CREATE TABLE IF NOT EXISTS tuser(username TEXT PRIMARY KEY, password BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tuser_address(
  username TEXT NOT NULL REFERENCES tuser(username) ON DELETE CASCADE, folded TEXT NOT NULL,
  PRIMARY KEY(username, folded)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folder(
  id INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL REFERENCES mailbox_account(id) ON DELETE CASCADE,
  name TEXT NOT NULL, next_uid INTEGER NOT NULL DEFAULT 1, subscribed INTEGER NOT NULL DEFAULT 1,
  UNIQUE(account, name));
CREATE TABLE IF NOT EXISTS content(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, message_id TEXT, sender TEXT NOT NULL, subject TEXT NOT NULL,
  sent INTEGER, metadata BLOB NOT NULL, detail BLOB NOT NULL, raw BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS content_message_id ON content(message_id);
CREATE TABLE IF NOT EXISTS content_file(
  content INTEGER PRIMARY KEY REFERENCES content(id) ON DELETE CASCADE, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS message(
  folder INTEGER NOT NULL REFERENCES folder(id) ON DELETE CASCADE, uid INTEGER NOT NULL,
  content INTEGER NOT NULL REFERENCES content(id), received INTEGER NOT NULL,
  seen INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(folder, uid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS message_content ON message(content);
CREATE TRIGGER IF NOT EXISTS content_forgotten AFTER DELETE ON message
  WHEN NOT EXISTS (SELECT 1 FROM message WHERE content = OLD.content)
  BEGIN DELETE FROM content WHERE id = OLD.content; END;
"""
SCHEMA = _SCHEMA + make_abandoned_schema("content_file")

_MAX_NAME_CHARS = 255


class AccountExists(Exception):  # noqa: N818  a state of the mailbox, not a fault
    """The mailbox or T-User already exists."""


class UnknownAccount(LookupError):  # noqa: N818  a state of the mailbox, not a fault
    """The address has no mailbox in this sandbox."""


def create_account(connection: sqlite3.Connection, address: str, password: str, *, at_ms: int) -> int:
    """Create a mailbox with its initial folders and return its id."""
    local_part, _, domain = address.partition("@")
    if not local_part or not domain or "@" in domain or not address.isprintable():
        raise ValueError("the address of a mailbox must have the form local-part@domain, without control characters")
    row = connection.execute(
        "INSERT INTO mailbox_account(address, folded, domain, password, at) VALUES(?, ?, ?, ?, ?)"
        " ON CONFLICT(folded) DO NOTHING RETURNING id",
        (address, fold(address), fold(domain), hash_password(password), at_ms),
    ).fetchone()
    if row is None:
        raise AccountExists(f"the mailbox {address} already exists")
    account: int = row["id"]
    for name in (*RESERVED_FOLDERS, TRASH):
        _insert_folder(connection, account, name)
    return account


def set_password(connection: sqlite3.Connection, address: str, password: str) -> bool:
    """Change the password of a mailbox. Return False if there is none."""
    changed = connection.execute(
        "UPDATE mailbox_account SET password = ? WHERE folded = ?", (hash_password(password), fold(address))
    )
    return changed.rowcount > 0


def find_account_id(connection: sqlite3.Connection, address: str) -> int | None:
    """Return the id of a mailbox, or None if there is none."""
    row = connection.execute("SELECT id FROM mailbox_account WHERE folded = ?", (fold(address),)).fetchone()
    return None if row is None else row["id"]


def get_account_id(connection: sqlite3.Connection, address: str) -> int:
    """Return the id of a mailbox. Raises UnknownAccount if there is none."""
    account = find_account_id(connection, address)
    if account is None:
        raise UnknownAccount(f"there is no mailbox {address}")
    return account


def authenticate(connection: sqlite3.Connection, address: str, password: str) -> int | None:
    """Return the id of the mailbox, or None if the address is unknown or the password is wrong."""
    row = connection.execute("SELECT id, password FROM mailbox_account WHERE folded = ?", (fold(address),)).fetchone()
    return row["id"] if row is not None and check_password(password, row["password"]) else None


def create_tuser(connection: sqlite3.Connection, username: str, password: str, direct_addresses: Iterable[str]) -> None:
    """Register a T-User who may act for these addresses. Raises AccountExists if the username is in use."""
    row = connection.execute(
        "INSERT INTO tuser(username, password) VALUES(?, ?) ON CONFLICT DO NOTHING RETURNING username",
        (username, hash_password(password)),
    ).fetchone()
    if row is None:
        raise AccountExists(f"the T-User {username} already exists")
    connection.executemany(
        "INSERT OR IGNORE INTO tuser_address(username, folded) VALUES(?, ?)",
        [(username, fold(address)) for address in direct_addresses],
    )


def authenticate_tuser(connection: sqlite3.Connection, username: str, password: str) -> bool:
    """Return True if the T-User exists and the password is correct."""
    row = connection.execute("SELECT password FROM tuser WHERE username = ?", (username,)).fetchone()
    return row is not None and check_password(password, row["password"])


def find_tuser_account_id(connection: sqlite3.Connection, username: str, direct_address: str) -> int | None:
    """Return the id of a mailbox, or None if there is none or the T-User may not act for it."""
    allowed = connection.execute(
        "SELECT 1 FROM tuser_address WHERE username = ? AND folded = ?", (username, fold(direct_address))
    ).fetchone()
    return None if allowed is None else find_account_id(connection, direct_address)


def list_domains(connection: sqlite3.Connection) -> set[str]:
    """Return the domains of all mailboxes, as `fold` returns them."""
    return {row["domain"] for row in connection.execute("SELECT DISTINCT domain FROM mailbox_account")}


class MailboxFolder(NamedTuple):
    """A folder of a mailbox."""

    id: int
    """The number of the folder, which is also its UIDVALIDITY."""
    name: str
    """The name in the stored spelling."""


def get_folder(connection: sqlite3.Connection, account: int, name: str) -> MailboxFolder:
    """Return a folder. Raises MessagingError with code 3 if it does not exist."""
    existing = _find_folder(connection, account, name)
    if existing is None:
        raise MessagingError(f"The mailbox has no folder {name!r}", MessagingCode.FOLDER)
    return existing


def ensure_trash_id(connection: sqlite3.Connection, account: int) -> int:
    """Return the id of INBOX.Trash. Create it if it was deleted or renamed."""
    existing = _find_folder(connection, account, TRASH)
    return _insert_folder(connection, account, TRASH) if existing is None else existing.id


def _allocate_uids(connection: sqlite3.Connection, folder: int, count: int) -> range:
    row = connection.execute(
        "UPDATE folder SET next_uid = next_uid + ? WHERE id = ? RETURNING next_uid", (count, folder)
    ).fetchone()
    following: int = row["next_uid"]
    return range(following - count, following)


def create_folder(connection: sqlite3.Connection, account: int, name: str) -> str:
    """Create a folder and its missing parents. Return its stored spelling. Raises MessagingError with code 4."""
    stored_name = _prepare_name(connection, account, name)
    _insert_folder(connection, account, stored_name)
    return stored_name


def rename_folder(connection: sqlite3.Connection, account: int, name: str, new_name: str) -> tuple[str, str]:
    """Rename a folder and its sub-folders, and create missing parents. Return the old and new stored spelling."""
    old = get_folder(connection, account, name).name
    _validate_not_reserved(old)
    if fold(f"{new_name}.").startswith(fold(f"{old}.")):
        raise MessagingError("A folder cannot be moved into itself")
    new = _prepare_name(connection, account, new_name)
    connection.execute(
        "UPDATE folder SET name = :new || substr(name, length(:old) + 1)"
        " WHERE account = :account AND (name = :old OR substr(name, 1, length(:old) + 1) = :old || '.')",
        {"account": account, "old": old, "new": new},
    )
    return old, new


def delete_folder(connection: sqlite3.Connection, account: int, name: str) -> str:
    """Delete a folder with its messages and sub-folders. Return its stored spelling."""
    stored_name = get_folder(connection, account, name).name
    _validate_not_reserved(stored_name)
    connection.execute(
        "DELETE FROM folder"
        " WHERE account = :account AND (name = :name OR substr(name, 1, length(:name) + 1) = :name || '.')",
        {"account": account, "name": stored_name},
    )
    return stored_name


def list_subfolders(connection: sqlite3.Connection, account: int, root: str, *, subscribed_only: bool) -> list[str]:
    """Return the sorted names of the sub-folders of `root` at any depth.

    Raises MessagingError with code 3 if `root` does not exist.
    """
    stored_name = get_folder(connection, account, root).name
    rows = connection.execute(
        "SELECT name FROM folder WHERE account = :account AND substr(name, 1, length(:root) + 1) = :root || '.'"
        " AND subscribed >= :subscribed ORDER BY name",
        {"account": account, "root": stored_name, "subscribed": subscribed_only},
    )
    return [row["name"] for row in rows]


def subscribe(
    connection: sqlite3.Connection, account: int, names: Iterable[str], *, subscribed: bool
) -> tuple[list[str], list[str]]:
    """Subscribe to folders or unsubscribe. If one does not exist, raise MessagingError with code 3 and change none.

    Return the stored spellings of all, and of those whose subscription changed.
    """
    existing = _read_folders(connection, account)
    folders = list(dict.fromkeys(existing.get(fold(name)) or get_folder(connection, account, name) for name in names))
    update = "UPDATE folder SET subscribed = :subscribed WHERE id = :folder AND subscribed != :subscribed"
    changed = [
        each.name
        for each in folders
        if connection.execute(update, {"subscribed": subscribed, "folder": each.id}).rowcount
    ]
    return [each.name for each in folders], changed


def _find_folder(connection: sqlite3.Connection, account: int, name: str) -> MailboxFolder | None:
    row = connection.execute("SELECT id, name FROM folder WHERE account = ? AND name = ?", (account, name)).fetchone()
    if row is None:  # SQLite ignores case only in ASCII
        return _read_folders(connection, account).get(fold(name))
    return MailboxFolder(*row)


def _read_folders(connection: sqlite3.Connection, account: int) -> dict[str, MailboxFolder]:
    """Return all folders of a mailbox, by their names without case."""
    rows = connection.execute("SELECT id, name FROM folder WHERE account = ?", (account,))
    return {fold(row["name"]): MailboxFolder(*row) for row in rows}


def _insert_folder(connection: sqlite3.Connection, account: int, name: str) -> int:
    row = connection.execute("INSERT INTO folder(account, name) VALUES(?, ?) RETURNING id", (account, name)).fetchone()
    inserted: int = row["id"]
    return inserted


def _prepare_name(connection: sqlite3.Connection, account: int, name: str) -> str:
    """Create the missing parents of a new folder. Return its name, with the stored spelling of its parents."""
    if (existing := _find_folder(connection, account, name)) is not None:
        _validate_not_reserved(existing.name)
        raise MessagingError(f"The folder {existing.name!r} already exists")
    if not fold(name).startswith(fold(f"{INBOX}.")):
        raise MessagingError("The name of a folder must start with 'INBOX.'")
    if len(name) > _MAX_NAME_CHARS or not all(name.split(".")):
        raise MessagingError(f"The name of a folder must have at most {_MAX_NAME_CHARS} characters and no empty level")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise MessagingError("The name of a folder must not contain control characters")
    path, *levels = name.split(".")
    for level in levels:
        parent = _find_folder(connection, account, path)
        if parent is None:
            _insert_folder(connection, account, path)
        path = f"{path if parent is None else parent.name}.{level}"
    return path


def _validate_not_reserved(name: str) -> None:
    if name in RESERVED_FOLDERS:
        raise MessagingError(f"The folder {name!r} is reserved")


TransferFn = Callable[[sqlite3.Connection, int, int, Iterable[int]], dict[int, int]]


class Selection(NamedTuple):
    """Criteria for messages, which must all be met. None or False: no restriction."""

    uids: Sequence[int] | None = None
    unread: bool = False
    begin_ms: int | None = None
    """Times of receipt in milliseconds since 1970, inclusive."""
    end_ms: int | None = None
    sender: str | None = None
    """Text that the header contains, ignoring case."""
    subject: str | None = None


def append_message(connection: sqlite3.Connection, folder: int, content: StoredContent, *, received_ms: int) -> int:
    """Add an unread message to a folder and return its uid. Raises MessagingError with code 4 if it is too large."""
    (uid,) = _allocate_uids(connection, folder, 1)
    try:
        connection.execute(
            "INSERT INTO content(digest, message_id, sender, subject, sent, metadata, detail, raw)"
            " VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(digest) DO NOTHING",
            (
                *(content.digest, content.message_id, content.sender, content.subject),
                *(content.sent_ms, content.metadata, content.detail, content.raw),
            ),
        )
    except (sqlite3.DataError, OverflowError):
        raise MessagingError(_TOO_LARGE_TEXT) from None
    if content.file is not None:
        connection.execute(
            "INSERT INTO content_file(content, name) SELECT id, ? FROM content WHERE digest = ?"
            " ON CONFLICT(content) DO NOTHING",
            (content.file.name, content.digest),
        )
    connection.execute(
        "INSERT INTO message(folder, uid, content, received) SELECT ?, ?, id, ? FROM content WHERE digest = ?",
        (folder, uid, received_ms, content.digest),
    )
    return uid


def copy_messages(connection: sqlite3.Connection, folder: int, destination: int, uids: Iterable[int]) -> dict[int, int]:
    """Copy messages with their read state and received date. Return the new uids by the old ones.

    Unknown uids are ignored. Return {} if both folders are the same.
    """
    if folder == destination:
        return {}
    rows = connection.execute(
        "SELECT uid, content, received, seen FROM message"
        " WHERE folder = ? AND uid IN (SELECT value FROM json_each(?)) ORDER BY uid",
        (folder, _encode_uids(uids)),
    ).fetchall()
    new_uids = _allocate_uids(connection, destination, len(rows))
    connection.executemany(
        "INSERT INTO message(folder, uid, content, received, seen) VALUES(?, ?, ?, ?, ?)",
        [(destination, new_uid, *tuple(row)[1:]) for new_uid, row in zip(new_uids, rows, strict=True)],
    )
    return {row["uid"]: new_uid for new_uid, row in zip(new_uids, rows, strict=True)}


def move_messages(connection: sqlite3.Connection, folder: int, destination: int, uids: Iterable[int]) -> dict[int, int]:
    """Move messages with their read state and received date. Return the new uids by the old ones.

    Unknown uids are ignored. Return {} if both folders are the same.
    """
    moved = copy_messages(connection, folder, destination, uids)
    remove_messages(connection, folder, moved)
    return moved


def remove_messages(connection: sqlite3.Connection, folder: int, uids: Iterable[int]) -> list[int]:
    """Delete messages permanently. Return the deleted uids in ascending order; unknown ones are ignored."""
    rows = connection.execute(
        "DELETE FROM message WHERE folder = ? AND uid IN (SELECT value FROM json_each(?)) RETURNING uid",
        (folder, _encode_uids(uids)),
    )
    return sorted(row["uid"] for row in rows.fetchall())


def set_seen(connection: sqlite3.Connection, folder: int, uids: Iterable[int], *, seen: bool) -> list[int]:
    """Mark messages as read or unread. Return the uids of the messages that this changed, in ascending order."""
    rows = connection.execute(
        "UPDATE message SET seen = :seen WHERE folder = :folder AND seen != :seen"
        " AND uid IN (SELECT value FROM json_each(:uids)) RETURNING uid",
        {"seen": seen, "folder": folder, "uids": _encode_uids(uids)},
    )
    return sorted(row["uid"] for row in rows.fetchall())


def count_messages(connection: sqlite3.Connection, folder: int, *, unread: bool = False) -> int:
    """Return the number of all messages of a folder, or of the unread ones."""
    query = "SELECT count(*) FROM message WHERE folder = ? AND seen <= ?"
    return int(connection.execute(query, (folder, not unread)).fetchone()[0])


def list_uids(connection: sqlite3.Connection, folder: int) -> list[int]:
    """Return a folder's uids in ascending order."""
    return [row[0] for row in connection.execute("SELECT uid FROM message WHERE folder = ? ORDER BY uid", (folder,))]


def list_messages(
    connection: sqlite3.Connection, folder: int, selection: Selection, column: Literal["detail", "metadata", "raw"]
) -> list[sqlite3.Row]:
    """Return the selected messages, ordered by uid. Unknown uids are ignored.

    Columns: uid, number (the position in the folder, from 1, or NULL with `raw`), received, sent, message_id, name (of
    its file, or NULL), and octets: a column of `StoredContent`.
    """
    # To number the messages, SQLite reads the complete folder. Otherwise it finds uids by the primary key.
    number = "NULL" if column == "raw" else "row_number() OVER (ORDER BY uid)"
    uids = "TRUE" if selection.uids is None else "uid IN (SELECT value FROM json_each(:uids))"
    criteria = selection._asdict() | {
        "folder": folder,
        "column": column,
        "uids": None if selection.uids is None else _encode_uids(selection.uids),
        "sender": None if selection.sender is None else fold(selection.sender),
        "subject": None if selection.subject is None else fold(selection.subject),
    }
    return connection.execute(
        f"""
        SELECT uid, number, received, sent, message_id, name,
          CASE :column WHEN 'detail' THEN detail WHEN 'metadata' THEN metadata ELSE raw END AS octets
        FROM (SELECT uid, content, received, seen, {number} AS number
              FROM message WHERE folder = :folder)
        JOIN content ON content.id = content LEFT JOIN content_file USING(content)
        WHERE {uids}
          AND (NOT :unread OR NOT seen)
          AND (:begin_ms IS NULL OR received >= :begin_ms)
          AND (:end_ms IS NULL OR received <= :end_ms)
          AND (:sender IS NULL OR instr(sender, :sender) > 0)
          AND (:subject IS NULL OR instr(subject, :subject) > 0)
        ORDER BY uid
        """,  # noqa: S608  constants
        criteria,
    ).fetchall()


def _encode_uids(uids: Iterable[int]) -> str:
    return json.dumps(list(uids))
