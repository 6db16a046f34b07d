"""Synchronisation of mailboxes: every change on the server becomes a change for a sink, and no change is lost.

Synchronizer ── a round ─► MailboxRounds ── requests ──► Remote (a Mailbox of the suite)
                                │
                                └─ commits ──► Store ◄── the store's own sink: exactly once
                                      └──────► deliver, any async callable: at least once, with a stable key
"""

from directsuite.durable.database import Transaction
from directsuite.sync.commits import Deliver
from directsuite.sync.model import (
    Change,
    FolderStatus,
    Key,
    Kind,
    MailboxStatus,
    MessageState,
    QuarantinedMessage,
    SinkError,
    StaleLeaseError,
    StoreError,
)
from directsuite.sync.sinks.iterator import ChangeStream
from directsuite.sync.sinks.maildir import MaildirError, MaildirSink
from directsuite.sync.status import MailboxProgress, RoundFinished, SyncProgress, SyncStatus
from directsuite.sync.store import SqliteStore, Store, StoreSink, TableSink
from directsuite.sync.synchronizer import Passwords, Synchronizer

SqliteSink = TableSink

__all__ = [
    "Change",
    "ChangeStream",
    "Deliver",
    "FolderStatus",
    "Key",
    "Kind",
    "MailboxProgress",
    "MailboxStatus",
    "MaildirError",
    "MaildirSink",
    "MessageState",
    "Passwords",
    "QuarantinedMessage",
    "RoundFinished",
    "SinkError",
    "SqliteSink",
    "SqliteStore",
    "StaleLeaseError",
    "Store",
    "StoreError",
    "StoreSink",
    "SyncProgress",
    "SyncStatus",
    "Synchronizer",
    "Transaction",
]
