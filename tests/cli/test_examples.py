"""The examples of `--help` work, one after another, on a sandbox with sample content."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from directsuite.sandbox import Sandbox
from directsuite.sandbox.samples import FAX_NUMBER, MAILBOX_LOGIN, MAILBOXES, add_sample_content
from tests.cli.conftest import EXAMPLES, CliRunner, start_process
from tests.consent_form import build_consent_form

ALL_EXAMPLES = list(dict.fromkeys([*EXAMPLES["send"], *EXAMPLES["patient add"], *itertools.chain(*EXAMPLES.values())]))
"""The examples in an order in which each works."""
UNTIL_CTRL_C = [
    example for example in ALL_EXAMPLES if example.startswith("directsuite fax watch") or example in EXAMPLES["sandbox"]
]
ASKED = {"directsuite inbox delete 2": "y\n", "directsuite patient add ada.toml --domain direct.example.test": "y\n"}
FROM_STDIN = {"directsuite patient by-username - --domain direct.example.test --json": "ada\n"}
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
async def reader(parts: dict[str, Any], tmp_path: Path) -> AsyncIterator[CliRunner]:
    (tmp_path / "consents").mkdir()
    for name in PDFS:
        (tmp_path / name).write_bytes(build_consent_form(1))
    async with Sandbox(seed=add_sample_content) as sandbox:
        runner = CliRunner(**parts, sandbox=sandbox)
        runner.set_environment(MAILBOXES[0], MAILBOX_LOGIN)
        runner.set_env("DIRECTSUITE_SANDBOX", sandbox.root_url)
        for name, text in FILES.items():
            runner.write_private_file(name, text)
        yield runner


def split_example(reader: CliRunner, example: str, stand_ins: dict[str, str]) -> list[str]:
    """Return the arguments of an example, with the values of this run."""
    text = example.replace("http://127.0.0.1:8025", reader.sandbox.root_url)
    for name, value in stand_ins.items():
        text = text.replace(name, value)
    return shlex.split(text)[1:]


@pytest.mark.wide
async def test_examples_can_be_given_in_their_order(reader: CliRunner) -> None:
    stand_ins = {"HANDLE": (await reader.run("fax", "list", FAX_NUMBER, "--json")).document[0]["message_handle"]}
    failed = dict[str, str]()
    for example in ALL_EXAMPLES:
        if example in UNTIL_CTRL_C:
            continue
        typed = ASKED.get(example) or FROM_STDIN.get(example, "")
        async with asyncio.timeout(60):
            result = await reader.run(
                *split_example(reader, example, stand_ins), stdin=typed, is_terminal=example in ASKED
            )
        if result.status:
            failed[example] = result.err
        if example in EXAMPLES["send"] and result.out.startswith("<"):
            stand_ins["SMTP_ID"] = result.out.strip()
    assert failed == {}


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")
@pytest.mark.parametrize("example", UNTIL_CTRL_C)
async def test_examples_that_go_on_until_ctrl_c_do_so(reader: CliRunner, example: str) -> None:
    words = [*split_example(reader, example, {}), *(["--port", "0"] if example in EXAMPLES["sandbox"] else [])]
    async with start_process(*dict.fromkeys(words)) as process:
        assert process.stdout is not None
        while b"127.0.0.1" not in (line := await process.stdout.readline()) and "fax watch" not in example:
            assert line, (await process.communicate())[1]
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode in (0, 130)
