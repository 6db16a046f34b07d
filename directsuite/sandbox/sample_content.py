"""Sample content: everything that a first look at the four services needs, for a sandbox to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox import fax
from directsuite.sandbox.messaging import accounts, folders, store
from directsuite.sandbox.messaging.parsing import content_of
from directsuite.sandbox.registration import individuals, service
from directsuite.sandbox.server import DEMO_CLIENT, DEMO_LOGIN

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.server import Sandbox

DOMAIN = "direct.example.test"
MAILBOXES = (f"alice@{DOMAIN}", f"bob@{DOMAIN}")
MAILBOX_LOGIN = "sandbox"
TUSER = ("demo-tuser", "demo-login")
FAX_NUMBER = "15550100100"
INDIVIDUALS = (
    ("Ada", "Example", "1234", "1980-02-29", "ALASKA"),
    ("Grace", "Sample", "5678", "1975-12-09", "Vermont"),
)

_WELCOME = (
    b"From: bob@direct.example.test\r\nTo: alice@direct.example.test\r\nSubject: Welcome to the sandbox\r\n"
    b"Message-ID: <welcome@direct.example.test>\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n\r\nThis mailbox is yours to play with.\r\n"
)


def add_sample_content(connection: sqlite3.Connection, now: int) -> None:
    """Add two mailboxes, a T-User, a dozen faxes and two proofed individuals; once for a state that is kept."""
    # Both mailboxes come in one transaction with all the rest: where they are, so is everything.
    if all(accounts.account_id(connection, address) is not None for address in MAILBOXES):
        return
    for address in MAILBOXES:
        if accounts.account_id(connection, address) is None:
            accounts.create_account(connection, address, MAILBOX_LOGIN, at_ms=now)
    accounts.create_tuser(connection, *TUSER, MAILBOXES)
    service.add_reseller(connection, *DEMO_LOGIN, [DOMAIN])
    for first_name, last_name, ssn4, dob, state in INDIVIDUALS:
        person = individuals.Description(first_name=first_name, last_name=last_name, ssn4=ssn4, dob=dob)
        contact = individuals.Contact(email=f"{first_name.lower()}@example.test", state=state, country="US")
        individuals.add(connection, person, contact)
    for number in range(1, 13):
        status = "waiting" if number == 12 else "complete"
        fax.add_fax(connection, fax.NewFax(fax_number=FAX_NUMBER, status=status, description=f"Fax {number}"), now=now)
    alice = accounts.account_id(connection, MAILBOXES[0])
    if alice is not None:
        inbox = folders.folder_id(connection, alice, folders.INBOX)
        store.append(connection, inbox, content_of(_WELCOME), received_ms=now)


def summary(sandbox: Sandbox) -> str:
    """The environment as lines to paste into a shell, and the logins as comments."""
    exports = [f"export {name}={value}" for name, value in sandbox.environment.items()]
    return "\n".join(
        [
            "# the four services on loopback, with the demo account",
            *exports,
            f"# mailboxes {' and '.join(MAILBOXES)}, password {MAILBOX_LOGIN}",
            f"# T-User {TUSER[0]}, password {TUSER[1]}; fax number {FAX_NUMBER}",
            f"# OAuth 2.0 client {DEMO_CLIENT[0]}, secret {DEMO_CLIENT[1]}, at {sandbox.token_url}",
            f"# control API {sandbox.control_url}; OpenAPI document {sandbox.root_url}/openapi.json",
        ]
    )
