"""Reading all pages: of any size, while faxes arrive, and from services that treat offsets in odd ways."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.fax.watching import FaxPoller

NUMBER = "15550100100"


def fax(name: str, status: str = "complete", *, has_handle: bool = True) -> ds.FaxMessage:
    return ds.FaxMessage(
        message_handle=name if has_handle else None, status=ds.FaxStatus(status), description=f"fax {name}"
    )


def faxes(count: int, prefix: str = "old", *, has_handle: bool = True) -> list[ds.FaxMessage]:
    return [fax(f"{prefix}{number}", has_handle=has_handle) for number in range(count)]


def names(prefix: str, count: int) -> set[str]:
    return {f"fax {prefix}{number}" for number in range(count)}


@attrs.define(eq=False, slots=False)
class FaxList:
    """The faxes of a number, newest first, as a service lists them."""

    faxes: list[ds.FaxMessage]
    page_size: int = 10
    ignores_offset: bool = False
    """True if every page is the first one."""
    lag: int = 0
    """The number of the newest faxes that every second response leaves out, as from a server that is behind."""
    repeats_last_page: bool = False
    """True if the last page is also returned for offsets past the end."""
    ends_with_404: bool = False
    before_page: Callable[[int], None] = lambda _: None
    """Called before a page is returned, with the number of pages requested so far."""
    offsets: list[int] = attrs.field(factory=list[int])
    """The offsets that were requested."""

    async def page(self, offset: int) -> ds.FaxMessageInformation:
        self.offsets.append(offset)
        assert len(self.offsets) < 1_000, "the reading does not end"
        self.before_page(len(self.offsets))
        start = 0 if self.ignores_offset else offset
        start += self.lag if len(self.offsets) % 2 else 0
        if self.repeats_last_page and start >= len(self.faxes):
            start = (len(self.faxes) - 1) // self.page_size * self.page_size
        if self.ends_with_404 and start >= len(self.faxes):
            raise ds.NotFoundError("not found", status=404)
        return ds.FaxMessageInformation(message_detail=self.faxes[start : start + self.page_size])

    async def single(self, message_handle: str) -> ds.FaxMessageInformation:
        return ds.FaxMessageInformation(
            message_detail=[each for each in self.faxes if each.message_handle == message_handle]
        )

    def add_before_page(self, number: int, new: list[ds.FaxMessage]) -> None:
        def add(page: int) -> None:
            if page == number:
                self.faxes[:0] = new

        self.before_page = add


@contextlib.asynccontextmanager
async def listing(listed: FaxList, *, limit: int | None = None) -> AsyncGenerator[ds.Listing[ds.FaxMessage]]:
    async def page(_: ds.Fax, __: str, offset: int, **___: object) -> ds.FaxMessageInformation:
        return await listed.page(offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ds.Fax, "get_multiple_message_info", page)
        async with ds.DirectSuite(ds.Settings(fax_url="http://127.0.0.1:9"), token="token") as suite:
            yield suite.fax.iter_messages(NUMBER, limit=limit)


async def read_all(listed: FaxList, *, limit: int | None = None) -> list[str]:
    async with listing(listed, limit=limit) as messages:
        return [message.description or "" async for message in messages]


def watch(listed: FaxList) -> FaxPoller:
    return FaxPoller(listed.page, listed.single, lambda: 0.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("count", "page"), [(20, 3), (25, 6), (50, 9), (10, 2), (3, 2)])
@pytest.mark.parametrize("has_handle", [True, False])
async def test_faxes_that_arrive_between_pages_hide_none_from_a_listing(
    count: int, page: int, has_handle: bool
) -> None:
    listed = FaxList(faxes(100, has_handle=has_handle))
    listed.add_before_page(page, faxes(count, "new", has_handle=has_handle))
    read = await read_all(listed)
    assert set(read) >= names("old", 100)
    assert len(read) == len(set(read))


@given(total=st.integers(0, 60), page_size=st.integers(1, 12), arrivals=st.lists(st.integers(0, 25), max_size=8))
async def test_every_fax_is_listed_once_newest_first_whatever_arrives(
    total: int, page_size: int, arrivals: list[int]
) -> None:
    listed = FaxList(faxes(total), page_size)

    def add(page: int) -> None:
        if 2 <= page < len(arrivals) + 2:
            listed.faxes[:0] = faxes(arrivals[page - 2], f"page {page} ")

    listed.before_page = add
    read = await read_all(listed)
    assert len(read) == len(set(read))
    assert [name for name in read if "old" in name] == [f"fax old{number}" for number in range(total)]


@pytest.mark.parametrize(("count", "page"), [(20, 3), (25, 6), (50, 9), (10, 2), (3, 2)])
async def test_faxes_that_arrive_between_pages_hide_none_from_a_watch(count: int, page: int) -> None:
    listed = FaxList(faxes(100))
    listed.add_before_page(page, faxes(count, "new"))
    watched = watch(listed)
    read = [message.description for _ in range(2) for message in await watched.poll()]
    assert set(read) == names("old", 100) | names("new", count)
    assert len(read) == len(set(read))


async def test_as_many_new_faxes_as_a_page_has_before_each_page_hide_none() -> None:
    listed = FaxList(faxes(40))

    def add(page: int) -> None:
        if 2 <= page < 9:
            listed.faxes[:0] = faxes(10, f"page {page} ")

    listed.before_page = add
    assert {name for name in await read_all(listed) if "old" in name} == names("old", 40)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ends_with_404", [False, True])
@pytest.mark.parametrize("page_size", [1, 5, 7, 10, 50])
async def test_pages_of_any_size_are_read_to_the_end(page_size: int, ends_with_404: bool) -> None:
    listed = FaxList(faxes(35), page_size, ends_with_404=ends_with_404)
    assert await read_all(listed) == [f"fax old{number}" for number in range(35)]
    assert {message.description for message in await watch(listed).poll()} == names("old", 35)


async def test_short_page_is_not_the_end() -> None:
    listed = FaxList(faxes(35))

    def vary_size(page: int) -> None:
        listed.page_size = 3 if page % 2 else 10

    listed.before_page = vary_size
    assert len(await read_all(listed)) == 35
    assert len(await watch(listed).poll()) == 35


async def test_watch_of_small_pages_reports_what_is_new_with_few_requests() -> None:
    listed = FaxList(faxes(40), 5)
    watched = watch(listed)
    await watched.poll()
    listed.offsets.clear()
    assert await watched.poll() == []
    assert listed.offsets == [0]
    listed.faxes[:0] = faxes(7, "new")
    assert {message.description for message in await watched.poll()} == names("new", 7)
    assert listed.offsets == [0, 0, 5, 10]


async def test_older_faxes_in_progress_are_read_by_small_pages() -> None:
    listed = FaxList(faxes(40, has_handle=False), 5)
    listed.faxes[27] = fax("old27", "waiting", has_handle=False)
    watched = watch(listed)
    await watched.poll()
    listed.faxes[27] = fax("old27", has_handle=False)
    assert await watched.poll() == [listed.faxes[27]]
    assert await watched.poll() == []


@pytest.mark.parametrize("count", [15, 30])
async def test_faxes_that_arrive_while_older_ones_are_read_come_once(count: int) -> None:
    listed = FaxList([fax(f"old{number}", "waiting") for number in range(30)])
    watched = watch(listed)
    await watched.poll()
    pages = len(listed.offsets)
    listed.add_before_page(pages + 2, faxes(count, "new"))
    reported = [message.description or "" for _ in range(3) for message in await watched.poll()]
    assert sorted(reported) == sorted(names("new", count))


@pytest.mark.parametrize("count", [3, 10, 25, 30])
async def test_service_that_repeats_its_last_page_comes_to_an_end(count: int) -> None:
    listed = FaxList(faxes(count), repeats_last_page=True)
    assert len(await read_all(listed)) == count
    assert len(await watch(listed).poll()) == count


async def test_listing_raises_if_the_service_ignores_offsets() -> None:
    listed = FaxList(faxes(25), ignores_offset=True)
    async with listing(listed) as messages:
        assert [await anext(messages) for _ in range(10)] == listed.faxes[:10]
        with pytest.raises(ds.ResponseDecodeError, match="every offset"):
            await anext(messages)


@pytest.mark.exhaustive
@pytest.mark.parametrize("lag", [1, 3, 10])
@pytest.mark.parametrize("page_size", [5, 10, 25])
async def test_servers_that_ignore_offsets_and_differ_come_to_an_end(page_size: int, lag: int) -> None:
    listed = FaxList(faxes(100), page_size, ignores_offset=True, lag=lag)
    assert await watch(listed).poll()
    listed.offsets.clear()
    async with listing(listed) as messages:
        read = [await anext(messages) for _ in range(page_size)]
        assert read == listed.faxes[lag : lag + page_size]
        if page_size >= 10:
            with pytest.raises(ds.ResponseDecodeError, match="every offset"):
                _ = [message async for message in messages]


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [9, 10, 11, 25])
@pytest.mark.parametrize("arriving", [0, 1, 30])
async def test_repeated_last_page_ends_a_listing_though_faxes_arrive(count: int, arriving: int) -> None:
    listed = FaxList(faxes(count), repeats_last_page=True)
    listed.add_before_page(2, faxes(arriving, "new"))
    assert {name for name in await read_all(listed) if "old" in name} == names("old", count)


async def test_limit_that_the_first_page_reaches_needs_no_offset() -> None:
    listed = FaxList(faxes(25), ignores_offset=True)
    assert len(await read_all(listed, limit=10)) == 10
    assert listed.offsets == [0]


async def test_watch_of_a_service_that_ignores_offsets_reports_what_is_new() -> None:
    listed = FaxList(faxes(25), ignores_offset=True)
    watched = watch(listed)
    assert len(await watched.poll()) == 10
    assert await watched.poll() == []
    listed.faxes[:0] = faxes(2, "new")
    assert {message.description for message in await watched.poll()} == names("new", 2)


@pytest.mark.parametrize("handle", [".", ".."])
async def test_older_fax_whose_handle_no_request_can_name_stops_no_watch(handle: str) -> None:
    listed = FaxList([*faxes(24), fax(handle, "waiting"), *faxes(5, "older")])

    async def single(message_handle: str) -> ds.FaxMessageInformation:
        raise AssertionError(message_handle)

    listed.single = single  # type: ignore[method-assign]
    watched = watch(listed)
    assert len(await watched.poll()) == 30
    listed.faxes[24] = fax(handle)
    assert await watched.poll() == [listed.faxes[24]]
    assert await watched.poll() == []
