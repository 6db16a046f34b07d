"""Polls: new and changed faxes, with few requests, from services that fail or behave in odd ways."""

from __future__ import annotations

import contextlib
import random
from datetime import timedelta

import attrs
import pytest

import directsuite as ds
from directsuite.fax.watching import FaxPoller

from .fax_list import NOON, FaxList, make_fax, make_faxes

pytestmark = pytest.mark.wide

HOUR, DAYS, YEARS = timedelta(hours=1), timedelta(days=3), timedelta(days=730)


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


async def poll(poller: FaxPoller, *, until_success: bool = True) -> list[int]:
    """Return the numbers of the faxes in ascending order, of all polls until the first that succeeds or of one poll."""
    found = list[ds.FaxMessage]()
    while True:
        try:
            found += await poller.poll()
        except ds.ServerError:
            found += poller.take_fresh()
            if until_success:
                continue
        return sorted(int(message.description or "") for message in found)


async def test_new_faxes_are_found_with_few_requests() -> None:
    faxes = FaxList(make_faxes(40), 5)
    poller = faxes.watch()
    await poll(poller)
    faxes.offsets.clear()
    assert await poll(poller) == []
    assert faxes.offsets == [0]
    faxes.add(7)
    assert await poll(poller) == [*range(40, 47)]
    assert faxes.offsets == [0, 0, 5, 10]


async def test_new_faxes_are_found_if_the_service_ignores_offsets() -> None:
    faxes = FaxList(make_faxes(25), ignores_offset=True)
    poller = faxes.watch()
    assert len(await poll(poller)) == 10
    assert await poll(poller) == []
    faxes.add(2)
    assert await poll(poller) == [25, 26]


@pytest.mark.parametrize(("has_handle", "requests"), [(True, ([0], ["2"])), (False, ([0, 20], list[str]()))])
async def test_older_fax_in_progress_is_requested_until_complete(
    has_handle: bool, requests: tuple[list[int], list[str]]
) -> None:
    faxes = FaxList(make_faxes(25, waiting=[2], has_handle=has_handle))
    poller = faxes.watch()
    assert len(await poll(poller)) == 25
    assert await poll(poller) == []
    faxes.offsets, faxes.handles = [], []
    faxes.faxes[22] = make_fax(2, has_handle=has_handle)
    assert await poller.poll() == [make_fax(2, has_handle=has_handle)]
    assert (faxes.offsets, faxes.handles) == requests
    faxes.offsets, faxes.handles = [], []
    assert await poll(poller) == []
    assert (faxes.offsets, faxes.handles) == ([0], [])


async def test_several_older_faxes_in_progress_are_requested_by_page() -> None:
    faxes = FaxList(make_faxes(40, waiting=[5, 6, 7]))
    poller = faxes.watch()
    await poll(poller)
    faxes.offsets.clear()
    faxes.faxes[33:35] = make_fax(6), make_fax(5)
    assert await poll(poller) == [5, 6]
    assert (faxes.offsets, faxes.handles) == ([0, 30], [])


@pytest.mark.parametrize("count", [15, 30])
async def test_faxes_that_arrive_while_older_ones_are_read_come_once(count: int) -> None:
    faxes = FaxList(make_faxes(30, waiting=range(30)))
    poller = faxes.watch()
    await poll(poller)
    faxes.add_before(2, count)
    found = [number for _ in range(3) for number in await poll(poller)]
    assert sorted(found) == [*range(30, 30 + count)]


async def test_deleted_fax_in_progress_is_polled_no_more() -> None:
    faxes = FaxList(make_faxes(15, waiting=[0]))
    poller = faxes.watch()
    await poll(poller)
    del faxes.faxes[14]
    assert await poll(poller) == []
    faxes.handles.clear()
    assert await poll(poller) == []
    assert faxes.handles == []


@pytest.mark.parametrize("handle", [".", ".."])
async def test_older_fax_whose_handle_no_request_can_contain_is_read_by_page(handle: str) -> None:
    waiting = attrs.evolve(make_fax(5, "waiting"), message_handle=handle)
    faxes = FaxList([*make_faxes(30)[:24], waiting, *make_faxes(5)])
    poller = faxes.watch()
    assert len(await poll(poller)) == 30
    faxes.faxes[24] = attrs.evolve(waiting, status=ds.FaxStatus.COMPLETE)
    assert await poller.poll() == [faxes.faxes[24]]
    assert await poll(poller) == []
    assert faxes.handles == []


