"""What openapi-python-client makes, on httpx and attrs, used as its README shows."""

from __future__ import annotations

import base64
import importlib
import json
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers import work
from benchmarks.peers.files import read_bytes, write_bytes
from benchmarks.peers.folder import read_in_order

PACKAGE = "generated_by_openapi_python_client"
_NO_SAVE_REASON = "its generator leaves Save out: it does not take text/plain bodies"
_USED_MODULES = (
    "client",
    "models",
    "api.signing.get_doc",
    *(
        f"api.messaging.{operation}"
        for operation in ("get_message_count", "get_messages", "get_messages_by_ui_ds", "get_ui_ds", "send")
    ),
)


def load() -> None:
    """Import the package as a program that does this work would."""
    for module in _USED_MODULES:
        _load_module(module)


class Client:
    """One Client for all calls, whole payloads in memory; base64 is left to its caller, and so done here."""

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        # Any: the package is generated, and not there when this is checked.
        self._models: Any = _load_module("models")
        self._connections = connections
        limits = importlib.import_module("httpx").Limits(
            max_connections=connections, max_keepalive_connections=connections
        )
        self._client = _load_module("client").AuthenticatedClient(
            base_url=base_url, token=work.TOKEN, httpx_args={"limits": limits}
        )
        self._authentication = self._models.Authentication(username=work.USERNAME, password=work.PASSWORD)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(error, value, trace)

    async def message_count(self) -> int:
        """GetMessageCount of INBOX."""
        answer = await self._messaging("get_message_count", work.FOLDER, body=self._authentication)
        count: int = answer.count
        return count

    def metadata(self, body: bytes) -> int:
        """Models, by the way that its answers take from the wire on."""
        return len(self._models.GetMessageResponse.from_dict(json.loads(body)).messages)

    def messages(self, body: bytes) -> int:
        """Models, whose attachments' contents stay base64 text."""
        return self.metadata(body)

    async def upload(self, path: Path) -> int:
        """Nothing: it has no Save."""
        raise work.CannotError(_NO_SAVE_REASON)

    async def download(self, path: Path) -> int:
        """GetDoc."""
        text = await _load_module("api.signing.get_doc").asyncio(work.DOCUMENT, client=self._client)
        return write_bytes(path, base64.b64decode(text))

    async def send(self, path: Path) -> str:
        """Send."""
        models = self._models
        attachment = models.Attachment(
            content=base64.b64encode(read_bytes(path)).decode(),
            content_type=work.MEDIA_TYPE,
            filename=work.FILENAME,
        )
        message = models.Message(
            sender=work.USERNAME,
            subject=work.SUBJECT,
            body=work.BODY,
            html_body=False,
            recipients=[models.Recipient(email=work.RECIPIENT, type_=models.RecipientType.TO)],
            attachment_list=[attachment],
        )
        request = models.SendRequest(authentication=self._authentication, message=message)
        answer = await self._messaging("send", body=request)
        smtp_id: str = answer.smtp_id
        return smtp_id

    async def read_messages(self) -> int:
        """GetMessages."""
        answer = await self._messaging("get_messages", work.FOLDER, body=self._authentication)
        return sum(1 for _ in answer.messages)

    async def batches(self, batches: int, per: int) -> int:
        """GetUIDs, then GetMessagesByUIDs."""
        folder = work.name_folder(batches * per)
        listed = await self._messaging("get_ui_ds", folder, body=self._authentication)

        async def fetch(uids: list[int]) -> list[object]:
            """One batch."""
            request = self._models.UidsRequestType(auth=self._authentication, uids=uids)
            answer = await self._messaging("get_messages_by_ui_ds", folder, body=request)
            messages: list[object] = answer.messages
            return messages

        return await read_in_order(listed.uids, per, fetch, 2 * self._connections)

    async def sign(self, pdf: bytes) -> bytes:
        """Nothing: it has no Save, and so no document to sign."""
        raise work.CannotError(_NO_SAVE_REASON)

    async def _messaging(self, operation: str, *segments: str, body: object) -> Any:
        return await _load_module(f"api.messaging.{operation}").asyncio(*segments, client=self._client, body=body)


@cache
def _load_module(module: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{module}")
