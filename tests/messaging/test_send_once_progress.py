"""`send_once(progress=…)`: told of each send as `send` is, and of no look."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

import directsuite as ds
from tests.core import plays
from tests.core.opened import ALICE, PASSWORD, opened
from tests.core.scripted_server import Exchange, ScriptedServer

CONTENT = bytes(range(256)) * 4_000
SENT = {"success": True, "code": 0, "smtpId": "<2@direct.example.test>"}
ANOTHERS_MARK = {
    "success": True,
    "folders": [],
    "messages": [{"uid": 1, "msgID": "<1@x>", "headers": [{"name": "X-Request-ID", "value": "another"}]}],
}


class Told(list[tuple[int, int | None]]):
    """Keeps what it was told."""

    def __call__(self, done: int, total: int | None) -> None:
        self.append((done, total))


def letter() -> ds.Message:
    return ds.Message(
        recipients=[ds.Recipient("bob@direct.example.test")],
        attachment_list=[ds.Attachment.from_file(io.BytesIO(CONTENT), filename="scan.pdf")],
    )


async def looks_answer(exchange: Exchange) -> None:
    """A send is answered, a look sees another's mark."""
    await plays.answer(SENT if exchange.request.method == "PUT" else ANOTHERS_MARK)(exchange)


@pytest.mark.parametrize("since", [None, datetime.now(UTC)], ids=["first attempt", "after a crash"])
async def test_it_rises_to_the_total(server: ScriptedServer, since: datetime | None) -> None:
    told = Told()
    server.otherwise = looks_answer
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await box.send_once(letter(), key="k", since=since, progress=told)
    done = [done for done, _ in told]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, len(CONTENT))
    assert {total for _, total in told} == {len(CONTENT)}


async def test_it_begins_again_with_a_second_send(server: ScriptedServer) -> None:
    told = Told()
    server.plays(plays.reset)
    server.otherwise = looks_answer
    async with opened(server) as suite:
        await suite.mailbox(ALICE, PASSWORD).send_once(letter(), resend=True, settle=3.0, progress=told)
    assert len(server.to("SendWithHeader")) == 2
    assert [done for done, _ in told].count(0) == 2
    assert told[-1] == (len(CONTENT), len(CONTENT))


async def test_one_that_nobody_would_await_is_refused_before_anything_is_asked(server: ScriptedServer) -> None:
    async def never(_done: int, _total: int | None) -> None:
        """Not a plain function."""

    async with opened(server) as suite:
        with pytest.raises(ds.InvalidArgumentError, match="plain function"):
            await suite.mailbox(ALICE, PASSWORD).send_once(
                letter(),
                key="k",
                since=datetime.now(UTC),
                progress=never,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            )
    assert server.requests == []


async def test_what_it_raises_comes_out(server: ScriptedServer) -> None:
    def full(done: int, _total: int | None) -> None:
        if done:
            raise LookupError("nobody is told any more")

    server.otherwise = looks_answer
    async with opened(server) as suite:
        with pytest.raises(LookupError, match="nobody is told"):
            await suite.mailbox(ALICE, PASSWORD).send_once(letter(), progress=full)
    assert len(server.requests) <= 1
