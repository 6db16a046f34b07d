"""Listings: every fax once, newest first, with one page fetched ahead."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.wire.codec import Codec
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import assert_no_leaks, open_suite
from tests.core.virtual_time import measure_elapsed, yield_to_loop

from .fax_list import FaxList, make_fax, make_faxes

NUMBER = "15550100100"


@contextlib.asynccontextmanager
async def open_listing(faxes: FaxList, *, limit: int | None = None) -> AsyncGenerator[ds.Listing[ds.FaxMessage]]:
    async def get_page(_: ds.Fax, __: str, offset: int, **___: object) -> ds.FaxMessageInformation:
        return await faxes.get_page(offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ds.Fax, "get_multiple_message_info", get_page)
        async with ds.DirectSuite(ds.Settings(fax_url="http://127.0.0.1:9"), token="token") as suite:
            yield suite.fax.iter_messages(NUMBER, limit=limit)


async def list_numbers(faxes: FaxList) -> list[int]:
    async with open_listing(faxes) as messages:
        return [int(message.description or "") async for message in messages]


ENDS: list[dict[str, Any]] = [{}, {"ends_with_404": True}, {"repeats_last_page": True}]


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize(
    ("count", "page_size"), [(35, 1), (35, 5), (35, 7), (35, 10), (3, 10), (9, 50), (10, 10), (30, 10)]
)
async def test_pages_of_any_size_are_read_to_the_end(count: int, page_size: int, end: dict[str, Any]) -> None:
    faxes = FaxList(make_faxes(count), page_size, **end)
    assert await list_numbers(faxes) == [*reversed(range(count))]
    assert len(await faxes.watch().poll()) == count


@given(st.integers(0, 60), st.integers(1, 12), st.lists(st.integers(0, 25), max_size=8), st.booleans())
@example(40, 10, [10] * 7, True)
async def test_every_fax_is_listed_once_newest_first_whatever_arrives(
    total: int, page_size: int, arrivals: list[int], has_handle: bool
) -> None:
    faxes = FaxList(make_faxes(total, has_handle=has_handle), page_size)

    def add() -> None:
        if 2 <= faxes.requests < len(arrivals) + 2 and faxes.faxes:
            faxes.add(arrivals[faxes.requests - 2])

    faxes.on_request = add
    read = await list_numbers(faxes)
    assert len(read) == len(set(read))
    assert [number for number in read if number < total] == [*reversed(range(total))]


async def test_short_page_is_not_the_end() -> None:
    faxes = FaxList(make_faxes(35))

    def vary_size() -> None:
        faxes.page_size = 3 if faxes.requests % 2 else 10

    faxes.on_request = vary_size
    assert len(await list_numbers(faxes)) == 35
    assert len(await faxes.watch().poll()) == 35


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [9, 10, 11, 25])
@pytest.mark.parametrize("arriving", [0, 1, 30])
async def test_repeated_last_page_ends_a_listing_though_faxes_arrive(count: int, arriving: int) -> None:
    faxes = FaxList(make_faxes(count), repeats_last_page=True)
    faxes.add_before(2, arriving)
    assert set(await list_numbers(faxes)) >= set(range(count))


@pytest.mark.exhaustive
@pytest.mark.parametrize("lag", [0, 1, 3, 10])
@pytest.mark.parametrize("page_size", [5, 10, 25])
async def test_same_full_page_at_every_offset_is_an_error(page_size: int, lag: int) -> None:
    faxes = FaxList(make_faxes(100), page_size, ignores_offset=True, lag=lag)
    assert await faxes.watch().poll()
    faxes.offsets.clear()
    async with open_listing(faxes) as messages:
        assert [await anext(messages) for _ in range(page_size)] == faxes.faxes[lag : lag + page_size]
        with (
            pytest.raises(ds.ResponseDecodeError, match="every offset")
            if page_size >= 10
            else (contextlib.nullcontext())
        ):
            _ = [message async for message in messages]


async def test_404_on_the_way_is_a_failure() -> None:
    faxes = FaxList(make_faxes(25))

    def fail() -> None:
        if faxes.offsets[-1] == 10:
            raise ds.NotFoundError("not found", status=404)

    faxes.on_request = fail
    with pytest.raises(ds.NotFoundError):
        await list_numbers(faxes)
    poller = faxes.watch()
    with pytest.raises(ds.NotFoundError):
        await poller.poll()
    faxes.on_request = lambda: None
    assert len(await poller.poll()) == 25


async def test_404_at_the_first_page_is_a_failure() -> None:
    for read in (FaxList([], ends_with_404=True).watch().poll(), list_numbers(FaxList([], ends_with_404=True))):
        with pytest.raises(ds.NotFoundError):
            await read


async def test_same_handle_with_a_new_status_is_the_same_fax() -> None:
    assert await list_numbers(FaxList([make_fax(1, "waiting"), make_fax(1)])) == [1]


async def test_records_without_handle_that_differ_are_different_faxes() -> None:
    records = [make_fax(1, status, has_handle=False) for status in ("waiting", "complete")]
    assert await list_numbers(FaxList(records)) == [1, 1]


def encode_page(numbers: range) -> bytes:
    return responses.encode_body({"MessageDetail": [{"MessageHandle": f"h{number}"} for number in numbers]})


def enqueue_pages(server: ScriptedServer, count: int, *, latency: float = 0.0) -> None:
    for offset in [*range(0, count, 10), count]:
        page = responses.respond(encode_page(range(offset, min(offset + 10, count))))
        server.enqueue(responses.delay(latency, page))


async def read(server: ScriptedServer, *, limit: int | None = None, pause: float, seen: list[str | None]) -> None:
    async with open_suite(server) as suite, suite.fax.iter_messages(NUMBER, limit=limit) as messages:
        async for message in messages:
            seen.append(message.message_handle)
            await asyncio.sleep(pause)


async def test_next_page_is_fetched_while_the_reader_works(server: ScriptedServer) -> None:
    enqueue_pages(server, 25, latency=5)
    # 5 seconds for the first page; then the reader never waits.
    assert await measure_elapsed(read(server, pause=1, seen=[])) == pytest.approx(5 + 25)


async def test_no_more_than_one_page_is_ahead(server: ScriptedServer) -> None:
    enqueue_pages(server, 100)
    async with open_suite(server) as suite, suite.fax.iter_messages(NUMBER) as messages:
        assert server.requests == []
        for pages in (2, 3, 4):
            for _ in range(10):
                await anext(messages)
                await asyncio.sleep(100)
                assert len(server.requests) == pages


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("count", "limit", "offsets"),
    [
        *((25, None, [0, 10, 20, 25]), (20, None, [0, 10, 20]), (9, None, [0, 9]), (0, None, [0])),
        *((25, 10, [0]), (25, 11, [0, 10]), (25, 20, [0, 10]), (25, 25, [0, 10, 20])),
    ],
)
async def test_page_that_is_not_needed_is_not_fetched(
    server: ScriptedServer, count: int, limit: int | None, offsets: list[int]
) -> None:
    enqueue_pages(server, count)
    seen: list[str | None] = []
    await read(server, limit=limit, pause=10, seen=seen)
    assert seen == [f"h{number}" for number in range(count)][:limit]
    assert [int(request.target.rpartition("/")[2]) for request in server.requests] == offsets


async def test_failure_of_the_page_ahead_comes_after_the_page_before(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(encode_page(range(10))), responses.respond({"error": "no"}, 400))
    seen: list[str | None] = []
    with pytest.raises(ds.BadRequestError):
        await read(server, pause=10, seen=seen)
    assert len(seen) == 10
    assert len(server.requests) == 2


async def test_leaving_early_ends_the_page_ahead(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(encode_page(range(10))), responses.never_respond)
    async with open_suite(server) as suite:
        async with suite.fax.iter_messages(NUMBER) as messages:
            await anext(messages)
            await asyncio.sleep(1)
            assert server.busy == 1
        assert_no_leaks(suite)
        await yield_to_loop()
        assert server.busy == 0


@pytest.mark.parametrize("member", ["MessageHandle", "messageHandle", "message_handle"])
def test_handle_is_read_under_any_of_its_names(member: str) -> None:
    message = Codec().decode(ds.FaxMessage, json.dumps({member: "h7"}).encode())
    assert (message.message_handle, message.extra) == ("h7", {})
