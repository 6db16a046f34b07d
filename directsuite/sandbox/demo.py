"""The demo: everything that a first look at the four services needs, seeded into a running sandbox."""

from __future__ import annotations

from directsuite.sandbox.messaging.accounts import AccountExists
from directsuite.sandbox.server import DEMO_CLIENT, DEMO_LOGIN, Sandbox

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


async def seed(sandbox: Sandbox) -> None:
    """Add two mailboxes, a T-User, a dozen faxes and two proofed individuals; once for a state that is kept."""
    try:
        for address in MAILBOXES:
            await sandbox.add_account(address, MAILBOX_LOGIN)
    except AccountExists:
        return
    await sandbox.add_tuser(*TUSER, MAILBOXES)
    await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
    for first_name, last_name, ssn4, dob, state in INDIVIDUALS:
        email = f"{first_name.lower()}@example.test"
        await sandbox.add_individual(first_name, last_name, ssn4, dob, email=email, state=state, country="US")
    for number in range(1, 13):
        status = "waiting" if number == 12 else "complete"
        await sandbox.add_fax(FAX_NUMBER, status=status, description=f"Fax {number}")
    await sandbox.deliver(MAILBOXES[0], _WELCOME)


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
