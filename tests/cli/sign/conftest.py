"""A sandbox, a folder with PDFs, and the command `directsuite sign` in this folder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import CliRunner
from tests.integration.documents import make_consent_form

PATIENT, WITNESS = "PatientSig", "WitnessSig"
"""The empty signature fields of the PDFs."""


@attrs.frozen(kw_only=True)
class SignRunner(CliRunner):
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
async def cli(parts: dict[str, Any]) -> AsyncIterator[SignRunner]:
    async with Sandbox() as sandbox:
        runner = SignRunner(**parts, prefix=("sign",), sandbox=sandbox)
        for name in ("DIRECTSUITE_SIGNING_URL", "DIRECTSUITE_TOKEN"):
            runner.set_env(name, sandbox.environment[name])
        yield runner
