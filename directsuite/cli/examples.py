"""The examples at the end of each command's `--help`. Each fits on one line of 80 columns.

In this order, they work with the variables and the mailbox password that `directsuite sandbox` prints. SMTP_ID is the
id that `send` printed, and HANDLE is a handle that `fax list` shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from directsuite.cli.options import EPILOGUE

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "send": (
        "--to bob@direct.example.test --subject Hello --body 'Hi Bob'",
        "--to bob@direct.example.test --body-file letter.txt --dry-run",
        "--to bob@direct.example.test --body Hello --attach scan.pdf",
        "--to bob@direct.example.test --body Hello --key hello-1",
    ),
    "inbox": ("list", "read 1", "save 6 --into received"),
    "inbox list": ("--from hospital --subject referral", "--since 2026-05-01 --json", "--folder INBOX.Sent"),
    "inbox read": ("1", "6 --mark-read"),
    "inbox save": ("6 --into received", "5 6 --eml --into received"),
    "inbox folders": ("", "--json"),
    "inbox move": ("3 4 --to INBOX.Referrals", "1 --folder INBOX.Referrals --to INBOX"),
    "inbox copy": ("1 --to INBOX.Referrals", "5 6 --to INBOX.Referrals"),
    "inbox delete": ("2", "1 --folder INBOX.Trash --forever --yes"),
    "inbox mark": ("5 6", "5 --unread"),
    "inbox forward": ("6 --to bob@direct.example.test", "5 6 --to bob@direct.example.test --json"),
    "inbox reply": ("7 --body 'Thank you'", "7 --all --body-file letter.txt --attach scan.pdf"),
    "status": ("'SMTP_ID'", "'SMTP_ID' --watch"),
    "sync": ("run --once", "status"),
    "sync run": (
        "--once --folder INBOX --folder INBOX.Sent",
        "--once --mailboxes mailboxes.txt --passwords secrets.toml",
        "--once --maildir mail --store maildir.db",
    ),
    "sync status": ("--sort messages", "--failing --json"),
    "sync audit": ("", "--mailbox alice@direct.example.test"),
    "sync retry": ("", "--mailbox alice@direct.example.test"),
    "sign": (
        "consent.pdf --output signed.pdf --name PatientSignature",
        "consents --output signed --name PatientSignature --dry-run",
        "consents --output signed --name PatientSignature",
        "form.pdf --output form-signed.pdf --widget 72,620,200,70",
    ),
    "sign verify": ("signed.pdf", "signed --json"),
    "sign info": ("consent.pdf", "signed.pdf --json"),
    "sign flatten": ("consent.pdf --output flat.pdf", "consent.pdf --output flat.pdf --overwrite"),
    "sign clear": ("consent.pdf --output cleared.pdf", "consent.pdf --output cleared.pdf --overwrite"),
    "fax": ("list 15550100100", "show 15550100100 HANDLE"),
    "fax list": ("15550100100 --limit 5", "15550100100 --status complete --since 2026-05-01 --json"),
    "fax show": ("15550100100 HANDLE", "15550100100 HANDLE --json"),
    "fax watch": ("15550100100", "15550100100 --since 2026-05-01 --status complete --json"),
    "patient add": ("ada.toml --domain direct.example.test", "grace.toml --domain direct.example.test --yes"),
    "patient": ("find ada.toml --domain direct.example.test", "by-username ada --domain direct.example.test"),
    "patient find": ("ada.toml --domain direct.example.test", "ada.toml --domain direct.example.test --json"),
    "patient by-username": ("ada --domain direct.example.test", "- --domain direct.example.test --json"),
    "patient passwords": (
        "passwords.toml --domain direct.example.test",
        "passwords.toml --domain direct.example.test -v",
    ),
    "config": ("show", "show --json"),
    "config show": ("", "--json"),
    "doctor": ("", "--timeout 5 --json", "--deep --report differences.json"),
    "demo": ("--messages 20 --documents 2", "--messages 20 --documents 2 --keep"),
    "sandbox": ("", "--memory --port 0 --profile java"),
    "sandbox env": ("", "--at http://127.0.0.1:8025"),
    "sandbox account": ("carol@direct.example.test", "dan@direct.example.test"),
    "sandbox individual": ("Ada Byron 4321 1980-12-10", "Alan Sample 8642 1970-01-31"),
    "sandbox fax": ("15550100100 --status waiting", "15550100100 --handle HANDLE --status complete"),
    "sandbox clock": ("", "--advance 10m"),
    "sandbox fault": ("Send reset_after", "'*' status --status 503 --times 3", "--clear"),
    "sandbox ledger": ("", "Send --json"),
    "sandbox reset": ("", "--at http://127.0.0.1:8025"),
    "guide": ("", "errors"),
}
"""The arguments of the examples of each command."""

_MAILBOX_COMMANDS = ("send", "inbox", "status", "sync", "doctor")


def build_epilogue(command: str) -> str:
    """Return the text below the help of a command."""
    lines = "\n".join(f"    directsuite {command} {arguments}".rstrip() for arguments in EXAMPLES[command])
    where = " with DIRECTSUITE_MAILBOX=alice@direct.example.test" if command.split()[0] in _MAILBOX_COMMANDS else ""
    return f"Examples{where}:\n\n{lines}\n\n{EPILOGUE}"
