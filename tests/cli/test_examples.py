"""The examples of `--help`: somebody gives all of them, in their order, at the sandbox with its sample content."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from directsuite.cli import app
from directsuite.cli.demo import documents
from directsuite.cli.examples import EXAMPLES
from directsuite.sandbox import Sandbox
from directsuite.sandbox.samples import FAX_NUMBER, MAILBOX_LOGIN, MAILBOXES, add_sample_content
from tests.cli.conftest import CliRunner, start_process

UNTIL_CTRL_C = [
    (command, arguments)
    for command, several in EXAMPLES.items()
    for arguments in several
    if command in ("fax watch", "sandbox") or "--keep" in arguments
]
ASKED = {"inbox delete 2": "y\n", "patient add ada.toml --domain direct.example.test": "y\n"}
FROM_STDIN = {"patient by-username - --domain direct.example.test --json": "ada\n"}
FILES = {
    "letter.txt": "Please see her soon.\n",
    "mailboxes.txt": "\n".join(MAILBOXES),
    "secrets.toml": "".join(f'"{address}" = "{MAILBOX_LOGIN}"\n' for address in MAILBOXES),
    "ada.toml": 'first_name = "Ada"\nlast_name = "Example"\nssn4 = "1234"\ndob = 1980-02-29\n'
    'direct_username = "ada"\ndirect_password = "Correct-Horse-1"\n',
    "grace.toml": 'first_name = "Grace"\nlast_name = "Sample"\nssn4 = "5678"\ndob = 1975-12-09\n'
    'direct_username = "grace"\ndirect_password = "Correct-Horse-2"\n',
    "passwords.toml": 'ada = "Correct-Horse-3"\n',
}
PDFS = ("scan.pdf", "consent.pdf", "form.pdf", "consents/first.pdf", "consents/second.pdf")


@pytest.fixture
async def reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[CliRunner]:
    """Somebody who has the files that the examples name."""
    (tmp_path / "consents").mkdir()
    for name in PDFS:
        (tmp_path / name).write_bytes(documents.build_consent_form(documents.Form.from_number(1)))
    async with Sandbox(seed=add_sample_content) as sandbox:
        typist = CliRunner(sandbox, tmp_path, monkeypatch, capsys)
        typist.set_environment(MAILBOXES[0], MAILBOX_LOGIN)
        monkeypatch.setenv("DIRECTSUITE_SANDBOX", sandbox.root_url)
        for name, text in FILES.items():
            typist.write_private_file(name, text)
        yield typist


def words_of(reader: CliRunner, command: str, arguments: str, stand_ins: dict[str, str]) -> Sequence[str]:
    """The words of an example, with what only this run knows."""
    text = f"{command} {arguments}".replace("http://127.0.0.1:8025", reader.sandbox.root_url)
    for name, value in stand_ins.items():
        text = text.replace(name, value)
    return shlex.split(text)


@pytest.mark.wide
async def test_the_examples_can_be_given_in_their_order(reader: CliRunner) -> None:
    stand_ins = {"HANDLE": (await reader.run("fax", "list", FAX_NUMBER, "--json")).document[0]["message_handle"]}
    failed = dict[str, str]()
    for command, several in EXAMPLES.items():
        for arguments in several:
            if (command, arguments) in UNTIL_CTRL_C:
                continue
            example = f"{command} {arguments}".rstrip()
            typed = ASKED.get(example) or FROM_STDIN.get(example, "")
            words = words_of(reader, command, arguments, stand_ins)
            async with asyncio.timeout(60):
                ended = await reader.run(*words, stdin=typed, is_terminal=example in ASKED)
            if ended.status:
                failed[example] = ended.err
            if command == "send" and ended.out.startswith("<"):
                stand_ins["SMTP_ID"] = ended.out.strip()
    assert failed == {}


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")
@pytest.mark.parametrize(("command", "arguments"), UNTIL_CTRL_C)
async def test_the_examples_that_go_on_until_ctrl_c_do_so(reader: CliRunner, command: str, arguments: str) -> None:
    words = [*words_of(reader, command, arguments, {}), *(["--port", "0"] if command == "sandbox" else [])]
    async with start_process(*dict.fromkeys(words)) as process:
        assert process.stdout is not None
        while b"127.0.0.1" not in (line := await process.stdout.readline()) and command != "fax watch":
            assert line, (await process.communicate())[1]
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode in (0, 130)


def test_every_command_has_two_examples_or_more() -> None:
    commands = {path for name in app.app for path in [name, *(f"{name} {each}" for each in app.app[name])]}
    commands = {each for each in commands if not each.rpartition(" ")[2].startswith("-")}
    assert {name: len(EXAMPLES.get(name, ())) for name in commands if len(EXAMPLES.get(name, ())) < 2} == {}
    assert set(EXAMPLES) == commands
