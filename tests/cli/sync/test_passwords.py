"""The sources of passwords and their order. No other user can read them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from directsuite.cli.credentials import MAILBOX_PASSWORD_VAR
from directsuite.cli.errors import UsageError
from directsuite.cli.sync import make_password_source
from directsuite.errors import ConfigurationError
from directsuite.wire.models import Secret
from tests.cli.conftest import install_keyring, set_terminal, write_secret
from tests.cli.sync.conftest import SyncRunner
from tests.integration.scenario import ALICE, BOB, PASSWORD


@pytest.fixture(autouse=True)
def no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    install_keyring(monkeypatch, {}, priority=0)
    set_terminal(monkeypatch, is_terminal=False)
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
    password = make_password_source([ALICE], write_secret(tmp_path / name, text))
    assert await password(ALICE) == Secret("pässword")
    with pytest.raises(ConfigurationError, match="has no password for this mailbox") as raised:
        await password(BOB)
    assert "bob" not in str(raised.value)


async def test_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = write_secret(tmp_path / "p.toml", "")
    password = make_password_source([ALICE], path)
    for text in ("before", "afterwards"):
        write_secret(tmp_path / "new", f'"{ALICE}" = "{text}"').replace(path)
        assert await password(ALICE) == Secret(text)
    path.unlink()
    with pytest.raises(ConfigurationError, match="Could not read"):
        await password(ALICE)


@pytest.mark.parametrize("log_names", [False, True])
async def test_mailbox_without_a_password_is_reported_by_its_number(cli: SyncRunner, log_names: bool) -> None:
    write_secret(cli.folder / "p.toml", f'"{ALICE}" = "{PASSWORD}"')
    boxes = ("--mailbox", BOB, "--mailbox", ALICE, "--mailbox", "carol@direct.example.test")
    result = await cli.run("run", *boxes, "--passwords", "p.toml", "--once", *(["--log-names"] if log_names else []))
    assert result.status == 1
    told = [line.split(" ", 1)[1] for line in result.out.splitlines() if "passwords file has no password" in line]
    numbers = {line.split()[1].rstrip(":") for line in told}
    assert len(told) == len(numbers) == 2
    assert numbers < {"1", "2", "3"}
    assert all(any(name in line for line in told) is log_names for name in (BOB, "carol@direct.example.test"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", '["hunter2"]'),
        ("p.json", "{hunter2"),
        ("p.toml", f"{ALICE} = hunter2"),
        ("p.toml", f'{ALICE} = "hunter2"'),  # without quotes it is a nested key
        ("p.json", f'{{"{ALICE}": 2}}'),
        ("p", "hunter2\x00"),
    ],
)
def test_file_of_something_else_is_rejected_without_being_shown(tmp_path: Path, name: str, text: str) -> None:
    path = write_secret(tmp_path / name, text)
    with pytest.raises(UsageError) as raised:
        make_password_source([ALICE], path)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_variable_is_for_one_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAILBOX_PASSWORD_VAR, "hunter2")
    assert await make_password_source([ALICE], None)(ALICE) == Secret("hunter2")
    with pytest.raises(UsageError, match=f"{MAILBOX_PASSWORD_VAR} is only for a single mailbox"):
        make_password_source([ALICE, BOB], None)


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_keyring_is_asked_before_anybody(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    asked, locked = list[str](), "locked@direct.example.test"

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    install_keyring(monkeypatch, {ALICE: "hers", locked: RuntimeError("hunter2")})
    set_terminal(monkeypatch, is_terminal=is_terminal)
    monkeypatch.setattr("getpass.getpass", ask)
    password = make_password_source([ALICE, BOB], None)
    assert await password(ALICE) == Secret("hers")
    if is_terminal:
        assert asked == [f"Password of {BOB}: "]
        assert await password(BOB) == Secret("typed")
        return
    for address in (BOB, locked):
        with pytest.raises(ConfigurationError, match="The keyring has no password"):
            await password(address)


async def test_keyring_leaves_threads_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    install_keyring(monkeypatch, {ALICE: "hers"})
    released = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(executor)
        resolving = loop.run_in_executor(None, released.wait)
        try:
            async with asyncio.timeout(5):
                assert await make_password_source([ALICE], None)(ALICE) == Secret("hers")
        finally:
            released.set()
            await resolving


def test_missing_passwords_are_explained() -> None:
    with pytest.raises(UsageError, match=MAILBOX_PASSWORD_VAR):
        make_password_source([ALICE], None)
