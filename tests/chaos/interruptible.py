"""Calls of every kind, to be ended from outside at each of their waits, and the services that answer them."""

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
from tests.core import plays
from tests.core.opened import ALICE, MESSAGE, PASSWORD, PDF, SESSION
from tests.core.scripted_server import Exchange, Play, ScriptedServer
from tests.core.virtual_time import turns

UIDS = list(range(1, 8))
LARGE = 300_000
"""Bytes that are not written without giving way."""
_PDF = ("pdf/doc", "pdf/doc/flatten/pull")


class Services:
    """Answers like all four services. A message that was sent is seen from the second look on.

    Counts carry the number of their request: an answer meant for another call would show.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._mark: str | None = None
        self._looks = 0

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        path = exchange.request.path
        content = base64.b64encode(PDF) if path in _PDF else json.dumps(self._document(path)).encode()
        with contextlib.suppress(ValueError):  # the caller left in the middle of a chunked body
            await self.acted(_in_pieces(content))(exchange)

    def acted(self, then: Play) -> Play:
        """A request that is acted upon, whatever becomes of its answer."""

        async def play(exchange: Exchange) -> None:
            await then(exchange)
            if exchange.request.path == "SendWithHeader":
                [header] = exchange.request.document["message"]["headers"]
                self._mark, self._looks = header["value"], 0

        return play

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


def _in_pieces(content: bytes) -> Play:
    """An answer whose head and halves come one after the other, in no time."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        middle = len(content) // 8 * 4
        for piece in (plays.head(200, len(content)), content[:middle], content[middle:]):
            await exchange.write(piece)
            await turns(4)

    return play


@attrs.define(kw_only=True)
class Stage:
    """What a call is made on. others: callers beside it. uploads: what became of each of the sources that were read.

    fetches: how often a token was asked for.
    """

    server: ScriptedServer
    folder: Path
    told: list[Event] = attrs.Factory(list[Event])
    others: list[asyncio.Task[Any]] = attrs.Factory(list[asyncio.Task[Any]])
    uploads: list[str] = attrs.Factory(list[str])
    sources: list[AsyncGenerator[bytes]] = attrs.Factory(list[AsyncGenerator[bytes]])
    fetches: int = 0
    _suite: ds.DirectSuite | None = None

    @property
    def suite(self) -> ds.DirectSuite:
        """The open suite."""
        assert self._suite is not None
        return self._suite

    @suite.setter
    def suite(self, suite: ds.DirectSuite) -> None:
        self._suite = suite

    @property
    def box(self) -> ds.Mailbox:
        """Alice's mailbox."""
        return self.suite.mailbox(ALICE, PASSWORD)

    async def token(self) -> str:
        """A token, a second after it was asked for."""
        self.fetches += 1
        number = self.fetches
        await asyncio.sleep(1)
        return f"token-{number}"

    def pdf(self) -> AsyncGenerator[bytes]:
        """A PDF in pieces, as it is made; kept here, so that nothing closes it but the one who reads it."""
        self.sources.append(self._pdf())
        return self.sources[-1]

    async def _pdf(self) -> AsyncGenerator[bytes]:
        self.uploads.append("open")
        place = len(self.uploads) - 1
        try:
            yield PDF
            for _ in range(6):
                yield bytes(LARGE)
            await asyncio.sleep(0.5)
            yield bytes(LARGE)
        finally:
            self.uploads[place] = "closed"

    def beside(self, caller: Coroutine[Any, Any, Any]) -> None:
        """Let another caller begin."""
        self.others.append(asyncio.create_task(caller))


Call = Callable[[Stage], Coroutine[Any, Any, object]]


async def _nothing(_: Stage) -> None:
    return None


@attrs.frozen(kw_only=True)
class Scene:
    """A call that may be ended at any of its waits.

    effect: its operation with side effects, and what the targets of such requests end in. script: what the services do
    before they answer. before: what comes before the call. pause: virtual seconds that the next call may have to wait.
    """

    name: str
    call: Call
    effect: tuple[str, str] | None = None
    script: Callable[[Services], list[Play]] = lambda _: []
    before: Callable[[Stage], Awaitable[None]] = _nothing
    settings: Mapping[str, Any] = MappingProxyType({})
    renewable: bool = False
    pause: float = 0.0

    def __str__(self) -> str:
        return self.name


