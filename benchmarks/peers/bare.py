"""Bare aiohttp: these calls as a good engineer writes them by hand, with the codecs of directsuite."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pybase64

from benchmarks.peers import work

CREDENTIALS = {"username": work.USERNAME, "password": work.PASSWORD}
BEARER = {"Authorization": f"Bearer {work.TOKEN}"}
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}


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
        response = await self._call("POST", f"{self._messaging}/GetMessageCount/{work.FOLDER}", CREDENTIALS)
        count: int = response["count"]
        return count

    def metadata(self, body: bytes) -> int:
        return len(msgspec.json.decode(body)["messages"])

    async def upload(self, path: Path) -> int:
        stored = await self._save(path.read_bytes())
        return work.parse_received_bytes(stored["description"])

    async def download(self, path: Path) -> int:
        return path.write_bytes(await self._get_doc(work.DOCUMENT))

    async def send(self, path: Path) -> str:
        content = pybase64.b64encode(path.read_bytes()).decode()
        attachment = {"content": content, "contentType": work.MEDIA_TYPE, "filename": work.FILENAME}
        message = {
            "sender": work.USERNAME,
            "subject": work.SUBJECT,
            "body": work.BODY,
            "htmlBody": False,
            "recipients": [{"email": work.RECIPIENT, "type": "TO"}],
            "attachmentList": [attachment],
        }
        body = {"authentication": CREDENTIALS, "message": message}
        response = await self._call("PUT", f"{self._messaging}/Send", body)
        smtp_id: str = response["smtpId"]
        return smtp_id

    async def read_messages(self) -> int:
        url = f"{self._messaging}/GetMessages/{work.FOLDER}"
        body = await self._read("POST", url, JSON, msgspec.json.encode(CREDENTIALS))
        messages = msgspec.json.decode(body)["messages"]
        for message in messages:
            for attachment in message["attachments"]:
                attachment["content"] = pybase64.b64decode(attachment["content"], validate=True)
        return len(messages)

    async def list_uids(self, folder: str) -> Sequence[int]:
        uids: list[int] = (await self._call("POST", f"{self._messaging}/GetUIDs/{folder}", CREDENTIALS))["uids"]
        return uids

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        url = f"{self._messaging}/GetMessagesByUIDs/{folder}"
        messages: list[object] = (await self._call("POST", url, {"auth": CREDENTIALS, "uids": uids}))["messages"]
        return messages

    async def sign(self, pdf: bytes) -> bytes:
        identifier = str((await self._save(pdf))["identifier"])
        await self._call("PATCH", f"{self._pdf}/{identifier}/sign", work.SIGNATURE, BEARER)
        return await self._get_doc(identifier)

    async def sign_folder(self, source: Sequence[Path], folder: Path) -> int:
        """Save, sign and pull, and delete each document. Nothing is recorded or waits until a file is on the disk."""
        waiting = iter(source)

        async def signer() -> None:
            for file in waiting:
                pdf = await asyncio.to_thread(self._read_document, file)
                identifier = str((await self._save(pdf))["identifier"])
                await self._record(file.name, "being signed", identifier)
                url, body = f"{self._pdf}/{identifier}/sign/pull", msgspec.json.encode(work.SIGNATURE)
                signed = pybase64.b64decode(await self._read("PATCH", url, {**JSON, **BEARER}, body), validate=True)
                digest = await asyncio.to_thread(self._write_document, folder / file.name, signed)
                await self._record(file.name, "signed", digest)
                await self._read("DELETE", f"{self._pdf}/{identifier}", BEARER, None)
                await self._record(file.name, "done")

        await asyncio.gather(*(signer() for _ in range(work.CONNECTIONS)))
        return len(source)

    def _read_document(self, file: Path) -> bytes:
        return file.read_bytes()

    async def _record(self, name: str, state: str, value: str = "") -> None:
        pass

    def _write_document(self, file: Path, content: bytes) -> str:
        file.write_bytes(content)
        return ""

    async def _read(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        async with self._session.request(method, url, data=body, headers=headers) as response:
            response.raise_for_status()
            return await response.read()

    async def _call(self, method: str, url: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        response = await self._read(method, url, {**JSON, **(headers or {})}, msgspec.json.encode(body))
        return msgspec.json.decode(response)

    async def _save(self, pdf: bytes) -> Any:
        return msgspec.json.decode(await self._read("POST", self._pdf, {**TEXT, **BEARER}, pybase64.b64encode(pdf)))

    async def _get_doc(self, identifier: str) -> bytes:
        text = await self._read("GET", f"{self._pdf}/{identifier}", {**JSON, **BEARER}, None)
        return pybase64.b64decode(text, validate=True)
