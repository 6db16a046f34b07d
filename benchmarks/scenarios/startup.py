"""What a new interpreter is asked to do, to see what it takes to start; each text measures itself."""

from __future__ import annotations

from benchmarks.scenarios.rows import AIOHTTP, OPENAPI_GENERATOR, OPENAPI_PYTHON_CLIENT, OURS

_MEASURE_TEMPLATE = """
import json, time
cpu, wall = time.process_time(), time.perf_counter()
{work}
print(json.dumps({{"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}}))
"""

_READY_WORK = """
import asyncio
import directsuite as ds
from directsuite import types

URL = "http://127.0.0.1:9"
ANSWERS = {
    ds.DocumentInfo: b'{"identifier": "1", "documentDigest": "2"}',
    ds.FaxMessageInformation: b'{"messageDetail": [{"faxNumber": "1"}]}',
    types.GetMessageResponse: b'{"success": true, "code": 0, "messages": [{"uid": 1, "headers": [{"name": "a"}]}]}',
    ds.AddUsersResponseV2: b'{"success": true, "code": "000"}',
}

async def ready():
    settings = ds.Settings(signing_url=URL, fax_url=URL, message_url=URL, registration_url=URL)
    async with ds.DirectSuite(settings, token="1", login=ds.Login("a", "b")) as suite:
        assert suite.signing and suite.fax and suite.registration and suite.mailbox("a@b.test", "c")
        codec = suite._transport.codec
        codec.encode(ds.Message(subject="a", recipients=[ds.Recipient("a@b.test")]))
        for model, answer in ANSWERS.items():
            codec.decode(model, answer)

asyncio.run(ready())
"""


def _make_script(work: str) -> str:
    return _MEASURE_TEMPLATE.format(work=work)


SCRIPTS = {
    OURS: _make_script("import directsuite"),
    AIOHTTP: _make_script("import aiohttp"),
    OPENAPI_GENERATOR: _make_script("from benchmarks.peers.openapi_generator import load; load()"),
    OPENAPI_PYTHON_CLIENT: _make_script("from benchmarks.peers.openapi_python_client import load; load()"),
}
"""Imports of the packages."""

READY_SCRIPT = _make_script(_READY_WORK)
"""A suite opened, and models of all four services used."""
