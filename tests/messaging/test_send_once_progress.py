"""`send_once(progress=…)` reports each send as `send` does, and no verification."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, open_suite

CONTENT = bytes(range(256)) * 4_000
SENT = {"success": True, "code": 0, "smtpId": "<2@direct.example.test>"}
ANOTHERS_MARK = {
    "success": True,
    "folders": [],
    "messages": [{"uid": 1, "msgID": "<1@x>", "headers": [{"name": "X-Request-ID", "value": "another"}]}],
}


class ProgressRecorder(list[tuple[int, int | None]]):
    """Records the reported progress."""

    def __call__(self, done: int, total: int | None) -> None:
        self.append((done, total))


def make_message() -> ds.Message:
    return ds.Message(
        recipients=[ds.Recipient("bob@direct.example.test")],
        attachment_list=[ds.Attachment.from_file(io.BytesIO(CONTENT), filename="scan.pdf")],
    )


async def looks_answer(exchange: Exchange) -> None:
    await responses.respond(SENT if exchange.request.method == "PUT" else ANOTHERS_MARK)(exchange)


@pytest.mark.parametrize("since", [None, datetime.now(UTC)], ids=["first attempt", "after a crash"])
async def test_it_rises_to_the_total(server: ScriptedServer, since: datetime | None) -> None:
    reported = ProgressRecorder()
    server.default_responder = looks_answer
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await box.send_once(make_message(), key="k", since=since, progress=reported)
    done = [done for done, _ in reported]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, len(CONTENT))
    assert {total for _, total in reported} == {len(CONTENT)}


async def test_it_begins_again_with_a_second_send(server: ScriptedServer) -> None:
    reported = ProgressRecorder()
    server.enqueue(responses.reset)
    server.default_responder = looks_answer
    async with open_suite(server) as suite:
        await suite.mailbox(ALICE, PASSWORD).send_once(make_message(), resend=True, settle=3.0, progress=reported)
    assert len(server.find_requests("SendWithHeader")) == 2
    assert [done for done, _ in reported].count(0) == 2
    assert reported[-1] == (len(CONTENT), len(CONTENT))


async def test_async_progress_callback_is_rejected_before_any_request(server: ScriptedServer) -> None:
    async def never(_done: int, _total: int | None) -> None: ...

    async with open_suite(server) as suite:
        with pytest.raises(ds.InvalidArgumentError, match="plain function"):
            await suite.mailbox(ALICE, PASSWORD).send_once(
                make_message(),
                key="k",
                since=datetime.now(UTC),
                progress=never,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            )
    assert server.requests == []


async def test_what_it_raises_comes_out(server: ScriptedServer) -> None:
    def full(done: int, _total: int | None) -> None:
        if done:
            raise LookupError("nobody is told any more")

    server.default_responder = looks_answer
    async with open_suite(server) as suite:
        with pytest.raises(LookupError, match="nobody is told"):
            await suite.mailbox(ALICE, PASSWORD).send_once(make_message(), progress=full)
    assert len(server.requests) <= 1
