"""The states of Direct users (UserStateType), and the state that an address has at a time (specification section 3).

    disabled                    inbound messages still arrive, the user cannot connect
    provisioned_cert_expired    the user can connect, inbound and outbound messages are rejected
    provisioned_cert_revoked    the same
    any other                   the specification forbids nothing

Only the addresses of patients have a state: an ordinary mailbox has none, and nothing is forbidden there either.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

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


def state_of(connection: sqlite3.Connection, address: str, now_ms: int) -> str | None:
    """The state of a patient's address, in any case; None for an ordinary mailbox or no mailbox at all."""
    username, _, domain = address.casefold().rpartition("@")
    row = connection.execute(
        "SELECT state, expires_on FROM patient WHERE domain = ? AND username = ?", (domain, username)
    ).fetchone()
    return None if row is None else state_in(row, now_ms)


def state_in(row: sqlite3.Row, now_ms: int) -> str:
    """The state that a patient's row tells: the one that was forced, else what follows from the clock."""
    forced: str | None = row["state"]
    if forced is not None:
        return forced
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return CERTIFICATE_EXPIRED if today > date.fromisoformat(row["expires_on"]) else ACTIVATED
