"""Accounts and T-Users, straight on a connection."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from directsuite.sandbox import credentials
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


def test_addresses_are_the_same_in_any_case(db: sqlite3.Connection) -> None:
    account = mailboxes.create_account(db, "Alice@X.test", "pw", at_ms=0)
    assert mailboxes.authenticate(db, "alice@x.TEST", "pw") == mailboxes.find_account_id(db, "ALICE@x.test") == account
    with pytest.raises(mailboxes.AccountExists):
        mailboxes.create_account(db, "aLiCe@x.test", "other", at_ms=0)


@pytest.mark.parametrize("address", ["", "alice", "@x.test", "alice@", "a@b@c"])
def test_a_mailbox_needs_an_address(db: sqlite3.Connection, address: str) -> None:
    with pytest.raises(ValueError, match="local-part@domain"):
        mailboxes.create_account(db, address, "pw", at_ms=0)


def test_passwords(db: sqlite3.Connection) -> None:
    mailboxes.create_account(db, "a@x.test", "pw", at_ms=0)
    assert mailboxes.authenticate(db, "a@x.test", "pw") is not None
    for address, password in (("a@x.test", ""), ("a@x.test", "PW"), ("b@x.test", "pw"), ("", "")):
        assert mailboxes.authenticate(db, address, password) is None
    assert not mailboxes.set_password(db, "b@x.test", "new")
    (stored,) = db.execute("SELECT password FROM mailbox_account").fetchone()
    assert b"pw" not in stored


def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailboxes.create_account(db, "a@x.test", "pw", at_ms=0)
    hashed: list[str] = []

    def scrypt(password: str, salt: bytes) -> bytes:
        hashed.append(password)
        return real(password, salt)

    real = credentials._compute_scrypt
    monkeypatch.setattr(credentials, "_compute_scrypt", scrypt)
    for password in ("pw", "no", "pw", "no", "pw"):
        mailboxes.authenticate(db, "a@x.test", password)
    assert hashed == ["pw", "no", "no"]


def test_tusers_act_for_the_addresses_they_were_given(db: sqlite3.Connection) -> None:
    account = mailboxes.create_account(db, "a@x.test", "pw", at_ms=0)
    mailboxes.create_tuser(db, "desk", "tp", ["A@x.test", "a@X.test", "none@x.test"])
    assert mailboxes.authenticate_tuser(db, "desk", "tp")
    assert not mailboxes.authenticate_tuser(db, "desk", "pw")
    assert mailboxes.find_tuser_account_id(db, "desk", "a@x.TEST") == account
    for username, address in (("desk", "none@x.test"), ("desk", "b@x.test"), ("d", "a@x.test")):
        assert mailboxes.find_tuser_account_id(db, username, address) is None
    with pytest.raises(mailboxes.AccountExists):
        mailboxes.create_tuser(db, "desk", "tp", [])


def test_served_domains_are_those_with_a_mailbox(db: sqlite3.Connection) -> None:
    assert mailboxes.list_domains(db) == set()
    for address in ("a@X.test", "b@x.test", "a@y.test"):
        mailboxes.create_account(db, address, "pw", at_ms=0)
    assert mailboxes.list_domains(db) == {"x.test", "y.test"}
    assert mailboxes.delete_account(db, "A@Y.test")
    assert not mailboxes.delete_account(db, "a@y.test")
    assert mailboxes.list_domains(db) == {"x.test"}
    assert db.execute("SELECT count(DISTINCT account) FROM folder").fetchone()[0] == 2


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
