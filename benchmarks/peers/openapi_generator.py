"""What openapi-generator makes for Python and aiohttp, used as its README shows."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers import work
from benchmarks.peers.files import read_bytes, write_bytes
from benchmarks.peers.folder import read_in_order

PACKAGE = "generated_by_openapi_generator"
_JSON = "application/json"


def load() -> Any:
    """Import the package as a program that uses it would; its README imports all of it."""
    return importlib.import_module(PACKAGE)


class Client:
    """One ApiClient for all calls, whole payloads in memory; base64 is left to its caller, and so done here."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._package = load()  # Any: the package is generated, and not there when this is checked
        configuration = self._package.Configuration(host=base_url, access_token=work.TOKEN)
        configuration.connection_pool_maxsize = connections
        self._api_client = self._package.ApiClient(configuration)
        self._messaging = self._package.MessagingApi(self._api_client)
        self._signing = self._package.SigningApi(self._api_client)
        self._connections = connections
        self._authentication = self._package.Authentication(username=work.USERNAME, password=work.PASSWORD)

    async def __aenter__(self) -> Self:
        await self._api_client.__aenter__()
        return self

    async def __aexit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api_client.__aexit__(error, value, trace)

    async def message_count(self) -> int:
        """GetMessageCount of INBOX."""
        answer = await self._messaging.get_message_count(work.FOLDER, self._authentication)
        count: int = answer.count
        return count

    def metadata(self, body: bytes) -> int:
        """Models, by the way that its answers take from the wire on."""
        return len(self._api_client.deserialize(body.decode(), "GetMessageResponse", _JSON).messages)

    def messages(self, body: bytes) -> int:
        """Models, whose attachments' contents stay base64 text."""
        return self.metadata(body)

    async def upload(self, path: Path) -> int:
        """Save."""
        stored = await self._signing.save(base64.b64encode(read_bytes(path)))
        return work.parse_received_bytes(stored.description)

    async def download(self, path: Path) -> int:
        """GetDoc."""
        return write_bytes(path, base64.b64decode(await self._signing.get_doc(work.DOCUMENT)))

    async def send(self, path: Path) -> str:
        """Send."""
        package = self._package
        attachment = package.Attachment(
            content=base64.b64encode(read_bytes(path)).decode(),
            content_type=work.MEDIA_TYPE,
            filename=work.FILENAME,
        )
        message = package.Message(
            sender=work.USERNAME,
            subject=work.SUBJECT,
            body=work.BODY,
            html_body=False,
            recipients=[package.Recipient(email=work.RECIPIENT, type=package.RecipientType.TO)],
            attachment_list=[attachment],
        )
        request = package.SendRequest(authentication=self._authentication, message=message)
        answer = await self._messaging.send(request)
        smtp_id: str = answer.smtp_id
        return smtp_id

    async def read_messages(self) -> int:
        """GetMessages."""
        answer = await self._messaging.get_messages(work.FOLDER, self._authentication)
        return sum(1 for _ in answer.messages)

    async def batches(self, batches: int, per: int) -> int:
        """GetUIDs, then GetMessagesByUIDs."""
        folder = work.name_folder(batches * per)
        listed = await self._messaging.get_uids(folder, self._authentication)

        async def fetch(uids: list[int]) -> list[object]:
            """One batch."""
            request = self._package.UidsRequestType(auth=self._authentication, uids=uids)
            answer = await self._messaging.get_messages_by_uids(folder, request)
            messages: list[object] = answer.messages
            return messages

        return await read_in_order(listed.uids, per, fetch, 2 * self._connections)

    async def sign(self, pdf: bytes) -> bytes:
        """Save, Sign and GetDoc."""
        stored = await self._signing.save(base64.b64encode(pdf))
        await self._signing.sign(stored.identifier, self._package.SignBody.from_dict(work.SIGNATURE))
        return base64.b64decode(await self._signing.get_doc(stored.identifier))
