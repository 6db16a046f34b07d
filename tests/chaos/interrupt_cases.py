"""Calls of every kind, which tests interrupt at each of their waits, and the services that respond to them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.events import Event
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, PDF, SESSION
from tests.core.virtual_time import yield_to_loop

UIDS = list(range(1, 8))
CHUNK_BYTES = 300_000
"""The maximum number of bytes written without yielding to the event loop."""
_PDF = ("pdf/doc", "pdf/doc/flatten/pull")


class FakeServices:
    """Responds like all four services.

    A sent message is listed from the second search on. Counts are the number of their request, so that responses to
    other calls are noticed.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._mark: str | None = None
        self._looks = 0

    async def __call__(self, exchange: Exchange) -> None:
        path = exchange.request.path
        content = base64.b64encode(PDF) if path in _PDF else json.dumps(self._document(path)).encode()
        with contextlib.suppress(ValueError):  # the caller left in the middle of a chunked body
            await self.apply_effect(_respond_in_chunks(content))(exchange)

    def apply_effect(self, then: Responder) -> Responder:
        async def responder(exchange: Exchange) -> None:
            await then(exchange)
            if exchange.request.path == "SendWithHeader":
                [header] = exchange.request.document["message"]["headers"]
                self._mark, self._looks = header["value"], 0

        return responder

    def _document(self, path: str) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"uid": uid} for uid in UIDS]
        if path.startswith("Search"):
            self._looks += 1
            mark = {"name": "X-Request-ID", "value": self._mark}
            messages = [{"uid": 1, "msgID": "<1@x>", "headers": [mark]}] if self._looks > 1 else []
        return {
            "success": True,
            "count": len(self._server.requests),
            "uids": UIDS,
            "messages": messages,
            "smtpId": "<1@direct.example.test>",
            "identifier": "doc",
            "documentDigest": "digest",
            "sessionId": SESSION,
            "patient": [],
            "signatures": [],
        }


def _respond_in_chunks(content: bytes) -> Responder:
    async def responder(exchange: Exchange) -> None:
        await exchange.read()
        middle = len(content) // 8 * 4
        for piece in (responses.make_head(200, len(content)), content[:middle], content[middle:]):
            await exchange.write(piece)
            await yield_to_loop(4)

    return responder


@attrs.define(kw_only=True)
class CallContext:
    """The objects of one call.

    other_tasks: parallel calls. upload_states: for each source, if it was read and closed. fetches: the number of
    token requests.
    """

    server: ScriptedServer
    folder: Path
    events: list[Event] = attrs.Factory(list[Event])
    other_tasks: list[asyncio.Task[Any]] = attrs.Factory(list[asyncio.Task[Any]])
    upload_states: list[str] = attrs.Factory(list[str])
    sources: list[AsyncGenerator[bytes]] = attrs.Factory(list[AsyncGenerator[bytes]])
    fetches: int = 0
    suite: ds.DirectSuite = attrs.field(init=False)

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, PASSWORD)

    async def token(self) -> str:
        self.fetches += 1
        number = self.fetches
        await asyncio.sleep(1)
        return f"token-{number}"

    def pdf(self) -> AsyncGenerator[bytes]:
        self.sources.append(self._pdf())
        return self.sources[-1]

    async def _pdf(self) -> AsyncGenerator[bytes]:
        self.upload_states.append("open")
        place = len(self.upload_states) - 1
        try:
            yield PDF
            for _ in range(6):
                yield bytes(CHUNK_BYTES)
            await asyncio.sleep(0.5)
            yield bytes(CHUNK_BYTES)
        finally:
            self.upload_states[place] = "closed"

    async def start_other_call(self, caller: Coroutine[Any, Any, Any]) -> None:
        self.other_tasks.append(asyncio.create_task(caller))


Call = Callable[[CallContext], Coroutine[Any, Any, object]]


async def _do_nothing(_: CallContext) -> None:
    return None


@attrs.frozen(kw_only=True)
class InterruptCase:
    """A call that can be interrupted at any await.

    effect: its operation with side effects and the end of its request target. script: responders used before the
    default one. before: a call made first. pause: the virtual seconds that the next call may have to wait.
    """

    name: str
    call: Call
    effect: tuple[str, str] | None = None
    script: Callable[[FakeServices], list[Responder]] = lambda _: []
    before: Callable[[CallContext], Awaitable[object]] = _do_nothing
    settings: Mapping[str, Any] = MappingProxyType({})
    renewable: bool = False
    pause: float = 0.0

    def __str__(self) -> str:
        return self.name


