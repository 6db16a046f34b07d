"""Files and folders as sources of signed files."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import attrs
import pytest
from PIL import Image

import directsuite as ds
from directsuite.cli.sign_sources import Admission, Candidate, CandidateVerdict, PdfSources
from directsuite.durable import sqlite
from directsuite.jobs.signing import DocumentState, SigningEntry, SigningJournal
from tests.cli.sign.conftest import PATIENT, WITNESS, SignRunner
from tests.integration.documents import make_consent_form

SIGNED = ("--output", "out", "--name", PATIENT)


async def test_files_and_folders_are_signed_under_their_names(cli: SignRunner) -> None:
    cli.write_pdfs("one.pdf", "in/a.pdf", "in/B.PDF", "in/deep/c.pdf")
    cli.write_pdfs("in/notes.txt", content=b"no PDF, and none that anybody meant")
    told = await cli.run("one.pdf", "in", *SIGNED, "--reason", "Consent", "--signer", "Ada", "--timezone", "UTC")
    assert told.status == 0
    assert told.err == "directsuite: 1 folder within the sources not read. --recursive includes them.\n"
    assert told.out == f"3 signed. Output folder: {cli.folder / 'out'}\n"
    assert cli.list_files() == ["B.PDF", "a.pdf", "one.pdf"]
    assert {cli.count_signatures(f"out/{name}") for name in cli.list_files()} == {1}
    assert cli.count_signatures("one.pdf") == 0
    assert await cli.count_requests("Delete") == 3  # no file is left behind


async def test_recursive_includes_subfolders_except_the_output(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf", "deep/b.pdf", "out/c.pdf")
    told = await cli.run(".", *SIGNED, "--recursive", "--json")
    assert told.status == 0
    nothing: dict[str, object] = {"signed_before": 0, "failed": [], "refused": [], "stopped": None}
    assert told.document == {"output": str(cli.folder / "out"), "signed": 2, **nothing}
    assert cli.list_files() == ["a.pdf", "c.pdf", "deep/b.pdf"]
    assert cli.count_signatures("out/c.pdf") == 0


async def test_file_that_is_named_twice_is_signed_once(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    told = await cli.run("in", "in/a.pdf", "./in/a.pdf", "in/../in", *SIGNED, "--dry-run")
    assert (told.status, told.err) == (0, "directsuite: Dry run: nothing was sent. 2 PDFs would be signed.\n")


def test_many_folders_are_read_with_one_look_at_each_file(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(30)]
    for folder in folders:
        folder.mkdir()
        for name in ("same.pdf", f"{folder.name}.pdf"):
            (folder / name).write_bytes(b"%PDF-1.7 %%EOF")
    with patch.object(os.path, "isfile", wraps=os.path.isfile) as isfile:
        candidates = list(PdfSources(folders, output=tmp_path / "out", recursive=False))
    assert sorted(each.file for each in candidates if each.problem is None) == sorted(
        [folders[0] / "same.pdf", *(folder / f"{folder.name}.pdf" for folder in folders)]
    )
    assert len(candidates) == isfile.call_count == 60


async def test_several_signatures_have_a_name_and_a_place_each(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    Image.new("RGB", (40, 20), "navy").save(cli.folder / "ink.png")
    doctor = ("--name", "Doctor", "--widget", "72,620,200,70")
    nurse = ("--name", "Nurse", "--widget", "72.5, 500 ,200, 70,1")
    assert (await cli.run("a.pdf", "--output", "out", *doctor, *nurse, "--image", "ink.png")).status == 0
    assert cli.count_signatures("out/a.pdf") == 2
    [effect] = await cli.sandbox.ledger("MultiSignAndPull")
    assert effect["detail"]["names"] == ["Doctor", "Nurse"]


async def test_same_command_again_signs_nothing_twice_and_what_is_new(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    assert (await cli.run("in", *SIGNED)).status == 0
    before = (cli.folder / "out/a.pdf").read_bytes()
    cli.write_pdfs("in/b.pdf")
    told = await cli.run("in", *SIGNED)
    assert (told.status, told.out) == (0, f"1 signed, 1 signed before. Output folder: {cli.folder / 'out'}\n")
    assert (cli.folder / "out/a.pdf").read_bytes() == before
    assert await cli.count_requests("Save") == 2


async def test_dry_run_tells_all_and_does_nothing(cli: SignRunner) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN")  # which it does not need
    cli.monkeypatch.delenv("DIRECTSUITE_SIGNING_URL")
    cli.write_pdfs("in/a.pdf", "other/a.pdf", "in/b.pdf", "out/b.pdf")
    cli.write_pdfs("in/c.pdf", content=b"no PDF")
    told = await cli.run("in", "other", *SIGNED, "--dry-run")
    assert told.status == 1
    assert told.err == "directsuite: Dry run: nothing was sent. 1 PDF would be signed.\n"
    there = "--output has a file with this name; name a different --output, or give --overwrite to replace it"
    twice = "another source has a PDF with the same name; rename one, or sign it into a different --output"
    assert sorted(line.split(maxsplit=1) for line in told.out.splitlines()[1:]) == [
        ["in/a.pdf", f"signed into {cli.folder / 'out' / 'a.pdf'}"],
        ["in/b.pdf", f"not signed: {there}"],
        ["in/c.pdf", "not signed: it is not a PDF"],
        ["other/a.pdf", f"not signed: {twice}"],
    ]
    assert cli.list_files() == ["b.pdf"]
    assert sorted(path.name for path in cli.folder.iterdir()) == ["in", "other", "out"]
    assert list(await cli.sandbox.ledger()) == []
    plan = (await cli.run("in", *SIGNED, "--dry-run", "--json")).document
    expected = {"in/a.pdf": True, "in/b.pdf": False, "in/c.pdf": False}
    assert {each["source"]: each["would_be_signed"] for each in plan} == expected


async def test_files_that_are_not_pdfs_are_reported_and_the_others_signed(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf", "in/b.pdf")
    cli.write_pdfs("Ada Example.txt", "in/Ada Example.pdf", content=b"no PDF")
    told = await cli.run("Ada Example.txt", "a.pdf", "missing.pdf", "in", *SIGNED)
    assert told.status == 1
    assert told.err == (
        "directsuite: Source 1 is not a PDF. It is not signed.\n"
        "directsuite: Source 3 can't be read (No such file or directory). It is not signed.\n"
        "directsuite: 1 PDF not signed. "
        "The table shows the reasons. Fix them, then run the same command with --again.\n"
    )
    lines = told.out.splitlines()
    assert lines[0] == f"2 signed, 1 not signed. Output folder: {cli.folder / 'out'}"
    assert lines[2].split("  ")[0] == "Ada Example.pdf"
    assert cli.list_files() == ["a.pdf", "b.pdf"]


async def test_nothing_is_overwritten_without_being_told(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    cli.write_pdfs("out/a.pdf", content=b"somebody's")
    told = await cli.run("in", *SIGNED)
    assert told.status == 1
    assert "--output has a file with this name" in told.out
    assert (cli.folder / "out/a.pdf").read_bytes() == b"somebody's"
    told = await cli.run("in", *SIGNED, "--overwrite")
    assert (told.status, told.out) == (0, f"1 signed, 1 signed before. Output folder: {cli.folder / 'out'}\n")
    assert cli.count_signatures("out/a.pdf") == 1


async def test_missing_output_is_reported_and_signed_again_on_request(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    await cli.run("a.pdf", *SIGNED)
    (cli.folder / "out/a.pdf").unlink()
    told = await cli.run("a.pdf", *SIGNED)
    assert (told.status, cli.list_files()) == (1, [])
    assert "the signed file no longer exists" in told.out
    assert (await cli.run("a.pdf", *SIGNED, "--overwrite")).status == 0
    assert cli.count_signatures("out/a.pdf") == 1


@pytest.mark.wide
async def test_signed_document_not_yet_deleted_is_finished(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    await cli.run("a.pdf", *SIGNED)
    stored = await saved(cli)
    told = await cli.run("a.pdf", *SIGNED)
    assert (told.status, told.out) == (0, f"1 signed. Output folder: {cli.folder / 'out'}\n")
    assert await cli.count_requests("SignAndPull") == 1
    assert await deleted(cli, stored)
    stored = await saved(cli)
    (cli.folder / "out/a.pdf").unlink()
    assert (await cli.run("a.pdf", *SIGNED)).status == 1
    assert (await cli.run("a.pdf", *SIGNED, "--overwrite")).status == 0
    assert cli.list_files() == ["a.pdf"]
    assert await deleted(cli, stored)


async def saved(runner: SignRunner) -> str:
    """Create the state after a crash between two steps: a stored document, and its entry as SIGNED."""
    async with ds.DirectSuite.from_env() as suite, SigningJournal(runner.folder / "out.signing.db") as journal:
        identifier = (await suite.signing.save(make_consent_form())).identifier
        [entry] = await journal.lease.entries(["a.pdf"])
        await journal.lease.put(attrs.evolve(entry, state=DocumentState.SIGNED, identifier=identifier))
    assert identifier is not None
    return identifier


async def deleted(runner: SignRunner, identifier: str) -> bool:
    return identifier in [effect["subject"] for effect in await runner.sandbox.ledger("Delete")]


async def test_failures_are_listed_with_reason_and_retried_alone(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    cli.sandbox.inject_fault("SignAndPull", "status", status=413, times=1)
    told = await cli.run("in", *SIGNED, "--concurrency", "1")
    assert told.status == 1
    assert told.err.startswith("directsuite: 1 PDF not signed. The table shows the reasons. Fix them, then run the")
    assert "the request is larger than the service accepts (HTTP 413)" in told.out
    assert len(cli.list_files()) == 1
    told = await cli.run("in", *SIGNED)  # it is not retried automatically
    assert (told.status, len(cli.list_files())) == (1, 1)
    told = await cli.run("in", *SIGNED, "--dry-run")
    assert (told.status, told.err.split()[6:10]) == (1, ["0", "PDFs", "would", "be"])
    assert "skipped: it failed before (the request is larger than the service accepts (HTTP 413)); --again" in told.out
    told = await cli.run("in", *SIGNED, "--again")
    assert (told.status, told.out) == (0, f"1 signed, 1 signed before. Output folder: {cli.folder / 'out'}\n")
    assert len(cli.list_files()) == 2


@pytest.mark.wide
async def test_again_signs_failed_and_rejected_and_reports_missing(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    cli.write_pdfs("in/bad.pdf", content=b"no PDF")
    cli.write_pdfs("in/c.pdf")
    cli.sandbox.inject_fault("SignAndPull", "status", status=413, times=1)
    assert (await cli.run("in", *SIGNED, "--concurrency", "1")).status == 1
    cli.write_pdfs("in/bad.pdf")
    told = await cli.run("in", *SIGNED, "--again", "--dry-run")
    assert (told.status, "2 PDFs would be signed" in told.err) == (0, True)
    told = await cli.run("in", *SIGNED, "--again")
    assert (told.status, cli.list_files()) == (0, ["a.pdf", "bad.pdf", "c.pdf"])
    (cli.folder / "out" / "a.pdf").unlink()
    told = await cli.run("in", *SIGNED, "--again")
    assert (told.status, "it was signed, but the signed file no longer exists" in told.out) == (1, True)


@pytest.mark.parametrize("more", [(), pytest.param(("--again",), marks=pytest.mark.wide)], ids=["new", "again"])
async def test_wrong_options_can_be_corrected_before_first_signature(cli: SignRunner, more: tuple[str, ...]) -> None:
    cli.write_pdfs("a.pdf")
    told = await cli.run("a.pdf", "--output", "out", "--widget", "72,620,200,70,9")
    assert (told.status, cli.list_files()) == (1, [])
    assert "the service did not accept the signature or the document (HTTP 400)" in told.out
    right = ("a.pdf", "--output", "out", "--widget", "72,620,200,70,1", *more)
    plan = await cli.run(*right, "--dry-run")
    assert (plan.status, "nothing was sent. 1 PDF would be signed" in plan.err) == (0, True)
    told = await cli.run(*right)
    assert (told.status, told.out.startswith("1 signed")) == (0, True)
    other = ("a.pdf", "--output", "out", "--widget", "72,620,200,70,2")
    await cli.fail(2, "--output contains PDFs that were signed with other options", *other)


async def test_dry_run_tells_that_an_output_was_signed_in_another_way(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    assert (await cli.run("in/a.pdf", *SIGNED)).status == 0
    other = ("in", "--output", "out", "--name", WITNESS)
    err = await cli.fail(2, "directsuite: --output contains PDFs that were signed with other options", *other)
    assert err == (await cli.run(*other, "--dry-run")).err
    assert (await cli.run("in", *SIGNED, "--dry-run")).err.endswith("nothing was sent. 1 PDF would be signed.\n")


@pytest.mark.parametrize(
    "more",
    [(), pytest.param(("--widget", "1,1,50,50"), marks=pytest.mark.wide)],
    ids=["misspelt", "a widget over a field"],
)
async def test_in_a_folder_too_a_signature_stands_where_its_name_says(more: tuple[str, ...], cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    name = PATIENT if more else "PatientSgi"
    told = await cli.run("in", "--output", "out", "--name", name, *more)
    assert (told.status, cli.list_files(), await cli.count_requests("SignAndPull")) == (1, [], 0)
    words = " ".join(told.out.split())
    assert f"it has {'a' if more else 'no'} signature field with the signature's name" in words
    assert ("`directsuite sign info` lists the fields of the PDF" in words) is (not more)
    assert (await cli.run("in/a.pdf", "--output", "other", "--name", name, *more)).status == 1  # also for a single file
    assert await cli.count_requests("Delete") == 2


async def test_copies_that_stay_at_the_service_are_reported(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    rule = cli.sandbox.inject_fault("Delete", "status", status=403, times=None)
    told = await cli.run("in", *SIGNED)
    assert (told.status, told.out.startswith("1 signed")) == (0, True)
    assert "still stores signed PDFs that could not be deleted there: 1 stored copy." in told.err
    cli.sandbox.remove_fault(rule)
    told = await cli.run("in", *SIGNED)
    assert (told.err, await cli.count_requests("Delete")) == ("", 1)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
async def test_folder_without_pdfs_is_reported(cli: SignRunner, more: tuple[str, ...]) -> None:
    (cli.folder / "empty").mkdir()
    told = await cli.run("empty", *SIGNED, "-v", *more)
    assert (told.status, "There is no PDF in the folders (empty). --recursive" in told.err) == (1, True)


async def test_output_that_looks_like_another_file_is_rejected(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    await cli.fail(2, "looks like a file that is not a PDF", "a.pdf", "--output", "signed.txt")
    assert cli.list_files(".") == ["a.pdf"]
    (cli.folder / "consents.2026").mkdir()
    assert (await cli.run("a.pdf", "--output", "consents.2026", "--name", PATIENT)).status == 0


async def test_another_document_of_the_same_name_is_not_taken_for_signed(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    await cli.run("a.pdf", *SIGNED)
    cli.write_pdfs("a.pdf", content=make_consent_form() + b"\n% another")
    told = await cli.run("a.pdf", *SIGNED)
    assert told.status == 1
    assert "a different document with this name was signed into --output" in told.out
    assert (await cli.run("a.pdf", *SIGNED, "--overwrite")).status == 0
    assert b"% another" in (cli.folder / "out/a.pdf").read_bytes()


async def test_file_that_goes_away_while_it_waits_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    decide = Admission._decide_batch

    def decided(
        self: Admission, some: Sequence[Candidate], known: Mapping[str, SigningEntry]
    ) -> list[CandidateVerdict]:
        verdicts = decide(self, some, known)
        (cli.folder / "in/b.pdf").unlink()
        return verdicts

    with cli.monkeypatch.context() as patch:
        patch.setattr(Admission, "_decide_batch", decided)
        told = await cli.run("in", *SIGNED, "--json")
    assert (told.status, told.document["signed"]) == (1, 1)
    [failed] = told.document["failed"]
    assert (failed["name"], failed["problem"]) == ("b.pdf", "it can't be read (No such file or directory)")
    told = await cli.run("in", *SIGNED)  # the source no longer contains it
    assert (told.status, told.out) == (0, f"0 signed, 1 signed before. Output folder: {cli.folder / 'out'}\n")


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are a matter of POSIX")
async def test_special_file_is_reported_and_not_opened(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    os.mkfifo(cli.folder / "in" / "pipe.pdf")
    (cli.folder / "in" / "dangling.PDF").symlink_to("nowhere")
    (cli.folder / "in" / "itself.pdf").symlink_to("itself.pdf")
    told = await cli.run("in", *SIGNED, "--json")
    assert (told.status, told.document["signed"]) == (1, 1)
    refused = {each["name"]: (each["source"], each["problem"]) for each in told.document["refused"]}
    names = ("dangling.PDF", "itself.pdf", "pipe.pdf")
    assert refused == {name: (f"in/{name}", "it is not a file") for name in names}
    told = await cli.run("in/a.pdf", "in/pipe.pdf", *SIGNED)
    assert told.status == 1
    assert told.err == "directsuite: Source 2 is not a file. It is not signed.\n"


async def test_more_failed_files_than_sqlite_has_variables_are_reported(cli: SignRunner) -> None:
    names = [f"{number:03d}.pdf" for number in range(120)]
    cli.write_pdfs(*(f"in/{name}" for name in names), content=b"%PDF-1.7\n%%EOF")
    async with SigningJournal(cli.folder / "out.signing.db") as journal:
        for entry in await journal.lease.entries(names):
            await journal.lease.put(attrs.evolve(entry, state=DocumentState.FAILED, reason="it is too old"))
    connect = sqlite._connect

    def connect_with_few_variables(path: Path | None, timeout: float = 5.0) -> sqlite3.Connection:
        connection = connect(path, timeout)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 110)  # a batch of the command has 100
        return connection

    cli.monkeypatch.setattr(sqlite, "_connect", connect_with_few_variables)
    told = await cli.run("in", *SIGNED, "--json")
    assert told.status == 1
    assert [each["name"] for each in told.document["failed"]] == names
