"""The guide `screens`: what the commands print on a terminal of 80 columns, good and bad.

`WRITE_SCREENS=1 pytest tests/guides/test_screens.py` writes the guide anew; look at what has changed.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from directsuite.cli import main
from directsuite.cli.app import app
from directsuite.cli.demo import documents
from directsuite.sandbox import Sandbox
from directsuite.sandbox.samples import MAILBOX_LOGIN, MAILBOXES, add_sample_content
from tests.guides.documents import DOCUMENTS, text_of
from tests.testing.project import ROOT

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
VARYING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+", "2026-05-01 09:00:00 UTC"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(?!:)", "2026-05-01 09:00"),
    (r"\d{4}-\d\d-\d\d$", "2027-05-01"),
    (r"D:\d{14}Z", "D:20260501090000Z"),
    (r"pyHanko [0-9.]+", "pyHanko"),
    (r"\([A-Z]{3,5}\)", "(UTC)"),
    (r"<[0-9a-f.-]{20,}@", "<4b1f0c2e9a7d4c58b6e3a1d20f97c845@"),
    (r"DIRECTSUITE_TOKEN=\S+", "DIRECTSUITE_TOKEN=JZ1vR0cW7mA9fS3kX5dLqg"),
    (r"\b[0-9a-f]{32}\b", "4b1f0c2e9a7d4c58b6e3a1d20f97c845"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8025"),
    (r"port \d+", "port 8025"),
    (r"\b\d+ ms\b", "2 ms"),
    (r"\b\d+(\.\d)? s (ago|at)", r"1 s \2"),
)
"""What no two runs have alike."""
NOT_SHOWN = {"fax watch", "demo", "guide"}
"""What goes on until Ctrl-C, or shows a bar as it goes, or a whole guide."""
PICTURE = ROOT / "directsuite" / "guides" / "terminal.svg"
PICTURED = (
    "directsuite inbox list --from hospital",
    "directsuite inbox save 6 --into received",
    "directsuite sign consents --output signed --widget 72,620,200,70 --reason Consent",
    "directsuite inbox reply 6 --body 'Thank you.' --attach signed/first.pdf",
    "directsuite inbox move 6 --to INBOX.Done",
)
FILES = {
    "letter.txt": "Dear Bob,\n\nplease see my patient.\n",
    "ada.toml": 'first_name = "Ada"\nlast_name = "Example"\nssn4 = "1234"\ndob = 1980-02-29\ndirect_username = "ada"\n'
    'direct_password = "Correct-Horse-1"\n',
    "passwords.toml": 'ada = "Correct-Horse-2"\n',
    "notes.pdf": "These are no PDF.\n",
}


class Terminal(io.StringIO):
    """A terminal, as far as programs can tell."""

    def isatty(self) -> bool:
        return True


def _show_nothing(_: Progress) -> None:
    """Take the place of a bar's beginning."""


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A folder with files, at a terminal of 80 columns, with the sandbox's sample content in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Progress, "start", _show_nothing)  # a bar is there or not, as fast as the machine is
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "consents").mkdir()
    for name in ("consent.pdf", "consents/first.pdf", "consents/second.pdf"):
        (tmp_path / name).write_bytes(documents.consent_form(documents.Form.numbered(1)))
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "DIRECTSUITE_STATE": "state"}.items():
        monkeypatch.setenv(name, value)
    async with Sandbox(seed=add_sample_content) as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DIRECTSUITE_SANDBOX", sandbox.root_url)
        monkeypatch.setenv("DIRECTSUITE_MAILBOX", MAILBOXES[0])
        monkeypatch.setenv("DIRECTSUITE_MAILBOX_PASSWORD", MAILBOX_LOGIN)
        yield tmp_path


async def screen_of(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints, with what varies replaced, and its exit status where that isn't 0."""
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        patched.setattr(sys, "stdin", io.StringIO())
        status = await asyncio.to_thread(main, shlex.split(command)[1:])
    text = terminal.getvalue().lstrip("\n").replace(str(Path.cwd()), "/home/you")  # without the trace of a bar
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join([f"$ {command}", *lines, *([f"$ echo $?\n{status}"] if status else [])]) + "\n"


async def test_the_guide_shows_what_the_commands_print(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, made = text_of("screens"), list[str]()
    for block in BLOCK.findall(written):
        commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ directsuite")]
        made.append("".join([await screen_of(command, monkeypatch) for command in commands]))
    shown = iter(made)
    guide = BLOCK.sub(lambda _: next(shown), written)
    if os.environ.get("WRITE_SCREENS"):
        DOCUMENTS["screens"].write_text(guide, "utf-8")
    assert guide == written


async def test_readme_has_a_picture_of_the_terminal(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR")
    screens = [await screen_of(command, monkeypatch) for command in PICTURED]
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(screens)))
    picture = console.export_svg(title="directsuite", unique_id="terminal")
    picture = re.sub(
        r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL
    )  # a browser would fetch them from elsewhere
    if os.environ.get("WRITE_SCREENS"):
        PICTURE.write_text(picture, "utf-8")
    assert picture == PICTURE.read_text("utf-8")


def test_every_command_is_shown() -> None:
    text = text_of("screens")
    commands = {path for name in app for path in ([f"{name} {each}" for each in app[name]] or [name])}
    commands = {re.sub(r" -.*", "", each) for each in commands if not each.startswith("-")} - NOT_SHOWN
    assert [each for each in sorted(commands) if f"$ directsuite {each}" not in text] == []
