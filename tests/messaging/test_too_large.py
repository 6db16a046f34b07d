"""Batches larger than a response may be are requested again in halves, down to a message that is too large alone."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, assert_no_leaks, open_suite
from tests.core.virtual_time import VirtualTimeLoop
from tests.examples import scale_examples

from .scripted_folder import ScriptedFolder, read_listing

pytestmark = pytest.mark.wide

KB = 1024
LIMIT = 64 * KB
FRAME = 1 * KB
"""More bytes than a response has in addition to the bodies of a few messages."""


async def test_batch_is_halved_until_it_fits(server: ScriptedServer) -> None:
    folder = ScriptedFolder(server, 8, size=lambda uid: LIMIT // 2)
    async with open_suite(server, max_response_bytes=LIMIT, max_connections=1) as suite:
        assert await read_listing(suite) == (list(range(8)), None)
    asked = [(batch[0], len(batch)) for batch in folder.batches if batch[0] == 0]
    assert asked[0] == (0, 8)
    assert asked[-1] == (0, 1)
    assert all(after <= before // 2 for (_, before), (_, after) in itertools.pairwise(asked))


@pytest.mark.parametrize("method", ["iter_messages", "iter_raw"])
async def test_message_that_is_too_large_alone_is_an_error_at_its_place(server: ScriptedServer, method: str) -> None:
    folder = ScriptedFolder(server, 40, size=lambda uid: 2 * LIMIT if uid == 17 else 10)
    async with open_suite(server, max_response_bytes=LIMIT) as suite:
        seen, failure = await read_listing(suite, method=method)
        assert_no_leaks(suite)
    assert seen == list(range(17))
    assert isinstance(failure, ds.ResponseDecodeError)
    assert failure.too_large
    assert "uid 17 is too large" in str(failure)
    assert "raise max_response_bytes" in str(failure)
    assert failure.attempts == 1
    assert failure.__context__ is None
    assert [17] in folder.batches


async def test_batches_requested_again_keep_within_memory_and_window(server: ScriptedServer) -> None:
    folder = ScriptedFolder(server, 200, size=lambda uid: 10 if uid < 8 else 8 * KB)
    async with open_suite(server, max_response_bytes=LIMIT, max_connections=2) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        async with box.iter_messages(batch_bytes=32 * KB) as messages:
            async for message in messages:
                if message.uid == 60:
                    break
            await asyncio.sleep(1000)  # a slow reader, with all the time to fetch ahead
            fitting = itertools.takewhile(lambda batch: len(batch) * 8 * KB <= LIMIT, reversed(folder.batches))
            ahead = max(batch[-1] for batch in fitting) - 60
            assert 0 < ahead * 8 * KB <= 2 * 2 * 32 * KB
            assert [message.uid async for message in messages] == list(range(61, 200))


async def test_error_thrown_into_a_listing_ends_it(server: ScriptedServer) -> None:
    ScriptedFolder(server, 30)
    thrown = ds.ResponseDecodeError("of another listing", too_large=True)
    async with open_suite(server) as suite, suite.mailbox(ALICE, PASSWORD).iter_messages() as messages:
        await anext(messages)
        with pytest.raises(ds.ResponseDecodeError) as caught:
            await messages.athrow(thrown)
    assert caught.value is thrown


SIZES = st.lists(st.sampled_from([10, 10, KB, 8 * KB, 30 * KB, LIMIT - FRAME]), max_size=60)


@settings(max_examples=scale_examples(60))
@given(
    sizes=SIZES,
    batch_size=st.integers(1, 50),
    batch_bytes=st.none() | st.integers(1, 4 * LIMIT),
    connections=st.integers(1, 6),
    too_large=st.none() | st.integers(0, 59),
)
@example(sizes=[10] * 16 + [30 * KB] * 44, batch_size=50, batch_bytes=None, connections=6, too_large=None)
def test_each_message_is_yielded_once_up_to_one_too_large(
    sizes: list[int], batch_size: int, batch_bytes: int | None, connections: int, too_large: int | None
) -> None:
    if too_large is not None and too_large < len(sizes):
        sizes[too_large] = 2 * LIMIT

    async def main() -> tuple[list[int | None], ds.DirectSuiteError | None]:
        async with ScriptedServer(responses.reset) as server:
            ScriptedFolder(server, len(sizes), size=sizes.__getitem__, latency=lambda uids: float(uids[0] % 3))
            async with open_suite(server, max_connections=connections, max_response_bytes=LIMIT) as suite:
                return await read_listing(suite, batch_size=batch_size, batch_bytes=batch_bytes)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        seen, failure = runner.run(main())
    end = next((uid for uid, size in enumerate(sizes) if size > LIMIT), len(sizes))
    assert seen == list(range(end))
    assert (failure is None) == (end == len(sizes))
    assert failure is None or (isinstance(failure, ds.ResponseDecodeError) and failure.too_large)
