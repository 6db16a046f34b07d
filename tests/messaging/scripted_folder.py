"""A folder with messages of chosen sizes on the scripted server, which records the requested uids."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD


class ScriptedFolder:
    """Responds to GetUIDs and to batches by uid; `batches` are the uids of each request.

    uids: the uids, or their number. vanished: those without a message. size: the bytes of the body of the message with
    this uid. latency: the seconds until a response. instead: responders used for the batch with this
    uid, each once.
    """

    def __init__(
        self,
        server: ScriptedServer,
        uids: int | Sequence[int],
        *,
        vanished: Collection[int] = (),
        size: Callable[[int], int] = lambda _: 10,
        latency: Callable[[list[int]], float] = lambda _: 1.0,
        instead: Mapping[int, list[Responder]] | None = None,
    ) -> None:
        self.batches: list[list[int]] = []
        self.in_progress = 0
        self.bytes_answered = 0
        self._uids = list(range(uids) if isinstance(uids, int) else uids)
        self._vanished = vanished
        self._size = size
        self._latency = latency
        self._instead = {uid: list(others) for uid, others in (instead or {}).items()}
        server.default_responder = self._respond

    async def _respond(self, exchange: Exchange) -> None:
        if "/GetUIDs/" in exchange.request.target:
            await responses.respond({"success": True, "uids": self._uids})(exchange)
            return
        await exchange.read()
        uids: list[int] = exchange.request.document["uids"]
        exchange.request.headers["content-length"] = "0"  # it was read
        self.batches.append(uids)
        self.in_progress += 1
        try:
            other = next((responses for uid, responses in self._instead.items() if uid in uids and responses), None)
            responder = responses.respond(self._make_document(uids)) if other is None else other.pop(0)
            await responses.delay(self._latency(uids), responder)(exchange)
        finally:
            self.in_progress -= 1

    def _make_document(self, uids: list[int]) -> bytes:
        messages = [{"uid": uid, "body": "x" * self._size(uid)} for uid in reversed(uids) if uid not in self._vanished]
        answer = json.dumps({"success": True, "messages": messages}).encode()
        self.bytes_answered += len(answer)
        return answer


async def read_listing(
    suite: ds.DirectSuite, method: str = "iter_messages", **options: int | None
) -> tuple[list[int | None], ds.DirectSuiteError | None]:
    """Return the uids of a listing, and the error that ended it."""
    seen: list[int | None] = []
    try:
        async with getattr(suite.mailbox(ALICE, PASSWORD), method)(**options) as messages:
            async for message in messages:
                seen.append(message.uid)  # noqa: PERF401  a comprehension would lose them
    except ds.DirectSuiteError as failure:
        return seen, failure
    return seen, None
