"""`directsuite inbox`: its output, and safe handling of received content."""

from __future__ import annotations

import asyncio
import stat
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.cli.inbox import FileSaver, InboxListOptions, _find_newest, make_safe_name
from directsuite.cli.mailbox import _fetch_metadata
from directsuite.cli.output import format_size
from tests.cli.conftest import CliRunner
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite
from tests.core.virtual_time import VirtualTimeLoop
from tests.integration.scenario import ALICE, BOB, PASSWORD, open_scenario


def with_files(*names: str, html: str | None = None) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "carol@elsewhere.test", ALICE, "Results"
    message.set_content(html or "See the files.", subtype="plain" if html is None else "html")
    for name in names:
        message.add_attachment(name.encode("utf-8", "replace"), maintype="text", subtype="x-own", filename=name)
    return message.as_bytes()


def test_size_of_any_number_of_bytes_is_shown() -> None:
    shown = {0: "0 B", 999: "999 B", 1_000: "1.0 KB", 1_249: "1.2 KB", 2_560_000: "2.6 MB"}
    assert {size: format_size(size) for size in shown} == shown
    assert format_size(10**400).endswith(" MB")


@pytest.mark.wide
async def test_long_folder_is_listed_from_its_end(cli: CliRunner) -> None:
    for number in range(1_010):
        await cli.deliver(f"m{number}")
    listed = (await cli.run("inbox", "list", "--limit", "3", "--json")).document
    assert [each["subject"] for each in listed] == ["m1009", "m1008", "m1007"]


async def test_unread_ones_and_those_since_a_day(cli: CliRunner) -> None:
    for subject in ("one", "two"):
        await cli.deliver(subject)
    await cli.run("inbox", "read", "1", "--mark-read")
    unread = (await cli.run("inbox", "list", "--unread", "--json")).document
    assert [each["uid"] for each in unread] == [2]
    for since, count in (("2020-01-01", 2), ("2020-01-01T08:00", 2), ("2199-01-01", 0)):
        result = await cli.run("inbox", "list", "--since", since, "--json")
        assert (result.status, len(result.document)) == (0, count)


async def test_listing_and_reading_leave_a_message_unread(cli: CliRunner) -> None:
    await cli.deliver("one")
    for arguments in (("list",), ("read", "1"), ("save", "1", "--into", "saved", "--eml")):
        assert (await cli.run("inbox", *arguments)).status == 0
    async with open_scenario(cli.sandbox, cli.folder) as world:
        assert await world.suite.mailbox(ALICE, PASSWORD).get_unread_message_count() == 1


async def test_message_is_read_as_text_or_json(cli: CliRunner) -> None:
    await cli.deliver("", with_files("scan.pdf"))
    result = await cli.run("inbox", "read", "1")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "From:     carol@elsewhere.test"
    assert f"To:       {ALICE}" in lines
    assert "Subject:  Results" in lines
    assert "File:     scan.pdf, text/x-own, 8 B" in lines
    assert lines[lines.index("") + 1 :] == ["See the files."]
    document = (await cli.run("inbox", "read", "1", "--json")).document
    assert (document["uid"], document["subject"], document["body"].strip()) == (1, "Results", "See the files.")
    assert document["attachments"] == [{"content_type": "text/x-own", "filename": "scan.pdf", "size": 8}]


async def test_of_html_the_text_is_shown(cli: CliRunner) -> None:
    html = "<style>p{}</style><p>Dear <b>Alice</b>,<br>see&nbsp;<a href='https://x.test/'>this</a>.</p>"
    await cli.deliver("", with_files(html=html))
    assert (await cli.run("inbox", "read", "1")).out.endswith("\n\nDear Alice,\nsee this <https://x.test/>.\n")


@pytest.mark.parametrize("html", ["<style>p{}</style><img src='cid:scan'>", "<!-- Potassium 6.9"])
async def test_html_that_shows_nothing_is_said_to(cli: CliRunner, html: str) -> None:
    await cli.deliver("", with_files(html=html))
    result = await cli.run("inbox", "read", "1")
    assert (result.status, result.out.endswith("\n\n")) == (0, True)
    words = "contains no visible text. Run the same command with --json to see the HTML."
    assert result.err == f"directsuite: The HTML of the message {words}\n"
    assert (await cli.run("inbox", "read", "1", "--json")).document["body"].strip() == html


async def test_terminal_is_not_shown_what_it_would_act_upon(cli: CliRunner) -> None:
    raw = b"From: m@x.test\r\nSubject: \x1b]0;owned\x07 =?utf-8?q?=E2=80=AEfdp=1B[2J?=\r\n\r\nbody \x1b[31m\x9b2J\r\n"
    await cli.deliver("", raw)
    for arguments in (("list",), ("read", "1")):
        told = (await cli.run("inbox", *arguments)).out
        assert not set(told) & {"\x1b", "\x07", "\x9b", "\u202e"}
        assert "owned" in told


