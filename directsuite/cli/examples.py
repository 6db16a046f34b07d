"""Commands that work at the sandbox: each command's `--help` ends with some, and a test reads them all.

`directsuite sandbox` prints the variables that they need, and the password of the mailboxes.
"""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "send": (
        "--from alice@direct.example.test --to bob@direct.example.test --subject Hello --body 'Dear Bob'",
        "--from alice@direct.example.test --to bob@direct.example.test --body-file a.txt --attach b.pdf --key r17",
    ),
    "inbox list": (
        "--mailbox alice@direct.example.test --from bob --subject referral",
        "--mailbox alice@direct.example.test --since 2026-05-01 --json",
    ),
    "inbox read": ("1 --mailbox alice@direct.example.test",),
    "inbox save": ("1 --mailbox alice@direct.example.test --into received",),
    "inbox folders": ("--mailbox alice@direct.example.test",),
    "inbox move": ("3 4 --to INBOX.Archive --mailbox alice@direct.example.test",),
    "inbox copy": ("3 --to INBOX.Archive --mailbox alice@direct.example.test",),
    "inbox delete": ("3 4 --mailbox alice@direct.example.test",),
    "inbox mark": ("1 --mailbox alice@direct.example.test", "1 --unread --mailbox alice@direct.example.test"),
    "inbox forward": ("1 --to bob@direct.example.test --mailbox alice@direct.example.test",),
    "inbox reply": ("1 --body 'Thank you' --mailbox alice@direct.example.test",),
    "status": ("--mailbox alice@direct.example.test --watch '<the id that send printed>'",),
    "sync run": (
        "--mailbox alice@direct.example.test --once",
        "--mailboxes mailboxes.txt --passwords passwords.toml --all-folders --store sync.db",
    ),
    "sync status": ("--store sync.db", "--store sync.db --max-age 120"),
    "sync audit": ("--store sync.db",),
    "sync retry": ("--store sync.db --mailbox alice@direct.example.test",),
    "sign": (
        "consent.pdf --output signed.pdf --name Approval",
        "consents --output signed --name Approval --widget 72,620,200,70 --image ink.png --reason Consent",
        "consents --output signed --name Approval --dry-run",
    ),
    "sign verify": ("signed.pdf", "signed/a.pdf signed/b.pdf --json"),
    "sign info": ("consent.pdf",),
    "sign flatten": ("consent.pdf --output flat.pdf",),
    "sign clear": ("consent.pdf --output cleared.pdf",),
    "fax list": ("15550100100", "15550100100 --status complete --since 2026-05-01 --json"),
    "fax show": ("15550100100 HANDLE",),
    "fax watch": ("15550100100", "15550100100 --since 2026-05-01 --status complete --json"),
    "patient find": ("ada.toml --domain direct.example.test",),
    "patient by-username": ("ada --domain direct.example.test",),
    "patient add": ("ada.toml --domain direct.example.test",),
    "patient passwords": ("passwords.toml --domain direct.example.test",),
    "doctor": ("--mailbox alice@direct.example.test",),
    "demo": ("--messages 20 --documents 2",),
    "sandbox": ("--memory", "--port 0 --profile java"),
    "guide": ("", "errors"),
}
"""The arguments of each command."""


def epilogue(command: str) -> str:
    """What stands below the help of a command."""
    lines = "\n".join(f"    directsuite {command} {arguments}".rstrip() for arguments in EXAMPLES[command])
    return f"Examples:\n\n{lines}\n\nThe exit statuses stand in `directsuite --help`."
