"""The Python client of openapi-generator for aiohttp, used as its README shows."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import work

PACKAGE = "generated_by_openapi_generator"


def load() -> Any:
    """Import the package completely, as its README does."""
    return importlib.import_module(PACKAGE)


class Client(work.Client):
    """One ApiClient for all calls. Base64 is left to its caller, which is this class."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._package = load()
        configuration = self._package.Configuration(host=base_url, access_token=work.TOKEN)
        configuration.connection_pool_maxsize = self._connections = connections
        self._resource = self._api_client = self._package.ApiClient(configuration)
        self._messaging = self._package.MessagingApi(self._api_client)
        self._signing = self._package.SigningApi(self._api_client)
        self._authentication = self._package.Authentication(username=work.USERNAME, password=work.PASSWORD)

    async def message_count(self) -> int:
        count: int = (await self._messaging.get_message_count(work.FOLDER, self._authentication)).count
        return count

    def metadata(self, body: bytes) -> int:
        return len(self._api_client.deserialize(body.decode(), "GetMessageResponse", "application/json").messages)

    async def upload(self, path: Path) -> int:
        stored = await self._signing.save(base64.b64encode(work.read_bytes(path)))
        return work.parse_received_bytes(stored.description)

    async def download(self, path: Path) -> int:
        return work.write_bytes(path, base64.b64decode(await self._signing.get_doc(work.DOCUMENT)))

    async def send(self, path: Path) -> str:
        request = work.make_request(self._package, self._authentication, path, "type")
        smtp_id: str = (await self._messaging.send(request)).smtp_id
        return smtp_id

    async def read_messages(self) -> int:  # the contents of attachments remain base64 text
        response = await self._messaging.get_messages(work.FOLDER, self._authentication)
        return sum(1 for _ in response.messages)

    async def list_uids(self, folder: str) -> Sequence[int]:
        uids: list[int] = (await self._messaging.get_uids(folder, self._authentication)).uids
        return uids

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        request = self._package.UidsRequestType(auth=self._authentication, uids=uids)
        messages: list[object] = (await self._messaging.get_messages_by_uids(folder, request)).messages
        return messages

    async def sign(self, pdf: bytes) -> bytes:
        stored = await self._signing.save(base64.b64encode(pdf))
        await self._signing.sign(stored.identifier, self._package.SignBody.from_dict(work.SIGNATURE))
        return base64.b64decode(await self._signing.get_doc(stored.identifier))
