"""`directsuite doctor` on a machine without settings."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any

import attrs
import pytest
from aiohttp import web

from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import CommandRunner, serve
from tests.integration.scenario import open_populated_sandbox

CA_VARS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@attrs.frozen
class DoctorReport:
    """The output of the command. checks: result and details by subject and check."""

    status: int
    out: str
    err: str
    document: Mapping[str, Any]
    checks: Mapping[tuple[str, str], tuple[str, str]]

    def expect(self, subject: str, check: str, result: str, sentence: str) -> None:
        """Assert the result of a check, and the beginning of its sentence."""
        found, actual = self.checks[subject, check]
        assert (found, actual[: len(sentence)]) == (result, sentence)

    def get_results(self, subject: str) -> dict[str, str]:
        return {check: result for (of, check), (result, _) in self.checks.items() if of == subject}


@attrs.frozen(kw_only=True)
class DoctorRunner(CommandRunner):
    async def run_json(self, *arguments: str) -> DoctorReport:
        result = await self.run(*arguments, "--json")
        checks = result.document["checks"]
        return DoctorReport(
            result.status,
            result.out,
            result.err,
            result.document,
            {(each["subject"], each["check"]): (each["result"], each["sentence"]) for each in checks},
        )

    async def run_against(
        self,
        response: Callable[[], web.Response] = web.Response,
        *arguments: str,
        services: Sequence[str] = ("MESSAGE",),
    ) -> DoctorReport:
        """Run the command with a server that sends this response to every request for these services."""
        async with serve_response(response) as url:
            self.set_variables({f"{service}_URL": url for service in services})
            return await self.run_json(*arguments)

    def set_variables(self, variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            self.set_env(f"DIRECTSUITE_{name}", value)


@pytest.fixture
def cli(parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> DoctorRunner:
    for name in tuple(os.environ):
        if name.lower().endswith("_proxy") or name in CA_VARS:
            monkeypatch.delenv(name)
    return DoctorRunner(**parts, prefix=("doctor",))


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_populated_sandbox() as sandbox:
        yield sandbox


@asynccontextmanager
async def serve_response(
    answer: Callable[[], web.Response] | None = None,
    *,
    at: Callable[[str], web.Response] = lambda _: web.Response(),
    tls: SSLContext | None = None,
) -> AsyncGenerator[str]:
    """Serve this response to every request, or the response for its path. Yield the URL, with the path /service."""

    async def respond(request: web.Request) -> web.Response:
        return at(request.path) if answer is None else answer()

    async with serve(respond, tls) as root:
        yield f"{root}/service"
