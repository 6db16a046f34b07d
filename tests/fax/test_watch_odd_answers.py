"""Looks at services that repeat pages, give no handles, or don't say when a record was updated."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

import attrs
import pytest

import directsuite as ds
from directsuite.fax.watching import FaxPoller

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def make_fax(number: int, status: str = "complete", *, handle: bool = True) -> ds.FaxMessage:
    return ds.FaxMessage(
        message_handle=str(number) if handle else None,
        status=ds.FaxStatus(status),
        updated_ts=NOON + timedelta(minutes=number),
        description=f"fax {number}",
    )


@attrs.define(slots=False)
class FakeFaxList:
    """Faxes, newest first.

    repeats_from: larger offsets return the page at this offset. ends_with_404: True if an empty page is a 404.
    """

    faxes: list[ds.FaxMessage]
    repeats_from: int = 1_000
    page_requests: int = 0
    ends_with_404: bool = False

    async def get_page(self, offset: int) -> ds.FaxMessageInformation:
        self.page_requests += 1
        start = min(offset, self.repeats_from)
        if self.ends_with_404 and start >= len(self.faxes):
            raise ds.NotFoundError("not found", status=404)
        return ds.FaxMessageInformation(message_detail=self.faxes[start : start + 10])

    async def get_single(self, message_handle: str) -> ds.FaxMessageInformation:
        found = [
            attrs.evolve(each, message_handle=None) for each in self.faxes if each.message_handle == message_handle
        ]
        if not found:
            raise ds.BadRequestError("there is none", status=400)
        return ds.FaxMessageInformation(message_handle=message_handle, message_detail=found)


def watch_faxes(
    listed: FakeFaxList, since: datetime | None = None, now: datetime = NOON, handle: str | None = None
) -> FaxPoller:
    def page(offset: int) -> Awaitable[ds.FaxMessageInformation]:
        return listed.get_page(offset)  # as it is then: tests replace it

    def single(message_handle: str) -> Awaitable[ds.FaxMessageInformation]:
        return listed.get_single(message_handle)

    return FaxPoller(page, single, lambda: 0.0, since, handle, unix_time=now.timestamp)


async def test_404_of_the_moment_hides_nothing() -> None:
    listed = FakeFaxList([make_fax(number) for number in reversed(range(25))])
    watch, page = watch_faxes(listed), listed.get_page

    async def lost(offset: int) -> ds.FaxMessageInformation:
        if offset == 10:
            raise ds.NotFoundError("not found", status=404)
        return await page(offset)

    listed.get_page = lost  # type: ignore[method-assign]
    with pytest.raises(ds.NotFoundError):
        await watch.poll()
    listed.get_page = page  # type: ignore[method-assign]
    assert len(await watch.poll()) == 25


async def test_404_for_a_number_without_faxes_is_reported() -> None:
    with pytest.raises(ds.NotFoundError):
        await watch_faxes(FakeFaxList([], ends_with_404=True)).poll()


async def test_record_that_changes_is_reported_though_its_time_stays() -> None:
    listed = FakeFaxList([make_fax(1, "waiting")])
    watch = watch_faxes(listed, since=NOON + timedelta(hours=1), now=NOON + timedelta(hours=2))
    assert await watch.poll() == []
    listed.faxes = [make_fax(1)]
    assert [message.status for message in await watch.poll()] == [ds.FaxStatus.COMPLETE]
    assert await watch.poll() == []


async def test_without_handles_a_changed_record_is_another_one() -> None:
    faxes = [make_fax(number, handle=False) for number in reversed(range(25))]
    faxes[20] = attrs.evolve(faxes[20], status=ds.FaxStatus.WAITING)
    listed = FakeFaxList(faxes)
    watch = watch_faxes(listed)
    assert len(await watch.poll()) == 25
    listed.page_requests = 0
    faxes[20] = attrs.evolve(faxes[20], status=ds.FaxStatus.COMPLETE)
    assert await watch.poll() == [faxes[20]]
    assert listed.page_requests == 2
    assert await watch.poll() == []
    assert listed.page_requests == 3


async def test_response_for_one_may_have_its_handle_elsewhere() -> None:
    listed = FakeFaxList([make_fax(number, "waiting" if number == 0 else "complete") for number in reversed(range(15))])
    watch = watch_faxes(listed)
    assert len(await watch.poll()) == 15
    assert await watch.poll() == []
    listed.faxes[14] = make_fax(0)
    assert [message.message_handle for message in await watch.poll()] == ["0"]


async def test_deleted_fax_in_progress_is_polled_no_more() -> None:
    listed = FakeFaxList([make_fax(number, "waiting" if number == 0 else "complete") for number in reversed(range(15))])
    watch = watch_faxes(listed)
    await watch.poll()
    del listed.faxes[14]
    assert await watch.poll() == []
    single, asked = listed.get_single, list[str]()

    async def counting(message_handle: str) -> ds.FaxMessageInformation:
        asked.append(message_handle)
        return await single(message_handle)

    listed.get_single = counting  # type: ignore[method-assign]
    assert await watch.poll() == []
    assert asked == []


@pytest.mark.parametrize("place", [1, 12, 24])
async def test_first_of_several_records_of_a_handle_counts(place: int) -> None:
    faxes = [make_fax(number, "waiting" if number in (1, 2) else "complete") for number in reversed(range(25))]
    faxes.insert(place, attrs.evolve(make_fax(24), description="another"))
    watch = watch_faxes(FakeFaxList(faxes))
    first = await watch.poll()
    assert [message.description for message in first if message.message_handle == "24"] == ["fax 24"]
    assert [await watch.poll() for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("status", ["Complete", "COMPLETE", " complete ", "failed", "Failed"])
async def test_final_status_in_any_case_is_polled_no_more(status: str) -> None:
    listed = FakeFaxList([make_fax(number, status) for number in reversed(range(30))])
    watch = watch_faxes(listed)
    assert {message.status for message in await watch.poll()} == {status}
    listed.page_requests = 0
    assert await watch.poll() == []
    assert listed.page_requests == 1


async def test_404_after_deletions_hides_no_older_fax() -> None:
    listed = FakeFaxList([make_fax(number, "waiting") for number in reversed(range(23))], ends_with_404=True)
    watch = watch_faxes(listed)
    await watch.poll()
    assert await watch.poll() == []
    del listed.faxes[21], listed.faxes[10:15]
    assert await watch.poll() == []
    listed.faxes[-1] = make_fax(0)
    assert [(message.message_handle, message.status) for message in await watch.poll()] == [("0", "complete")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=730)])
@pytest.mark.parametrize("handle", [None, "29"])
async def test_since_of_a_clock_that_was_ahead_hides_no_fax(ahead: timedelta, handle: str | None) -> None:
    listed = FakeFaxList([make_fax(number) for number in reversed(range(30))])
    now = NOON + timedelta(minutes=30)
    watch = watch_faxes(listed, since=NOON + timedelta(minutes=25) + ahead, now=now, handle=handle)
    read = {message.message_handle for message in await watch.poll()}
    assert read >= ({"29"} if handle else {str(number) for number in range(25, 30)})


@pytest.mark.parametrize("behind", [timedelta(hours=1), timedelta(days=730)])
async def test_since_of_a_clock_that_was_behind_reports_more_than_needed(behind: timedelta) -> None:
    listed = FakeFaxList([make_fax(number) for number in reversed(range(30))])
    watch = watch_faxes(listed, since=NOON + timedelta(minutes=25) - behind, now=NOON + timedelta(minutes=30))
    assert len(await watch.poll()) == 30


@pytest.mark.exhaustive
@pytest.mark.parametrize("handle", [None, "0"])
@pytest.mark.parametrize("ahead", [-timedelta(hours=1), timedelta(hours=1)])
async def test_since_is_compared_with_our_clock_if_no_record_has_a_time(ahead: timedelta, handle: str | None) -> None:
    listed = FakeFaxList([])
    watch = watch_faxes(listed, since=NOON + ahead, handle=handle)
    if handle is None:
        assert await watch.poll() == []
    listed.faxes.append(attrs.evolve(make_fax(0), updated_ts=None))
    assert len(await watch.poll()) == 1


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=730)])
async def test_since_of_a_service_whose_clock_is_ahead_is_kept(ahead: timedelta) -> None:
    listed = FakeFaxList([make_fax(number) for number in reversed(range(30))])
    watch = watch_faxes(listed, since=NOON + timedelta(minutes=28), now=NOON + timedelta(minutes=30) - ahead)
    assert [message.message_handle for message in await watch.poll()] == ["28", "29"]