SAVED = {
    "escaped": "../../escaped",
    "passwd": "/etc/passwd",
    "up.txt": "..\\up.txt",
    "a.pdf": "a.pdf",
    "A-2.pdf": "A.pdf",
    "a-3.pdf": "a.pdf",
    "_nul.txt": "nul.txt",
    "hidden": ".hidden",
    "_-rf": "-rf",
}


def read_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


async def test_attachments_get_unique_names_and_owner_only_mode(cli: CliRunner) -> None:
    await cli.deliver("", with_files(*SAVED.values()))
    result = await cli.run("inbox", "save", "1", "--into", "saved")
    assert (result.status, result.err) == (0, "")
    assert read_files(cli.folder / "saved") == SAVED
    assert sorted(path.name for path in cli.folder.iterdir()) == ["saved"]
    if sys.platform != "win32":
        assert stat.S_IMODE((cli.folder / "saved" / "a-3.pdf").stat().st_mode) == 0o600
    assert "saved/a-3.pdf" in result.out.replace("\\", "/")


async def test_existing_files_are_skipped_unless_overwrite_is_given(cli: CliRunner) -> None:
    await cli.deliver("", with_files(*SAVED.values()))
    folder, save = cli.folder / "saved", ("inbox", "save", "1", "--into", "saved")
    folder.mkdir()
    (folder / "a.pdf").write_text("was there")
    (folder / "escaped").symlink_to(cli.folder / "elsewhere")
    result = await cli.run(*save)
    advice = "Give --overwrite to replace existing files, or a different folder with --into."
    assert result.err == f"directsuite: 2 existing files skipped, 2 with other content. {advice}\n"
    assert result.status == 1
    others = {name: text for name, text in SAVED.items() if name not in ("a.pdf", "escaped")}
    assert read_files(folder) == {**others, "a.pdf": "was there"}
    assert (await cli.run(*save, "--overwrite")).status == 0
    assert read_files(folder) == SAVED
    result = await cli.run(*save)
    assert (result.status, result.out) == (0, "")
    assert result.err == "directsuite: 9 existing files skipped, with the same content.\n"
    assert sorted(path.name for path in cli.folder.iterdir()) == ["saved"]


async def test_message_is_saved_as_it_stands_on_the_server(cli: CliRunner) -> None:
    raw = with_files("scan.pdf")
    await cli.deliver("", raw)
    result = await cli.run("inbox", "save", "1", "--into", "new/folder", "--eml", "--json")
    (saved,) = result.document
    assert (saved["uid"], saved["size"]) == (1, len(raw))
    assert cli.folder.joinpath(saved["path"]).read_bytes() == raw


async def test_message_without_files_is_reported(cli: CliRunner) -> None:
    await cli.deliver("one")
    result = await cli.run("inbox", "save", "1", "--into", "saved")
    assert (result.status, result.out) == (0, "")
    assert "--eml" in result.err


async def sent_copies(runner: CliRunner, *recipients: str) -> None:
    to = [word for each in recipients for word in ("--to", each)]
    assert (await runner.run("send", *to, "--subject", "Lab", "--body", "x")).status == 0


async def test_ones_own_message_shows_the_id_that_status_takes(cli: CliRunner) -> None:
    await cli.deliver("one")
    assert "SMTP id" not in (await cli.run("inbox", "read", "1")).out  # only its sender can request it
    await sent_copies(cli, BOB)
    shown = (await cli.run("inbox", "read", "1", "--folder", "INBOX.Sent")).out.splitlines()
    (smtp_id,) = [line.removeprefix("SMTP id:").strip() for line in shown if line.startswith("SMTP id:")]
    assert (await cli.run("status", smtp_id)).status == 0


async def test_messages_are_searched_by_recipient_in_all_folders(cli: CliRunner) -> None:
    await cli.deliver("one")
    for to in (BOB, "carol@elsewhere.test"):
        await sent_copies(cli, to)
    await cli.run("inbox", "delete", "2", "--folder", "INBOX.Sent", "--yes")
    result = await cli.run("inbox", "list", "--to", "CAROL", "--all-folders")
    header, row = result.out.splitlines()
    assert header.split()[:3] == ["folder", "uid", "received"]
    assert (row.split()[:2], "carol@elsewhere.test" in row) == (["INBOX.Trash", "1"], True)
    found = (await cli.run("inbox", "list", "--all-folders", "--json")).document
    assert {(each["folder"], each["uid"]) for each in found} == {("INBOX", 1), ("INBOX.Sent", 1), ("INBOX.Trash", 1)}
    result = await cli.run("inbox", "list", "--all-folders", "--limit", "1")
    assert result.err == "directsuite: 2 more. To see them, give --limit 3 or --all.\n"
    result = await cli.run("inbox", "list", "--to", "carol", "--folder", "INBOX.Sent")
    assert result.err.endswith("No message matches. --all-folders searches all folders.\n")


