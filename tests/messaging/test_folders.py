"""Complete folders in batches, over real sockets: memory, errors at their position, retries, loops that end early."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.operation import Service
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, CONNECTIONS, PASSWORD, assert_no_leaks, open_suite
from tests.core.virtual_time import VirtualTimeLoop, measure_elapsed, yield_to_loop
from tests.examples import scale_examples

from .scripted_folder import ScriptedFolder, read_listing

KB = 1024
REJECTION = responses.respond({"success": False, "code": 3, "message": "no"})
METHODS = ["iter_messages", "iter_raw"]


async def test_what_was_read_makes_room(server: ScriptedServer) -> None:
    ScriptedFolder(server, 800, size=lambda _: KB)  # a hundred batches, ten times what fits in memory
    async with open_suite(server) as suite:
        assert await measure_elapsed(read_listing(suite, batch_size=8, batch_bytes=9 * KB)) <= 100 / CONNECTIONS + 1


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("connections", [1, CONNECTIONS])
async def test_slow_reader_stops_the_fetching(server: ScriptedServer, method: str, connections: int) -> None:
    folder = ScriptedFolder(server, 1000)
    async with (
        open_suite(server, max_connections=connections) as suite,
        getattr(suite.mailbox(ALICE, PASSWORD), method)(batch_size=4) as messages,
    ):
        await anext(messages)
        await asyncio.sleep(1000)
        assert len(folder.batches) == 2 * connections + 1
        assert folder.in_progress == 0


@pytest.mark.parametrize("method", METHODS)
async def test_leaving_early_ends_the_requests_in_progress(server: ScriptedServer, method: str) -> None:
    folder = ScriptedFolder(server, 100, latency=lambda uids: 0.0 if 0 in uids else 1000.0)
    async with open_suite(server) as suite:
        async with getattr(suite.mailbox(ALICE, PASSWORD), method)(batch_size=1) as messages:
            await anext(messages)
            await yield_to_loop()
            assert folder.in_progress > 0
        assert_no_leaks(suite)
        assert [message async for message in messages] == []


@pytest.mark.parametrize("method", METHODS)
async def test_empty_folder_asks_for_no_batch(server: ScriptedServer, method: str) -> None:
    folder = ScriptedFolder(server, 0)
    async with open_suite(server) as suite:
        assert await read_listing(suite, method) == ([], None)
    assert folder.batches == []


@pytest.mark.parametrize("method", METHODS)
async def test_message_that_a_response_contains_twice_is_yielded_once(server: ScriptedServer, method: str) -> None:
    twice = {"success": True, "messages": [{"uid": uid} for uid in (1, 0, 1)]}
    ScriptedFolder(server, 2, instead={0: [responses.respond(twice)]})
    async with open_suite(server) as suite:
        assert await read_listing(suite, method) == ([0, 1], None)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=scale_examples(30))
@given(uids=st.sets(st.integers(0, 2**63 - 1), max_size=30), batch_size=st.integers(1, 40), data=st.data())
def test_every_existing_message_is_yielded_once_by_uid(
    method: str, uids: set[int], batch_size: int, data: st.DataObject
) -> None:
    vanished = data.draw(st.sets(st.sampled_from(sorted(uids)))) if uids else set[int]()
    shuffled = data.draw(st.permutations(sorted(uids)))

    async def main() -> tuple[list[int | None], ds.DirectSuiteError | None]:
        async with ScriptedServer(responses.reset) as server, open_suite(server) as suite:
            ScriptedFolder(server, shuffled, vanished=vanished)
            return await read_listing(suite, method, batch_size=batch_size)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) == (sorted(uids - vanished), None)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(
    "spoilt", [responses.respond(b'{"success": true, "mess'), responses.truncate({"success": True}), responses.reset]
)
async def test_malformed_batch_is_tried_again_inside_its_call(server: ScriptedServer, spoilt: Responder) -> None:
    folder = ScriptedFolder(server, 30, instead={12: [spoilt]})
    async with open_suite(server) as suite:
        assert await read_listing(suite, batch_size=10) == (list(range(30)), None)
    assert len([batch for batch in folder.batches if 12 in batch]) == 2


async def test_batch_that_stays_malformed_is_a_typed_error_at_its_place(server: ScriptedServer) -> None:
    ScriptedFolder(server, 30, instead={12: [responses.respond(b"{")] * 2})
    async with open_suite(server) as suite:
        seen, failure = await read_listing(suite, batch_size=5)
    assert seen == list(range(10))
    assert isinstance(failure, ds.ResponseDecodeError)
    assert failure.attempts == 2


async def test_nothing_is_fetched_after_a_rejection_and_what_is_in_progress_ends(server: ScriptedServer) -> None:
    folder = ScriptedFolder(server, 1000, latency=lambda uids: 1.0 if 3 in uids else 15.0, instead={3: [REJECTION]})
    async with open_suite(server) as suite:
        reading = asyncio.create_task(read_listing(suite, batch_size=1))
        await asyncio.sleep(10)
        await yield_to_loop()
        free_slots = suite._transport._endpoints[Service.MESSAGING].limits._free_slots
        assert CONNECTIONS - free_slots == 3  # the messages before the rejection, which the reader has not received
        asked = len(folder.batches)
        seen, failure = await reading
        assert_no_leaks(suite)
    assert seen == [0, 1, 2]
    assert type(failure) is ds.ServiceError
    assert failure.operation == "GetMessagesByUIDs"
    assert len(folder.batches) == asked


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("name", ["batch_size", "batch_bytes"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [0, -1, True, 2.0])
async def test_invalid_number_is_rejected_immediately(
    server: ScriptedServer, method: str, name: str, number: object
) -> None:
    async with open_suite(server) as suite:
        with pytest.raises(ds.InvalidArgumentError) as caught:
            getattr(suite.mailbox(ALICE, PASSWORD), method)(**{name: number})
    assert caught.value.parameter == name
    assert server.requests == []


@pytest.mark.wide
@settings(max_examples=scale_examples(60))
@given(
    count=st.integers(0, 60),
    batch_size=st.integers(1, 20),
    batch_bytes=st.none() | st.integers(1, 4 * KB),
    connections=st.integers(1, 6),
    chance=st.randoms(use_true_random=False),
    refused=st.none() | st.integers(0, 59),
    leaves_after=st.none() | st.integers(1, 60),
)
def test_each_message_is_yielded_once_in_order_until_error_or_break(
    count: int,
    batch_size: int,
    batch_bytes: int | None,
    connections: int,
    chance: Random,
    refused: int | None,
    leaves_after: int | None,
) -> None:
    seen: list[int | None] = []
    failure: ds.DirectSuiteError | None = None

    async def read(suite: ds.DirectSuite) -> None:
        nonlocal failure
        box = suite.mailbox(ALICE, PASSWORD)
        try:
            async with box.iter_messages(batch_size=batch_size, batch_bytes=batch_bytes) as messages:
                async for message in messages:
                    seen.append(message.uid)
                    await asyncio.sleep(chance.choice([0, 0, 3]))
                    if len(seen) == leaves_after:
                        return
        except ds.DirectSuiteError as error:
            failure = error

    async def main() -> list[list[int]]:
        async with ScriptedServer(responses.reset) as server:
            folder = ScriptedFolder(
                server,
                count,
                size=lambda _: chance.choice([10, 100, KB]),
                latency=lambda _: chance.choice([0.0, 1.0, 5.0]),
                instead={} if refused is None else {refused: [REJECTION]},
            )
            async with open_suite(server, max_connections=connections) as suite:
                await read(suite)
            assert server.busiest <= connections
            return folder.batches

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        asked = [uid for batch in runner.run(main()) for uid in batch]
    assert len(asked) == len(set(asked))
    end = count if leaves_after is None else min(count, leaves_after)
    assert seen == list(range(len(seen)))
    if failure is None:
        assert len(seen) == end
    else:
        assert type(failure) is ds.ServiceError
        assert refused is not None
        assert refused - batch_size < len(seen) <= refused