async def _list_uids(messages: ds.Listing[ds.MessageDetail]) -> list[int | None]:
    async with messages:
        return [message.uid async for message in messages]


async def _send_with_attachment(context: CallContext) -> object:
    file = context.folder / "report.pdf"
    file.write_bytes(PDF * 100)
    message = attrs.evolve(MESSAGE, attachment_list=[ds.Attachment.from_path(file)])
    return await context.box.send(message)


async def _get_patient_address(context: CallContext) -> object:
    return await context.suite.registration.get_patient_address_by_username("direct.example.test", "ada")


def _get_document(context: CallContext) -> Coroutine[Any, Any, object]:
    return context.suite.signing.get_doc_info("doc")


async def _occupy_connection(context: CallContext) -> None:
    context.server.enqueue(responses.delay(1, context.server.default_responder))
    await context.start_other_call(_count(context))
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_later(0.5, lambda: context.other_tasks.append(asyncio.create_task(_count(context))))


def _count(context: CallContext) -> Coroutine[Any, Any, object]:
    return context.box.get_message_count()


def _send(context: CallContext) -> Coroutine[Any, Any, object]:
    return context.box.send(MESSAGE)


def _flatten(context: CallContext) -> Coroutine[Any, Any, object]:
    return context.suite.signing.flatten("doc")


_SEND_EFFECT, _FLATTEN_EFFECT = ("Send", "/Send"), ("Flatten", "/flatten")
_SEND_ONCE_EFFECT = "SendWithHeader", "/SendWithHeader"

INTERRUPT_CASES = [
    InterruptCase(name="safe", call=_count),
    InterruptCase(name="safe on a used connection", call=_count, before=_count),
    InterruptCase(name="send", call=_send, effect=_SEND_EFFECT),
    InterruptCase(name="send on a used connection", call=_send, before=_count, effect=_SEND_EFFECT),
    InterruptCase(name="send with an attached file", call=_send_with_attachment, effect=_SEND_EFFECT),
    InterruptCase(
        name="flatten with a token to fetch",
        call=_flatten,
        before=lambda context: context.start_other_call(_get_document(context)),
        effect=_FLATTEN_EFFECT,
        renewable=True,
        pause=1,
    ),
    InterruptCase(
        name="registration that logs in",
        call=_get_patient_address,
        before=lambda context: context.start_other_call(_get_patient_address(context)),
    ),
    InterruptCase(name="login", call=lambda context: context.suite.registration.login()),
    InterruptCase(
        name="tried again",
        call=_count,
        script=lambda _: [responses.reset, responses.truncate({"success": True, "count": 1})],
        settings={"retry": ds.RetryPolicy(attempts=4, wait=wait_fixed(1))},
    ),
    InterruptCase(
        name="waits for a connection",
        call=_send,
        before=_occupy_connection,
        settings={"max_connections": 1},
        effect=_SEND_EFFECT,
    ),
    InterruptCase(
        name="waits for its place in the rate",
        call=_send,
        before=_count,
        settings={"requests_per_second": 1, "burst": 1},
        effect=_SEND_EFFECT,
        pause=1,
    ),
    InterruptCase(
        name="token refused",
        call=_flatten,
        before=_get_document,
        script=lambda _: [responses.respond(b"", 401)],
        effect=_FLATTEN_EFFECT,
        renewable=True,
        pause=1,
    ),
    InterruptCase(
        name="looks for proof",
        call=lambda context: context.box.send_once(MESSAGE, key="result-17"),
        script=lambda services: [services.apply_effect(responses.reset)],
        effect=_SEND_ONCE_EFFECT,
    ),
    InterruptCase(name="messages in batches", call=lambda context: _list_uids(context.box.iter_messages(batch_size=2))),
    InterruptCase(name="messages as a stream", call=lambda context: _list_uids(context.box.stream_messages())),
    InterruptCase(
        name="download", call=lambda context: context.suite.signing.download("doc", context.folder / "download.pdf")
    ),
    InterruptCase(
        name="flatten to a file",
        call=lambda context: context.suite.signing.flatten_and_pull("doc", destination=context.folder / "flat.pdf"),
        effect=("FlattenAndPull", "/flatten/pull"),
    ),
    InterruptCase(name="upload", call=lambda context: context.suite.signing.save(context.pdf()), pause=0.5),
]
