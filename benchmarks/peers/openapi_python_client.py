"""The client of openapi-python-client, for httpx and attrs, used as its README shows."""

from __future__ import annotations

import base64
import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers import work

PACKAGE = "generated_by_openapi_python_client"
_NO_SAVE = "its generator omits Save, because it does not support text/plain bodies"
_MODULES = {
    name: f"api.messaging.{name.replace('uids', 'ui_ds')}"
    for name in ("get_message_count", "get_messages", "get_messages_by_uids", "get_uids", "send")
}
"""The module of each operation of the messaging service."""


def load() -> None:
    """Import the parts of the package that a program with this work uses."""
    for module in ("client", "models", "api.signing.get_doc", *_MODULES.values()):
        _load_module(module)


class Client(work.GeneratedClient):
    """One AuthenticatedClient for all calls. Base64 is left to its caller, which is this class."""

    _type_field = "type_"

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._models = _load_module("models")
        self._connections = connections
        httpx = importlib.import_module("httpx")
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._resource = self._client = _load_module("client").AuthenticatedClient(
            base_url=base_url, token=work.TOKEN, httpx_args={"limits": limits}
        )
        self._authentication = self._models.Authentication(username=work.USERNAME, password=work.PASSWORD)

    def metadata(self, body: bytes) -> int:
        return len(self._models.GetMessageResponse.from_dict(json.loads(body)).messages)

    async def upload(self, path: Path) -> int:
        raise work.CannotError(_NO_SAVE)

    async def download(self, path: Path) -> int:
        text = await _load_module("api.signing.get_doc").asyncio(work.DOCUMENT, client=self._client)
        return path.write_bytes(base64.b64decode(text))

    async def sign(self, pdf: bytes) -> bytes:
        raise work.CannotError(_NO_SAVE)

    async def _call(self, operation: str, *segments: str, body: object) -> Any:
        return await _load_module(_MODULES[operation]).asyncio(*segments, client=self._client, body=body)


@cache
def _load_module(module: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{module}")
