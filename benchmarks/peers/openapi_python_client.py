"""The client of openapi-python-client, for httpx and attrs, used as its README shows."""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers import work

PACKAGE = "generated_by_openapi_python_client"
_NO_SAVE = "its generator omits Save, because it does not support text/plain bodies"
_OPERATIONS = ("get_message_count", "get_messages", "get_messages_by_ui_ds", "get_ui_ds", "send")


def load() -> None:
    """Import the parts of the package that a program with this work uses."""
    for module in ("client", "models", "api.signing.get_doc", *(f"api.messaging.{name}" for name in _OPERATIONS)):
        _load_module(module)


class Client(work.Client):
    """One AuthenticatedClient for all calls. Base64 is left to its caller, which is this class."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._models: Any = _load_module("models")
        self._connections = connections
        httpx = importlib.import_module("httpx")
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._resource = self._client = _load_module("client").AuthenticatedClient(
            base_url=base_url, token=work.TOKEN, httpx_args={"limits": limits}
        )
        self._authentication = self._models.Authentication(username=work.USERNAME, password=work.PASSWORD)

    async def message_count(self) -> int:
        count: int = (await self._messaging("get_message_count", work.FOLDER, body=self._authentication)).count
        return count

    def metadata(self, body: bytes) -> int:
        return len(self._models.GetMessageResponse.from_dict(json.loads(body)).messages)

    async def upload(self, path: Path) -> int:
        raise work.CannotError(_NO_SAVE)

    async def download(self, path: Path) -> int:
        text = await _load_module("api.signing.get_doc").asyncio(work.DOCUMENT, client=self._client)
        return work.write_bytes(path, base64.b64decode(text))

    async def send(self, path: Path) -> str:
        request = work.make_request(self._models, self._authentication, path, "type_")
        smtp_id: str = (await self._messaging("send", body=request)).smtp_id
        return smtp_id

    async def read_messages(self) -> int:  # the contents of attachments remain base64 text
        response = await self._messaging("get_messages", work.FOLDER, body=self._authentication)
        return sum(1 for _ in response.messages)

    async def list_uids(self, folder: str) -> Sequence[int]:
        uids: list[int] = (await self._messaging("get_ui_ds", folder, body=self._authentication)).uids
        return uids

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        request = self._models.UidsRequestType(auth=self._authentication, uids=uids)
        messages: list[object] = (await self._messaging("get_messages_by_ui_ds", folder, body=request)).messages
        return messages

    async def sign(self, pdf: bytes) -> bytes:
        raise work.CannotError(_NO_SAVE)

    async def _messaging(self, operation: str, *segments: str, body: object) -> Any:
        return await _load_module(f"api.messaging.{operation}").asyncio(*segments, client=self._client, body=body)


@cache
def _load_module(module: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{module}")
