"""directsuite, as its README uses it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import directsuite as ds
from benchmarks.peers import work
from benchmarks.peers.files import get_size
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


class Client:
    """A suite with its defaults, save the limit of requests per second, which would be all that is measured."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        settings = ds.Settings(
            signing_url=f"{base_url}/signing",
            fax_url=f"{base_url}/fax",
            message_url=base_url + work.MESSAGING,
            registration_url=f"{base_url}/DirectRegistrationRESTful/rest/Patient",
            max_connections=connections,
            requests_per_second=1e9,
            burst=10**9,
        )
        self._suite = ds.DirectSuite(settings, token=work.TOKEN)
        self._box = self._suite.mailbox(work.USERNAME, work.PASSWORD)

    async def __aenter__(self) -> Self:
        await self._suite.__aenter__()
        return self

    async def __aexit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._suite.__aexit__(error, value, trace)

    async def message_count(self) -> int:
        """GetMessageCount of INBOX."""
        return await self._box.get_message_count()

    def metadata(self, body: bytes) -> int:
        """Models, as any call makes them of its answer."""
        return self.messages(body)

    def messages(self, body: bytes) -> int:
        """Models, with the attachments' contents as bytes."""
        return len(_CODEC.decode(GetMessageResponse, body).messages)

    async def upload(self, path: Path) -> int:
        """Save, from the path."""
        stored = await self._suite.signing.save(path)
        return work.parse_received_bytes(stored.description)

    async def download(self, path: Path) -> int:
        """GetDoc, to the path."""
        await self._suite.signing.download(work.DOCUMENT, path)
        return get_size(path)

    async def send(self, path: Path) -> str:
        """Send, with an attachment that is a path."""
        message = ds.Message(
            sender=work.USERNAME,
            subject=work.SUBJECT,
            body=work.BODY,
            recipients=[ds.Recipient(work.RECIPIENT)],
            attachment_list=[ds.Attachment.from_path(path, content_type=work.MEDIA_TYPE, filename=work.FILENAME)],
        )
        answer = await self._box.send(message)
        return answer.smtp_id or ""

    async def read_messages(self) -> int:
        """GetMessages, message by message."""
        count = 0
        async with self._box.stream_messages() as messages:
            async for _ in messages:
                count += 1
        return count

    async def batches(self, batches: int, per: int) -> int:
        """A listing, which fetches ahead of its reader."""
        count = 0
        async with self._box.iter_messages(work.name_folder(batches * per), batch_size=per) as messages:
            async for _ in messages:
                count += 1
        return count

    async def sign(self, pdf: bytes) -> bytes:
        """Save, Sign and GetDoc."""
        stored = await self._suite.signing.save(pdf)
        await self._suite.signing.sign(stored, _SIGNATURE)
        return await self._suite.signing.get_doc(stored)
