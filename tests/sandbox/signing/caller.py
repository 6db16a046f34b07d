"""A client of the signing service, and other tools that check its documents."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from PIL.Image import open as open_image

from directsuite.sandbox.database import list_effects
from directsuite.sandbox.signing.appearance import find_font

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiohttp import ClientResponse, web
    from aiohttp.test_utils import TestClient
    from PIL.Image import Image

    from directsuite.sandbox.database import SandboxDatabase

Json = dict[str, Any]


@dataclass(frozen=True)
class SigningCaller:
    client: TestClient[web.Request, web.Application]
    database: SandboxDatabase

    async def call(
        self, method: str, path: str = "", *, body: bytes | None = None, json: object = None, account: str = "alice"
    ) -> tuple[int, Any]:
        """Return the status and the body: decoded JSON, or the bytes of base64."""
        headers = {"X-Account": account}
        if json is not None:
            response = await self.client.request(method, f"/signing/pdf{path}", json=json, headers=headers)
        else:
            response = await self.client.request(method, f"/signing/pdf{path}", data=body, headers=headers)
        return response.status, await _decode_content(response)

    async def call_ok(self, method: str, path: str = "", **arguments: Any) -> Any:
        status, response = await self.call(method, path, **arguments)
        assert status == 200, response
        return response

    async def call_rejected(self, method: str, path: str = "", **arguments: Any) -> str:
        status, response = await self.call(method, path, **arguments)
        assert status == 400, response
        assert set(response) == {"error", "description"}
        return str(response["description"])

    async def save(self, content: bytes) -> str:
        response = await self.call_ok("POST", body=base64.b64encode(content))
        return str(response["identifier"])

    async def change(self, document: bytes, operation: str, json: object = None) -> Any:
        """Store a document and change it. Return the response of the change."""
        return await self.call_ok("PATCH", f"/{await self.save(document)}/{operation}", json=json)

    async def reject_change(self, document: bytes, operation: str, json: object = None) -> str:
        """Store a document. Return the reason why it is not changed."""
        return await self.call_rejected("PATCH", f"/{await self.save(document)}/{operation}", json=json)

    async def reject_upload(self, content: bytes) -> str:
        """Return the reason why a document is not stored."""
        return await self.call_rejected("POST", body=base64.b64encode(content))

    async def get_doc_info(self, identifier: str) -> Json:
        response: Json = await self.call_ok("GET", f"/{identifier}/info")
        return response

    async def get_doc(self, identifier: str) -> bytes:
        response: bytes = await self.call_ok("GET", f"/{identifier}")
        return response

    async def get_signature_states(self, identifier: str) -> dict[str, bool | None]:
        """Return the validity by signature field. None: the field is empty."""
        signatures: list[Json] = (await self.get_doc_info(identifier))["signatures"]
        return {entry["name"]: entry["isValid"] if entry["isSigned"] else None for entry in signatures}

    async def list_effects(self, operation: str | None = None) -> list[Mapping[str, Any]]:
        return await self.database.read(lambda connection: list_effects(connection, operation))


async def _decode_content(response: ClientResponse) -> Any:
    if response.content_type == "application/json":
        return await response.json()
    return base64.b64decode(await response.text(), validate=True)


def count_pdfsig_valid(content: bytes, folder: Path) -> int:
    """Return the number of signatures. poppler must consider all valid."""
    _require(shutil.which("pdfsig") is not None, "pdfsig is missing: install poppler-utils")
    document = folder / "checked.pdf"
    document.write_bytes(content)
    # the certificates are left to the service: poppler 22.12 misreports them from the second signature on
    report = subprocess.run(["pdfsig", "-nocert", str(document)], capture_output=True, text=True, check=False).stdout
    valid = report.count("Signature is Valid")
    assert valid == report.count("Signature Validation:"), report
    return valid


def verify_with_openssl(content: bytes, ranges: list[int], folder: Path) -> None:
    """Raise CalledProcessError unless OpenSSL calls the signature with this /ByteRange valid, trusting ca.pem."""
    first, length, second, rest = ranges
    covered = content[first : first + length] + content[second : second + rest]
    (folder / "covered").write_bytes(covered)
    (folder / "signature").write_bytes(bytes.fromhex(content[first + length + 1 : second - 1].decode()))
    command = ["openssl", "cms", "-verify", "-binary", "-inform", "DER", "-in", "signature", "-content", "covered"]
    command += ["-CAfile", "ca.pem", "-purpose", "any", "-out", os.devnull]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def extract_poppler_text(content: bytes, folder: Path, *arguments: str) -> str:
    """Return the text of the pages according to poppler."""
    _require(shutil.which("pdftotext") is not None, "pdftotext is missing: install poppler-utils")
    document = folder / "read.pdf"
    document.write_bytes(content)
    return subprocess.run(
        ["pdftotext", *arguments, str(document), "-"], capture_output=True, text=True, check=True
    ).stdout


def render_poppler_page(content: bytes, folder: Path) -> Image:
    """Return the first page drawn by poppler, with a pixel for each point."""
    _require(shutil.which("pdftoppm") is not None, "pdftoppm is missing: install poppler-utils")
    document = folder / "drawn.pdf"
    document.write_bytes(content)
    drawn = folder / "drawn"
    subprocess.run(["pdftoppm", "-r", "72", "-png", "-singlefile", str(document), str(drawn)], check=True)
    return open_image(drawn.with_suffix(".png")).convert("RGB")


def require_font_for(text: str) -> None:
    """Skip the test if this machine has no font for the text. In CI, fail it."""
    _require(find_font(text) is not None, "no font has these characters: install fonts-dejavu-core")


def _require(there: bool, missing: str) -> None:
    """Skip the test if a tool is missing. In CI, fail it."""
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
