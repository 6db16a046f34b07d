"""Messages in files are received, stored, returned and forwarded like those in memory."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import re
import secrets
import sqlite3
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

import directsuite as ds
from directsuite.sandbox import Sandbox, server
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.samples import MAILBOX_LOGIN, MAILBOXES, add_sample_content
from tests.sandbox.command import read_startup_output, run_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.wide

ALICE, BOB = MAILBOXES
LOGIN = {"username": ALICE, "password": MAILBOX_LOGIN}
BOBS = {"username": BOB, "password": MAILBOX_LOGIN}
MEGABYTE = 2**20
JSON = {"Content-Type": "application/json"}
NOISE = hashlib.shake_128(b"noise").digest(3 * MEGABYTE)


class Mail:
    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession, folder: Path) -> None:
        self.sandbox, self.http, self.folder = sandbox, http, folder

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "messages").iterdir())

    async def call(self, operation: str, body: object, method: str = "POST") -> dict[str, Any]:
        content = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        url = URL(f"{self.sandbox.message_url}/{operation}", encoded=True)
        async with self.http.request(method, url, data=content, headers=JSON) as response:
            assert response.content_length is not None
            members: dict[str, Any] = await response.json()
            return members

    async def done(self, operation: str, body: object, method: str = "POST") -> dict[str, Any]:
        response = await self.call(operation, body, method)
        assert response["success"] is True, response
        return response

    async def send(self, *contents: bytes, kinds: tuple[str, ...] = ("TO",), **members: Any) -> dict[str, Any]:
        return await self.done("Send", send_body(*contents, kinds=kinds, **members), "PUT")

    async def uids(self, folder: str, login: dict[str, str] = LOGIN) -> list[int]:
        uids: list[int] = (await self.done(f"GetUIDs/{folder}", login))["uids"]
        return uids

    async def newest(self, folder: str, login: dict[str, str] = LOGIN) -> dict[str, Any]:
        body = {"auth": login, "uids": (await self.uids(folder, login))[-1:]}
        [detail] = (await self.done(f"GetMessagesByUIDs/{folder}", body))["messages"]
        [raw] = (await self.done(f"GetRawMessagesByUIDs/{folder}", body))["messages"]
        assert (raw["uid"], raw["msgID"], raw["folder"]) == (detail["uid"], detail["msgID"], folder)
        return {**detail, "raw": base64.b64decode(raw["data"], validate=True)}


def send_body(*contents: bytes, kinds: tuple[str, ...] = ("TO",), **members: Any) -> dict[str, Any]:
    recipients = [{"email": address, "type": kind} for address, kind in zip((BOB, ALICE), kinds, strict=False)]
    attached = [
        {"content": base64.b64encode(content).decode(), "contentType": "application/pdf", "filename": f"{number}.pdf"}
        for number, content in enumerate(contents)
    ]
    message = {"sender": ALICE, "subject": "Ünits", "body": "text", "htmlBody": False, "recipients": recipients}
    return {"authentication": LOGIN, "message": message | {"attachmentList": attached} | members}


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncGenerator[Mail]:
    async with (
        Sandbox(folder, seed=add_sample_content, **options) as sandbox,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as http,
    ):
        yield Mail(sandbox, http, folder)


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[Mail]:
    async with opened(tmp_path) as running:
        yield running


def attachments_of(detail: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(each["content"], validate=True) for each in detail["attachments"]]


def alike(detail: dict[str, Any]) -> dict[str, Any]:
    """Return the members that depend only on the bytes of a message."""
    places = ("uid", "msgnum", "folder", "receivedDate", "raw", "sentDate", "expunged")
    return {name: value for name, value in detail.items() if name not in places}


SIZES = [(0,), (57,), (4096, 4097, 1), (700_000,), (MEGABYTE,), (3 * MEGABYTE,), (2 * MEGABYTE + 1, 5, 1_000_003)]


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
async def test_a_message_of_any_size_is_returned_as_it_was_sent(mail: Mail, sizes: tuple[int, ...]) -> None:
    contents = [NOISE[:size] for size in sizes]
    await mail.send(*contents)
    sent, received = await mail.newest("INBOX.Sent"), await mail.newest("INBOX", BOBS)
    assert (sent["raw"], alike(sent)) == (received["raw"], alike(received))
    assert attachments_of(sent) == contents
    assert sent["size"] == len(sent["raw"])
    assert alike(sent) == json.loads(build_content(sent["raw"]).detail)  # what a small message gives
    assert [file.read_bytes() for file in mail.files] == [sent["raw"]] * (len(sent["raw"]) > MEGABYTE)

    messages = [{"data": base64.b64encode(sent["raw"]).decode()}]
    await mail.done("SaveRawMessages/INBOX.Drafts", {"auth": LOGIN, "messages": messages})
    saved = await mail.newest("INBOX.Drafts")
    assert (saved["raw"], alike(saved)) == (sent["raw"], alike(sent))
    assert len(mail.files) == (len(sent["raw"]) > MEGABYTE)

    forward = {"auth": LOGIN, "uids": [saved["uid"]], "recipients": [{"email": BOB, "type": "TO"}]}
    await mail.done("Forward/INBOX.Drafts", forward, "PUT")
    forwarded = await mail.newest("INBOX", BOBS)
    assert attachments_of(forwarded) == contents
    assert forwarded["subject"] == "Fwd: Ünits"
    assert alike(forwarded) == json.loads(build_content(forwarded["raw"]).detail)
    report = (await mail.done(f"GetMessageStatus/{forwarded['msgID']}", LOGIN))["messageLogs"]
    assert [each["messageSize"] for each in report] == [len(forwarded["raw"])]


async def test_several_messages_are_forwarded_as_they_are(mail: Mail) -> None:
    for size in (2 * MEGABYTE, 100):
        await mail.send(NOISE[:size])
    uids = (await mail.uids("INBOX.Sent"))[-2:]
    body = {"auth": LOGIN, "uids": uids}
    stored = (await mail.done("GetRawMessagesByUIDs/INBOX.Sent", body))["messages"]
    recipients = [{"email": BOB, "type": "BCC"}]
    await mail.done("Forward/INBOX.Sent", body | {"recipients": recipients}, "PUT")
    received, own = await mail.newest("INBOX", BOBS), await mail.newest("INBOX.Sent")
    assert attachments_of(received) == [base64.b64decode(each["data"]) for each in stored]
    assert received["attachments"] == own["attachments"]
    assert (received["recipients"], own["recipients"]) == ([], recipients)
    assert b"\r\nBcc: bob@" in own["raw"]
    assert len(mail.files) == 3


async def test_copies_share_a_file_until_the_last_is_deleted(mail: Mail) -> None:
    await mail.send(NOISE)
    body = {"auth": LOGIN, "uids": (await mail.uids("INBOX.Sent"))[-1:]}
    await mail.done("CopyMessagesByUIDs/INBOX.Sent/INBOX.Drafts", body)
    await mail.done("DeleteMessagesByUIDs/INBOX.Sent/true", body)
    received = await mail.newest("INBOX", BOBS)
    await mail.done("DeleteMessagesByUIDs/INBOX/true", {"auth": BOBS, "uids": [received["uid"]]})
    assert len(mail.files) == 1
    drafts = await mail.uids("INBOX.Drafts")
    assert attachments_of(await mail.newest("INBOX.Drafts")) == [NOISE]
    await mail.done("DeleteMessagesByUIDs/INBOX.Drafts/true", {"auth": LOGIN, "uids": drafts})
    assert mail.files == []


@pytest.mark.parametrize("removes", ["everything", "the folder"])
async def test_files_are_deleted_with_their_messages(mail: Mail, removes: str) -> None:
    await mail.done("CreateFolder/INBOX.Kept", LOGIN)
    raw = b"Subject: large\r\n\r\n" + b"text\r\n" * 200_000
    messages = [{"data": base64.b64encode(raw).decode()}]
    await mail.done("SaveRawMessages/INBOX.Kept", {"auth": LOGIN, "messages": messages * 2})
    assert [file.stat().st_size for file in mail.files] == [len(raw)]
    if removes == "the folder":
        await mail.done("DeleteFolder/INBOX.Kept", LOGIN)
    else:
        await mail.sandbox.reset()
    assert mail.files == []


async def test_files_without_a_row_are_deleted_at_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as mail:
        await mail.send(NOISE, kinds=("BCC",))
        sent = await mail.newest("INBOX.Sent")
        kept = mail.files
        assert all(file.stat().st_mode & 0o077 == 0 for file in kept)
    (tmp_path / "messages" / "killed before its row was written").write_bytes(NOISE)
    async with opened(tmp_path) as mail:
        assert mail.files == kept
        assert await mail.newest("INBOX.Sent") == sent


async def test_large_mail_from_outside_is_in_a_file(mail: Mail) -> None:
    raw = b"From: c@d.test\r\nContent-Type: image/png\r\n\r\n" + NOISE
    await mail.sandbox.deliver(ALICE, raw)
    assert [file.read_bytes() for file in mail.files] == [raw]
    received = await mail.newest("INBOX")
    assert (received["raw"], attachments_of(received)) == (raw, [NOISE])


_BODY = json.dumps(send_body(NOISE, NOISE)).encode()
_END = base64.b64encode(NOISE)[-8:]
_NO_BASE64 = "The member content is not base64"
REFUSED = {
    "base64 that breaks at its end": (_BODY.replace(_END, _END[:-2] + b"*A"), _NO_BASE64),
    "base64 cut short": (_BODY.replace(_END, _END[:-2]), _NO_BASE64),
    "padding within base64": (_BODY.replace(_END, b"AA==" + _END, 1), _NO_BASE64),
    "base64 that is not ASCII": (_BODY.replace(_END, "é".encode() + _END), _NO_BASE64),
    "an escape of what is no base64": (_BODY.replace(_END, b"\\u00e9" + _END), _NO_BASE64),
    "JSON broken after its content": (_BODY[:-1] + b",}", "the request body is not valid JSON"),
    "a string without an end": (_BODY[: len(_BODY) // 2], "the request body is not valid JSON"),
    "wrong credentials": (_BODY.replace(b'"password": "', b'"password": "x'), "password is wrong"),
    "no sender": (_BODY.replace(b'"sender"', b'"from"'), "missing required field `sender`"),
    "another sender": (_BODY.replace(b'"sender": "', b'"sender": "x'), "sender is not the address of the mailbox"),
    "a multipart attachment": (_BODY.replace(b"application/pdf", b"multipart/mixed"), "cannot be of a multipart type"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_rejected_message_leaves_no_file(mail: Mail, case: str) -> None:
    body, text = REFUSED[case]
    assert body != _BODY
    response = await mail.call("Send", body, "PUT")
    assert response["success"] is False
    assert text in response["message"]
    assert mail.files == []
    assert await mail.sandbox.ledger("Send") == []


async def test_base64_may_contain_escapes_and_white_space(mail: Mail) -> None:
    body = json.dumps(send_body(NOISE)).encode()
    text = base64.b64encode(NOISE)
    spelt = base64.encodebytes(NOISE).replace(b"\n", b"\\r\\n \\u0020").replace(b"/", b"\\/").replace(b"+", b"\\u002b")
    await mail.done("Send", body.replace(text, spelt), "PUT")
    assert attachments_of(await mail.newest("INBOX.Sent")) == [NOISE]


async def test_a_too_large_body_is_rejected_with_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # aiohttp waits for the rest of a rejected body, which is never sent.
    monkeypatch.setattr(server, "_SHUTDOWN_TIMEOUT", 0.1)
    body = json.dumps(send_body(NOISE)).encode()

    async def chunked() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 2**16):
            yield body[start : start + 2**16]

    async with opened(tmp_path, max_body=2_000_000) as mail:
        for data in (io.BytesIO(body), chunked()):
            async with mail.http.put(f"{mail.sandbox.message_url}/Send", data=data, headers=JSON) as response:
                assert response.status == 413
                refusal = await response.json()
            assert (refusal["success"], refusal["code"]) == (False, 4)
            assert "larger than 2,000,000 bytes: start the sandbox with a larger --max-body" in refusal["message"]
        assert mail.files == []


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("operation", ["Send", "SaveRawMessages/INBOX.Drafts"])
async def test_other_members_than_content_have_a_size_limit(mail: Mail, operation: str) -> None:
    body = b'{"subject": "' + b"x" * (65 * MEGABYTE) + b'"}'
    response = await mail.call(operation, body, "PUT" if operation == "Send" else "POST")
    assert "larger than 67,108,864 bytes" in response["message"]
    assert mail.files == []


async def test_a_raw_message_with_too_much_text_is_rejected(mail: Mail) -> None:
    raw = base64.b64encode(b"Subject: x\r\n\r\n" + b"text\r\n" * (17 * MEGABYTE)).decode()
    response = await mail.call("SaveRawMessages/INBOX.Drafts", {"auth": LOGIN, "messages": [{"data": raw}]})
    assert response["code"] == 4
    assert "more than 100,663,296 bytes of headers, texts" in response["message"]
    assert mail.files == []


async def test_a_guessed_content_name_is_not_accepted(mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    body = send_body(NOISE)
    body["message"]["attachmentList"].append({"content": f"{'0' * 32}-0", "contentType": "a/b", "filename": "x"})
    assert (await mail.call("Send", body, "PUT"))["message"] == _NO_BASE64

    def known(octets: int) -> str:
        return "0" * 2 * octets

    monkeypatch.setattr(secrets, "token_hex", known)  # as if the client knew the name
    await mail.done("Send", body, "PUT")


async def test_a_text_like_a_content_name_is_returned_unchanged(mail: Mail) -> None:
    names = [f"{'0' * 32}-0", f'"{"f" * 32}-0"']
    await mail.send(NOISE, body=" ".join(names), subject=names[0])
    received = await mail.newest("INBOX", BOBS)
    assert (received["body"], received["subject"]) == (" ".join(names), names[0])
    assert attachments_of(received) == [NOISE]


async def test_a_message_deleted_during_a_download_is_sent_completely(mail: Mail) -> None:
    content = NOISE * 8  # more than a connection holds
    await mail.send(content, recipients=[{"email": "deliver@hospital.example", "type": "TO"}])
    uids = (await mail.uids("INBOX.Sent"))[-1:]
    body = json.dumps({"auth": LOGIN, "uids": uids}).encode()
    url = f"{mail.sandbox.message_url}/GetMessagesByUIDs/INBOX.Sent"
    async with mail.http.post(url, data=io.BytesIO(body), headers=JSON) as response:
        await mail.done("DeleteMessagesByUIDs/INBOX.Sent/true", body)
        assert len(mail.files) == 1
        [detail] = json.loads(await response.read())["messages"]
    assert attachments_of(detail) == [content]
    assert await mail.uids("INBOX.Sent") == []  # by the same connection: the response before it has ended
    assert mail.files == []


@pytest.mark.parametrize("operation", ["GetMessagesByUIDs", "GetRawMessagesByUIDs", "Forward"])
async def test_a_message_deleted_before_its_file_is_opened_is_missing(
    mail: Mail, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    await mail.send(NOISE, recipients=[{"email": "deliver@hospital.example", "type": "TO"}])
    uids = (await mail.uids("INBOX.Sent"))[-1:]
    body = {"auth": LOGIN, "uids": uids, "recipients": [{"email": BOB, "type": "TO"}]}
    reads = mail.sandbox.services.messaging.files.hold_files

    def reads_once_it_has_gone(names: Collection[str]) -> AbstractContextManager[None]:
        [file] = mail.files
        file.unlink()
        connection.execute("DELETE FROM message WHERE content IN (SELECT content FROM content_file)")
        return reads(names)

    with closing(sqlite3.connect(mail.folder / "sandbox.sqlite3", isolation_level=None)) as connection:
        monkeypatch.setattr(mail.sandbox.services.messaging.files, "hold_files", reads_once_it_has_gone)
        response = await mail.call(f"{operation}/INBOX.Sent", body, "PUT" if operation == "Forward" else "POST")
    if operation == "Forward":
        assert response["message"] == "The folder has no message with any of these uids"
    else:
        assert response["messages"] == []


@pytest.mark.parametrize("kind", ["truncate", "malformed", "latency", "status"])
async def test_faults_hit_large_messages(mail: Mail, kind: str) -> None:
    mail.sandbox.inject_fault("Send", kind, seconds=0)
    body = json.dumps(send_body(NOISE)).encode()
    if kind == "latency":
        await mail.done("Send", body, "PUT")
    else:
        with pytest.raises((aiohttp.ClientError, json.JSONDecodeError, AssertionError)):
            await mail.done("Send", body, "PUT")
    assert len(mail.files) == (kind in {"truncate", "malformed", "latency"})
    exchange = mail.sandbox.calls.exchanges.get(mail.sandbox.calls.count)
    assert exchange is not None
    assert (exchange.request, exchange.request_size) == (body[:8192], len(body))
    if kind == "truncate":
        mail.sandbox.inject_fault("GetMessages", kind)
        with pytest.raises(aiohttp.ClientPayloadError):
            await mail.done("GetMessages/INBOX.Sent", LOGIN)


async def test_the_page_shows_a_large_message_and_its_files(mail: Mail) -> None:
    await mail.send(NOISE, body="text" * 50_000)
    sent = await mail.newest("INBOX.Sent")
    root = mail.sandbox.root_url
    async with mail.http.get(f"{root}/page/mail/{ALICE}?folder=INBOX.Sent") as response:
        found = re.search(rf'href="(/page/mail/[^"]*/{sent["uid"]})"', await response.text())
    assert found is not None
    async with mail.http.get(root + found[1]) as response:
        shown = await response.text()
    assert "These are the first 100,000 characters" in shown
    assert "3.1 MB" in shown
    assert "The raw message</a> (download)" in shown
    async with mail.http.get(f"{root}{found[1]}/raw") as response:
        assert (response.content_length, response.content_disposition and response.content_disposition.type) == (
            sent["size"],
            "attachment",
        )
        assert await response.read() == sent["raw"]
    async with mail.http.get(f"{root}{found[1]}/attachments/0") as response:
        assert response.content_length == len(NOISE)
        assert await response.read() == NOISE


async def sample_memory(process: int, samples: list[int]) -> None:
    """Append the anonymous memory of a process, which excludes mapped files, until cancelled."""
    while True:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()  # noqa: ASYNC240  a pseudo-file
        samples += [int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")]
        await asyncio.sleep(0.01)


async def _content(response: aiohttp.ClientResponse, member: bytes, target: Path) -> str:
    """Decode the first content in a response into a file. Return its SHA-256."""
    digest, rest, begun = hashlib.sha256(), b"", False
    with target.open("wb") as file:
        async for piece in response.content.iter_chunked(2**18):
            rest += piece
            if not begun:
                assert member in rest
                rest, begun = rest.partition(member)[2], True
            text, end, _ = rest.partition(b'"')
            whole = len(text) if end else len(text) // 4 * 4
            octets = base64.b64decode(text[:whole], validate=True)
            digest.update(octets)
            file.write(octets)
            if end:
                break
            rest = rest[whole:]
        await response.read()
    return digest.hexdigest()


async def _saving(file: Path) -> AsyncIterator[bytes]:
    yield b'{"messages": [{"data": "'
    with file.open("rb") as raw:
        while piece := raw.read(3 * 2**16):
            yield base64.b64encode(piece)
    yield f'"}}], "auth": {json.dumps(LOGIN)}}}'.encode()


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("megabytes", [64, pytest.param(1024, marks=pytest.mark.slow)])
async def test_a_large_message_takes_little_memory(megabytes: int, tmp_path: Path) -> None:
    source, target, digest = tmp_path / "source", tmp_path / "target", hashlib.sha256()
    with source.open("wb") as file:
        for number in range(megabytes):
            block = hashlib.shake_128(b"%d" % number).digest(MEGABYTE)
            digest.update(block)
            file.write(block)
    async with run_command("--data", str(tmp_path / "state")) as process:
        _, urls = await read_startup_output(process)
        async with (
            ds.DirectSuite(ds.Settings(message_url=urls["message"], attempt_timeout=300)) as suite,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(), headers=JSON) as http,
        ):
            samples = list[int]()
            sampling = asyncio.create_task(sample_memory(process.pid, samples))
            raw = await _send_and_save(suite, http, urls["message"], source, target, digest.hexdigest())
            sampling.cancel()
        files = [*(tmp_path / "state" / "messages").iterdir()]
        assert len(files) == 3  # the copy in Sent, which names all; what was delivered, and saved; what was forwarded
        assert raw in {_digest(file) for file in files}
        assert max(samples) - samples[0] < 64 * MEGABYTE


async def _send_and_save(
    suite: ds.DirectSuite, http: aiohttp.ClientSession, url: str, source: Path, target: Path, digest: str
) -> str:
    box = suite.mailbox(ALICE, MAILBOX_LOGIN)
    bob = ds.Recipient(BOB, ds.RecipientType.TO)
    to = [bob, ds.Recipient("deliver@a.example", ds.RecipientType.BCC)]
    attached = [ds.Attachment.from_path(source)]
    await box.send(ds.Message(recipients=to, body="large", attachment_list=attached), timeout=600)
    newest = json.dumps({"auth": BOBS, "uids": (await suite.mailbox(BOB, MAILBOX_LOGIN).get_uids())[-1:]})
    async with http.post(f"{url}/GetMessagesByUIDs/INBOX", data=newest) as response:
        assert await _content(response, b'"content":"', target) == digest
    async with http.post(f"{url}/GetRawMessagesByUIDs/INBOX", data=newest) as response:
        raw = await _content(response, b'"data":"', target)
    async with http.post(f"{url}/SaveRawMessages/INBOX.Drafts", data=_saving(target)) as response:
        assert (await response.json())["success"] is True
    await box.forward("INBOX.Drafts", await box.get_uids("INBOX.Drafts"), [bob], timeout=600)
    return raw
