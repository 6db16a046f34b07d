"""pyHanko's word on signatures: it accepts what was signed, and notices what was done to it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter

from directsuite.cli.demo import DemoOptions
from directsuite.cli.demo.context import NoStepProgress, open_context
from directsuite.cli.demo.documents import PATIENT_FIELD, Form, build_consent_form, verify_signatures
from directsuite.sandbox.signing.keys import FileKeyStore
from directsuite.signing.models import Signature

pytestmark = pytest.mark.wide


@pytest.fixture
async def signed(tmp_path: Path) -> tuple[bytes, bytes]:
    """A signed PDF, and the authority that its signature leads to."""
    async with open_context(tmp_path, DemoOptions(), NoStepProgress()) as stage:
        stored = await stage.suite.signing.save(build_consent_form(Form.from_number(2)))
        content = await stage.suite.signing.sign_and_pull(stored, Signature(name=PATIENT_FIELD))
        return content, stage.sandbox.authority_pem()


def test_signature_is_good_and_its_spoilt_copies_are_not(signed: tuple[bytes, bytes]) -> None:
    content, authority = signed
    (good,) = verify_signatures(content, authority)
    assert (good.field, good.is_accepted) == (PATIENT_FIELD, True)

    (tampered,) = verify_signatures(content.replace(b"Consent form 2", b"Consent form 9"), authority)
    assert (tampered.intact, tampered.is_accepted) == (False, False)

    (foreign,) = verify_signatures(content, FileKeyStore(None).authority_pem())
    assert (foreign.intact, foreign.valid, foreign.trusted, foreign.is_accepted) == (True, True, False, False)

    (changed,) = verify_signatures(_with_another_title(content), authority)
    assert (changed.intact, changed.valid, changed.has_only_allowed_changes, changed.is_accepted) == (
        True,
        True,
        False,
        False,
    )


def test_document_without_signatures_has_no_verdicts(signed: tuple[bytes, bytes]) -> None:
    with pikepdf.open(io.BytesIO(build_consent_form(Form.from_number(1)))) as pdf:
        output = io.BytesIO()
        pdf.save(output)
    assert verify_signatures(output.getvalue(), signed[1]) == []


def _with_another_title(content: bytes) -> bytes:
    """The page's content replaced by an incremental update: nothing that was signed is touched."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content))
    page = writer.root["/Pages"]["/Kids"][0]
    page["/Contents"] = writer.add_object(generic.StreamObject(stream_data=b"q Q"))
    writer.update_container(page)
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()
