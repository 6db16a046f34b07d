"""`directsuite sign` with one PDF at a time."""

from __future__ import annotations

import io
from typing import Any

import pikepdf
import pytest

from directsuite.signing.service import Signing
from tests.cli.sign.conftest import PATIENT, WITNESS, SignRunner
from tests.integration.documents import make_consent_form

pytestmark = pytest.mark.wide


async def test_one_pdf_is_signed_into_one_file(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    result = await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (result.status, result.err) == (0, "directsuite: The PDF was written to the file of --output.\n")
    assert cli.count_signatures("signed.pdf") == 1
    assert sorted(path.name for path in cli.folder.iterdir()) == ["consent.pdf", "signed.pdf"]
    assert (await cli.count_requests("Save"), await cli.count_requests("Delete")) == (1, 1)


async def test_file_that_is_there_is_replaced_only_where_that_is_said(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    cli.write_pdfs("signed.pdf", content=b"another")
    await cli.fail(2, "give --overwrite", "consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (cli.folder / "signed.pdf").read_bytes() == b"another"
    assert (await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--overwrite")).status == 0
    assert cli.count_signatures("signed.pdf") == 1


async def test_folder_whose_name_ends_like_a_pdf_is_a_folder(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    (cli.folder / "signed.pdf").mkdir()
    assert (await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)).status == 0
    assert cli.list_files("signed.pdf") == ["consent.pdf"]


async def test_signatures_are_verified_and_not_valid_in_a_changed_pdf(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--reason", "Consent")
    result = await cli.run("verify", "signed.pdf")
    assert result.status == 0
    titles, row = result.out.splitlines()
    assert titles.split()[:5] == ["file", "signature", "stated", "signer", "time"]
    assert titles.split()[6:] == ["reason", "valid"]  # after the time zone
    assert {"signed.pdf", PATIENT, "Consent", "valid"} <= set(row.split())
    result = await cli.run("verify", "signed.pdf", "consent.pdf")
    assert (result.status, result.err) == (1, "directsuite: PDFs without a signature: 1 of 2.\n")
    content = (cli.folder / "signed.pdf").read_bytes()
    (cli.folder / "signed.pdf").write_bytes(content.replace(b"Consent", b"Refusal"))
    result = await cli.run("verify", "signed.pdf")
    assert (result.status, "NOT VALID" in result.out) == (1, True)


async def test_info_shows_pages_fields_and_signatures(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    result = await cli.run("info", "consent.pdf")
    assert result.status == 0
    assert f"Signature {PATIENT}: not signed" in " ".join(result.out.split())
    assert "Pages 1 Page size 612 x 792 Field patient: Ada" in " ".join(result.out.split())
    assert await cli.count_requests("Delete") == 1


async def test_info_says_that_a_field_has_no_name(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    body = {"identifier": "1", "formFields": [{"value": "Ada"}, {}], "signatures": [{"isSigned": False}]}
    cli.sandbox.inject_fault("GetDocInfo", "status", status=200, body=body)
    result = await cli.run("info", "consent.pdf")
    expected = "Field no name: Ada Field no name Signature no name: not signed"
    assert (result.status, expected in " ".join(result.out.split())) == (0, True)


@pytest.mark.parametrize(("command", "gone"), [("flatten", "Field patient"), ("clear", f"Signature {PATIENT}")])
async def test_fields_are_taken_away_in_another_file(command: str, gone: str, cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    result = await cli.run(command, "consent.pdf", "--output", "other.pdf")
    assert (result.status, result.err) == (0, "directsuite: The PDF was written to the file of --output.\n")
    before, after = [" ".join((await cli.run("info", name)).out.split()) for name in ("consent.pdf", "other.pdf")]
    assert (gone in before, gone in after) == (True, False)


@pytest.mark.parametrize("command", ["verify", "info"])
async def test_unreadable_file_or_non_pdf_is_rejected(command: str, cli: SignRunner) -> None:
    cli.write_pdfs("text.pdf", content=b"no PDF")
    whole = make_consent_form()
    cli.write_pdfs("cut.pdf", content=whole[: len(whole) // 2])
    for name, words in (
        ("missing.pdf", "The file can't be read"),
        ("text.pdf", "The file is not a PDF"),
        ("cut.pdf", "The file has no end-of-file marker (%%EOF) and may be incomplete: get a complete copy"),
    ):
        await cli.fail(2, words, command, name)


@pytest.mark.parametrize("command", [(), ("flatten",), ("clear",)])
async def test_source_is_never_replaced(command: tuple[str, ...], cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    (cli.folder / "linked.pdf").symlink_to("consent.pdf")
    before = (cli.folder / "consent.pdf").read_bytes()
    for output in ("consent.pdf", "linked.pdf"):
        await cli.fail(2, "is the source PDF", *command, "consent.pdf", "--output", output, "--overwrite")
    assert (cli.folder / "consent.pdf").read_bytes() == before


async def test_unknown_field_is_rejected_unless_a_widget_is_given(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    cli.set_env("DIRECTSUITE_VERBOSE", "1")
    words = "--name (Aproval): the PDF has no signature field with the signature's name, and would be"
    err = await cli.fail(2, words, "consent.pdf", "--output", "signed.pdf", "--name", "Aproval")
    assert f"lists the empty fields ({PATIENT}, {WITNESS})" in err
    assert cli.list_files(".") == ["consent.pdf"]
    assert (await cli.count_requests("MultiSignAndPull"), await cli.count_requests("Delete")) == (0, 1)
    result = await cli.run("consent.pdf", "--output", "signed.pdf", "--name", "New", "--widget", "72,620,200,70")
    assert (result.status, cli.count_signatures("signed.pdf")) == (0, 1)
    (cli.folder / "signed.pdf").unlink()
    words = f"--name ({PATIENT}): the PDF has a signature field with the signature's name, which has its own"
    named = ("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    await cli.fail(2, words, *named, "--widget", "72,620,200,70")
    assert cli.list_files(".") == ["consent.pdf"]


async def test_cut_off_pdf_is_not_signed(cli: SignRunner) -> None:
    cli.write_pdfs("in/whole.pdf")
    cli.write_pdfs("in/cut.pdf", content=make_consent_form()[:-2000])
    await cli.fail(2, "may be incomplete", "in/cut.pdf", "--output", "signed.pdf")
    assert await cli.count_requests("Save") == 0
    result = await cli.run("in", "--output", "out")
    assert (result.status, cli.list_files()) == (1, ["whole.pdf"])
    assert "cut.pdf" in result.out
    assert "it has no end-of-file marker (%%EOF) and may be incomplete" in " ".join(result.out.split())


async def test_several_pdfs_need_a_folder_as_output(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    for sources in (("in/a.pdf", "in/b.pdf"), ("in",)):
        words = "--output ends in .pdf, which is only possible for a single PDF"
        await cli.fail(2, words, *sources, "--output", "signed.pdf")
    assert cli.list_files(".") == ["in/a.pdf", "in/b.pdf"]


async def test_verify_continues_after_unreadable_file(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf", "signed/b.pdf")
    cli.write_pdfs("signed/notes.txt", "signed/c.PDF", content=b"no PDF")
    await cli.run("consent.pdf", "--output", "signed/a.pdf", "--name", PATIENT, "--signer", "Ada Example")
    result = await cli.run("verify", "signed")
    assert result.status == 1
    titles, *rows = (line.split() for line in result.out.splitlines())
    assert titles[2:4] == ["stated", "signer"]
    assert [(row[0], row[-1]) for row in rows] == [
        ("signed/a.pdf", "valid"),
        ("signed/b.pdf", "signature"),
        ("signed/c.PDF", "PDF."),
    ]
    assert {"Ada", "Example"} <= set(rows[0])
    assert " ".join(rows[2]) == "signed/c.PDF not verified: The file is not a PDF."
    documents = (await cli.run("verify", "signed", "--json")).document
    assert [(each["file"], len(each["signatures"]), bool(each["problem"])) for each in documents] == [
        ("signed/a.pdf", 1, False),
        ("signed/b.pdf", 0, False),
        ("signed/c.PDF", 0, True),
    ]


async def test_folder_without_a_pdf_is_reported(cli: SignRunner) -> None:
    (cli.folder / "empty").mkdir()
    await cli.fail(2, "There is no PDF in the folders. --recursive includes their subfolders.", "verify", "empty")
    cli.write_pdfs("empty/below/consent.pdf")
    result = await cli.run("verify", "empty", "--recursive")
    assert (result.status, "empty/below/consent.pdf" in result.out) == (1, True)


@pytest.mark.parametrize(
    "options",
    [("--recursive",), ("--patience", "3"), ("--concurrency", "2"), ("--dry-run",), ("--again", "--recursive")],
)
async def test_options_of_folders_are_rejected_for_one_file(options: tuple[str, ...], cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    names = ", ".join(each for each in options if each.startswith("-"))
    words = f"directsuite: Options that are only for folders: {names}. Omit them, or give --output FOLDER.\n"
    await cli.fail(2, words, "consent.pdf", "--output", "signed.pdf", *options)
    assert cli.list_files(".") == ["consent.pdf"]


@pytest.mark.parametrize("command", [("verify",), ("info",), ("flatten", "--output", "flat.pdf")])
async def test_pdf_that_needs_a_password_is_rejected(command: tuple[str, ...], cli: SignRunner) -> None:
    locked = io.BytesIO()
    with pikepdf.open(io.BytesIO(make_consent_form())) as pdf:
        pdf.save(locked, encryption=pikepdf.Encryption(owner="owner", user="user"))
    cli.write_pdfs("locked.pdf", content=locked.getvalue())
    await cli.fail(5, "check the options, and that the PDF is complete", *command, "locked.pdf")


async def test_lost_response_says_what_became_of_the_file_and_the_copy(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    cli.sandbox.inject_fault("SignAndPull", "reset_before", times=1)
    expires = "the document stored at the service expires if it could not be deleted"
    words = f"no file was written, and {expires}; run the same command again\n"
    await cli.fail(6, words, "consent.pdf", "--output", "signed.pdf")
    assert (cli.list_files("."), await cli.count_requests("Delete")) == (["consent.pdf"], 1)


async def test_copy_that_stays_at_the_service_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    cli.sandbox.inject_fault("Delete", "status", status=400)
    result = await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (result.status, cli.count_signatures("signed.pdf")) == (0, 1)
    assert "The service's copy of the PDF could not be deleted. It expires" in result.err


async def test_file_that_appears_meanwhile_is_not_replaced(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf")
    pull = Signing.sign_and_pull

    async def pulled(self: Signing, *arguments: Any, **options: Any) -> Any:
        result = await pull(self, *arguments, **options)
        (cli.folder / "signed.pdf").write_text("precious")
        return result

    with cli.monkeypatch.context() as patch:
        patch.setattr(Signing, "sign_and_pull", pulled)
        result = await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    assert (result.status, "exists already" in result.err) == (2, True)
    assert (cli.folder / "signed.pdf").read_text() == "precious"
    assert cli.list_files(".") == ["consent.pdf", "signed.pdf"]
    result = await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT, "--overwrite")
    assert (result.status, cli.count_signatures("signed.pdf")) == (0, 1)


async def test_folder_without_a_pdf_has_a_row_beside_others(cli: SignRunner) -> None:
    cli.write_pdfs("consent.pdf", "in/deep/a.pdf")
    (cli.folder / "empty").mkdir()
    await cli.run("consent.pdf", "--output", "signed.pdf", "--name", PATIENT)
    result = await cli.run("verify", "signed.pdf", "empty", "in")
    assert result.status == 1
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert rows[2:] == [f"{name} not verified: There is no PDF in this folder." for name in ("empty", "in")]
    assert "1 folder not read. --recursive includes them." in result.err
    assert "PDFs that could not be verified: 2 of 3. The table shows the reasons." in result.err


async def test_pages_of_several_sizes_are_counted(cli: SignRunner) -> None:
    with pikepdf.new() as pdf:
        for size, turned in (((612, 792), 0), ((612, 792), 0), ((842, 595), 90), ((612, 792), 0)):
            pdf.add_blank_page(page_size=size)
            pdf.pages[-1].rotate(turned, relative=False)
        pdf.save(cli.folder / "mixed.pdf")
    rows = [" ".join(line.split()) for line in (await cli.run("info", "mixed.pdf")).out.splitlines()]
    sizes = {"Page size 612 x 792: 3 pages", "Page size 842 x 595, rotated by 90 degrees: 1 page"}
    assert {"Pages 4", *sizes} <= {*rows}


@pytest.mark.parametrize(
    ("http_status", "times", "has_problem", "status"),
    [
        (413, 1, [False, True, False, False, False, False], 1),
        (500, 4, [False, True, True, True, True, False], 1),
        (500, None, [False, True, True, True, True, True], 6),  # the service fails for one PDF after another
        (401, None, [False], 3),
    ],
    ids=["one rejected", "some failed", "all failed", "wrong token"],
)
async def test_verify_continues_unless_the_service_fails_for_all(
    http_status: int, times: int | None, has_problem: list[bool], status: int, cli: SignRunner
) -> None:
    cli.write_pdfs(*(f"in/{number}.pdf" for number in range(8 if times is None else 6)))
    cli.set_env("DIRECTSUITE_RETRY_ATTEMPTS", "1")
    cli.sandbox.inject_fault("Save", "status", status=http_status, skip=1, times=times)
    result = await cli.run("verify", "in", "--json")
    assert (result.status, [each["problem"] is not None for each in result.document]) == (status, has_problem)
    assert ("PDFs that were not processed: " in result.err) is (times is None)
