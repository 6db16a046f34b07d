"""Patients: Direct addresses that were provisioned for identity-proofed individuals, and what was paid for them.

Where the specification is silent:

    directUsername    letters, digits, dot, hyphen, underscore, up to 64 characters (else 002); lower case counts;
                      left out: made of the names, with a number where that is taken
    directPassword    left out: nobody knows it until SetPatientsPasswords sets one
    several           an individual may have several addresses; a user name that is taken in the domain is 014
    price             12.00 a year, one year from the day of provisioning; then the state is provisioned_cert_expired
    state             activated at once

What the states forbid (specification section 3; an ordinary mailbox has no state, and nothing is forbidden there):

    disabled                    inbound messages still arrive, the user cannot connect
    provisioned_cert_expired    the user can connect, inbound and outbound messages are rejected
    provisioned_cert_revoked    the same
    any other                   nothing
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from directsuite.sandbox import ledger
from directsuite.sandbox.clock import timestamp
from directsuite.sandbox.credentials import new_secret
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.registration import Code, RefusedError, individuals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

SCHEMA = """
CREATE TABLE IF NOT EXISTS patient(
  order_id INTEGER PRIMARY KEY AUTOINCREMENT, username TEXT NOT NULL, domain TEXT NOT NULL,
  individual INTEGER NOT NULL REFERENCES individual, contact TEXT NOT NULL, expires_on TEXT NOT NULL, state TEXT,
  UNIQUE(domain, username));
CREATE INDEX IF NOT EXISTS patient_individual ON patient(individual);
"""

_USERNAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]|\.(?!\.|$)){0,63}")
_OFFER_PRICE = 12.0
_YEAR = timedelta(days=365)


ACTIVATED = "activated"
DISABLED = "disabled"
CERTIFICATE_EXPIRED = "provisioned_cert_expired"
CERTIFICATE_REVOKED = "provisioned_cert_revoked"

USER_STATES = (
    "init",
    "provisioned",
    "provisioned_cert_pending",
    ACTIVATED,
    DISABLED,
    CERTIFICATE_EXPIRED,
    CERTIFICATE_REVOKED,
    "Unknown",
)
"""The values of UserStateType."""

WITHOUT_CERTIFICATE = frozenset({CERTIFICATE_EXPIRED, CERTIFICATE_REVOKED})
"""The states in which messages are rejected in both directions."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
"""Text that is not empty."""


class Account(msgspec.Struct, kw_only=True, rename="camel"):
    """The account that an IDProofedIndividualRESTful asks for; a member may be left out, but not empty."""

    direct_username: Text | None = None
    direct_password: Text | None = None


class UserPassword(msgspec.Struct):
    """A user name and a password, neither of them empty."""

    username: Text
    password: Text


def provision(
    connection: sqlite3.Connection,
    domain: str,
    described: individuals.Description,
    account: Account,
    contact: individuals.Contact,
    *,
    now: int,
) -> dict[str, Any]:
    """Create the address, its mailbox and its payment; returns the members of AddUsersResponseV2Type.

    Raises RefusedError: 205 no such individual, 002 invalid user name, 014 user name taken.
    """
    found = individuals.matching(connection, described)
    if not found:
        raise RefusedError(Code.NOT_PROOFED, "no identity-proofed individual matches the request")
    person = found[0]
    username = account.direct_username
    username = (_free_username(connection, person, domain) if username is None else username).lower()
    if not _USERNAME.fullmatch(username):
        raise RefusedError(Code.INVALID_USER, "directUsername must be a local part of letters, digits, . - and _")
    address = f"{username}@{domain}"
    try:
        accounts.create_account(connection, address, account.direct_password or new_secret(), at_ms=now)
    except accounts.AccountExists:
        raise RefusedError(Code.USER_ACCOUNT_ERROR, "the user name is taken in the domain") from None
    today = _day(now)
    cursor = connection.execute(
        "INSERT INTO patient(username, domain, individual, contact, expires_on) VALUES(?, ?, ?, ?, ?)",
        (
            username,
            domain,
            person["id"],
            json.dumps({**json.loads(person["contact"]), **contact.members()}),
            (today + _YEAR).isoformat(),
        ),
    )
    order_id = int(cursor.lastrowid or 0)
    ledger.record(
        connection,
        operation="ProvisionIDProofedPatient",
        subject=address,
        at=now,
        individual=person["id"],
        order=order_id,
    )
    user = find(connection, domain, username, now=now)
    return {"users": [user], "paymentConfirmation": _payment(order_id, address, today, now)}