async def test_newest_of_all_folders_stand_first(cli: CliRunner) -> None:
    for subject in ("one", "two"):
        await cli.deliver(subject)
    cli.sandbox.clock.advance(timedelta(minutes=1))
    await sent_copies(cli, BOB)
    cli.sandbox.clock.advance(timedelta(minutes=1))
    await cli.deliver("three")
    found = (await cli.run("inbox", "list", "--all-folders", "--limit", "2", "--json")).document
    assert [each["subject"] for each in found] == ["three", "Lab"]


async def test_folder_with_the_same_name_after_the_prefix_is_suggested(cli: CliRunner) -> None:
    async def get_folders(_: ds.Mailbox) -> list[str]:
        return ["Projects", "INBOX.Cases"]

    cli.monkeypatch.setattr(ds.Mailbox, "get_folders", get_folders)
    for typed, meant in (("INBOX.Projects", "Projects"), ("Cases", "INBOX.Cases")):
        await cli.fail(4, f"Did you mean {meant}? ", "inbox", "list", "--folder", typed, "-v")


@pytest.mark.parametrize("more", [(), pytest.param(("--unread",), marks=pytest.mark.wide)], ids=["any", "unread"])
async def test_messages_are_listed_until_the_end_of_a_day_or_until_a_time(
    cli: CliRunner, more: tuple[str, ...]
) -> None:
    today = datetime.now().astimezone()
    cli.sandbox.clock.set(today.replace(hour=12))
    await cli.deliver("one")
    yesterday = today - timedelta(days=1)
    for until, count in ((f"{today:%Y-%m-%d}", 1), (f"{today:%Y-%m-%d}T11:00", 0), (f"{yesterday:%Y-%m-%d}", 0)):
        listed = (await cli.run("inbox", "list", "--until", until, "--json", *more)).document
        assert len(listed) == count
    assert (await cli.run("inbox", "list", "--until", "9999-12-31", "--json")).status == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", [("list",), ("read", "1"), ("mark", "1"), ("reply", "1", "--body", "x")])
@pytest.mark.parametrize(
    ("folder", "meant"),
    [
        ("sent", "INBOX.Sent"),
        ("INBOX.Sennt", "INBOX.Sent"),
        ("inbox.darfts", "INBOX.Drafts"),
        ("Templ", "INBOX.Templates"),
        ("INBX", "INBOX"),
        ("INBOX.Cases", None),
        ("S", None),
    ],
)
async def test_folder_that_was_probably_meant_is_suggested(
    cli: CliRunner, folder: str, meant: str | None, command: tuple[str, ...]
) -> None:
    suggestion = "" if meant is None else f"Did you mean {meant}? "
    words = f"--folder ({folder}): the mailbox has no such folder. {suggestion}Run `directsuite inbox folders`"
    await cli.fail(4, words, "inbox", *command, "--folder", folder, "-v")
    result = await cli.run("inbox", *command, "--folder", folder)
    assert (result.status, "Did you mean" in result.err) == (4, False)  # the name of a folder may be a patient's


