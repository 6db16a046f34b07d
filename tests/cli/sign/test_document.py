"""`directsuite sign` for one PDF at a time."""

from __future__ import annotations

import pytest

from tests.cli.sign.conftest import PATIENT, Desk


async def test_one_pdf_is_signed_into_one_file(desk: Desk) -> None:
    desk.put("consent.pdf")
    ended = await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (ended.status, ended.err) == (0, "directsuite: written to signed.pdf\n")
    assert desk.signatures("signed.pdf") == 1
    assert sorted(path.name for path in desk.folder.iterdir()) == ["consent.pdf", "signed.pdf"]
    assert (await desk.requests("Save"), await desk.requests("Delete")) == (1, 1)


async def test_a_file_that_is_there_is_replaced_only_where_that_is_said(desk: Desk) -> None:
    desk.put("consent.pdf")
    desk.put("signed.pdf", content=b"another")
    ended = await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (ended.status, "give --overwrite" in ended.err) == (2, True)
    assert (desk.folder / "signed.pdf").read_bytes() == b"another"
    assert (await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--overwrite")).status == 0
    assert desk.signatures("signed.pdf") == 1


async def test_a_folder_whose_name_ends_like_a_pdf_is_a_folder(desk: Desk) -> None:
    desk.put("consent.pdf")
    (desk.folder / "signed.pdf").mkdir()
    assert (await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)).status == 0
    assert desk.files("signed.pdf") == ["consent.pdf"]


@pytest.mark.parametrize("option", ["--dry-run", "--again"])
async def test_what_is_for_folders_is_refused(option: str, desk: Desk) -> None:
    desk.put("consent.pdf")
    ended = await desk.sign("consent.pdf", "--output", "signed.pdf", option)
    assert (ended.status, "are for folders" in ended.err) == (2, True)


async def test_signatures_are_verified(desk: Desk) -> None:
    desk.put("consent.pdf")
    await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--reason", "Consent")
    ended = await desk.sign("verify", "signed.pdf")
    assert ended.status == 0
    titles, row = ended.out.splitlines()
    assert titles.split()[:4] == ["file", "signature", "signer", "time"]
    assert titles.split()[5:] == ["reason", "valid"]  # after the time zone's name
    assert {"signed.pdf", PATIENT, "Consent", "valid"} <= set(row.split())
    ended = await desk.sign("verify", "signed.pdf", "consent.pdf")
    assert (ended.status, ended.err) == (1, "directsuite: 1 of 2 PDFs have no signature\n")


async def test_a_signature_of_a_changed_pdf_is_not_valid(desk: Desk) -> None:
    desk.put("consent.pdf")
    await desk.sign("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--reason", "Consent")
    content = (desk.folder / "signed.pdf").read_bytes()
    (desk.folder / "signed.pdf").write_bytes(content.replace(b"Consent", b"Refusal"))
    ended = await desk.sign("verify", "signed.pdf")
    assert (ended.status, "NOT VALID" in ended.out) == (1, True)


async def test_info_shows_pages_fields_and_signatures(desk: Desk) -> None:
    desk.put("consent.pdf")
    ended = await desk.sign("info", "consent.pdf")
    assert ended.status == 0
    assert f"Signature {PATIENT}: not signed" in " ".join(ended.out.split())
    assert "Pages 1 Page size 612 x 792 Field patient: Ada" in " ".join(ended.out.split())
    assert await desk.requests("Delete") == 1


@pytest.mark.parametrize(("command", "gone"), [("flatten", "Field patient"), ("clear", f"Signature {PATIENT}")])
async def test_fields_are_taken_away_in_another_file(command: str, gone: str, desk: Desk) -> None:
    desk.put("consent.pdf")
    ended = await desk.sign(command, "consent.pdf", "--output", "other.pdf")
    assert (ended.status, ended.err) == (0, "directsuite: written to other.pdf\n")
    before, after = [" ".join((await desk.sign("info", name)).out.split()) for name in ("consent.pdf", "other.pdf")]
    assert (gone in before, gone in after) == (True, False)


@pytest.mark.parametrize("command", ["verify", "info"])
async def test_what_can_t_be_read_or_is_no_pdf_is_refused(command: str, desk: Desk) -> None:
    desk.put("text.pdf", content=b"no PDF")
    for name, words in (("missing.pdf", "the PDF can't be read"), ("text.pdf", "this is not a PDF")):
        ended = await desk.sign(command, name)
        assert (ended.status, words in ended.err) == (2, True)
