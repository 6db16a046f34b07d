"""The work that every client does, and its data. A method raises CannotError if the client has no such operation.

message_count()                 GetMessageCount of INBOX; returns the number
metadata(body)                  decode a response into the client's models; returns the number of messages
upload(path)                    Save; returns the number of bytes that the server received
download(path)                  GetDoc, decoded into a file; returns its size
send(path)                      Send with the file as an attachment; returns the Message-ID
read_messages()                 GetMessages, with iteration over the messages; returns their number
get_messages()                  GetMessages, with a complete list of messages; returns their number
batches(batches, per)           GetUIDs, then GetMessagesByUIDs in order; returns the number of messages
sign(pdf)                       Save, Sign and GetDoc; returns the PDF
"""

from __future__ import annotations

import asyncio
import base64
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self

CONNECTIONS = 10  # the default of directsuite
MESSAGING = "/message-rest/api/message"
FOLDER = "INBOX"
USERNAME = "alice@direct.example.test"
PASSWORD = "a password"
TOKEN = "a token"
DOCUMENT = "00000000-0000-4000-8000-000000000000"
RECIPIENT = "bob@direct.example.test"
SUBJECT = "Laboratory result"
BODY = "Please see the attached report."
MEDIA_TYPE = "application/pdf"
FILENAME = "report.pdf"
SIGNATURE: dict[str, Any] = {
    "name": "Signature1",
    "widget": {"x": 72.0, "y": 72.0, "width": 200.0, "height": 50.0, "page": 1},
    "reason": "Approved",
    "gsName": "Alice",
    "timezone": "UTC",
    "GMTOffset": 0,
}


class CannotError(Exception):
    """A client cannot do a work, with the reason."""


class Client:
    """The base class of the clients of the server at a scenario's base URL. It opens and closes their resource."""

    _resource: Any
    _connections: int

    async def __aenter__(self) -> Self:
        await self._resource.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._resource.__aexit__(*error)

    async def read_messages(self) -> int:
        raise NotImplementedError

    async def get_messages(self) -> int:
        return await self.read_messages()  # clients without streams

    async def list_uids(self, folder: str) -> Sequence[int]:
        raise NotImplementedError

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        raise NotImplementedError

    async def batches(self, batches: int, per: int) -> int:
        folder = name_folder(batches * per)
        fetch = functools.partial(self.fetch_messages, folder)
        return await read_in_order(await self.list_uids(folder), per, fetch, 2 * self._connections)


class GeneratedClient(Client):
    """The works of generated clients that differ only in names. The contents of attachments remain base64 text."""

    _models: Any
    _authentication: Any
    _type_field = "type"

    async def _call(self, operation: str, *segments: str, body: object) -> Any:
        """Call an operation of the messaging service, named as in Python."""
        raise NotImplementedError

    async def message_count(self) -> int:
        count: int = (await self._call("get_message_count", FOLDER, body=self._authentication)).count
        return count

    async def send(self, path: Path) -> str:
        content = base64.b64encode(path.read_bytes()).decode()
        recipient = self._models.Recipient(email=RECIPIENT, **{self._type_field: self._models.RecipientType.TO})
        message = self._models.Message(
            sender=USERNAME,
            subject=SUBJECT,
            body=BODY,
            html_body=False,
            recipients=[recipient],
            attachment_list=[self._models.Attachment(content=content, content_type=MEDIA_TYPE, filename=FILENAME)],
        )
        request = self._models.SendRequest(authentication=self._authentication, message=message)
        smtp_id: str = (await self._call("send", body=request)).smtp_id
        return smtp_id

    async def read_messages(self) -> int:
        response = await self._call("get_messages", FOLDER, body=self._authentication)
        return sum(1 for _ in response.messages)

    async def list_uids(self, folder: str) -> Sequence[int]:
        uids: list[int] = (await self._call("get_uids", folder, body=self._authentication)).uids
        return uids

    async def fetch_messages(self, folder: str, uids: list[int]) -> Sequence[object]:
        request = self._models.UidsRequestType(auth=self._authentication, uids=uids)
        messages: list[object] = (await self._call("get_messages_by_uids", folder, body=request)).messages
        return messages


def name_folder(messages: int) -> str:
    """Return the folder for which the server's GetUIDs returns the given number of messages."""
    return f"{FOLDER}.{messages}"


def parse_received_bytes(description: str | None) -> int:
    """Return the number of bytes that the server received, from the description of a stored document."""
    return int((description or "0").split()[0])


async def read_in_order(
    uids: Sequence[int], per: int, fetch: Callable[[list[int]], Coroutine[Any, Any, Sequence[object]]], window: int
) -> int:
    """Fetch messages in batches with up to `window` simultaneous requests. Return the number of messages."""
    waiting: deque[asyncio.Task[Sequence[object]]] = deque()
    count = 0
    try:
        for start in range(0, len(uids), per):
            waiting.append(asyncio.create_task(fetch(list(uids[start : start + per]))))
            if len(waiting) == window:
                count += len(await waiting.popleft())
        while waiting:
            count += len(await waiting.popleft())
    finally:
        for task in waiting:
            task.cancel()
    return count
