"""A sandbox, a folder with PDFs, and the command `directsuite sign` in this folder."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from directsuite.cli import main
from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import CliResult
from tests.integration.documents import make_consent_form

PATIENT, WITNESS = "PatientSig", "WitnessSig"
"""The empty signature fields of the PDFs."""


@attrs.frozen
class SignRunner:
    """Runs `directsuite sign`. folder: the current folder."""

    sandbox: Sandbox
    folder: Path
    set_env: Callable[[str, str], None]
    _run: Callable[[tuple[str, ...]], Awaitable[CliResult]]

    async def sign(self, *arguments: str) -> CliResult:
        result = await self._run(arguments)
        assert "Traceback" not in result.err
        return result

    def write_pdfs(self, *names: str, content: bytes | None = None) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(make_consent_form() if content is None else content)

    def count_signatures(self, name: str) -> int:
        return len(re.findall(rb"/ByteRange\s*\[", (self.folder / name).read_bytes()))

    def list_files(self, folder: str = "out") -> list[str]:
        root = self.folder / folder
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    async def count_requests(self, operation: str) -> int:
        return len(await self.sandbox.ledger(operation))


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sign_runner(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> SignRunner:
    monkeypatch.chdir(tmp_path)
    for name in tuple(os.environ):
        if name.startswith("DIRECTSUITE_"):
            monkeypatch.delenv(name)
    for name in ("DIRECTSUITE_SIGNING_URL", "DIRECTSUITE_TOKEN"):
        monkeypatch.setenv(name, sandbox.environment[name])

    async def run(arguments: tuple[str, ...]) -> CliResult:
        """Run the command in a thread, because it has its own event loop."""
        capsys.readouterr()
        status = await asyncio.to_thread(main, ["sign", *arguments])
        told = capsys.readouterr()
        return CliResult(status, told.out, told.err)

    return SignRunner(sandbox, tmp_path, monkeypatch.setenv, run)
