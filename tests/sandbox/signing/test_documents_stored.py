"""Save, GetDoc, GetDocInfo and Delete."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pikepdf import Name, String
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import async_validate_pdf_signature
from pyhanko_certvalidator import ValidationContext

from directsuite.sandbox.rejections import InvalidActionError, InvalidParameterError, RejectionError
from directsuite.sandbox.signing import document, engine
from directsuite.sandbox.signing.keys import FileKeyStore
from directsuite.sandbox.signing.request import SignatureRequest
from directsuite.sandbox.signing.service import _insert_document, _replace_document, _StoredPdf, _use_document
from tests.examples import scale_examples

from . import documents

if TYPE_CHECKING:
    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase

    from .caller import SigningCaller

pytestmark = pytest.mark.wide

CONSENT = documents.make_consent_form()
KEYS = FileKeyStore(None)


async def test_save_returns_the_members_of_the_specification(signing: SigningCaller) -> None:
    content = documents.make_plain_pages()
    response = await signing.call_ok("POST", body=base64.b64encode(content))
    assert set(response) == {"documentType", "createdTime", "identifier", "documentDigest", "description"}
    assert response["documentType"] == "PDF"
    assert response["createdTime"] == "2026-03-01T12:00:00.000+0000"
    assert response["documentDigest"] == hashlib.sha256(content).hexdigest()
    assert await signing.get_doc(response["identifier"]) == content


@pytest.mark.parametrize("prefix", [b"", b"data:application/pdf;base64,"])
async def test_line_breaks_and_a_data_prefix_are_tolerated(signing: SigningCaller, prefix: bytes) -> None:
    content = documents.make_plain_pages()
    body = prefix + base64.encodebytes(content).replace(b"\n", b"\r\n")
    assert await signing.get_doc((await signing.call_ok("POST", body=body))["identifier"]) == content


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "empty"),
        (b"%PDF-1.4 not base64", "not valid base64"),
        (base64.b64encode(b"hello"), "not a PDF"),
        (base64.b64encode(b"%PDF-1.7\n" + b"rubbish" * 20), "damaged beyond repair"),
        (base64.b64encode(documents.make_encrypted_form("secret")), "password"),
    ],
    ids=["empty", "no base64", "no PDF", "rubbish", "encrypted"],  # an encrypted one is another each time
)
async def test_an_invalid_upload_is_rejected(signing: SigningCaller, body: bytes, expected: str) -> None:
    assert expected in await signing.call_rejected("POST", body=body)
    assert await signing.list_effects() == []


async def test_a_truncated_document_is_repaired(signing: SigningCaller) -> None:
    content = documents.make_plain_pages(3)
    response = await signing.call_ok("POST", body=base64.b64encode(content[: content.rindex(b"xref", 0, -40)]))
    assert "repaired" in response["description"]
    assert len((await signing.get_doc_info(response["identifier"]))["pages"]) == 3
    await signing.call_ok("PATCH", f"/{response['identifier']}/sign", json={})


async def test_a_truncated_signed_document_is_rejected(signing: SigningCaller) -> None:
    signed = await signing.change(documents.make_consent_form(), "sign/pull", {"name": "PatientSig"})
    assert "signed" in await signing.reject_upload(signed[:-300])


async def test_places_are_measured_from_the_top_left_of_the_crop_box(signing: SigningCaller) -> None:
    info = await signing.get_doc_info(
        await signing.save(documents.make_single_field_form(FT=Name.Tx, T=String("note")))
    )
    assert info["pages"] == [{"index": 1, "width": 400, "height": 300, "rotate": 0}]
    place = {"left": 50, "top": 120, "width": 300, "height": 30, "pageIndex": 1, "tabIndex": 1}
    assert info["formFields"] == [place | {"name": "note", "value": "", "type": "text"}]


async def test_info_lists_fields_with_values_and_metadata(signing: SigningCaller) -> None:
    info = await signing.get_doc_info(await signing.save(documents.make_consent_form()))
    values = [(field["name"], field["type"], field["value"]) for field in info["formFields"]]
    assert values == [
        *(("patient_name", "text", "alice"), ("agree", "checkbox", "Yes"), ("news", "checkbox", "Off")),
        *(("state", "choice", "Ohio"), ("plan", "radio", "full"), ("plan", "radio", "full")),
    ]
    assert [field["tabIndex"] for field in info["formFields"]] == [1, 2, 3, 4, 5, 6]
    assert {"key": "Title", "value": "Consent"} in info["metaData"]
    assert [page["rotate"] for page in info["pages"]] == [0, 90, 0]
    unsigned = info["signatures"][0]
    assert (unsigned["name"], unsigned["isSigned"], unsigned["isValid"]) == ("PatientSig", False, False)
    assert (unsigned["left"], unsigned["top"], unsigned["width"], unsigned["height"]) == (72, 622, 200, 70)


async def test_a_deleted_document_is_missing(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    assert (await signing.call_ok("DELETE", f"/{identifier}"))["documentDigest"] == ""
    assert "no document" in await signing.call_rejected("GET", f"/{identifier}")
    assert "no document" in await signing.call_rejected("DELETE", f"/{identifier}")
    assert [(effect["operation"], effect["subject"]) for effect in await signing.list_effects()] == [
        ("Save", identifier),
        ("Delete", identifier),
    ]


async def test_a_document_expires_after_four_hours_without_activity(signing: SigningCaller, clock: Clock) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    almost = timedelta(hours=4) - timedelta(milliseconds=1)
    clock.advance(almost)
    await signing.get_doc_info(identifier)
    clock.advance(almost)
    await signing.get_doc(identifier)
    clock.advance(timedelta(hours=4))
    assert "expired" in await signing.call_rejected("GET", f"/{identifier}")
    assert "expired" in await signing.call_rejected("PATCH", f"/{identifier}/flatten")


async def test_expired_documents_leave_the_database(signing: SigningCaller, clock: Clock) -> None:
    await signing.save(documents.make_plain_pages())
    clock.advance(timedelta(hours=4))
    kept = await signing.save(documents.make_plain_pages())
    rows = await signing.database.read(
        lambda connection: [tuple(row) for row in connection.execute("SELECT identifier FROM signing_file")]
    )
    assert rows == [(kept,)]


async def test_an_error_of_a_library_is_logged_by_its_type_only(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def open_pdf(file: Path) -> None:
        raise AttributeError(f"no {file.read_bytes()[:8]!r}")

    monkeypatch.setattr(document, "open_pdf", open_pdf)
    identifier = await signing.save(documents.make_plain_pages())
    assert await signing.call_rejected("GET", f"/{identifier}/info") == "the document is malformed"
    [record] = [record for record in caplog.records if record.name == "directsuite.sandbox"]
    assert record.levelname == "WARNING"
    assert "AttributeError" in record.getMessage()
    assert "%PDF" not in record.getMessage()
    assert record.exc_info is None


async def test_log_messages_of_the_pdf_libraries_are_suppressed(
    signing: SigningCaller, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    stranger = FileKeyStore(None)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    plain, signed = tmp_path / "plain.pdf", tmp_path / "signed.pdf"
    plain.write_bytes(documents.make_plain_pages())
    await asyncio.to_thread(engine.change, "Sign", plain, signed, [SignatureRequest(name="A")], stranger, at)
    assert await signing.get_signature_states(await signing.save(signed.read_bytes())) == {"A": False}
    assert caplog.records == []
    with signed.open("rb") as file:  # as an application would
        context = ValidationContext(trust_roots=list(KEYS.trust_roots()), moment=at, allow_fetching=False)
        await async_validate_pdf_signature(PdfFileReader(file).embedded_signatures[0], context)
    assert any(record.name.startswith("pyhanko") for record in caplog.records)


async def test_a_change_of_a_changed_document_is_rejected(database: SandboxDatabase) -> None:
    document, first, second = (_StoredPdf("one", 0, f"of {name}", name, 1) for name in ("before", "first", "second"))
    await database.write(lambda connection: _insert_document(connection, document, "alice"))
    await database.write(lambda connection: _replace_document(connection, document, first, [], "Sign", 0))
    with pytest.raises(InvalidActionError, match="another request has changed or deleted"):
        await database.write(lambda connection: _replace_document(connection, document, second, [], "Sign", 0))
    kept = await database.read(lambda connection: _use_document(connection, "one", "alice", 0))
    assert kept == first
    database.close()


@pytest.mark.parametrize("operation", ["flatten", "clearUnsignedFields"])
async def test_an_operation_without_effect_changes_nothing(signing: SigningCaller, operation: str) -> None:
    content = documents.make_plain_pages()
    identifier = await signing.save(content)
    digest = (await signing.get_doc_info(identifier))["documentDigest"]
    assert await signing.call_ok("PATCH", f"/{identifier}/{operation}/pull") == content
    assert (await signing.call_ok("PATCH", f"/{identifier}/{operation}"))["documentDigest"] == digest
    assert [effect["operation"] for effect in await signing.list_effects()] == ["Save"]


@given(st.binary(min_size=1, max_size=6), st.floats(0, 1))
@example(b"\x80", (CONSENT.index(b"/FT /Sig") + 7.5) / len(CONSENT))  # a name that is no UTF-8
@settings(max_examples=scale_examples(60))
def test_a_damaged_document_is_signed_or_rejected(damage: bytes, place: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _work_on_a_damaged_document(Path(folder), damage, place)


def _work_on_a_damaged_document(folder: Path, damage: bytes, place: float) -> None:
    uploaded, repaired, changed = folder / "uploaded", folder / "repaired", folder / "changed"
    content = CONSENT[: int(len(CONSENT) * place)] + damage + CONSENT[int(len(CONSENT) * place) + len(damage) :]
    try:
        uploaded.write_bytes(content)
        stored = repaired if engine.repair_upload(uploaded, repaired) else uploaded
    except InvalidParameterError:
        return
    at = datetime(2026, 3, 1, tzinfo=UTC)
    try:
        engine.change("Sign", stored, changed, [SignatureRequest()], KEYS, at)
    except InvalidActionError as refusal:
        assert "no font" in str(refusal)  # noqa: PT017  the one thing that Save does not try
    with contextlib.suppress(RejectionError):
        engine.describe(stored, KEYS, at)
        engine.change("Flatten", stored, changed, [], KEYS, at)
        engine.change("ClearUnsignedFields", stored, changed, [], KEYS, at)
