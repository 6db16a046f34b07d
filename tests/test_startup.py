"""Opening a suite does not import modules that few programs need, or that are needed only after a failure."""

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


UNNEEDED = {
    *("csv", "jinja2", "oauthlib", "opentelemetry", "tenacity", "tomllib"),
    *("directsuite.config_file", "directsuite.fax.watching", "directsuite.messaging.email"),
    *("directsuite.messaging.report", "directsuite.messaging.send_once", "directsuite.oauth", "directsuite.otel"),
    *("directsuite.sandbox", "directsuite.types"),
}


def test_suite_opens_without_modules_that_few_programs_need() -> None:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # it imports much itself
    run = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True, check=True, env=alone)
    imported = set(run.stdout.split())
    assert "directsuite.suite" in imported
    assert imported & UNNEEDED == set()
