"""The guide `streams`: a web backend that has a PDF signed, and attachments of a mailbox kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

import directsuite as ds
from directsuite.sandbox import Sandbox
from tests.consent_form import build_consent_form
from tests.guides.documents import execute_programs, find_code_blocks

ALICE = ("alice@direct.example.test", "secret")


def example() -> dict[str, Any]:
    return execute_programs(find_code_blocks("streams")[0])


async def test_backend_hands_a_pdf_on_and_back_signed() -> None:
    form = build_consent_form(1)
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:

        async def sign(request: web.Request) -> web.StreamResponse:
            return await example()["sign"](request, suite)  # type: ignore[no-any-return]  # it is known by its text

        app = web.Application()
        app.router.add_post("/sign", sign)
        async with TestServer(app) as server, ClientSession() as browser:
            async with browser.post(server.make_url("/sign"), data=form) as response:
                signed = await response.read()
            assert response.status == 200
        signatures = (await suite.signing.get_doc_info(await suite.signing.save(signed))).signatures
    assert "approval" in [signature.name for signature in signatures]


async def test_attachments_are_kept(tmp_path: Path) -> None:
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        await sandbox.add_account(*ALICE)
        box = suite.mailbox(*ALICE)
        attached = ds.Attachment(content=b"kept", filename="note.txt", content_type="text/plain")
        await box.send(ds.Message(recipients=[ds.Recipient(ALICE[0])], attachment_list=[attached]))
        await example()["keep"](box, tmp_path)
    assert (tmp_path / "1-0").read_bytes() == b"kept"
