"""Bare aiohttp: these calls as a good engineer writes them by hand, with the codecs of directsuite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pybase64

from benchmarks.peers import work

_CREDENTIALS = {"username": work.USERNAME, "password": work.PASSWORD}
_BEARER = {"Authorization": f"Bearer {work.TOKEN}"}
_JSON = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain"}
_CONTENT = b'"content":"'
_BLOCK_BYTES = 96 * 1024


class Client(work.Client):
    """aiohttp, msgspec for JSON, and pybase64. Payloads are complete in memory, and results are plain dictionaries.

    It has no retries, renewal of tokens, rate limit, outcomes, size limit, quoted paths, type checks, dates or events.
    """

    def __init__(self, base_url: str, *, connections: int = work.CONNECTIONS) -> None:
        self._pdf = f"{base_url}/signing/pdf"
        self._messaging = base_url + work.MESSAGING
        self._connections = connections
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:  # a session must be created in the event loop
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self._connections))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def message_count(self) -> int:
        response = await self._call("POST", f"{self._messaging}/GetMessageCount/{work.FOLDER}", _CREDENTIALS)
        count: int = response["count"]
        return count

    def metadata(self, body: bytes) -> int:
        return len(msgspec.json.decode(body)["messages"])

    async def upload(self, path: Path) -> int:
        stored = await self._save(work.read_bytes(path))
        return work.parse_received_bytes(stored["description"])

    async def download(self, path: Path) -> int:
        return work.write_bytes(path, await self._get_doc(work.DOCUMENT))

    async def send(self, path: Path) -> str:
        content = pybase64.b64encode(work.read_bytes(path)).decode()
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
        response = await self._call("PUT", f"{self._messaging}/Send", body)
        smtp_id: str = response["smtpId"]
        return smtp_id

    async def read_messages(self) -> int:
        url = f"{self._messaging}/GetMessages/{work.FOLDER}"
        body = await self._read("POST", url, _JSON, msgspec.json.encode(_CREDENTIALS))
        messages = msgspec.json.decode(body)["messages"]
        for message in messages:
            for attachment in message["attachments"]:
                attachment["content"] = pybase64.b64decode(attachment["content"], validate=True)
        return len(messages)

    async def list_uids(self, folder: str) -> Sequence[int]:
        uids: list[int] = (await self._call("POST", f"{self._messaging}/GetUIDs/{folder}", _CREDENTIALS))["uids"]
        return uids

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        url = f"{self._messaging}/GetMessagesByUIDs/{folder}"
        messages: list[object] = (await self._call("POST", url, {"auth": _CREDENTIALS, "uids": uids}))["messages"]
        return messages

    async def sign(self, pdf: bytes) -> bytes:
        identifier = await self.save(pdf)
        await self._call("PATCH", f"{self._pdf}/{identifier}/sign", work.SIGNATURE, _BEARER)
        return await self._get_doc(identifier)

    async def save(self, pdf: bytes) -> str:
        return str((await self._save(pdf))["identifier"])

    async def sign_and_pull(self, identifier: str) -> bytes:
        url, body = f"{self._pdf}/{identifier}/sign/pull", msgspec.json.encode(work.SIGNATURE)
        return pybase64.b64decode(await self._read("PATCH", url, {**_JSON, **_BEARER}, body), validate=True)

    async def delete(self, identifier: str) -> None:
        await self._read("DELETE", f"{self._pdf}/{identifier}", _BEARER, None)

    async def floor_upload(self, path: Path) -> int:
        """Read a file in blocks, and send each as base64: the minimum of any upload."""
        headers = {**_TEXT, **_BEARER, "Content-Length": str(4 * -(-work.get_size(path) // 3))}
        async with self._session.post(self._pdf, data=_yield_base64(path), headers=headers) as response:
            return work.parse_received_bytes(msgspec.json.decode(await response.read())["description"])

    async def floor_download(self, path: Path) -> int:
        """Read the response of GetDoc, and write the size of the decoded document. Return the size of the response."""
        with _open_unbuffered(path) as file:
            url = f"{self._pdf}/{work.DOCUMENT}"
            return await self._floor("GET", url, None, lambda text: file.write(memoryview(text)[: 3 * len(text) // 4]))

    async def floor_read_messages(self) -> int:
        """Find each attachment in the response of GetMessages, decode it, and discard it. Return the number."""
        text, found = bytearray(), 0

        def take(piece: bytes) -> int:
            nonlocal found
            text.extend(piece)
            parsed = 0
            while b'"' in piece and (begin := text.find(_CONTENT, parsed)) >= 0:
                begin += len(_CONTENT)
                if (end := text.find(b'"', begin)) < 0:
                    break
                with memoryview(text)[begin:end] as content:
                    pybase64.b64decode(content, validate=True)
                found, parsed = found + 1, end
            del text[:parsed]
            return found

        body = msgspec.json.encode(_CREDENTIALS)
        await self._floor("POST", f"{self._messaging}/GetMessages/{work.FOLDER}", body, take)
        return found

    async def _read(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        async with self._session.request(method, url, data=body, headers=headers) as response:
            response.raise_for_status()
            return await response.read()

    async def _call(self, method: str, url: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        response = await self._read(method, url, {**_JSON, **(headers or {})}, msgspec.json.encode(body))
        return msgspec.json.decode(response)

    async def _save(self, pdf: bytes) -> Any:
        return msgspec.json.decode(await self._read("POST", self._pdf, {**_TEXT, **_BEARER}, pybase64.b64encode(pdf)))

    async def _get_doc(self, identifier: str) -> bytes:
        text = await self._read("GET", f"{self._pdf}/{identifier}", {**_JSON, **_BEARER}, None)
        return pybase64.b64decode(text, validate=True)

    async def _floor(self, method: str, url: str, body: bytes | None, take: Callable[[bytes], int]) -> int:
        size = 0
        async with self._session.request(method, url, data=body, headers={**_JSON, **_BEARER}) as response:
            async for piece in response.content.iter_any():
                take(piece)
                size += len(piece)
        return size


def _open_unbuffered(path: Path) -> FileIO:
    return path.open("wb", buffering=0)


async def _yield_base64(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            yield pybase64.b64encode(block)