def find(connection: sqlite3.Connection, domain: str, username: str, *, now: int) -> dict[str, Any] | None:
    """The patient's DirectUserDetail, or None."""
    row = connection.execute(
        f"{_SELECT} WHERE domain = ? AND username = ?", (domain, _local_part(username, domain))
    ).fetchone()
    return None if row is None else _detail(row, now)


def of_individuals(
    connection: sqlite3.Connection, domain: str, people: Sequence[sqlite3.Row], *, now: int
) -> list[dict[str, Any]]:
    """The DirectUserDetails of these individuals' addresses in `domain`, in the order of provisioning."""
    rows = [
        row
        for person in people
        for row in connection.execute(f"{_SELECT} WHERE domain = ? AND individual = ?", (domain, person["id"]))
    ]
    return [_detail(row, now) for row in sorted(rows, key=lambda row: int(row["order_id"]))]


def set_passwords(connection: sqlite3.Connection, domain: str, users: Sequence[UserPassword], *, now: int) -> None:
    """Set the passwords of all these patients, in a transaction that RefusedError (210, no patient) undoes."""
    names = [_local_part(user.username, domain) for user in users]
    for name, user in zip(names, users, strict=True):
        known = connection.execute("SELECT 1 FROM patient WHERE domain = ? AND username = ?", (domain, name)).fetchone()
        if known is None or not accounts.set_password(connection, f"{name}@{domain}", user.password):
            raise RefusedError(Code.NO_ADDRESS, "one of the users is no patient of the domain; no password was changed")
    ledger.record(connection, operation="SetPatientsPasswords", subject=domain, at=now, usernames=names)


def set_state(connection: sqlite3.Connection, address: str, state: str | None) -> bool:
    """Force the state of a patient's address, or with None let it follow the clock; False for an unknown address."""
    if state is not None and state not in USER_STATES:
        raise ValueError(f"state must be one of {', '.join(USER_STATES)}")
    username, _, domain = address.lower().rpartition("@")
    changed = connection.execute(
        "UPDATE patient SET state = ? WHERE domain = ? AND username = ?", (state, domain, username)
    ).rowcount
    return changed == 1


def state_of(connection: sqlite3.Connection, address: str, now_ms: int) -> str | None:
    """The state of a patient's address, in any case; None for an ordinary mailbox or no mailbox at all."""
    username, _, domain = address.casefold().rpartition("@")
    row = connection.execute(
        "SELECT state, expires_on FROM patient WHERE domain = ? AND username = ?", (domain, username)
    ).fetchone()
    return None if row is None else _state_in(row, now_ms)


def _state_in(row: sqlite3.Row, now_ms: int) -> str:
    """The state of a patient's row: the one that was forced, else what follows from the clock."""
    forced: str | None = row["state"]
    if forced is not None:
        return forced
    return CERTIFICATE_EXPIRED if _day(now_ms) > date.fromisoformat(row["expires_on"]) else ACTIVATED


_SELECT = "SELECT patient.*, first_name, last_name FROM patient JOIN individual ON individual.id = patient.individual"


def _detail(row: sqlite3.Row, now: int) -> dict[str, Any]:
    return {
        "firstName": row["first_name"],
        "lastName": row["last_name"],
        "email": "",  # required in the specification, so never left out; replaced by the contact's own
        **json.loads(row["contact"]),
        "username": row["username"],
        "userType": "SMTP",
        "UserStateType": _state_in(row, now),
    }


def _payment(order_id: int, address: str, today: date, now: int) -> dict[str, Any]:
    expires = today + _YEAR
    sale_price = round(_OFFER_PRICE * ((expires - today) / _YEAR), 2)
    product = {
        "name": "Direct address",
        "description": "Direct address with certificate for an identity-proofed patient",
        "quantity": 1,
        "offerPrice": _OFFER_PRICE,
        "salePrice": sale_price,
        "amount": sale_price,
        "startDate": today.isoformat(),
        "expireDate": expires.isoformat(),
    }
    return {
        "orderId": order_id,
        "amount": product["amount"],
        "orderTime": timestamp(now),
        "products": [product],
        "detail": f"Direct address {address}",
    }


def _free_username(connection: sqlite3.Connection, person: sqlite3.Row, domain: str) -> str:
    names = (re.sub(r"[^a-z0-9]+", "", person[column].lower()) for column in ("first_name", "last_name"))
    stem = ".".join(name for name in names if name)[:50] or "patient"
    number, username = 1, stem
    while accounts.account_id(connection, f"{username}@{domain}") is not None:
        number += 1
        username = f"{stem}{number}"
    return username


def _local_part(username: str, domain: str) -> str:
    """A user name may come as the whole address too."""
    return username.strip().lower().removesuffix(f"@{domain}")


def _day(now: int) -> date:
    return datetime.fromtimestamp(now / 1000, UTC).date()
