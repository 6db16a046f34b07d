"""What every client does, in one set of names, and with whose credentials."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from pathlib import Path

CONNECTIONS = 10  # directsuite's default, and so everybody's here
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
    """This client has no way to do this work; its text says why."""


class Client(Protocol):
    """Built from a scenario's base URL and opened by `async with`. A method may raise CannotError."""

    def __init__(self, base_url: str, *, connections: int = CONNECTIONS) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def message_count(self) -> int:
        """GetMessageCount of INBOX."""
        ...

    def metadata(self, body: bytes) -> int:
        """Decode an answer of GetMessageMetaData into the client's own models; how many messages it has."""
        ...

    def messages(self, body: bytes) -> int:
        """Decode an answer of GetMessages, with attachments, into the client's own models; how many messages it has."""
        ...

    async def upload(self, path: Path) -> int:
        """Save; how many bytes of body the server got."""
        ...

    async def download(self, path: Path) -> int:
        """GetDoc, decoded into a file; how many bytes that has."""
        ...

    async def send(self, path: Path) -> str:
        """Send a message with this file as attachment; its Message-ID."""
        ...

    async def read_messages(self) -> int:
        """GetMessages, each message visited; how many there were."""
        ...

    async def batches(self, batches: int, per: int) -> int:
        """A folder of so many batches: GetUIDs, then GetMessagesByUIDs, in order; how many messages there were."""
        ...

    async def sign(self, pdf: bytes) -> bytes:
        """Save, Sign and GetDoc; the PDF."""
        ...


def name_folder(messages: int) -> str:
    """A folder of so many messages: the server's GetUIDs goes by its name."""
    return f"{FOLDER}.{messages}"


def parse_received_bytes(description: str | None) -> int:
    """The bytes that the server got, as it describes a stored document."""
    return int((description or "0").split()[0])
