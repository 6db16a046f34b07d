"""Invalid input: the message says what to do, and nothing is sent."""

from __future__ import annotations

import asyncio
import sys

import pytest

from directsuite.jobs.signing import SigningJournal
from tests.cli.conftest import CommandRunner
from tests.cli.sign.conftest import SignRunner

_STOPPED = "directsuite: Stopped. After the fix, run the same command again: it skips signed PDFs and signs the others."
_NO_PLACE = "--widget is not a position. Expected X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, such as 72,620,200,70,1"
_OUT = ("--output", "out")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a.pdf", *_OUT, "--widget", "72,620,200"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", "72,620,200,wide"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", "72,620,nan,70"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget=-1,620,200,70"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", ""), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", "72,620,0,70"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", "72,620,200,70,0"), _NO_PLACE),
        (("a.pdf", *_OUT, "--widget", "72,620,200,70,1.5"), _NO_PLACE),
        (("a.pdf", *_OUT, "--name", "A", "--name", "A"), "The same --name is given twice"),
        (("a.pdf", *_OUT, "--name", " "), "A --name is empty"),
        (("a.pdf", *_OUT, "--name", "Ada", "--name", "J\udce9"), "--name number 2 is not text in this machine's"),
        (("a.pdf", *_OUT, "--reason", "J\udce9"), "--reason is not text in this machine's encoding: set LC_ALL"),
        (("a.pdf", *_OUT, "--signer", "J\udce9", "--dry-run"), "--signer is not text in this machine's encoding"),
        (
            ("a.pdf", *_OUT, "--name", "A", "--name", "B", "--widget", "1,1,9,9"),
            "--name is given 2 times and --widget 1",
        ),
        (("a.pdf", *_OUT, "--image", "no.png"), "The file of --image can't be read (No such file or directory)"),
        (("a.pdf", *_OUT, "--image", "a.pdf"), "The file of --image is not a PNG or JPEG"),
        (("a.pdf", *_OUT, "--image", "large.png"), "The file of --image has more than 1,000,000 bytes"),
        (("a.pdf", *_OUT, "--widget", "1,1,9,9", "--widget", "72,nowhere"), "--widget number 2 is not a position"),
        (("a.pdf", *_OUT, "--widget", "7 2,620,200,70"), "--widget is not a position"),
        (("a.pdf", *_OUT, "--image", "small.png"), "--image needs a visible signature"),
        (("a.pdf", *_OUT, "--timezone", "Mars/Olympus"), "--timezone is not a known time zone"),
        (("a.pdf", "--output", "."), "--output is the folder of the source PDFs"),
        ((".", "--output", "."), "--output is the folder of the source PDFs"),
        (("a.pdf", "--output", "a.pdf"), "The file of --output is the source PDF"),
        (("a.pdf", "--output", "\0"), "--output has a NUL byte. Name a different folder."),
        (
            ("a.pdf", "--output", "x" * 300),
            "--output can't be written (File name too long). Name a path in a folder that this user may write to.",
        ),
        (
            ("a.pdf", "--output", "x" * 240),
            "Could not open the journal next to --output. The journal can't be opened (File name",
        ),
        (("a.pdf", "--output", "/"), "--output is the root folder"),
        (("none.pdf", *_OUT), "There is nothing to sign. Name PDFs, or folders that contain PDFs."),
        (("a.pdf", *_OUT, "--token-file", "none"), "the file of --token-file can't be read"),
    ],
)
async def test_wrong_options_are_reported(offline: CommandRunner, arguments: tuple[str, ...], sentence: str) -> None:
    png = b"\x89PNG\r\n\x1a\n"
    for name, content in {"a.pdf": b"%PDF-1.7 %%EOF", "large.png": png.ljust(1_000_001), "small.png": png}.items():
        (offline.folder / name).write_bytes(content)
    err = await offline.fail(2, sentence, "sign", *arguments)
    assert err.splitlines()[-1].startswith(f"directsuite: {sentence}")
    assert not (offline.folder / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "SOURCE is missing"),
        (("a.pdf", "", *_OUT), "the path is empty; name a file or a folder"),
        (("a.pdf", "--output", ""), "the path is empty; name a file or a folder"),
        (("a.pdf",), "--output"),
        (("a.pdf", *_OUT, "--concurrency", "0"), "--concurrency"),
        (("a.pdf", *_OUT, "--patience", "long"), "--patience"),
        (("a.pdf", *_OUT, "--colour", "red"), "--colour"),
    ],
    ids=["nothing", "an empty source", "an empty output", "no output", "none at a time", "no number", "unknown"],
)
async def test_wrong_usage_names_the_option(offline: CommandRunner, arguments: tuple[str, ...], named: str) -> None:
    await offline.fail(2, named, "sign", *arguments)


