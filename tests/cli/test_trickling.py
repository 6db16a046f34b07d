"""The timeout of the settings limits commands that read a stream, however slowly bytes arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import directsuite as ds
from directsuite.cli.inbox import InboxListOptions, _find_newest
from directsuite.cli.mailbox import _fetch_metadata
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, catch_error, open_suite
from tests.core.virtual_time import VirtualTimeLoop

TRICKLE = responses.respond_in_chunks(
    b'{"success": true, "messages": [', *(part for _ in range(100) for part in (b" ", responses.Pause(1))), b"]}"
)


async def _list(box: ds.Mailbox) -> object:
    return await _find_newest(box, ["INBOX"], InboxListOptions())


async def _find(box: ds.Mailbox) -> object:
    return await _fetch_metadata(box, "INBOX", [1])


READERS: dict[str, Callable[[ds.Mailbox], Awaitable[object]]] = {"inbox list": _list, "inbox forward": _find}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_list_that_trickles_in_ends_with_the_timeout(read: Callable[[ds.Mailbox], Awaitable[object]]) -> None:
    async def run() -> ds.DirectSuiteError:
        async with ScriptedServer(TRICKLE) as server, open_suite(server, timeout=6) as suite:
            return await catch_error(read(suite.mailbox(ALICE, PASSWORD)))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        error = runner.run(run())
    assert type(error) is ds.DeadlineExceededError
    assert error.elapsed == pytest.approx(6)
