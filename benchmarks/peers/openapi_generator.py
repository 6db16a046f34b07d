"""The Python client of openapi-generator for aiohttp, used as its README shows."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from typing import Any

from benchmarks.peers import work

PACKAGE = "generated_by_openapi_generator"


def load() -> Any:
    """Import the package completely, as its README does."""
    return importlib.import_module(PACKAGE)


class Client(work.GeneratedClient):
    """One ApiClient for all calls. Base64 is left to its caller, which is this class."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._models = load()
        configuration = self._models.Configuration(host=base_url, access_token=work.TOKEN)
        configuration.connection_pool_maxsize = self._connections = connections
        self._resource = self._api_client = self._models.ApiClient(configuration)
        self._messaging = self._models.MessagingApi(self._api_client)
        self._signing = self._models.SigningApi(self._api_client)
        self._authentication = self._models.Authentication(username=work.USERNAME, password=work.PASSWORD)

    def metadata(self, body: bytes) -> int:
        return len(self._api_client.deserialize(body.decode(), "GetMessageResponse", "application/json").messages)

    async def upload(self, path: Path) -> int:
        stored = await self._signing.save(base64.b64encode(path.read_bytes()))
        return work.parse_received_bytes(stored.description)

    async def download(self, path: Path) -> int:
        return path.write_bytes(base64.b64decode(await self._signing.get_doc(work.DOCUMENT)))

    async def sign(self, pdf: bytes) -> bytes:
        stored = await self._signing.save(base64.b64encode(pdf))
        await self._signing.sign(stored.identifier, self._models.SignBody.from_dict(work.SIGNATURE))
        return base64.b64decode(await self._signing.get_doc(stored.identifier))

    async def _call(self, operation: str, *segments: str, body: object) -> Any:
        return await getattr(self._messaging, operation)(*segments, body)
