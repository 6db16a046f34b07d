"""The test PDFs of other projects, from their published packages, in the complete cycle over HTTP.

They are not part of this project: the packages are downloaded when the test runs.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from directsuite.sandbox.signing.keys import FileKeyStore

from .caller import SigningCaller, verify_with_openssl

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Sending a large body")]

_PACKAGES = (
    *("pikepdf==10.17.0", "pypdf==7.1.0", "PyPDF2==1.27.12", "playa-pdf==1.1.0", "pdfannots==0.5"),
    *("pdfminer==20191125", "ocrmypdf==17.13.0", "pdftotext==4.0.0", "img2pdf==0.6.3"),
)
_REFUSALS = {
    "Save": ("needs a password", "certificates", "damaged beyond repair", "has no pages", "not a PDF", "is signed"),
    "Flatten": ("which flattening would invalidate", "no font"),
    "ClearUnsignedFields": ("is certified",),
    "Sign": ("is certified",),
}
_BYTE_RANGE = re.compile(rb"/ByteRange\s*\[\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\]")


@pytest.fixture(scope="module")
def foreign_documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The PDFs in the packages by their names, each content once."""
    folder = tmp_path_factory.mktemp("packages")
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = str(environment / ("Scripts" if os.name == "nt" else "bin") / "pip")
    arguments = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    for package in _PACKAGES:
        subprocess.run([pip, *arguments, package], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    by_digest = {hashlib.sha256(content).digest(): (name, content) for name, content in _members(folder)}
    return dict(by_digest.values())


def _members(folder: Path) -> Iterator[tuple[str, bytes]]:
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as packed:
            for member in packed:
                file = packed.extractfile(member) if member.name.lower().endswith(".pdf") else None
                if file is not None:
                    yield member.name, file.read()


async def test_foreign_documents_are_signed_or_rejected_with_a_reason(
    signing: SigningCaller, keys: FileKeyStore, foreign_documents: dict[str, bytes], tmp_path: Path
) -> None:
    assert shutil.which("pdfsig") is not None
    (tmp_path / "ca.pem").write_bytes(keys.authority_pem())
    refused: collections.Counter[tuple[str, str]] = collections.Counter()
    accepted = signatures = 0
    for name, content in foreign_documents.items():
        status, response = await signing.call("POST", body=base64.b64encode(content))
        if status != 200:
            refused["Save", _reason("Save", name, status, response)] += 1
            continue
        accepted += 1
        stored = await signing.get_doc(response["identifier"])
        page = (await signing.get_doc_info(response["identifier"]))["pages"][0]
        widget = {"x": 0, "y": 0, "width": page["width"] / 2, "height": page["height"] / 2, "page": 1}
        for operation, path in (("Flatten", "flatten"), ("ClearUnsignedFields", "clearUnsignedFields")):
            copy = await signing.save(stored)
            status, response = await signing.call("PATCH", f"/{copy}/{path}")
            if status != 200:
                refused[operation, _reason(operation, name, status, response)] += 1
            signatures += await _signed(signing, name, copy, [{"name": "Own1", "widget": widget}], tmp_path, refused)
        variants: list[list[Mapping[str, object]]] = [
            [{}],
            [{"name": "Own1", "widget": widget}],
            [{"name": "Own1", "widget": widget}, {}, {}],
        ]
        for requests in variants:
            copy = await signing.save(stored)
            signatures += await _signed(signing, name, copy, requests, tmp_path, refused)
    report = "\n".join(f"{number:4} {operation}: {why}" for (operation, why), number in sorted(refused.items()))
    summary = f"{len(foreign_documents)} PDFs, {accepted} accepted, {signatures} signatures checked; refused:\n{report}"
    sys.stdout.write(summary)  # for a run with `pytest -s`
    assert len(foreign_documents) >= 60
    assert accepted > len(foreign_documents) * 3 / 4


def _reason(operation: str, name: str, status: int, response: dict[str, str]) -> str:
    assert status == 400, (name, operation, status, response)
    reasons = [reason for reason in _REFUSALS[operation] if reason in response["description"]]
    assert reasons, (name, operation, response)
    return reasons[0]


async def _signed(
    signing: SigningCaller,
    name: str,
    identifier: str,
    requests: Sequence[Mapping[str, object]],
    folder: Path,
    refused: collections.Counter[tuple[str, str]],
) -> int:
    """Return the number of signatures. The service, Poppler and OpenSSL consider all valid."""
    before = await signing.get_signature_states(identifier)
    path, body = ("multiSign", {"Signatures": requests}) if len(requests) > 1 else ("sign", requests[0])
    status, response = await signing.call("PATCH", f"/{identifier}/{path}", json=body)
    if status != 200:
        refused["Sign", _reason("Sign", name, status, response)] += 1
        return 0
    after = await signing.get_signature_states(identifier)
    own = {field: valid for field, valid in after.items() if before.get(field) is None and valid is not None}
    assert list(own.values()) == [True] * len(requests), (name, after)
    content = await signing.get_doc(identifier)
    (folder / "signed.pdf").write_bytes(content)
    command = ["pdfsig", "-nocert", str(folder / "signed.pdf")]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    report = ran.stdout.decode(errors="replace")
    foreign_signatures = sum(valid is not None for valid in before.values())
    assert len(requests) <= report.count("Signature is Valid") <= len(requests) + foreign_signatures, (name, report)
    for ranges in list(_BYTE_RANGE.finditer(content))[-len(requests) :]:
        verify_with_openssl(content, [int(number) for number in ranges.groups()], folder)
    return len(requests)