@pytest.mark.parametrize("place", [1, 12, 24])
async def test_first_of_several_records_of_a_handle_counts(place: int) -> None:
    faxes = FaxList(make_faxes(25, waiting=[1, 2]))
    faxes.faxes.insert(place, attrs.evolve(make_fax(24), description="99"))
    poller = faxes.watch()
    assert await poll(poller) == [*range(25)]
    assert [await poll(poller) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("status", ["Complete", "COMPLETE", " complete ", "failed", "Failed"])
async def test_final_status_in_any_case_is_polled_no_more(status: str) -> None:
    faxes = FaxList([make_fax(number, status) for number in reversed(range(30))])
    poller = faxes.watch()
    assert {message.status for message in await poller.poll()} == {status}
    faxes.offsets.clear()
    assert await poll(poller) == []
    assert (faxes.offsets, faxes.handles) == ([0], [])


async def test_fax_in_progress_for_a_day_is_polled_no_more() -> None:
    faxes = FaxList(make_faxes(21, waiting=[0]))
    poller = faxes.watch()
    await poll(poller)
    faxes.offsets.clear()
    for faxes.seconds in range(3600, 49 * 3600, 3600):
        assert await poll(poller) == []
    assert len(faxes.offsets) == 48
    assert len(faxes.handles) == 23


async def test_404_after_deletions_hides_no_older_fax() -> None:
    faxes = FaxList(make_faxes(23, waiting=range(23)), ends_with_404=True)
    poller = faxes.watch()
    await poll(poller)
    assert await poll(poller) == []
    del faxes.faxes[21], faxes.faxes[10:15]
    assert await poll(poller) == []
    faxes.faxes[-1] = make_fax(0)
    assert await poller.poll() == [make_fax(0)]


async def test_faxes_before_since_are_not_found_until_they_change() -> None:
    faxes = FaxList([*(make_fax(number) for number in range(3007, 3000, -1)), make_fax(3000, "waiting")])
    faxes.faxes += make_faxes(40)
    poller = faxes.watch(NOON + minutes(3006), now=NOON + minutes(3010))
    assert await poll(poller) == [3006, 3007]
    assert faxes.offsets == [0, 10]  # the second page is days before `since`
    for first in (3008, 3013):
        faxes.add(5)
        assert await poll(poller) == [*range(first, first + 5)]
    faxes.faxes[17] = make_fax(3000)
    assert await poll(poller) == [3000]


@pytest.mark.parametrize("has_handle", [True, False])
async def test_fax_that_arrives_later_is_reported_though_its_time_is_before_since(has_handle: bool) -> None:
    faxes = FaxList(make_faxes(30, has_handle=has_handle))
    poller = faxes.watch(NOON + minutes(50), now=NOON + minutes(60))
    assert await poll(poller) == []
    faxes.faxes.insert(0, make_fax(40, has_handle=has_handle))  # the clock of the service is behind
    assert await poll(poller) == [40]


async def test_changed_record_is_reported_though_its_time_is_before_since() -> None:
    faxes = FaxList([make_fax(1, "waiting")])
    poller = faxes.watch(NOON + HOUR, now=NOON + 2 * HOUR)
    assert await poll(poller) == []
    faxes.faxes = [make_fax(1)]
    assert await poller.poll() == faxes.faxes
    assert await poll(poller) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("ahead", [HOUR, DAYS, YEARS])
@pytest.mark.parametrize("handle", [None, "29"])
async def test_since_of_a_clock_that_was_ahead_hides_no_fax(ahead: timedelta, handle: str | None) -> None:
    poller = FaxList(make_faxes(30)).watch(NOON + minutes(25) + ahead, now=NOON + minutes(30), handle=handle)
    assert {*await poll(poller)} >= ({29} if handle else {*range(25, 30)})


@pytest.mark.parametrize("behind", [HOUR, YEARS])
async def test_since_of_a_clock_that_was_behind_reports_more_than_needed(behind: timedelta) -> None:
    poller = FaxList(make_faxes(30)).watch(NOON + minutes(25) - behind, now=NOON + minutes(30))
    assert len(await poll(poller)) == 30


@pytest.mark.exhaustive
@pytest.mark.parametrize("handle", [None, "0"])
@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_since_is_compared_with_our_clock_if_no_record_has_a_time(ahead: timedelta, handle: str | None) -> None:
    faxes = FaxList([])
    poller = faxes.watch(NOON + ahead, handle=handle)
    if handle is None:
        assert await poll(poller) == []
    faxes.faxes.append(attrs.evolve(make_fax(0), updated_ts=None))
    assert await poll(poller) == [0]


async def test_first_poll_of_many_faxes_continues_after_failures() -> None:
    faxes = FaxList(make_faxes(2_000))
    faxes.fail(*range(20, 400, 20))
    assert await poll(faxes.watch()) == [*range(2_000)]
    assert faxes.requests < 201 + 3 * 12  # each that fails, the newest page, and the one before it


@pytest.mark.parametrize("deleted", [9, 10, 11, 25, 54, 100])
async def test_deletions_between_pages_hide_no_existing_fax(deleted: int) -> None:
    faxes = FaxList(make_faxes(100))
    faxes.fail(6, meanwhile=lambda: faxes.faxes.__delitem__(slice(deleted)))
    poller = faxes.watch()
    found = await poll(poller) + await poll(poller)
    assert len(found) == len(set(found))
    assert set(found) >= set(range(100 - deleted))


@pytest.mark.parametrize("kept", [15, 59, 79])
async def test_poll_after_a_failure_ends_if_the_list_is_shorter_and_ends_with_404(kept: int) -> None:
    faxes = FaxList(make_faxes(100), ends_with_404=True)
    faxes.fail(8, meanwhile=lambda: faxes.faxes.__delitem__(slice(kept, None)))
    poller = faxes.watch()
    found = await poll(poller, until_success=False)
    with contextlib.suppress(ds.NotFoundError):
        found += await poll(poller)
    found += await poll(poller)
    assert sorted(found) == [*range(min(30, 100 - kept), 100)]
    faxes.add(1)
    assert await poll(poller) == [100]


@pytest.mark.parametrize("failing", range(1, 6))
async def test_older_faxes_are_not_requested_again_after_a_failure(failing: int) -> None:
    faxes = FaxList(make_faxes(60, waiting=range(0, 60, 10)))
    poller = faxes.watch()
    assert len(await poll(poller)) == 60
    before = faxes.requests
    faxes.fail(failing)
    faxes.faxes[-1], faxes.faxes[19] = make_fax(0), make_fax(40)
    assert await poll(poller) == [0, 40]
    assert faxes.requests - before <= 8
    assert await poll(poller) == []


async def test_new_faxes_are_found_while_a_page_always_fails() -> None:
    faxes = FaxList(make_faxes(50))

    def fail() -> None:
        if faxes.offsets[-1] + 10 > len(faxes.faxes) - 30:
            raise ds.ServerError("it is broken", status=500)

    faxes.on_request = fail
    poller = faxes.watch()
    found = list[int]()
    for _ in range(5):
        found += await poll(poller, until_success=False)
        faxes.add(1)
    assert found == [*range(30, 54)]


async def test_unreadable_fax_does_not_block_new_faxes() -> None:
    faxes = FaxList(make_faxes(40, waiting=[0]))
    poller = faxes.watch()
    assert len(await poll(poller)) == 40

    def fail() -> None:
        if faxes.handles:
            raise ds.ServerError("it is broken", status=500)

    faxes.on_request = fail
    for new in range(40, 43):
        faxes.add(1)
        faxes.handles.clear()
        with pytest.raises(ds.ServerError):
            await poller.poll()
        assert poller.take_fresh() == [make_fax(new)]


async def test_poll_after_a_failure_ends_if_the_service_ignores_offsets() -> None:
    faxes = FaxList(make_faxes(10), ignores_offset=True)
    faxes.fail(2, meanwhile=lambda: faxes.add(1))
    poller = faxes.watch()
    assert await poll(poller) == [*range(11)]
    assert faxes.requests < 20
    assert await poll(poller) == []


@pytest.mark.parametrize("seed", [968, *range(30)])  # 968: a continued poll skipped a fax
async def test_bursts_during_polls_that_fail_hide_no_fax(seed: int) -> None:
    faxes, chance = FaxList(make_faxes(30), 5), random.Random(seed)

    def add_or_fail() -> None:
        if len(faxes.faxes) < 90 and chance.random() < 0.3:
            faxes.add(chance.choice([1, 2, 12]))
        if faxes.requests < 120 and chance.random() < 0.3:
            raise ds.ServerError("it is broken", status=500)

    faxes.on_request = add_or_fail
    poller, found = faxes.watch(), list[int]()
    while faxes.requests < 200:
        found += await poll(poller)
    assert sorted(found) == [*range(len(faxes.faxes))]