async def test_rejected_token_ends_it_with_3_and_the_next_command_goes_on(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    cli.set_env("DIRECTSUITE_TOKEN", "wrong-7d21")
    told = await cli.run("a.pdf", *_OUT)
    first, second = told.err.splitlines()
    assert (told.status, second) == (3, _STOPPED)
    assert first.startswith("directsuite: Save: the service rejected the access token (HTTP 401): the token is wrong")
    assert "wrong-7d21" not in told.out + told.err
    cli.set_env("DIRECTSUITE_TOKEN", cli.sandbox.environment["DIRECTSUITE_TOKEN"])
    assert (await cli.run("a.pdf", *_OUT)).status == 0


@pytest.mark.parametrize(
    ("http_status", "status"),
    [(403, 3), *(pytest.param(*each, marks=pytest.mark.wide) for each in ((302, 5), (404, 4), (405, 5)))],
)
async def test_denied_permission_or_wrong_url_fails_no_document(http_status: int, status: int, cli: SignRunner) -> None:
    cli.write_pdfs(*(f"in/{number}.pdf" for number in range(3)))
    fault = cli.sandbox.inject_fault("Save", "status", status=http_status, times=1000)
    told = await cli.run("in", *_OUT, "--json")
    assert (told.status, told.document["signed"], told.document["failed"]) == (status, 0, [])
    assert f"(HTTP {http_status})" in told.document["stopped"]
    assert told.document["stopped"].count("check ") == {403: 0, 404: 2}.get(http_status, 1)
    assert "--again" not in told.err
    cli.sandbox.remove_fault(fault)
    told = await cli.run("in", *_OUT)
    assert (told.status, told.out) == (0, f"3 signed. Output folder: {cli.folder / 'out'}\n")


@pytest.mark.wide
async def test_many_failures_in_a_row_stop_it_and_are_to_be_tried_again(cli: SignRunner) -> None:
    cli.write_pdfs(*(f"in/{number}.pdf" for number in range(22)))
    fault = cli.sandbox.inject_fault("Save", "status", status=413, times=1000)
    told = await cli.run("in", *_OUT, "--concurrency", "1")
    assert told.status == 1
    assert told.err.splitlines() == [
        "directsuite: 20 documents failed one after the other; the last: the request is larger "
        "than the service accepts (HTTP 413): fix this first",
        _STOPPED,
        "directsuite: 20 PDFs failed and would be skipped. The table shows the reasons. Fix them, then run the same "
        "command with --again.",
    ]
    cli.sandbox.remove_fault(fault)
    assert (await cli.run("in", *_OUT)).out.startswith("2 signed, 20 failed.")
    assert (await cli.run("in", *_OUT, "--again")).out.startswith("20 signed, 2 signed before.")


@pytest.mark.parametrize(
    "more", [(), pytest.param(("--again",), marks=pytest.mark.wide)], ids=["a run of all", "the same again"]
)
async def test_interrupted_again_continues(more: tuple[str, ...], cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    for http_status, again in ((413, ()), (403, ("--again",))):
        fault = cli.sandbox.inject_fault("Save", "status", status=http_status, times=1000)
        told = await cli.run("in", *_OUT, *again)
        cli.sandbox.remove_fault(fault)
    assert told.status == 3
    assert told.err.endswith(f"{_STOPPED}\n")
    told = await cli.run("in", *_OUT, *more)
    assert (told.status, told.out) == (0, f"2 signed. Output folder: {cli.folder / 'out'}\n")


@pytest.mark.wide
async def test_service_that_is_not_there_is_waited_for_and_then_told_with_6(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    (cli.folder / "suite.toml").write_text("retry_attempts = 1\n")
    cli.set_env("DIRECTSUITE_CONFIG", "suite.toml")
    cli.set_env("DIRECTSUITE_SIGNING_URL", "http://127.0.0.1:1")
    told = await cli.run("a.pdf", *_OUT, "--patience", "0.1", "--json")
    assert (told.status, told.document["signed"]) == (6, 0)
    waiting, why, _ = told.err.splitlines()
    assert waiting == (
        "directsuite: Could not connect to the service (run `directsuite doctor` to see why). Retrying for up to "
        "0.1 s; press Ctrl-C to stop."
    )
    assert "no connection to the signing service" in why


async def test_no_call_is_tried_again_after_patience(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    cli.sandbox.inject_fault("Save", "status", status=503, times=None)  # a single call waits for half a minute
    async with asyncio.timeout(25):
        told = await cli.run("a.pdf", *_OUT, "--patience", "0.1")
    assert told.status == 6
    assert "HTTP 503" in told.err


@pytest.mark.skipif(sys.platform == "win32", reason="links are for some users only there")
async def test_output_that_is_a_link_to_itself_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    (cli.folder / "out").symlink_to("out")
    assert "Name a " in await cli.fail(2, "directsuite: --output ", "a.pdf", *_OUT)


async def test_file_in_place_of_output_folder_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    cli.write_pdfs("out/.directsuite", content=b"in the way")
    told = await cli.run("a.pdf", *_OUT, "--json")
    assert (told.status, told.document["signed"]) == (1, 0)
    assert told.document["stopped"] == "the target can't be written (Not a directory): fix this first"
    assert list(await cli.sandbox.ledger()) == []


async def test_journal_that_is_in_use_or_no_journal_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("a.pdf")
    words = "Could not open the journal next to --output. The journal is already open, in this program or in another"
    async with SigningJournal(cli.folder / "out.signing.db"):
        await cli.fail(2, words, "a.pdf", *_OUT)
    cli.write_pdfs("other.signing.db", content=b"no database, but long enough to be read as one" * 20)
    for more in ((), ("--dry-run",)):
        await cli.fail(2, "is not an SQLite database", "a.pdf", "--output", "other", *more)


async def test_source_within_another_is_rejected(cli: SignRunner) -> None:
    cli.write_pdfs("in/late/a.pdf")
    for sources in (("in", "in/late/a.pdf"), ("in", "in/late"), ("in/late", "in")):
        await cli.fail(2, "One source is inside another", *sources, *_OUT, "--recursive")
    assert (await cli.run("in", "in/late", *_OUT)).out.startswith("1 signed.")
    (cli.folder / "other.pdf").symlink_to(cli.folder / "in/late/a.pdf")
    assert "One source is inside another" in (await cli.run("in/late", "other.pdf", *_OUT)).err


async def test_leftovers_of_killed_command_are_not_signed(cli: SignRunner) -> None:
    cli.write_pdfs("year/january/a.pdf", "year/january/.directsuite/ab.0/3.pdf")
    assert (await cli.run("year", *_OUT, "--recursive")).out.startswith("1 signed.")
