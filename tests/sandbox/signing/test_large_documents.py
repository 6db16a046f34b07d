"""Documents of any size are stored, described, signed and returned in little memory, up to the limit."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.sandbox import Sandbox
from directsuite.sandbox.rejections import InvalidParameterError
from directsuite.sandbox.signing.request import Base64Writer
from tests.examples import scale_examples

from . import documents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

pytestmark = pytest.mark.wide

_MEGABYTE = 2**20


@asynccontextmanager
async def open_sandbox(folder: Path | None, **options: Any) -> AsyncGenerator[tuple[Sandbox, aiohttp.ClientSession]]:
    """Open a sandbox and a client without a time limit."""
    async with Sandbox(folder, **options) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}", "Content-Type": "text/plain"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout()) as http:
            yield sandbox, http


def write_document(file: Path, size: int) -> None:
    """Write a PDF of one page with incompressible streams of 8 MB."""
    noise = random.Random(1).randbytes(8 * _MEGABYTE)
    count = max(1, size // len(noise))
    offsets = list[int]()
    with file.open("wb") as pdf:
        pdf.write(b"%PDF-1.7\n")

        def add(content: bytes) -> None:
            offsets.append(pdf.tell())
            pdf.write(b"%d 0 obj\n%s\nendobj\n" % (len(offsets), content))

        add(b"<</Type/Catalog/Pages 2 0 R/Noise[%s]>>" % b" ".join(b"%d 0 R" % (4 + n) for n in range(count)))
        add(b"<</Type/Pages/Kids[3 0 R]/Count 1>>")
        add(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<<>>>>")
        for _ in range(count):
            add(b"<</Length %d>>stream\n%s\nendstream" % (len(noise), noise))
        start = pdf.tell()
        pdf.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1))
        pdf.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
        pdf.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(offsets) + 1, start))


async def _in_base64(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as content:
        while piece := content.read(3 * 2**16):
            yield base64.b64encode(piece)


async def exercise(folder: Path, size: int) -> None:
    """Call Save, Sign, GetDocInfo, GetDoc and Delete. Check the responses, and print JSON."""
    source = folder / "source.pdf"
    write_document(source, size)
    async with open_sandbox(folder / "state") as (sandbox, http):
        await _use(http, sandbox.signing_url, base64.b64encode(documents.make_plain_pages()))
        before = documents.measure_peak()
        signed = await _use(http, sandbox.signing_url, _in_base64(source))
        assert signed > source.stat().st_size
        assert [*(folder / "state" / "documents").iterdir()] == []
        sys.stdout.write(
            json.dumps(
                {
                    "size": source.stat().st_size,
                    "grown": documents.measure_peak() - before,
                    "peak": documents.measure_peak(),
                }
            )
        )


async def _use(http: aiohttp.ClientSession, url: str, body: bytes | AsyncIterator[bytes]) -> int:
    async with http.post(f"{url}/pdf", data=body) as response:
        saved = await response.json()
        assert (response.status, saved["description"]) == (200, "the document is stored"), saved
    one = f"{url}/pdf/{saved['identifier']}"
    async with http.patch(f"{one}/sign", json={"name": "A"}) as response:
        changed = await response.json()
        assert response.status == 200, changed
    async with http.get(f"{one}/info") as response:
        assert [(each["name"], each["isValid"]) for each in (await response.json())["signatures"]] == [("A", True)]
    digest, size = hashlib.sha256(), 0
    async with http.get(one) as response:
        rest = b""
        async for piece in response.content.iter_chunked(2**18):
            text = rest + piece
            whole = len(text) // 4 * 4
            rest = text[whole:]
            octets = base64.b64decode(text[:whole], validate=True)
            digest.update(octets)
            size += len(octets)
    assert (rest, digest.hexdigest()) == (b"", changed["documentDigest"])
    async with http.delete(one) as response:
        assert response.status == 200
    return size


@pytest.mark.process
@pytest.mark.parametrize("megabytes", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_large_document_takes_little_memory(megabytes: int, tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys; from tests.sandbox.signing.test_large_documents import exercise;"
        "asyncio.run(exercise(pathlib.Path(sys.argv[1]), int(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(megabytes * _MEGABYTE)],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["size"] >= megabytes * _MEGABYTE
    assert measured["grown"] < 32 * _MEGABYTE, measured


async def test_a_too_large_document_is_rejected_with_the_limit(tmp_path: Path) -> None:
    async with open_sandbox(tmp_path, max_body=100_000) as (sandbox, http):
        file = tmp_path / "large"
        file.write_bytes(b"%PDF-" + bytes(100_000))
        for body in (_in_base64(file), base64.b64encode(file.read_bytes())):  # without and with a Content-Length
            async with http.post(f"{sandbox.signing_url}/pdf", data=body) as response:
                refusal = await response.json()
                assert (response.status, refusal["error"]) == (400, "invalid_parameter")
                assert "larger than 100,000 bytes: start the sandbox with a larger --max-body" in refusal["description"]
        async with http.put(f"{sandbox.message_url}/Send", json={"x": "y" * 100_000}) as response:
            assert response.status == 413
            assert "larger than 100,000 bytes" in (await response.json())["message"]
        assert [*(tmp_path / "documents").iterdir()] == []


async def test_orphan_files_are_deleted_at_start_and_reset(tmp_path: Path) -> None:
    body = base64.b64encode(documents.make_plain_pages())
    folder = tmp_path / "documents"

    async with open_sandbox(tmp_path) as (sandbox, http):
        await http.post(f"{sandbox.signing_url}/pdf", data=body)
    [kept] = folder.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    (folder / "left").touch()
    async with open_sandbox(tmp_path) as (sandbox, http):
        assert [*folder.iterdir()] == [kept]
        await http.post(f"{sandbox.signing_url}/pdf", data=body)
        assert len([*folder.iterdir()]) == 2
        await sandbox.reset()
        assert [*folder.iterdir()] == []


@given(st.binary(max_size=60), st.data())
@settings(max_examples=scale_examples(100))
def test_base64_in_pieces_is_decoded_like_complete_base64(octets: bytes, data: st.DataObject) -> None:
    text = data.draw(st.one_of(st.just(base64.encodebytes(octets)), st.text("AB=+ \n", max_size=12).map(str.encode)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    try:
        complete = b"".join(text.split())
        expected = b"" if len(complete) % 4 else base64.b64decode(complete, validate=True)  # it accepts AAAA=
    except ValueError:
        expected = b""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decoded"
        with file.open("wb") as output, nullcontext() if expected else pytest.raises(InvalidParameterError):
            decoder = Base64Writer(output)
            for start, end in zip([0, *cuts], cuts, strict=False):
                decoder.write(text[start:end])
            decoder.write(text[(cuts or [0])[-1] :], last=True)
        assert not expected or file.read_bytes() == expected


async def test_a_document_deleted_during_a_download_is_sent_completely(tmp_path: Path) -> None:
    source = tmp_path / "source.pdf"
    write_document(source, 8 * _MEGABYTE)
    async with open_sandbox(tmp_path / "state") as (sandbox, http):
        async with http.post(f"{sandbox.signing_url}/pdf", data=_in_base64(source)) as response:
            one = f"{sandbox.signing_url}/pdf/{(await response.json())['identifier']}"
        async with http.get(one) as response:
            assert response.content_length == (source.stat().st_size + 2) // 3 * 4
            async with http.delete(one) as deleted:
                assert deleted.status == 200
            assert base64.b64decode(await response.read()) == source.read_bytes()
        async with http.get(one) as response:
            assert response.status == 400
        assert [*(tmp_path / "state" / "documents").iterdir()] == []


@pytest.mark.parametrize("kind", ["status", "latency", "truncate"])
async def test_a_fault_of_save_reads_large_bodies(kind: str) -> None:
    body = io.BytesIO(b"A" * (65 * _MEGABYTE))  # beyond what other operations take
    async with open_sandbox(None) as (sandbox, http):
        sandbox.inject_fault("Save", kind, seconds=0)
        async with http.post(f"{sandbox.signing_url}/pdf", data=body) as response:
            assert response.status == (503 if kind == "status" else 400)
            if kind == "latency":
                assert "is not a PDF document" in (await response.json())["description"]