async def _all_messages(messages: ds.Listing[ds.MessageDetail]) -> list[int | None]:
    async with messages:
        return [message.uid async for message in messages]


async def _attached(stage: Stage) -> object:
    file = stage.folder / "report.pdf"
    file.write_bytes(PDF * 100)
    message = attrs.evolve(MESSAGE, attachment_list=[ds.Attachment.from_path(file)])
    return await stage.box.send(message)


async def _look(stage: Stage) -> object:
    return await stage.suite.registration.get_patient_address_by_username("direct.example.test", "ada")


async def _warm(stage: Stage) -> None:
    """Leave a kept-alive connection behind."""
    await stage.box.get_message_count()


async def _with_a_token(stage: Stage) -> None:
    await stage.suite.signing.get_doc_info("doc")


async def _others_want_the_token(stage: Stage) -> None:
    stage.beside(stage.suite.signing.get_doc_info("other"))


async def _others_want_the_session(stage: Stage) -> None:
    stage.beside(_look(stage))


async def _connection_is_taken(stage: Stage) -> None:
    """By one caller for a second; another comes after the call that is looked at."""
    stage.server.plays(plays.slow(1, stage.server.otherwise))
    stage.beside(stage.box.get_message_count())
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_later(0.5, lambda: stage.beside(stage.box.get_message_count()))


async def _place_is_taken(stage: Stage) -> None:
    await stage.box.get_message_count()


def _renewing(stage: Stage) -> Coroutine[Any, Any, object]:
    return stage.suite.signing.flatten("doc")


_SENDING_ONCE = "SendWithHeader", "/SendWithHeader"

SCENES = [
    Scene(name="safe", call=lambda stage: stage.box.get_message_count()),
    Scene(name="safe on a used connection", call=lambda stage: stage.box.get_message_count(), before=_warm),
    Scene(name="send", call=lambda stage: stage.box.send(MESSAGE), effect=("Send", "/Send")),
    Scene(
        name="send on a used connection",
        call=lambda stage: stage.box.send(MESSAGE),
        before=_warm,
        effect=("Send", "/Send"),
    ),
    Scene(name="send with an attached file", call=_attached, effect=("Send", "/Send")),
    Scene(
        name="flatten with a token to fetch",
        call=_renewing,
        before=_others_want_the_token,
        effect=("Flatten", "/flatten"),
        renewable=True,
        pause=1,
    ),
    Scene(name="registration that logs in", call=_look, before=_others_want_the_session),
    Scene(name="login", call=lambda stage: stage.suite.registration.login()),
    Scene(
        name="tried again",
        call=lambda stage: stage.box.get_message_count(),
        script=lambda _: [plays.reset, plays.truncated({"success": True, "count": 1})],
        settings={"retry": ds.RetryPolicy(attempts=4, wait=wait_fixed(1))},
    ),
    Scene(
        name="waits for a connection",
        call=lambda stage: stage.box.send(MESSAGE),
        before=_connection_is_taken,
        settings={"max_connections": 1},
        effect=("Send", "/Send"),
    ),
    Scene(
        name="waits for its place in the rate",
        call=lambda stage: stage.box.send(MESSAGE),
        before=_place_is_taken,
        settings={"requests_per_second": 1, "burst": 1},
        effect=("Send", "/Send"),
        pause=1,
    ),
    Scene(
        name="token refused",
        call=_renewing,
        before=_with_a_token,
        script=lambda _: [plays.answer(b"", 401)],
        effect=("Flatten", "/flatten"),
        renewable=True,
        pause=1,
    ),
    Scene(
        name="looks for proof",
        call=lambda stage: stage.box.send_once(MESSAGE, key="result-17"),
        script=lambda services: [services.acted(plays.reset)],
        effect=_SENDING_ONCE,
    ),
    Scene(name="messages in batches", call=lambda stage: _all_messages(stage.box.iter_messages(batch_size=2))),
    Scene(name="messages as a stream", call=lambda stage: _all_messages(stage.box.stream_messages())),
    Scene(name="download", call=lambda stage: stage.suite.signing.download("doc", stage.folder / "download.pdf")),
    Scene(
        name="flatten to a file",
        call=lambda stage: stage.suite.signing.flatten_and_pull("doc", destination=stage.folder / "flat.pdf"),
        effect=("FlattenAndPull", "/flatten/pull"),
    ),
    Scene(name="upload", call=lambda stage: stage.suite.signing.save(stage.pdf()), pause=0.5),
]
