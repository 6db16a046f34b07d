"""A sandbox, and a runner of commands. Each command runs in a thread, because it has its own event loop."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

import attrs
import pytest
from aiohttp import web
from cyclopts import App, ArgumentCollection
from cyclopts.utils import UNSET

from directsuite.cli import main
from directsuite.cli.app import build_app
from directsuite.sandbox.server import Sandbox
from tests.integration.scenario import ALICE, BOB, FAX_NUMBER, PASSWORD, make_raw_message


def list_commands() -> dict[str, App]:
    """Return each command and subcommand by its name, such as "inbox list" and "inbox folder create"."""
    commands = dict[str, App]()

    def add(parent: App, prefix: str) -> None:
        for each in (name for name in parent if not name.startswith("-")):
            commands[f"{prefix}{each}"] = parent[each]
            add(parent[each], f"{prefix}{each} ")

    add(build_app(), "")
    return commands


COMMANDS = list_commands()
EXAMPLES = {
    name: [line.strip() for line in f"{app.help_epilogue}".splitlines() if line.startswith("    directsuite ")]
    for name, app in COMMANDS.items()
}
"""The examples in each command's help."""


@pytest.fixture(scope="session", autouse=True)
def _share_arguments() -> Generator[None]:
    """Let cyclopts derive the arguments of each command once, which takes ten milliseconds.

    What a command was given is removed before the arguments are used again.
    """
    assemble, known = App.assemble_argument_collection, dict[tuple[object, bool], ArgumentCollection]()

    def reuse(app: App, *, parse_docstring: bool = False) -> ArgumentCollection:
        key = (app.default_command, parse_docstring)
        if key not in known:
            known[key] = assemble(app, parse_docstring=parse_docstring)
        for argument in known[key]:
            argument.tokens, argument._value = [], UNSET
            argument._marked_converted = argument._mark_converted_override = False
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "assemble_argument_collection", reuse)
        yield


@attrs.frozen
class CliResult:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def write_secret(path: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    path.write_text(text)
    path.chmod(0o600)
    return path


@attrs.frozen(kw_only=True)
class CommandRunner:
    """Runs commands in a folder. prefix: the first arguments of each command."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    prefix: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Change to the folder, and remove the variables of directsuite."""
        self.monkeypatch.chdir(self.folder)
        for name in [each for each in os.environ if each.startswith("DIRECTSUITE_")]:
            self.monkeypatch.delenv(name)

    async def run(self, *arguments: str, stdin: str = "", is_terminal: bool = False) -> CliResult:
        self.capsys.readouterr()
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        self.monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
        self.monkeypatch.setattr(sys, "stdin", stream)
        status = await asyncio.to_thread(main, [*self.prefix, *arguments])
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return CliResult(status, captured.out, captured.err)

    async def fail(self, status: int, message: str, *arguments: str, stdin: str = "", is_terminal: bool = False) -> str:
        """Run a command that must fail with this status, this message, and no output. Return stderr."""
        result = await self.run(*arguments, stdin=stdin, is_terminal=is_terminal)
        assert (result.status, result.out) == (status, "")
        assert message in result.err
        return result.err

    def set_env(self, name: str, value: str) -> None:
        self.monkeypatch.setenv(name, value)

    def write_private_file(self, name: str, text: str) -> str:
        write_secret(self.folder / name, text)
        return name


@attrs.frozen(kw_only=True)
class CliRunner(CommandRunner):
    """Runs commands with the settings of a sandbox in the environment."""

    sandbox: Sandbox

    def set_environment(self, address: str, password: str) -> None:
        """Set the variables of the sandbox and of a mailbox."""
        mailbox = {"MAILBOX": address, "MAILBOX_PASSWORD": password, "STATE": str(self.folder / "state")}
        ours = {f"DIRECTSUITE_{name}": value for name, value in mailbox.items()}
        for name, value in (self.sandbox.environment | ours).items():
            self.set_env(name, value)

    async def deliver(self, subject: str, raw: bytes | None = None) -> int:
        return await self.sandbox.deliver(ALICE, make_raw_message(subject) if raw is None else raw)


@asynccontextmanager
async def serve(
    respond: Callable[[web.Request], Awaitable[web.Response]], tls: SSLContext | None = None
) -> AsyncGenerator[str]:
    """Serve the responses to all requests. Yield the root URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def start_process(
    *arguments: str,
    stdin: int = PIPE,
    stdout: int | BinaryIO = PIPE,
    stderr: int | BinaryIO = PIPE,
    flags: Sequence[str] = (),
) -> AsyncGenerator[Process]:
    """Start a command as a process in the current folder. It is killed at the end of the block if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", *flags, "-m", "directsuite", *arguments),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    try:
        async with asyncio.timeout(60):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The arguments of each runner of commands."""
    return {"folder": tmp_path, "monkeypatch": monkeypatch, "capsys": capsys}


@pytest.fixture
async def cli(parts: dict[str, Any]) -> AsyncIterator[CliRunner]:
    async with Sandbox() as sandbox:
        for address in (ALICE, BOB):
            await sandbox.add_account(address, PASSWORD)
        await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
        for number in range(3):
            await sandbox.add_fax(FAX_NUMBER, description=f"Fax {number}")
        runner = CliRunner(**parts, sandbox=sandbox)
        runner.set_environment(ALICE, PASSWORD)
        yield runner


@pytest.fixture
def offline(parts: dict[str, Any]) -> CommandRunner:
    """A runner of commands that must end without a request, because no server listens at the URLs of the services."""
    runner = CommandRunner(**parts)
    services = {f"{name}_URL": "http://127.0.0.1:1" for name in ("MESSAGE", "FAX", "SIGNING", "REGISTRATION")}
    mailbox = {"MAILBOX": ALICE, "MAILBOX_PASSWORD": PASSWORD, "STATE": str(runner.folder / "state")}
    secrets = {"TOKEN": "token", "LOGIN_USERNAME": "reseller", "LOGIN_PASSWORD": PASSWORD}
    for name, value in (services | mailbox | secrets | {"SANDBOX": "http://127.0.0.1:1"}).items():
        runner.set_env(f"DIRECTSUITE_{name}", value)
    return runner


def install_keyring(
    monkeypatch: pytest.MonkeyPatch, passwords: Mapping[str, str | Exception | None], priority: float = 5
) -> None:
    """Replace the package keyring. passwords: what it returns or raises, by user name."""

    def get_password(service: str, name: str) -> str | None:
        assert service == "directsuite"
        password = passwords.get(name)
        if isinstance(password, Exception):
            raise password
        return password

    keyring: Any = ModuleType("keyring")
    keyring.__spec__ = SimpleNamespace(name="keyring")  # which importlib.util.find_spec returns
    keyring.get_password, keyring.get_keyring = get_password, lambda: SimpleNamespace(priority=priority)
    monkeypatch.setitem(sys.modules, "keyring", keyring)


def set_terminal(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("directsuite.cli.credentials.has_keyring", lambda: False)


@pytest.fixture
def full_disk() -> Generator[BinaryIO]:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no disk that is always full")
    with Path("/dev/full").open("wb") as full:
        yield full
