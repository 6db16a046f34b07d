"""Bare aiohttp: the limit. What a good engineer writes by hand for these few calls, with the same codecs as ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import pybase64

from benchmarks.peers import work
from benchmarks.peers.files import open_unbuffered, read_bytes, write_bytes
from benchmarks.peers.folder import read_in_order

_CREDENTIALS = {"username": work.USERNAME, "password": work.PASSWORD}
_BEARER = {"Authorization": f"Bearer {work.TOKEN}"}
_JSON = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain"}
_BLOCK = bytes(262_144)


class Client:
    """aiohttp, msgspec for JSON, pybase64: whole payloads in memory, plain dicts out.

    It does not: retry, renew tokens, limit rates, tell outcomes apart, bound answers, quote paths, check types,
    make datetimes, or tell anybody what it does.
    """

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._pdf = f"{base_url}/signing/pdf"
        self._messaging = base_url + work.MESSAGING
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self._connections))
        return self

    async def __aexit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_session.close()

    async def message_count(self) -> int:
        """GetMessageCount of INBOX."""
        answer = await self._call("POST", f"{self._messaging}/GetMessageCount/{work.FOLDER}", _CREDENTIALS)
        count: int = answer["count"]
        return count

    def metadata(self, body: bytes) -> int:
        """Plain dicts: there are no models here."""
        return len(msgspec.json.decode(body)["messages"])

    def messages(self, body: bytes) -> int:
        """Plain dicts, with the attachments' contents decoded."""
        messages = msgspec.json.decode(body)["messages"]
        for message in messages:
            for attachment in message["attachments"]:
                attachment["content"] = pybase64.b64decode(attachment["content"], validate=True)
        return len(messages)

    async def upload(self, path: Path) -> int:
        """Save: the file read, coded and sent whole."""
        stored = await self._save(read_bytes(path))
        return work.parse_received_bytes(stored["description"])

    async def download(self, path: Path) -> int:
        """GetDoc: the answer read, decoded and written whole."""
        return write_bytes(path, await self._get_doc(work.DOCUMENT))

    async def send(self, path: Path) -> str:
        """Send: the message made in memory, attachment and all."""
        content = pybase64.b64encode(read_bytes(path)).decode()
        attachment = {"content": content, "contentType": work.MEDIA_TYPE, "filename": work.FILENAME}
        message = {
            "sender": work.USERNAME,
            "subject": work.SUBJECT,
            "body": work.BODY,
            "htmlBody": False,
            "recipients": [{"email": work.RECIPIENT, "type": "TO"}],
            "attachmentList": [attachment],
        }
        body = {"authentication": _CREDENTIALS, "message": message}
        answer = await self._call("PUT", f"{self._messaging}/Send", body)
        smtp_id: str = answer["smtpId"]
        return smtp_id

    async def read_messages(self) -> int:
        """GetMessages: the answer read whole, and parsed."""
        url = f"{self._messaging}/GetMessages/{work.FOLDER}"
        return self.messages(await self._read("POST", url, _JSON, msgspec.json.encode(_CREDENTIALS)))

    async def batches(self, batches: int, per: int) -> int:
        """In order, with twice as many requests under way as connections."""
        folder = work.name_folder(batches * per)
        listed = await self._call("POST", f"{self._messaging}/GetUIDs/{folder}", _CREDENTIALS)
        url = f"{self._messaging}/GetMessagesByUIDs/{folder}"

        async def fetch(uids: list[int]) -> list[object]:
            """One batch."""
            answer = await self._call("POST", url, {"auth": _CREDENTIALS, "uids": uids})
            messages: list[object] = answer["messages"]
            return messages

        return await read_in_order(listed["uids"], per, fetch, 2 * self._connections)

    async def sign(self, pdf: bytes) -> bytes:
        """Save, Sign and GetDoc."""
        stored = await self._save(pdf)
        identifier = stored["identifier"]
        await self._call("PATCH", f"{self._pdf}/{identifier}/sign", work.SIGNATURE, _BEARER)
        return await self._get_doc(identifier)

    async def floor_upload(self, size: int) -> int:
        """Send so many bytes uncoded, from one block: what no upload can do with less."""
        headers = {**_TEXT, **_BEARER, "Content-Length": str(size)}
        async with self._open_session.post(self._pdf, data=_yield_blocks(size), headers=headers) as response:
            return work.parse_received_bytes(msgspec.json.decode(await response.read())["description"])

    async def floor_download(self, path: Path) -> int:
        """Read what GetDoc answers, and write as many bytes as it stands for, uncoded; how many came."""
        with open_unbuffered(path) as file:
            return await self._floor(
                "GET", f"{self._pdf}/{work.DOCUMENT}", None, lambda text: file.write(_decode_view(text))
            )

    async def floor_read_messages(self) -> int:
        """Read and drop what GetMessages answers; its length."""
        body = msgspec.json.encode(_CREDENTIALS)
        return await self._floor("POST", f"{self._messaging}/GetMessages/{work.FOLDER}", body, len)

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def _read(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        async with self._open_session.request(method, url, data=body, headers=headers) as response:
            response.raise_for_status()
            return await response.read()

    async def _call(self, method: str, url: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        answer = await self._read(method, url, {**_JSON, **(headers or {})}, msgspec.json.encode(body))
        return msgspec.json.decode(answer)

    async def _save(self, pdf: bytes) -> Any:
        return msgspec.json.decode(await self._read("POST", self._pdf, {**_TEXT, **_BEARER}, pybase64.b64encode(pdf)))

    async def _get_doc(self, identifier: str) -> bytes:
        text = await self._read("GET", f"{self._pdf}/{identifier}", {**_JSON, **_BEARER}, None)
        return pybase64.b64decode(text, validate=True)

    async def _floor(self, method: str, url: str, body: bytes | None, take: Callable[[bytes], int]) -> int:
        size = 0
        async with self._open_session.request(method, url, data=body, headers={**_JSON, **_BEARER}) as response:
            async for piece in response.content.iter_any():
                take(piece)
                size += len(piece)
        return size


def _decode_view(text: bytes) -> memoryview:
    """As many bytes as a text in base64 stands for."""
    return memoryview(text)[: 3 * len(text) // 4]


async def _yield_blocks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // len(_BLOCK)):
        yield _BLOCK
    if rest := size % len(_BLOCK):
        yield _BLOCK[:rest]
