"""The guide `screens`: the output of the commands on a terminal of 80 columns.

`WRITE_SCREENS=1 pytest tests/guides/test_screens.py` rewrites the guide.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from directsuite.cli import main
from directsuite.cli.app import build_app
from directsuite.sandbox import Sandbox
from directsuite.sandbox.samples import MAILBOX_LOGIN, MAILBOXES, add_sample_content
from tests.consent_form import build_consent_form
from tests.guides.documents import DOCUMENTS, read_document
from tests.testing.project import ROOT

pytestmark = pytest.mark.wide

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
VARYING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+", "2026-05-01 09:00:00 UTC"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)", "2026-05-01 09:00"),
    (r"\d{4}-\d\d-\d\d$", "2027-05-01"),
    (r"D:\d{14}Z", "D:20260501090000Z"),
    (r"pyHanko [0-9.]+", "pyHanko"),
    (r"\([A-Z]{3,5}\)", "(UTC)"),
    (r"DIRECTSUITE_TOKEN=\S+", "DIRECTSUITE_TOKEN=JZ1vR0cW7mA9fS3kX5dLqg"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8025"),
    (r"port \d+", "port 8025"),
    (r"\b\d+ ms\b", "2 ms"),
    (r"\b\d+(\.\d)? s (ago|at)", r"1 s \2"),
)
"""Patterns that vary between runs."""
ID = re.compile(r"(?<=<)[0-9a-f.-]{20,}(?=@)|\b[0-9a-f]{32}\b")
"""The id of a message or a fax."""
FIRST_ID = 0x4B1F0C2E9A7D4C58B6E3A1D20F97C845
"""The replacement of the first id. The next ids follow it."""
UNTIL_CTRL_C = ("directsuite fax watch",)
"""Commands that end with Ctrl-C after the first line."""
PICTURE = ROOT / "directsuite" / "guides" / "terminal.svg"
PICTURED = (
    "directsuite inbox list --from hospital",
    "directsuite inbox save 6 --into received",
    "directsuite sign consents --output signed --widget 72,620,200,70 --reason Consent",
    "directsuite inbox reply 6 --body 'Thank you.' --attach signed/first.pdf",
    "directsuite inbox move 6 --to INBOX.Done",
)
ASKING = (
    "send --to bob@direct.example.test --subject Referral --body x",
    "send --to bob@direct.example.test --subject Referral --body x --key referral",
    "status none",
    "inbox list",
    "inbox list --all-folders",
    "inbox list --since 2026-01-01",
    "inbox list --unread",
    "inbox folders",
    "inbox folder create INBOX.Archive",
    "inbox folder rename INBOX.Archive INBOX.Cases",
    "inbox folder subscribe INBOX.Cases",
    "inbox folder delete INBOX.Cases --yes",
    "inbox read 1",
    "inbox save 6 --into received",
    "inbox save 1 --eml --into received",
    "inbox mark 4",
    "inbox mark 4 --unread",
    "inbox reply 1 --body x",
    "inbox forward 1 --to bob@direct.example.test",
    "inbox copy 1 --to INBOX.Referrals",
    "inbox move 1 --to INBOX.Referrals",
    "inbox delete 2 --yes",
    "sync run --once --store sync.db",
    "sign consents --output invisible",
    "sign consent.pdf --output signed.pdf --name PatientSignature",
    "sign consent.pdf --output both.pdf --name A --widget 72,620,200,70 --name B --widget 72,520,200,70",
    "sign info consent.pdf",
    "sign verify consent.pdf",
    "sign flatten consent.pdf --output flat.pdf",
    "sign clear consent.pdf --output cleared.pdf",
    "fax list 15550100100",
    "fax watch 15550100100 --status waiting",
    "fax show 15550100100 none",
    "patient find ada.toml --domain direct.example.test",
    "patient add ada.toml --domain direct.example.test --yes",
    "patient by-username ada --domain direct.example.test",
    "patient passwords passwords.toml --domain direct.example.test",
)
"""One command for each row of the table of the guide `sandbox`."""
FILES = {
    "letter.txt": "Dear Bob,\n\nplease see my patient.\n",
    "ada.toml": 'first_name = "Ada"\nlast_name = "Example"\nssn4 = "1234"\ndob = 1980-02-29\ndirect_username = "ada"\n'
    'direct_password = "Correct-Horse-1"\n',
    "passwords.toml": 'ada = "Correct-Horse-2"\n',
    "notes.pdf": "These are no PDF.\n",
}


@attrs.define
class Ids:
    """The ids of a run, and their replacements in the guide."""

    shown: dict[str, str] = attrs.field(factory=dict[str, str])

    def mask(self, text: str) -> str:
        return ID.sub(lambda match: self.shown.setdefault(match[0], f"{FIRST_ID + len(self.shown):032x}"), text)

    def unmask(self, command: str) -> str:
        for actual, shown in self.shown.items():
            command = command.replace(shown, actual)
        return command


class Terminal(io.StringIO):
    """A terminal for programs. interrupted: True if Ctrl-C follows the first line."""

    def __init__(self, *, interrupted: bool = False) -> None:
        super().__init__()
        self._interrupted = interrupted

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if self._interrupted and self.getvalue().endswith("\n"):
            self._interrupted = False
            self.write("^C")
            raise KeyboardInterrupt


def _show_nothing(_: Progress) -> None: ...


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=add_sample_content) as sandbox:
        yield sandbox


@pytest.fixture
def terminal_folder(sandbox: Sandbox, environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files, for a terminal of 80 columns and the sandbox's sample content."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Progress, "start", _show_nothing)  # a bar is there or not, as fast as the machine is
    seconds = itertools.count(0.0, 0.2)
    monkeypatch.setattr("directsuite.cli.demo.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "consents").mkdir()
    for name in ("consent.pdf", "consents/first.pdf", "consents/second.pdf"):
        (tmp_path / name).write_bytes(build_consent_form(1))
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "DIRECTSUITE_STATE": "state"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DIRECTSUITE_SANDBOX", sandbox.root_url)
    monkeypatch.setenv("DIRECTSUITE_MAILBOX", MAILBOXES[0])
    monkeypatch.setenv("DIRECTSUITE_MAILBOX_PASSWORD", MAILBOX_LOGIN)
    return tmp_path


async def screen_of(command: str, monkeypatch: pytest.MonkeyPatch, ids: Ids) -> str:
    terminal = Terminal(interrupted=command.startswith(UNTIL_CTRL_C))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        patched.setattr(sys, "stdin", io.StringIO())
        status = await asyncio.to_thread(main, shlex.split(ids.unmask(command))[1:])
    text = terminal.getvalue().lstrip("\n").replace(str(Path.cwd()), "/home/you")  # without the trace of a bar
    text = ids.mask(text)
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join([f"$ {command}", *lines, *([f"$ echo $?\n{status}"] if status else [])]) + "\n"


async def test_guide_shows_what_the_commands_print(terminal_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, made, ids = read_document("screens"), list[str](), Ids()
    for block in BLOCK.findall(written):
        commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ directsuite")]
        made.append("".join([await screen_of(command, monkeypatch, ids) for command in commands]))
    shown = iter(made)
    guide = BLOCK.sub(lambda _: next(shown), written)
    if os.environ.get("WRITE_SCREENS"):
        DOCUMENTS["screens"].write_text(guide, "utf-8")
    assert guide == written


async def test_table_has_the_operations_that_each_command_asks_for(
    sandbox: Sandbox, terminal_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read_document("sandbox").partition("| command | operations |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(.*)` \| (.*) \|$", table, flags=re.MULTILINE)
    written = {command: set(cell.split(", ")) for commands, cell in rows for command in commands.split("`, `")}
    asked = dict[str, set[str]]()
    for command in ASKING:
        before, words = sandbox.calls.count, set(command.split())
        await screen_of(f"directsuite {command}", monkeypatch, Ids())
        row = max((each for each in written if words >= set(each.split())), key=len)
        asked[row] = {call.operation for call in list(sandbox.calls.records)[before:]}
    assert asked == written


async def test_readme_has_a_picture_of_the_terminal(terminal_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR")
    ids = Ids()
    screens = [await screen_of(command, monkeypatch, ids) for command in PICTURED]
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(screens)))
    picture = console.export_svg(title="directsuite", unique_id="terminal")
    # A browser would fetch the fonts from elsewhere.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    if os.environ.get("WRITE_SCREENS"):
        PICTURE.write_text(picture, "utf-8")
    assert picture == PICTURE.read_text("utf-8")


def test_every_command_is_shown_where_it_succeeds() -> None:
    screens = re.split(r"^\$ (?=directsuite)", read_document("screens"), flags=re.MULTILINE)[1:]
    good = [each for each in screens if "$ echo $?\n" not in each or each.startswith(UNTIL_CTRL_C)]
    app = build_app()
    commands = {path for name in app for path in ([f"{name} {each}" for each in app[name]] or [name])}
    commands = {re.sub(r" -.*", "", each) for each in commands if not each.startswith("-")}
    shown = [f"{each.splitlines()[0]} " for each in good]
    missing = [each for each in sorted(commands) if not any(f"directsuite {each} " in line for line in shown)]
    assert missing == []
