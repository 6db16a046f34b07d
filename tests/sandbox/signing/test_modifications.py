"""GetDocInfo verifies each signature separately, with a time limit for the changes after it."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name

from directsuite.sandbox.signing import engine, modifications
from directsuite.sandbox.signing.document import open_incremental_writer
from directsuite.sandbox.signing.modifications import Modification, ModificationProcesses

from . import documents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from directsuite.sandbox.signing.keys import FileKeyStore
    from directsuite.sandbox.signing.modifications import ObjectNumber

    from .caller import Json, SigningCaller

pytestmark = pytest.mark.wide


def with_many_paths(levels: int = 60) -> bytes:
    """A document in which each of these objects refers twice to the next one, and the last one to the page."""
    with documents.open_pages() as pdf:
        next_object: Any = pdf.pages[0].obj
        for _ in range(levels):
            next_object = pdf.make_indirect(Dictionary(A=next_object, B=next_object))
        pdf.Root["/PieceInfo"] = next_object
        return documents.save_to_bytes(pdf)


async def sign_twice(signing: SigningCaller, content: bytes) -> str:
    identifier = await signing.save(content)
    widget = {"x": 50, "y": 50, "width": 99, "height": 50, "page": 1}
    for name in ("A", "B"):
        await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": name, "widget": widget})
    return identifier


async def verdicts(signing: SigningCaller, identifier: str) -> dict[str, tuple[bool, str]]:
    signatures: list[Json] = (await signing.get_doc_info(identifier))["signatures"]
    return {entry["name"]: (entry["isValid"], entry["modification"]) for entry in signatures}


@pytest.fixture
def judged_fields(monkeypatch: pytest.MonkeyPatch) -> list[ObjectNumber]:
    """The fields that a separate process must judge. It reaches its limit immediately."""
    asked: list[ObjectNumber] = []

    async def judge(_: object, __: Path, fields: Sequence[ObjectNumber]) -> dict[ObjectNumber, Modification]:
        asked.extend(fields)
        return {}

    monkeypatch.setattr(ModificationProcesses, "judge", judge)
    return asked


async def test_too_many_paths_leave_the_changes_unknown(
    signing: SigningCaller, judged_fields: list[ObjectNumber], caplog: pytest.LogCaptureFixture
) -> None:
    identifier = await sign_twice(signing, with_many_paths())
    with caplog.at_level(logging.WARNING, "directsuite.sandbox"):
        assert await verdicts(signing, identifier) == {"A": (True, "UNKNOWN"), "B": (True, "NONE")}
    assert len(judged_fields) == 1
    assert "1 signature(s) of a document take too much time" in caplog.text


async def test_an_ordinary_document_needs_no_process(signing: SigningCaller, judged_fields: list[ObjectNumber]) -> None:
    identifier = await sign_twice(signing, documents.make_consent_form())
    assert (await verdicts(signing, identifier))["A"] == (True, "FORM_FILLING")
    assert judged_fields == []


async def test_a_changed_byte_is_found_despite_too_many_paths(
    signing: SigningCaller, judged_fields: list[ObjectNumber]
) -> None:
    identifier = await sign_twice(signing, with_many_paths())
    signed = await signing.get_doc(identifier)
    forged = signed.replace(b"(Page 1)", b"(Page 9)").replace(b"/PieceInfo", b"/PieceInfp")
    assert forged != signed
    assert await verdicts(signing, await signing.save(forged)) == {"A": (False, "UNKNOWN"), "B": (False, "NONE")}


@pytest.mark.process
async def test_a_process_judges_what_takes_longer(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(modifications.LimitedReader, "_lookups_left", 0)
    monkeypatch.setattr(modifications, "MAX_SECONDS", 60.0)
    identifier = await sign_twice(signing, documents.make_consent_form())
    assert (await verdicts(signing, identifier))["A"] == (True, "FORM_FILLING")
    assert caplog.text == ""


@pytest.mark.process
async def test_a_process_that_takes_too_long_is_ended(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(modifications, "MAX_SECONDS", 0.5)
    processes = ModificationProcesses()
    identifier = await sign_twice(signing, with_many_paths())
    (tmp_path / "signed.pdf").write_bytes(await signing.get_doc(identifier))
    with pikepdf.open(tmp_path / "signed.pdf") as pdf:
        form: Any = pdf.Root["/AcroForm"]
        numbers = [field.objgen for field in form["/Fields"]]
    judged = await processes.judge(tmp_path / "signed.pdf", numbers)
    assert numbers[0] not in judged
    assert processes._running == set()


@pytest.mark.wide
async def test_documents_are_saved_while_changes_are_judged(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    judging, go_on = asyncio.Event(), asyncio.Event()

    async def judge(*_: object) -> dict[ObjectNumber, Modification]:
        judging.set()
        await go_on.wait()
        return {}

    monkeypatch.setattr(ModificationProcesses, "judge", judge)
    identifiers = [await sign_twice(signing, with_many_paths()) for _ in range(3)]
    described = [asyncio.create_task(signing.get_doc_info(identifier)) for identifier in identifiers]
    await judging.wait()
    await signing.save(documents.make_plain_pages())
    go_on.set()
    assert [info["signatures"][0]["isValid"] for info in await asyncio.gather(*described)] == [True] * 3


@pytest.mark.parametrize(
    "malformed",
    [
        Dictionary(Type=Name.Sig),
        Dictionary(Type=Name.Sig, Filter=Name("/Adobe.PPKLite"), SubFilter=Name("/adbe.pkcs7.detached")),
        Dictionary(
            Type=Name.Sig, SubFilter=Name("/adbe.pkcs7.detached"), ByteRange=Array([0, 1]), Contents=String("0")
        ),
        Dictionary(Type=1, SubFilter=Array([]), ByteRange=7, Contents=Array([])),
    ],
)
async def test_a_malformed_signature_does_not_affect_others(signing: SigningCaller, malformed: Dictionary) -> None:
    with documents.open_pages() as pdf:
        field = pdf.make_indirect(Dictionary(FT=Name.Sig, T=String("Bad"), V=pdf.make_indirect(malformed)))
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([field])))
        content = documents.save_to_bytes(pdf)
    found = await verdicts(signing, await sign_twice(signing, content))
    assert found.pop("Bad")[0] is False
    assert found == {"A": (True, "FORM_FILLING"), "B": (True, "NONE")}


@pytest.mark.parametrize(
    "widget",
    [
        {"Rect": Array([1, 2, 3])},
        {"Rect": Array([1, 2, Name.X, 4])},
        {"Rect": 5},
        {"Ff": Name.X},
        {"V": Array([Array([])])},
    ],
)
async def test_a_malformed_field_does_not_hide_others(signing: SigningCaller, widget: Json) -> None:
    content = documents.make_single_field_form(**{"FT": Name.Tx, "T": String("bad"), **widget})
    identifier = await signing.save(content)
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    info = await signing.get_doc_info(identifier)
    assert [entry["isValid"] for entry in info["signatures"]] == [True]
    assert len(info["formFields"]) == 1


async def test_a_page_rotated_after_a_signature_makes_it_invalid(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={"name": "A"})
    writer: Any = open_incremental_writer(io.BytesIO(signed))
    page: Any = writer.find_page_for_modification(0)[0].get_object()
    number: Any = generic.NumberObject  # whose __new__ has no types
    page[pdf_name("/Rotate")] = number(90)
    writer.update_container(page)
    output = io.BytesIO()
    writer.write(output)
    assert await verdicts(signing, await signing.save(output.getvalue())) == {"A": (False, "OTHER")}


async def test_a_signature_with_many_byte_ranges_is_invalid(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={"name": "A"})
    written = re.findall(rb"/ByteRange *\[[^\]]*\]", signed)[-1]
    forged = signed.replace(written, b"/ByteRange[0 1 0 1 0 1".ljust(len(written) - 1) + b"]")
    validated: list[object] = []

    async def validate(found: object, *_: object, **__: object) -> None:
        validated.append(found)

    monkeypatch.setattr(engine, "async_validate_pdf_signature", validate)
    assert (await verdicts(signing, await signing.save(forged)))["A"][0] is False
    assert validated == []


async def test_the_signer_is_the_one_in_the_certificate(signing: SigningCaller, keys: FileKeyStore) -> None:
    identifier = await sign_twice(signing, documents.make_plain_pages())
    names = [entry["signerName"] for entry in (await signing.get_doc_info(identifier))["signatures"]]
    assert names == [keys.signer().subject_name] * 2
