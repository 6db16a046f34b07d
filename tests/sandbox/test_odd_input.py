"""Unusual addresses, forms, charsets, times and files."""

from __future__ import annotations

import json
import sys
import tempfile
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from directsuite.sandbox import files, quirks
from directsuite.sandbox.clock import MAX_TIME
from directsuite.sandbox.files import StoredFiles
from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

    from .conftest import Api


async def test_a_mailbox_address_may_contain_reserved_characters(api: Api) -> None:
    for address in ("a{b}@x.test", "{@x.test", "a}@x.test", "a%b@x.test", "a/b@x.test"):
        await api.sandbox.add_account(address, "x")
        root, segment = api.sandbox.root_url, quote(address, safe="")
        assert (await api.request("POST", f"{root}/_sandbox/inbound/{segment}", data=b"From: x\n\nhi"))[0] == 201, (
            address
        )
        async with api.http.get(f"{root}/page/mail/{segment}") as response:
            assert response.status == 200, address


async def test_an_address_with_control_characters_is_rejected(api: Api) -> None:
    for address in ("a\nb@x.test", "\x00@x.test", "a\x1b[2J@x.test", "a@x.test\r", "a\u202e@x.test"):
        status, body = await api.control("POST", "accounts", {"kind": "mailbox", "address": address, "password": "x"})
        assert (status, "without control characters" in body["description"]) == (400, True), address


CHARSETS = ["klingon", "rot13", "base64", "zip", "undefined", "unicode_escape", "idna", "utf-16"]


async def test_a_form_in_an_unusual_charset_is_no_server_error(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    token, field = sandbox._access.form_token, 'Content-Disposition: form-data; name="form_token"'
    for charset in CHARSETS:
        part = f"--b\r\n{field}\r\nContent-Type: text/plain; charset={charset}\r\n\r\n{token}\r\n--b--\r\n"
        for body, media_type in (
            (f"form_token={token}&at=2026", f"application/x-www-form-urlencoded; charset={charset}"),
            (part, "multipart/form-data; boundary=b"),
        ):
            url, headers = f"{sandbox.root_url}/page/do/POST/clock/set", {"Content-Type": media_type}
            async with http.post(url, data=body, headers=headers, allow_redirects=False) as response:
                assert response.status < 500, (charset, media_type)


async def test_a_form_with_a_list_instead_of_a_text_is_rejected(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    for name in ("at[]", "at", "kind[]", "form_token[]", "[]", "at[][]"):
        form = {"form_token": sandbox._access.form_token, name: "x y"}
        async with http.post(
            f"{sandbox.root_url}/page/do/POST/clock/set", data=form, allow_redirects=False
        ) as response:
            assert response.status == 400, name


async def test_a_running_clock_stops_on_the_last_day(tmp_path: Path) -> None:
    for at in (MAX_TIME - timedelta(microseconds=1), MAX_TIME):
        async with Sandbox(tmp_path) as sandbox:
            sandbox.clock.set(at)
            await sandbox.keep_clock()
            assert sandbox.clock.now() <= MAX_TIME
        async with Sandbox(tmp_path) as sandbox:
            assert sandbox.clock.now() == MAX_TIME
            sandbox.clock.freeze()
            sandbox.clock.resume()
            await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29")
            sandbox.clock.set(datetime(2026, 5, 1, tzinfo=UTC))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no file without an end")
def test_an_endless_report_is_rejected() -> None:
    with pytest.raises(ValueError, match="it has more than"):
        quirks.read_report(Path("/dev/zero"))


async def test_a_report_with_an_impossible_status_is_imitated_without_it(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    differences = [
        {"path": path, "what": f"is {status}, not 200"}
        for path in ("status", "refusal status")
        for status in ("099", "100", "101", "600", "999")
    ]
    report = {"operations": [{"operation": "GetUIDs", "differences": differences}]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    async with Sandbox(imitate=tmp_path / "report.json") as sandbox:
        async with http.post(f"{sandbox.message_url}/GetUIDs/INBOX", json={}) as response:
            assert response.status == 200
        await sandbox.add_account("a@direct.example.test", "x")
        login = {"username": "a@direct.example.test", "password": "x"}
        async with http.post(f"{sandbox.message_url}/GetUIDs/INBOX", json=login) as response:
            assert (response.status, (await response.json())["success"]) == (200, True)


def list_names(folder: Path, pattern: str) -> list[str]:
    return sorted(file.name for file in folder.glob(pattern))


@pytest.mark.process
async def test_temporary_files_of_a_killed_sandbox_are_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from directsuite.sandbox.files import StoredFiles\n"
        "files = StoredFiles(None); (files._folder / 'mail').write_bytes(b'secret'); print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    process = await create_subprocess_exec(sys.executable, "-c", program, tmp_path, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    running = StoredFiles(None)
    _ = running._folder
    assert len(list_names(tmp_path, "*/mail")) == 1  # the first one still runs
    process.kill()
    await process.wait()
    monkeypatch.setattr(files, "_MIN_LEFTOVER_AGE", 0.0)
    next_one = StoredFiles(None)
    assert sorted([running._folder.name, next_one._folder.name]) == list_names(tmp_path, "*")
    running.close()
    next_one.close()
    assert list_names(tmp_path, "*") == []


def make_folders_of_others(folder: Path) -> None:
    for name in ("without-lock", "of-another"):
        (folder / f"directsuite-sandbox-{name}").mkdir()
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "lock").touch()
    (folder / "directsuite-sandbox-link").symlink_to(folder / "elsewhere")
    (folder / "page.html").touch(0o644)
    (folder / "directsuite-sandbox-of-another" / "lock").symlink_to(folder / "page.html")


def make_new_folder(folder: Path) -> None:
    (folder / "directsuite-sandbox-new").mkdir()
    (folder / "directsuite-sandbox-new" / "lock").touch()  # not locked yet


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes and links")
@pytest.mark.parametrize("make", [make_folders_of_others, make_new_folder])
def test_temporary_folders_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if make is not make_new_folder:
        monkeypatch.setattr(files, "_MIN_LEFTOVER_AGE", 0.0)
    make(tmp_path)
    before = {file: file.lstat().st_mode for file in tmp_path.rglob("*")}
    stored = StoredFiles(None)
    _ = stored._folder
    stored.close()
    assert {file: file.lstat().st_mode for file in tmp_path.rglob("*")} == before
