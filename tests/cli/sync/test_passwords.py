"""The sources of passwords and their order. No other user can read them."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from directsuite.cli.credentials import MAILBOX_PASSWORD_VAR
from directsuite.cli.errors import UsageError
from directsuite.cli.sync import make_password_source
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from tests.cli.sync.conftest import SyncRunner
from tests.integration.scenario import PASSWORD

ALICE, BOB = "alice@direct.example.test", "bob@direct.example.test"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def look_for_libraries(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    def find_spec(name: str) -> str | None:
        return name if there else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def sit_at(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(isatty=lambda: is_terminal))


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    look_for_libraries(monkeypatch, there=False)
    sit_at(monkeypatch, is_terminal=False)
    monkeypatch.delenv(MAILBOX_PASSWORD_VAR, raising=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", f'{{"{ALICE}": "pässword"}}'),
        ("p.toml", f'"{ALICE}" = "pässword"'),
        ("p", f' {{"{ALICE}": "pässword"}}'),
        ("p", f'# mine\n"{ALICE}" = "pässword"'),
    ],
)
async def test_file_of_json_or_toml(tmp_path: Path, name: str, text: str) -> None:
    password = make_password_source([ALICE], written(tmp_path / name, text))
    assert await password(ALICE) == Secret("pässword")
    with pytest.raises(ConfigurationError, match="has no password for this mailbox") as raised:
        await password(BOB)
    assert "bob" not in str(raised.value)


async def test_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "p.toml", f'"{ALICE}" = "before"')
    password = make_password_source([ALICE], path)
    assert await password(ALICE) == Secret("before")
    written(tmp_path / "new", f'"{ALICE}" = "afterwards"').replace(path)
    assert await password(ALICE) == Secret("afterwards")
    path.unlink()
    with pytest.raises(ConfigurationError, match="Could not read"):
        await password(ALICE)


@pytest.mark.parametrize("log_names", [False, True])
async def test_mailbox_without_a_password_is_reported_by_its_number(cli: SyncRunner, log_names: bool) -> None:
    written(cli.folder / "p.toml", f'"{ALICE}" = "{PASSWORD}"')
    boxes = ("--mailbox", BOB, "--mailbox", ALICE, "--mailbox", "carol@direct.example.test")
    result = await cli.run("run", *boxes, "--passwords", "p.toml", "--once", *(["--log-names"] if log_names else []))
    assert result.status == 1
    told = [line.split(" ", 1)[1] for line in result.out.splitlines() if "passwords file has no password" in line]
    numbers = {line.split()[1].rstrip(":") for line in told}
    assert len(told) == len(numbers) == 2
    assert numbers < {"1", "2", "3"}
    assert all(any(name in line for line in told) is log_names for name in (BOB, "carol@direct.example.test"))


@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o777])
def test_file_that_others_may_read_is_rejected(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "p.toml", f'"{ALICE}" = "hunter2"', mode)
    with pytest.raises(ConfigurationError, match="is accessible to other users"):
        make_password_source([ALICE], path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", '["hunter2"]'),
        ("p.json", "{hunter2"),
        ("p.toml", f"{ALICE} = hunter2"),
        ("p.toml", f'{ALICE} = "hunter2"'),  # without quotes it is a nested key
        ("p.json", f'{{"{ALICE}": 2}}'),
        ("p", ""),
        ("p", "hunter2\x00"),
    ],
)
def test_file_of_something_else_is_rejected_without_being_shown(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path / name, text)
    if not text:
        assert make_password_source([ALICE], path) is not None
        return
    with pytest.raises(UsageError) as raised:
        make_password_source([ALICE], path)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_variable_is_for_one_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAILBOX_PASSWORD_VAR, "hunter2")
    assert await make_password_source([ALICE], None)(ALICE) == Secret("hunter2")
    with pytest.raises(UsageError, match="a single mailbox"):
        make_password_source([ALICE, BOB], None)


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_keyring_is_asked_before_anybody(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    class KeyringError(Exception):
        """The exception of the keyring package."""

    def get_password(service: str, address: str) -> str | None:
        assert service == "directsuite"
        if address == "locked@direct.example.test":
            raise KeyringError("hunter2")
        return "hers" if address == ALICE else None

    keyring: Any = types.ModuleType("keyring")
    keyring.get_password, keyring.get_keyring = get_password, lambda: types.SimpleNamespace(priority=1)
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    look_for_libraries(monkeypatch, there=True)
    sit_at(monkeypatch, is_terminal=is_terminal)
    asked = list[str]()

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr("getpass.getpass", ask)
    password = make_password_source([ALICE, BOB], None)
    assert await password(ALICE) == Secret("hers")
    if is_terminal:
        assert asked == [f"Password of {BOB}: "]
        assert await password(BOB) == Secret("typed")
        return
    for address in (BOB, "locked@direct.example.test"):
        with pytest.raises(ConfigurationError, match="The keyring has no password"):
            await password(address)


def test_missing_passwords_are_explained() -> None:
    with pytest.raises(UsageError, match=MAILBOX_PASSWORD_VAR):
        make_password_source([ALICE], None)
