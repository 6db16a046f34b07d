"""A messaging service on loopback whose responses a test can change, and a client that synchronises with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import attrs
from aiohttp import web

import directsuite as ds
from directsuite.sync import Change, Key, Kind, MailboxProgress, SqliteStore, Synchronizer
from tests.integration.scenario import SleepDrivenClock

ADDRESS = "alice@direct.example.test"
RECEIVED_MS = 1_700_000_000_123

Document = dict[str, Any]


def make_message(folder: str, uid: int, **fields: Any) -> Document:
    return {
        "uid": uid,
        "msgnum": uid,
        "msgID": f"<{folder}.{uid}@x>",
        "folder": folder,
        "size": 100 + uid,
        "sentDate": RECEIVED_MS + 5000 * uid,
        "receivedDate": RECEIVED_MS + 5000 * uid,
        "sender": "bob@direct.example.test",
        "subject": f"{folder} {uid}",
        "body": f"Message {uid} of {folder}",
        "htmlBody": False,
        "recipients": [{"email": ADDRESS, "type": "TO"}],
        "headers": [],
        "attachments": [],
        **fields,
    }


def get_subject(change: Change) -> str | None:
    return None if change.message is None else change.message.subject


@attrs.define
class RecordingSink:
    changes: list[Change] = attrs.field(factory=list[Change])
    accept: Callable[[Change], bool] = lambda _: True
    error: Exception | None = None

    async def __call__(self, changes: Sequence[Change]) -> None:
        if self.error is not None:
            raise self.error
        if not all(map(self.accept, changes)):
            raise ValueError("rejected")
        self.changes += changes

    @property
    def messages(self) -> set[tuple[str, int]]:
        keys = set[Key]()
        for change in self.changes:
            keys -= {change.previous}
            keys = keys - {change.key} if change.kind is Kind.GONE else keys | {change.key}
        return {(key.folder, key.uid) for key in keys}

    @property
    def subjects(self) -> list[tuple[str, str | None]]:
        return [(each.kind, get_subject(each)) for each in self.changes]

    @property
    def kinds(self) -> list[Kind]:
        return [each.kind for each in self.changes]


@attrs.define
class MailScenario:
    """A service with folders of messages by uid, and the synchronisation of its mailbox.

    response_changes: by operation, a function of folder and document that returns another document, or a body.
    names: of the folders to synchronise; None for all. ignores_case: of the names of folders.
    """

    store: SqliteStore
    clock: SleepDrivenClock = attrs.field(factory=SleepDrivenClock)
    suite: ds.DirectSuite = attrs.field(init=False)
    url: str = ""
    sink: RecordingSink = attrs.field(factory=RecordingSink)
    now: float = 1_800_000_000.0
    names: tuple[str, ...] | None = None
    ignores_case: bool = False
    folders: dict[str, dict[int, Document]] = attrs.field(factory=lambda: {"INBOX": dict[int, Document]()})
    response_changes: dict[str, Callable[[str, Document], Document | bytes]] = attrs.field(
        factory=dict[str, Callable[[str, Document], Document | bytes]]
    )
    requested_operations: list[str] = attrs.field(factory=list[str])
    fetched_uids: list[int] = attrs.field(factory=list[int])

    def add(self, folder: str, *uids: int, **fields: Any) -> None:
        box = self.folders.setdefault(folder, {})
        box.update({uid: make_message(folder, uid, **fields) for uid in uids})

    async def begin(self, *uids: int) -> None:
        """Synchronise these messages of INBOX."""
        self.add("INBOX", *uids)
        await self.synchronise()

    async def respond(self, request: web.Request) -> web.Response:
        operation, *segments = [unquote(each) for each in request.raw_path.strip("/").split("/")]
        folder, body = segments[0], json.loads(await request.read())
        self.requested_operations.append(operation)
        document = self._respond(operation, folder, segments[1:], body)
        changed = self.response_changes[operation](folder, document) if operation in self.response_changes else document
        content = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return web.Response(body=content, content_type="application/json")

    def _respond(self, operation: str, folder: str, arguments: list[str], body: Document) -> Document:
        done: Document = {"success": True, "code": 0, "message": ""}
        if operation == "GetFolders":
            return done | {"folders": list(self.folders)}
        if self.ignores_case:
            folder = next((name for name in self.folders if name.lower() == folder.lower()), folder)
        if folder not in self.folders:
            return {"success": False, "code": 3, "message": "no such folder"}
        box = self.folders[folder]
        metadata: list[Document] = [{**each, "body": None, "attachments": []} for each in box.values()]
        match operation:
            case "GetUIDs":
                return done | {"uids": list(box)}
            case "GetMessageCount":
                return done | {"count": len(box)}
            case "GetMessagesByUIDs":
                self.fetched_uids += body["uids"]
                return done | {"messages": [box[uid] for uid in body["uids"] if uid in box]}
            case "GetMessageMetaData":
                return done | {"messages": metadata}
            case "SearchMessagesMetadataByReceivedDate":
                begin, end = map(int, arguments)
                return done | {"messages": [each for each in metadata if begin <= each["receivedDate"] <= end]}
            case _:
                raise AssertionError(operation)

    async def synchronise(self) -> MailboxProgress:
        return (await self.make_synchronizer().once())[ADDRESS]

    def make_synchronizer(self) -> Synchronizer:
        return Synchronizer(
            self.suite,
            self.store,
            [ADDRESS],
            get_password,
            deliver=self.sink,
            folders=self.names,
            clock=self.clock,
            now=lambda: self.now,
        )


async def get_password(_: str) -> str:
    return "password"


@asynccontextmanager
async def open_mail(store: SqliteStore) -> AsyncGenerator[MailScenario]:
    mail = MailScenario(store)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", mail.respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    mail.url = f"http://{host}:{port}"
    settings = ds.Settings(message_url=mail.url, requests_per_second=100_000.0, burst=100_000)
    try:
        async with ds.DirectSuite(settings, clock=mail.clock) as mail.suite:
            yield mail
            await asyncio.sleep(0)
    finally:
        await runner.cleanup()
