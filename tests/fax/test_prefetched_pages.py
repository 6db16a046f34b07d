"""One page of faxes is fetched ahead, if it is needed."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import assert_no_leaks, open_suite
from tests.core.virtual_time import measure_elapsed, yield_to_loop

NUMBER = "15550100100"


def page(*numbers: int) -> bytes:
    return responses.encode_body({"MessageDetail": [{"MessageHandle": f"h{number}"} for number in numbers]})


def answer_pages(server: ScriptedServer, count: int, *, latency: float = 0.0) -> None:
    server.enqueue(
        *(
            responses.delay(latency, responses.respond(page(*range(offset, min(offset + 10, count)))))
            for offset in [*range(0, count, 10), count]
        )
    )


async def read(listing: ds.Listing[ds.FaxMessage], *, pause: float, seen: list[str | None] | None = None) -> None:
    async with listing as messages:
        async for message in messages:
            if seen is not None:
                seen.append(message.message_handle)
            await asyncio.sleep(pause)


async def test_next_page_is_fetched_while_the_reader_works(server: ScriptedServer) -> None:
    answer_pages(server, 25, latency=5)
    async with open_suite(server) as suite:
        # 5 seconds for the first page; then the reader never waits.
        assert await measure_elapsed(read(suite.fax.iter_messages(NUMBER), pause=1)) == pytest.approx(5 + 25)


async def test_no_more_than_one_page_is_ahead(server: ScriptedServer) -> None:
    answer_pages(server, 100)
    async with open_suite(server) as suite, suite.fax.iter_messages(NUMBER) as messages:
        for pages in (2, 3, 4):
            for _ in range(10):
                await anext(messages)
                await asyncio.sleep(100)
                assert len(server.requests) == pages


@pytest.mark.parametrize(
    ("count", "limit", "offsets"),
    [
        (25, None, [0, 10, 20, 25]),
        (20, None, [0, 10, 20]),
        (9, None, [0, 9]),
        (0, None, [0]),
        (25, 10, [0]),
        (25, 11, [0, 10]),
        (25, 20, [0, 10]),
        (25, 25, [0, 10, 20]),
    ],
)
async def test_page_that_is_not_needed_is_not_fetched(
    server: ScriptedServer, count: int, limit: int | None, offsets: list[int]
) -> None:
    answer_pages(server, count)
    seen: list[str | None] = []
    async with open_suite(server) as suite:
        await read(suite.fax.iter_messages(NUMBER, limit=limit), pause=10, seen=seen)
    assert seen == [f"h{number}" for number in range(count)][:limit]
    assert [int(request.target.rpartition("/")[2]) for request in server.requests] == offsets


async def test_failure_of_the_page_ahead_comes_after_the_page_before(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(page(*range(10))), responses.respond({"error": "no"}, 400))
    seen: list[str | None] = []
    async with open_suite(server) as suite:
        with pytest.raises(ds.BadRequestError):
            await read(suite.fax.iter_messages(NUMBER), pause=10, seen=seen)
    assert len(seen) == 10
    assert len(server.requests) == 2


async def test_404_past_the_last_page_is_the_end(server: ScriptedServer) -> None:
    server.enqueue(
        responses.respond(page(*range(10))), responses.respond({"error": "no"}, 404), responses.respond(page(9))
    )
    seen: list[str | None] = []
    async with open_suite(server) as suite:
        await read(suite.fax.iter_messages(NUMBER), pause=0, seen=seen)
    assert seen == [f"h{number}" for number in range(10)]
    assert [request.target.rpartition("/")[2] for request in server.requests] == ["0", "10", "9"]


async def test_404_before_the_end_is_a_failure(server: ScriptedServer) -> None:
    server.enqueue(
        responses.respond(page(*range(10))),
        responses.respond({"error": "no"}, 404),
        responses.respond(page(*range(9, 19))),
    )
    async with open_suite(server) as suite:
        with pytest.raises(ds.NotFoundError):
            await read(suite.fax.iter_messages(NUMBER), pause=0)


async def test_404_at_the_first_page_is_a_failure(server: ScriptedServer) -> None:
    server.enqueue(responses.respond({"error": "no"}, 404))
    async with open_suite(server) as suite:
        with pytest.raises(ds.NotFoundError):
            await read(suite.fax.iter_messages(NUMBER), pause=0)
    assert len(server.requests) == 1


async def test_leaving_early_ends_the_page_ahead(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(page(*range(10))), responses.never_respond)
    async with open_suite(server) as suite:
        async with suite.fax.iter_messages(NUMBER) as messages:
            await anext(messages)
            await asyncio.sleep(1)
            assert server.busy == 1
        assert_no_leaks(suite)
        await yield_to_loop()
        assert server.busy == 0


async def test_fax_that_shifts_the_page_ahead_comes_once(server: ScriptedServer) -> None:
    server.enqueue(*(responses.respond(page(*numbers)) for numbers in (range(10), range(9, 19), [19], [])))
    async with open_suite(server) as suite:
        handles = [message.message_handle async for message in suite.fax.iter_messages(NUMBER)]
    assert handles == [f"h{number}" for number in range(20)]
