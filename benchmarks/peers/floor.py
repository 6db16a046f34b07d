"""The least code that does the work, with bare aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pybase64

from benchmarks.peers import bare, work
from benchmarks.peers.bare import BEARER, CREDENTIALS, JSON, TEXT

_CONTENT = b'"content":"'
_BLOCK_BYTES = 96 * 1024


class Client(bare.Client):
    """The minimum for each work with large payloads, and the simplest signing of a folder that survives a crash."""

    async def upload(self, path: Path) -> int:
        """Read a file in blocks, and send each as base64: the minimum of any upload."""
        headers = {**TEXT, **BEARER, "Content-Length": str(4 * -(-path.stat().st_size // 3))}
        async with self._session.post(self._pdf, data=_yield_base64(path), headers=headers) as response:
            return work.parse_received_bytes(msgspec.json.decode(await response.read())["description"])

    async def send(self, path: Path) -> str:
        return str(await self.upload(path))

    async def download(self, path: Path) -> int:
        """Read the response of GetDoc, and write the size of the decoded document."""
        with path.open("wb", buffering=0) as file:
            url = f"{self._pdf}/{work.DOCUMENT}"
            await self._stream("GET", url, None, lambda text: file.write(memoryview(text)[: 3 * len(text) // 4]))
        return path.stat().st_size

    async def read_messages(self) -> int:
        """Find each attachment in the response of GetMessages, decode it, and discard it."""
        text, found = bytearray(), 0

        def take(piece: bytes) -> None:
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

        body = msgspec.json.encode(CREDENTIALS)
        await self._stream("POST", f"{self._messaging}/GetMessages/{work.FOLDER}", body, take)
        return found

    async def _stream(self, method: str, url: str, body: bytes | None, take: Callable[[bytes], object]) -> None:
        async with self._session.request(method, url, data=body, headers={**JSON, **BEARER}) as response:
            async for piece in response.content.iter_any():
                take(piece)

    async def sign_folder(self, source: Sequence[Path], folder: Path) -> int:
        """Commit each step, and sync each output."""
        self._lock = threading.Lock()
        journal = sqlite3.connect(folder / "journal.db", isolation_level=None, check_same_thread=False)
        with contextlib.closing(journal) as self._journal:
            self._journal.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                "CREATE TABLE documents (name TEXT PRIMARY KEY, state TEXT, source TEXT, value TEXT) WITHOUT ROWID;"
            )
            return await super().sign_folder(source, folder)

    def _read_document(self, file: Path) -> bytes:
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        self._execute("INSERT INTO documents VALUES (?, 'read', ?, '')", file.name, digest)
        return content

    async def _record(self, name: str, state: str, value: str = "") -> None:
        update = "UPDATE documents SET state = ?, value = ? WHERE name = ?"
        await asyncio.to_thread(self._execute, update, state, value, name)

    def _execute(self, statement: str, *values: str) -> None:
        with self._lock:
            self._journal.execute(statement, values)

    def _write_document(self, file: Path, content: bytes) -> str:
        partial = file.with_name(f".{file.name}")
        with partial.open("xb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        partial.rename(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return hashlib.sha256(content).hexdigest()


async def _yield_base64(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            yield pybase64.b64encode(block)