async def test_error_about_a_folder_stays_if_the_folders_can_not_be_listed(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    result = await cli.run("inbox", "read", "1", "--folder", "sent", "-v")
    assert (result.status, "no such folder. Did" in result.err) == (5, False)
    assert "GetMessagesByUIDs" in result.err


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", [("read",), ("save", "--into", "saved"), ("mark",), ("reply", "--body", "x")])
@pytest.mark.parametrize(
    ("folder", "options"),
    [("INBOX", ""), ("inbox", ""), ("INBOX.Sent", " --folder INBOX.Sent"), ("INBOX.A b", " --folder 'INBOX.A b'")],
)
async def test_hint_lists_the_folder_of_the_command(
    cli: CliRunner, folder: str, options: str, command: tuple[str, ...]
) -> None:
    await cli.run("inbox", "folder", "create", "INBOX.A b")
    given = ("inbox", command[0], "99", *command[1:], "--folder", folder)
    await cli.fail(4, f"Run `directsuite inbox list{options}` to see the numbers.", *given, "-v")
    err = await cli.fail(4, "has no message with this number", *given)
    assert ("--folder FOLDER`" in err, "(" in err) == (bool(options), False)


@pytest.mark.parametrize(("width", "listed"), [(1000, 4), (60, 1)])
async def test_no_address_of_several_is_broken(cli: CliRunner, width: int, listed: int) -> None:
    for name, value in {"COLUMNS": str(width), "LINES": "25", "TERM": "dumb", "TTY_COMPATIBLE": "1"}.items():
        cli.set_env(name, value)
    addresses = [f"doctor-number-{number}@direct.clinic.test" for number in range(4)]
    await sent_copies(cli, *addresses)
    table = (await cli.run("inbox", "list", "--folder", "INBOX.Sent")).out
    shown = (await cli.run("inbox", "read", "1", "--folder", "INBOX.Sent")).out
    lines = [*table.splitlines(), *(line for line in shown.splitlines() if not line.startswith("SMTP id:"))]
    assert max(map(len, lines)) <= width
    assert [each for each in addresses if each in shown] == addresses
    assert [each for each in addresses if each in table] == addresses[:listed]
    assert (f" and {4 - listed} more" in table) == (listed < 4)
    assert table.split()[:2] == ["uid", "sent"]


DEVICES = ["CON", "prn", "Aux", "NUL", "CONIN$", "conout$", "COM1", "lpt0", "COM\u00b9", "LPT\u00b2"]

NAMES = st.one_of(
    st.none(),
    st.text(),
    st.text("./\\:-~_ \x00aux.con$\u00a0\u202e\u200f\u0338"),
    st.tuples(st.sampled_from(DEVICES), st.text(". \u3000x", max_size=250), st.text(". x", max_size=30)).map("".join),
    st.tuples(st.text(max_size=3), st.text(". \u00adxü_", min_size=100, max_size=200), st.text(". _x")).map("".join),
)


@given(NAMES)
def test_name_is_one_component_of_a_path_on_any_system(name: str | None) -> None:
    safe = make_safe_name(name, "fallback")
    assert safe not in ("", ".", "..")
    assert not set(safe) & set('/\\:*?"<>|')
    assert not {unicodedata.category(letter) for letter in safe} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert safe[0] not in ".-"
    assert safe == safe.strip()
    assert safe[-1] != "."
    assert safe.partition(".")[0].rstrip().upper() not in {device.upper() for device in DEVICES}
    assert len(safe.encode()) <= 150
    assert make_safe_name(safe, "fallback") == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("Befund Müller.pdf", "Befund Müller.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\windows\\system.ini", "system.ini"),
        ("a/", "fallback"),
        ("..", "fallback"),
        (None, "fallback"),
        ("NUL", "_NUL"),
        ("com1.txt", "_com1.txt"),
        ("CONIN$", "_CONIN$"),
        ("conout$ .txt", "_conout$ .txt"),
        ("COM\u00b9.tar.gz", "_COM\u00b9.tar.gz"),
        ("console.txt", "console.txt"),
        ("x\u202efdp.exe", "x_fdp.exe"),
        ("x\u200efdp\u061c.\u00adexe\u200f", "x_fdp_._exe_"),
        ("report.pdf\u00a0. ", "report.pdf"),
        ("\u3000 .hidden", "hidden"),
        (f"{'x' * 129}. y{'z' * 30}", "x" * 129),
        (f"con{' ' * 200}x.pdf", "_con.pdf"),
        ("_" * 200 + "x", "fallback"),
        (f"{'x' * 300}.pdf", f"{'x' * 130}.pdf"),
        (f"{'ü' * 300}.pdf", f"{'ü' * 65}.pdf"),
    ],
)
def test_names_as_they_become(name: str | None, safe: str) -> None:
    assert make_safe_name(name, "fallback") == safe


def test_what_can_not_be_written_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        FileSaver(folder=tmp_path).save("a.pdf", "no bytes")  # type: ignore[arg-type]  # stands for a disk that is full
    assert list(tmp_path.iterdir()) == []


TRICKLE = responses.respond_in_chunks(
    b'{"success": true, "messages": [', *(part for _ in range(100) for part in (b" ", responses.Pause(1))), b"]}"
)


READERS: dict[str, Callable[[ds.Mailbox], Awaitable[object]]] = {
    "inbox list": lambda box: _find_newest(box, ["INBOX"], InboxListOptions()),
    "inbox forward": lambda box: _fetch_metadata(box, "INBOX", [1]),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_list_that_trickles_in_ends_with_the_timeout(read: Callable[[ds.Mailbox], Awaitable[object]]) -> None:
    async def run() -> ds.DirectSuiteError:
        async with ScriptedServer(TRICKLE) as server, open_suite(server, timeout=6) as suite:
            return await catch_error(read(suite.mailbox(ALICE, PASSWORD)))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        error = runner.run(run())
    assert type(error) is ds.DeadlineExceededError
    assert error.elapsed == pytest.approx(6)
