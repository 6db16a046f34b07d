"""Modules that a program imports early: none that only some programs need, or only after a failure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

OPEN = """
import asyncio, sys
import directsuite as ds

URL = "http://127.0.0.1:9"

async def opened():
    settings = ds.Settings(signing_url=URL, fax_url=URL, message_url=URL, registration_url=URL)
    async with ds.DirectSuite(settings, token="1", login=ds.Login("a", "b")) as suite:
        suite.mailbox("a@b.test", "c")

asyncio.run(opened())
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # it imports much itself
    run = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True, check=True, env=alone)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "csv",
        "directsuite.messaging.report",
        "directsuite.oauth",
        "directsuite.otel",
        "directsuite.sandbox",
        "directsuite.types",
        "jinja2",
        "oauthlib",
        "opentelemetry",
        "tenacity",
        "tomllib",
    ],
)
def test_suite_opens_without(module: str, imported: set[str]) -> None:
    assert "directsuite.suite" in imported
    assert module not in imported
