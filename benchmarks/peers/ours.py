"""directsuite, as its README uses it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import directsuite as ds
from benchmarks.peers import work
from directsuite.messaging.models import GetMessageResponse
from directsuite.wire.codec import Codec

_SIGNATURE = ds.Signature(
    name=work.SIGNATURE["name"],
    widget=ds.Widget(**work.SIGNATURE["widget"]),
    reason=work.SIGNATURE["reason"],
    gs_name=work.SIGNATURE["gsName"],
    timezone=work.SIGNATURE["timezone"],
    gmt_offset=work.SIGNATURE["GMTOffset"],
)
_CODEC = Codec()


class Client(work.Client):
    """A suite with the default settings, but without a rate limit."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        settings = ds.Settings(
            signing_url=f"{base_url}/signing",
            message_url=base_url + work.MESSAGING,
            max_connections=connections,
            requests_per_second=1e9,
            burst=10**9,
        )
        self._resource = self.suite = ds.DirectSuite(settings, token=work.TOKEN)
        self._box = self.suite.mailbox(work.USERNAME, work.PASSWORD)

    async def message_count(self) -> int:
        return await self._box.get_message_count()

    def metadata(self, body: bytes) -> int:
        return len(_CODEC.decode(GetMessageResponse, body).messages)

    async def upload(self, path: Path) -> int:
        stored = await self.suite.signing.save(path)
        return work.parse_received_bytes(stored.description)

    async def download(self, path: Path) -> int:
        await self.suite.signing.download(work.DOCUMENT, path)
        return path.stat().st_size

    async def send(self, path: Path) -> str:
        message = ds.Message(
            sender=work.USERNAME,
            subject=work.SUBJECT,
            body=work.BODY,
            recipients=[ds.Recipient(work.RECIPIENT)],
            attachment_list=[ds.Attachment.from_path(path, content_type=work.MEDIA_TYPE, filename=work.FILENAME)],
        )
        return (await self._box.send(message)).smtp_id or ""

    async def read_messages(self) -> int:
        count = 0
        async with self._box.stream_messages() as messages:
            async for _ in messages:
                count += 1
        return count

    async def get_messages(self) -> int:
        return len(await self._box.get_messages())

    async def batches(self, batches: int, per: int) -> int:
        count = 0
        async with self._box.iter_messages(work.name_folder(batches * per), batch_size=per) as messages:
            async for _ in messages:
                count += 1
        return count

    async def sign(self, pdf: bytes) -> bytes:
        stored = await self.suite.signing.save(pdf)
        await self.suite.signing.sign(stored, _SIGNATURE)
        return await self.suite.signing.get_doc(stored)

    async def synchronise(self, folder: Path, mailboxes: int, messages: int) -> int:
        """Synchronise new mailboxes with the given number of messages into a new database in a folder."""
        canned: Any = importlib.import_module("benchmarks.sync.canned")  # not part of other works
        await canned.synchronise(self.suite, folder, mailboxes, messages)
        return mailboxes * messages

    async def sign_folder(self, source: Sequence[Path], folder: Path) -> int:
        """Sign the documents in a job, which records each step in its journal before the next step."""
        signing: Any = importlib.import_module("directsuite.jobs.signing")  # not part of other works
        documents, target = signing.Folder(source[0].parent), signing.TargetFolder(folder)
        signature = ds.Signature(name=work.SIGNATURE["name"], reason="Approved", gs_name="Alice")
        async with signing.SigningJournal(folder / "journal.db") as journal:
            job = signing.SigningJob(
                self.suite.signing, documents, target, [signature], journal=journal, concurrency=work.CONNECTIONS
            )
            progress = await job.run()
            assert (progress.failed, (await journal.tally()).abandoned) == (0, 0)
        return int(progress.done)
