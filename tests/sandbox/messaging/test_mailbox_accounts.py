"""Accounts and T-Users, straight on a connection."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from directsuite.sandbox.messaging import mailboxes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys=ON")
    connection.executescript(mailboxes.SCHEMA)
    yield connection
    connection.close()


@pytest.mark.parametrize("address", ["", "alice", "@x.test", "alice@", "a@b@c"])
def test_a_mailbox_needs_an_address(db: sqlite3.Connection, address: str) -> None:
    with pytest.raises(ValueError, match="local-part@domain"):
        mailboxes.create_account(db, address, "pw", at_ms=0)


def test_addresses_are_the_same_in_any_normal_form(db: sqlite3.Connection) -> None:
    account = mailboxes.create_account(db, "Jose\u0301@x.test", "pw", at_ms=0)
    assert (
        mailboxes.find_account_id(db, "JOS\u00c9@x.test")
        == mailboxes.authenticate(db, "jos\u00e9@x.test", "pw")
        == account
    )
    with pytest.raises(mailboxes.AccountExists):
        mailboxes.create_account(db, "jos\u00e9@x.test", "other", at_ms=0)
    mailboxes.create_tuser(db, "t", "pw", ["jos\u00e9@x.test"])
    assert mailboxes.find_tuser_account_id(db, "t", "jose\u0301@x.test") == account
    assert mailboxes.delete_account(db, "jos\u00e9@x.test")
