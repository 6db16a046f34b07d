"""A sandbox that is killed loses and repeats no operation whose response it has sent.

The effect of an operation with a response is known. An operation in progress has its complete effect or none, as the
next start shows.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import logging
import os
import random
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import attrs
import pikepdf
import pytest

from directsuite.sandbox.samples import MAILBOX_LOGIN, MAILBOXES
from tests.sandbox.signing import documents

ALICE, BOB = MAILBOXES
SENT, RECEIVED = (ALICE, "INBOX.Sent"), (BOB, "INBOX")
Copy: TypeAlias = tuple[str, str, str]
"""A mailbox, a folder in it, and the subject of a message there."""
_NOISE = random.Random(1).randbytes(1_200_000)
_JSON = {"Content-Type": "application/json"}
_NUMBER = b"number 00000000"


def _make_document() -> bytes:
    with pikepdf.open(io.BytesIO(documents.make_plain_pages())) as pdf:
        pdf.Root.Noise = documents.make_stream(pdf, _NUMBER + _NOISE)
        return documents.save_to_bytes(pdf)


_DOCUMENT = _make_document()


def _set_number(content: bytes, number: int) -> bytes:
    return content.replace(_NUMBER, b"number %08d" % number, 1)


@attrs.define
class Load:
    """Saves, signs, sends and deletes documents and messages of more than 1 MiB."""

    folder: Path
    rng: random.Random
    number: int = 0
    documents: dict[str, str] = attrs.Factory(dict[str, str])
    """The digest of each document, by its identifier."""
    copies: set[Copy] = attrs.Factory(set[Copy])
    in_progress: set[tuple[str, str]] = attrs.Factory(set[tuple[str, str]])
    """The operations in progress, each with the digest, identifier or subject that it concerns."""
    confirmed_count: int = 0
    """The number of interrupted operations that had an effect."""

    @contextlib.contextmanager
    def _track_in_progress(self, operation: str, subject: str) -> Generator[None]:
        self.in_progress.add((operation, subject))
        yield
        self.in_progress.remove((operation, subject))

    async def save(self, caller: Caller) -> None:
        self.number += 1
        content = _set_number(_DOCUMENT, self.number)
        digest = hashlib.sha256(content).hexdigest()
        with self._track_in_progress("Save", digest):
            saved = await caller.call_signing("POST", data=io.BytesIO(base64.b64encode(content)))
            assert saved["documentDigest"] == digest
            self.documents[saved["identifier"]] = digest

    async def sign(self, caller: Caller) -> None:
        """Sign a document that no other task changes."""
        if identifier := self._choose(each for each in self.documents if not self._is_in_progress(each)):
            with self._track_in_progress("Sign", identifier):
                signed = await caller.call_signing("PATCH", f"/{identifier}/sign", json={})
                self.documents[identifier] = signed["documentDigest"]

    async def delete(self, caller: Caller) -> None:
        """Delete a document that no other task changes."""
        if identifier := self._choose(each for each in self.documents if not self._is_in_progress(each)):
            with self._track_in_progress("Delete", identifier):
                await caller.call_signing("DELETE", f"/{identifier}")
                del self.documents[identifier]

    async def send(self, caller: Caller) -> None:
        self.number += 1
        subject = f"load {self.number}"
        attached = {
            "content": base64.b64encode(make_attachment(subject)).decode(),
            "contentType": "image/x",
            "filename": "a",
        }
        message = {"sender": ALICE, "subject": subject, "body": "Please.", "htmlBody": False}
        message |= {"recipients": [{"email": BOB, "type": self.rng.choice(("TO", "BCC"))}]}
        message |= {"attachmentList": [attached]}
        with self._track_in_progress("Send", subject):
            await caller.call_messaging("PUT", "Send", {"authentication": _make_login(ALICE), "message": message})
            self.copies |= {(*SENT, subject), (*RECEIVED, subject)}

    async def remove(self, caller: Caller) -> None:
        subject = self._choose(each for _, _, each in self.copies if not self._is_in_progress(each))
        if not subject:
            return
        with self._track_in_progress("DeleteMessagesByUIDs", subject):
            for address, folder, _ in sorted(each for each in self.copies if each[2] == subject):
                [uid] = (await caller.get_uids(address, folder))[subject]
                body = {"auth": _make_login(address), "uids": [uid]}
                await caller.call_messaging("POST", f"DeleteMessagesByUIDs/{folder}/true", body)
                self.copies.remove((address, folder, subject))

    async def run_until_killed(self, caller: Caller) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            while True:
                keep = len(self.documents) + len(self.copies) < 12
                weights = (4, 3, 1, 4, 1) if keep else (1, 3, 4, 1, 4)
                works = (self.save, self.sign, self.delete, self.send, self.remove)
                await self.rng.choices(works, weights)[0](caller)

    def _choose(self, among: Iterable[str]) -> str | None:
        every = sorted({*among})
        return self.rng.choice(every) if every else None

    def _is_in_progress(self, subject: str) -> bool:
        return any(subject == each for _, each in self.in_progress)

    async def assert_stored(self, caller: Caller) -> None:
        """Check that the known documents and messages exist once and completely, without other files."""
        documents_kept, copies_kept = self._read_stored_digests(), Counter[Copy]()
        for address, folder in (SENT, RECEIVED):
            copies_kept.update(
                {
                    (address, folder, subject): len(uids)
                    for subject, uids in (await caller.get_uids(address, folder)).items()
                }
            )
        self._compare(documents_kept, copies_kept)
        for identifier, digest in self.documents.items():
            assert hashlib.sha256(await caller.get_document(identifier)).hexdigest() == digest
        for address, folder in (SENT, RECEIVED):
            found = await caller.call_messaging("POST", f"GetMessages/{folder}", _make_login(address))
            for message in (each for each in found["messages"] if (address, folder, each["subject"]) in self.copies):
                [part] = message["attachments"]
                assert base64.b64decode(part["content"], validate=True) == make_attachment(message["subject"])

    def _read_stored_digests(self) -> dict[str, str]:
        """Return the digests by identifier. Check that each file has a row, and each row a complete file."""
        with contextlib.closing(sqlite3.connect(self.folder / "sandbox.sqlite3")) as database:
            rows = database.execute(
                "SELECT identifier, digest, name FROM signing_document LEFT JOIN signing_file USING(identifier)"
            ).fetchall()
            contents = database.execute("SELECT digest, name FROM content JOIN content_file ON content = id").fetchall()
            effects = database.execute("SELECT operation, subject FROM effect WHERE operation IN ('Save', 'Delete')")
            ledger = Counter(effects.fetchall())
        for folder, named in (
            ("documents", [(name, digest) for _, digest, name in rows]),
            ("messages", [(name, digest) for digest, name in contents]),
        ):
            kept = {file.name: file for file in (self.folder / folder).iterdir()}
            assert sorted(kept) == sorted(name for name, _ in named)
            assert all(hashlib.sha256(kept[name].read_bytes()).hexdigest() == digest for name, digest in named)
        assert set(ledger.values()) <= {1}
        deleted = {subject for operation, subject in ledger if operation == "Delete"}
        assert {subject for operation, subject in ledger if operation == "Save"} - deleted == {row[0] for row in rows}
        return {identifier: digest for identifier, digest, _ in rows}

    def _compare(self, documents_kept: dict[str, str], copies_kept: Counter[Copy]) -> None:
        """Compare the stored data with the known data. The stored data are then known."""
        new = [digest for identifier, digest in documents_kept.items() if identifier not in self.documents]
        gone = self.documents.keys() - documents_kept.keys()
        changed = [each for each, digest in self.documents.items() if documents_kept.get(each, digest) != digest]
        assert set(Counter(new).values()) <= {1}
        assert {("Save", digest) for digest in new} <= self.in_progress
        assert {("Delete", identifier) for identifier in gone} <= self.in_progress
        assert {("Sign", identifier) for identifier in changed} <= self.in_progress
        assert set(copies_kept.values()) <= {1}
        sent, removed = copies_kept.keys() - self.copies, self.copies - copies_kept.keys()
        assert {("Send", subject) for _, _, subject in sent} <= self.in_progress
        assert {("DeleteMessagesByUIDs", subject) for _, _, subject in removed} <= self.in_progress
        assert len(sent) == 2 * len({subject for _, _, subject in sent})
        self.confirmed_count += len(new) + len(gone) + len(changed) + len(sent) // 2 + len(removed)
        self.documents, self.copies = documents_kept, {*copies_kept}
        self.in_progress.clear()


def make_attachment(subject: str) -> bytes:
    return subject.encode() + _NOISE


def _make_login(address: str) -> dict[str, str]:
    return {"username": address, "password": MAILBOX_LOGIN}


@attrs.frozen
class Caller:
    http: aiohttp.ClientSession
    urls: dict[str, str]
    token: str

    async def call_signing(self, method: str, path: str = "", **options: Any) -> dict[str, Any]:
        async with self.http.request(
            method, f"{self.urls['signing']}/pdf{path}", headers=self._bearer, **options
        ) as got:
            response: dict[str, Any] = await got.json()
            assert got.status == 200, response
            return response

    async def get_document(self, identifier: str) -> bytes:
        async with self.http.get(f"{self.urls['signing']}/pdf/{identifier}", headers=self._bearer) as got:
            assert got.status == 200
            return base64.b64decode(await got.read(), validate=True)

    async def call_messaging(self, method: str, path: str, body: object) -> dict[str, Any]:
        content = io.BytesIO(json.dumps(body).encode())
        async with self.http.request(method, f"{self.urls['message']}/{path}", data=content, headers=_JSON) as got:
            response: dict[str, Any] = await got.json()
            assert response["success"] is True, response
            return response

    async def get_uids(self, address: str, folder: str) -> dict[str, list[int]]:
        found = await self.call_messaging("POST", f"GetMessageMetaData/{folder}", _make_login(address))
        uids: dict[str, list[int]] = {}
        for message in found["messages"]:
            if message["subject"].startswith("load "):
                uids.setdefault(message["subject"], []).append(message["uid"])
        return uids

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"}


pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]

CLIENTS = 3
KILLS = 60
POINTS = [
    ("save", "after write"),
    ("save", "before commit Save"),
    ("sign", "before unlink Sign"),
    ("delete", "after unlink Delete"),
    ("send", "after commit Send"),
    ("remove", "before unlink DeleteMessagesByUIDs"),
]
"""The operations, and the moments at which the sandbox is killed."""
_LOG = logging.getLogger(__name__)


@attrs.frozen
class Running:
    process: asyncio.subprocess.Process
    caller: Caller

    def count(self) -> None:
        self.process.send_signal(signal.SIGUSR1)


@contextlib.asynccontextmanager
async def started(folder: Path, moment: str, count: int = 1, when: str = "later") -> AsyncGenerator[Running | None]:
    """Yield a sandbox that dies at a moment, or None if it died before it was ready. It is killed at the end."""
    options = ("--data", str(folder), "--port", "0", "--json")
    command = (sys.executable, "-m", "tests.sandbox.killing.sandbox", moment, str(count), when, *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as http:
            if not (line := await process.stdout.readline()):
                yield None
                return
            urls = json.loads(line)["urls"]
            async with http.get(f"{urls['control']}/_sandbox/environment") as response:
                token = (await response.json())["environment"]["DIRECTSUITE_TOKEN"]
            yield Running(process, Caller(http, urls, token))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # process.kill() would reap a dead process, as asyncio does
        assert await process.wait() == -signal.SIGKILL


async def test_a_kill_between_a_file_and_its_row_loses_nothing(tmp_path: Path) -> None:
    load = Load(tmp_path, random.Random(7))
    for work, moment in POINTS:
        async with started(tmp_path, moment) as running:
            assert running is not None
            await load.assert_stored(running.caller)
            await load.save(running.caller)
            await load.send(running.caller)
            running.count()
            with pytest.raises(aiohttp.ClientError):
                await getattr(load, work)(running.caller)
    async with started(tmp_path, "before unlink", when="now") as running:
        assert running is None  # it dies when it deletes the files of its predecessor
    async with started(tmp_path, "never") as running:
        assert running is not None
        await load.assert_stored(running.caller)
    assert load.confirmed_count == len(POINTS) - 2  # a save that died before its commit has no effect


@pytest.mark.slow
async def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    dice = random.Random(7)
    load = Load(tmp_path, dice)
    at_start = 0
    for number in range(KILLS):
        if number % 5 == 0:
            async with started(tmp_path, "", dice.randint(1, 12), "now") as running:
                at_start += running is None
        async with started(tmp_path, "", dice.randint(1, 150)) as running:
            assert running is not None
            await load.assert_stored(running.caller)
            clients = [asyncio.create_task(load.run_until_killed(running.caller)) for _ in range(CLIENTS)]
            if number % 2:
                running.count()
            else:
                await asyncio.sleep(dice.uniform(0, 0.5))  # the sandbox is a separate process, in real time
                os.kill(running.process.pid, signal.SIGKILL)
            await asyncio.gather(*clients)
    async with started(tmp_path, "never") as running:
        assert running is not None
        await load.assert_stored(running.caller)
    _LOG.info(
        "%d kills, %d more at a start; %d documents and messages, %d operations cut off that had happened",
        KILLS,
        at_start,
        load.number,
        load.confirmed_count,
    )
