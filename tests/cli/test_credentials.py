"""The sources of secrets and their order. No output shows a secret."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from directsuite.cli.credentials import find_in_keyring, find_secret, has_keyring
from directsuite.cli.errors import UsageError
from directsuite.errors import ConfigurationError
from directsuite.wire.models import Secret
from tests.cli.conftest import CliRunner, install_keyring, set_terminal, write_secret
from tests.integration.scenario import ALICE, FAX_NUMBER


def find_token(file: Path | None = None) -> Secret:
    return find_secret("token", file)


@pytest.fixture(autouse=True)
def ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIRECTSUITE_TOKEN", raising=False)
    monkeypatch.setattr("getpass.getpass", {"Access token from the service's provider: ": "typed"}.__getitem__)


def test_first_place_that_has_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_terminal(monkeypatch, is_terminal=True)
    install_keyring(monkeypatch, {"token": "kept"})
    monkeypatch.setenv("DIRECTSUITE_TOKEN", "set")
    assert find_token(write_secret(tmp_path / "t", "written")) == Secret("written")
    assert find_token() == Secret("set")
    monkeypatch.delenv("DIRECTSUITE_TOKEN")
    assert find_token() == Secret("kept")
    install_keyring(monkeypatch, {"token": None})
    assert find_token() == Secret("typed")
    set_terminal(monkeypatch, is_terminal=False)
    words = r"Set DIRECTSUITE_TOKEN, give --token-file FILE, or .*`keyring set directsuite token`"
    with pytest.raises(UsageError, match=words):
        find_token()


@pytest.mark.parametrize(
    ("stored", "priority"), [(RuntimeError("hunter2"), 5), (OSError("hunter2"), 5), (None, 5), ("", 5), ("kept", 0)]
)
def test_unusable_keyring_is_ignored(
    monkeypatch: pytest.MonkeyPatch, stored: str | Exception | None, priority: int
) -> None:
    install_keyring(monkeypatch, {"token": stored}, priority)
    assert has_keyring() == bool(priority)
    assert find_in_keyring("token") is None


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\n", "\ufeffhunter2\n"])
def test_file_holds_the_secret_alone(tmp_path: Path, content: str) -> None:
    assert find_token(write_secret(tmp_path / "t", content)) == Secret("hunter2")


@pytest.mark.parametrize(
    ("content", "problem"), [("", "empty"), ("\n", "empty"), ("hunter2\nhunter3\n", "has several lines")]
)
def test_file_that_holds_something_else_is_rejected(tmp_path: Path, content: str, problem: str) -> None:
    words = f"{problem}.*: it must contain only the secret, on one line"
    with pytest.raises(ConfigurationError, match=words) as raised:
        find_token(write_secret(tmp_path / "t", content))
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "No access token was typed"),
        (EOFError(), "No access token was typed"),
        (UnicodeDecodeError("utf-8", b"hunter\xe9", 6, 7, "invalid"), "The access token is not text in this machine's"),
    ],
)
def test_unusable_input_is_rejected(monkeypatch: pytest.MonkeyPatch, typed: str | Exception, problem: str) -> None:
    def ask(_: str) -> str:
        if isinstance(typed, Exception):
            raise typed
        return typed

    set_terminal(monkeypatch, is_terminal=True)
    install_keyring(monkeypatch, {"token": None})
    monkeypatch.setattr("getpass.getpass", ask)
    with pytest.raises(UsageError, match=problem) as raised:
        find_token()
    assert raised.value.__cause__ is None


async def test_rejected_secret_is_reported_with_its_source(cli: CliRunner) -> None:
    async def run(*arguments: str) -> str:
        return (await cli.run(*arguments, is_terminal=True)).err

    file = cli.write_private_file("wrong", "hunter2")
    assert f"(the password of {ALICE} is from the file of --password-file (wrong))" in await run(
        "inbox", "list", "-v", "--password-file", file
    )
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", "hunter2")
    assert "(the password is from DIRECTSUITE_MAILBOX_PASSWORD)" in await run("inbox", "list")
    cli.monkeypatch.delenv("DIRECTSUITE_MAILBOX_PASSWORD")
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD_FILE", file)
    assert "(the password is from DIRECTSUITE_MAILBOX_PASSWORD_FILE)" in await run("inbox", "list")
    cli.monkeypatch.delenv("DIRECTSUITE_MAILBOX_PASSWORD_FILE")
    install_keyring(cli.monkeypatch, {ALICE: "hunter2"})
    assert "(the password is from the keyring)" in await run("inbox", "list")
    install_keyring(cli.monkeypatch, {})
    cli.monkeypatch.setattr("getpass.getpass", Mock(return_value="hunter2"))
    assert "(the password is from your answer to the question)" in await run("inbox", "list")
    cli.set_env("DIRECTSUITE_TOKEN", "hunter2")
    assert "(the token is from DIRECTSUITE_TOKEN)" in await run("fax", "list", FAX_NUMBER)
