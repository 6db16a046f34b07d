"""Each command's `--help` ends with some examples, none of which is broken at 80 columns: each can be copied.

They work at the sandbox, too: `directsuite sandbox` prints the variables that they need, its addresses, and the
password of the mailboxes.
"""

from __future__ import annotations

from collections.abc import Mapping

from directsuite.cli.options import EPILOGUE

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "send": (
        "--from ADDRESS --to ADDRESS --subject Hello --body 'Dear Bob'",
        "--from ADDRESS --to ADDRESS --body-file a.txt --attach b.pdf",
    ),
    "inbox list": (
        "--mailbox ADDRESS --from bob --subject referral",
        "--mailbox ADDRESS --since 2026-05-01 --json",
    ),
    "inbox read": ("1 --mailbox ADDRESS",),
    "inbox save": ("1 --mailbox ADDRESS --into received",),
    "inbox folders": ("--mailbox ADDRESS",),
    "inbox move": ("3 4 --to INBOX.Archive --mailbox ADDRESS",),
    "inbox copy": ("3 --to INBOX.Archive --mailbox ADDRESS",),
    "inbox delete": ("3 4 --mailbox ADDRESS",),
    "inbox mark": ("1 --mailbox ADDRESS", "1 --unread --mailbox ADDRESS"),
    "inbox forward": ("1 --to ADDRESS --mailbox ADDRESS",),
    "inbox reply": ("1 --body 'Thank you' --mailbox ADDRESS",),
    "status": ("--mailbox ADDRESS --watch '<the id that send printed>'",),
    "sync run": (
        "--mailbox ADDRESS --once",
        "--mailboxes mailboxes.txt --passwords passwords.toml",
    ),
    "sync status": ("--store sync.db", "--store sync.db --failing", "--store sync.db --max-age 120"),
    "sync audit": ("--store sync.db",),
    "sync retry": ("--store sync.db --mailbox ADDRESS",),
    "sign": (
        "consent.pdf --output signed.pdf --name PatientSignature",
        "consents --output signed --name PatientSignature",
        "consents --output signed --reason Consent --dry-run",
        "form.pdf --output signed.pdf --widget 72,620,200,70",
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
    "config show": ("", "--profile test --json"),
    "doctor": ("--mailbox ADDRESS", "--mailbox ADDRESS --deep --report differences.json"),
    "demo": ("--messages 20 --documents 2", "--keep"),
    "sandbox": ("--memory", "--port 0 --profile java"),
    "sandbox env": ("", "--at http://127.0.0.1:9000"),
    "sandbox account": ("carol@direct.example.test",),
    "sandbox patient": ("Ada Example 1234 1980-02-29",),
    "sandbox fax": ("15550100100 --status waiting", "15550100100 --handle HANDLE --status complete"),
    "sandbox clock": ("", "--advance 600", "--set 2026-05-01T09:00"),
    "sandbox fault": ("", "Send reset_after", "'*' status --status 503 --times 3", "--clear"),
    "sandbox ledger": ("", "Send --json"),
    "sandbox reset": ("",),
    "guide": ("", "errors"),
}
"""The arguments of each command."""


def epilogue(command: str) -> str:
    """What stands below the help of a command."""
    lines = "\n".join(f"    directsuite {command} {arguments}".rstrip() for arguments in EXAMPLES[command])
    return f"Examples:\n\n{lines}\n\n{EPILOGUE}"
