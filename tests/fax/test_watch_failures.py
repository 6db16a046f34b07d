"""Polls of a fax number that fail: pages are not read again, and no fax is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import attrs
import pytest

import directsuite as ds
from directsuite.fax.watching import FaxPoller

from .test_watch_odd_answers import FakeFaxList, make_fax, watch_faxes

pytestmark = pytest.mark.wide

SEEDS = (968, *range(30))
"""Random sequences of arrivals and failures. 968: a resumed poll skipped a fax."""


@attrs.define(slots=False)
class Failing(FakeFaxList):
    """Faxes whose requests can fail.

    fails: True for the numbers of failing requests. meanwhile: called at each failure.
    """

    fails: Callable[[int], bool] = lambda _: False
    meanwhile: Callable[[], None] = lambda: None
    calls: int = 0
    is_single: bool = False

    async def get_page(self, offset: int) -> ds.FaxMessageInformation:
        self.is_single = False
        self._count()
        return await super().get_page(offset)

    async def get_single(self, message_handle: str) -> ds.FaxMessageInformation:
        self.is_single = True
        self._count()
        return await super().get_single(message_handle)

    def _count(self) -> None:
        self.calls += 1
        if self.fails(self.calls):
            self.meanwhile()
            raise ds.ServerError("it is broken", status=500)


def faxes(last: int, first: int = 0, status: str = "complete") -> list[ds.FaxMessage]:
    return [make_fax(number, status) for number in reversed(range(first, last))]


async def looked(watch: FaxPoller) -> list[str]:
    reported = list[ds.FaxMessage]()
    while True:
        try:
            reported += await watch.poll()
        except ds.ServerError:
            reported += watch.take_fresh()
        else:
            return [
                each.message_handle or "" for each in sorted(reported, key=lambda each: int(each.message_handle or 0))
            ]


def handles(last: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, last)]


async def test_first_look_at_many_survives_pages_that_fail_and_reads_few_again() -> None:
    listed = Failing(faxes(2_000), repeats_from=2_000, fails=lambda calls: calls % 20 == 0)
    assert await looked(watch_faxes(listed)) == handles(2_000)
    assert listed.calls < 201 + 3 * 12  # each that fails, the newest page, and the one before it


async def test_deletion_between_pages_hides_no_fax() -> None:
    listed = Failing(faxes(100), fails=lambda calls: calls == 5)
    listed.meanwhile = lambda: listed.faxes.__delitem__(slice(10))
    assert await looked(watch_faxes(listed)) == handles(100)


async def test_faxes_arriving_between_pages_are_yielded_once() -> None:
    listed = Failing(faxes(100), fails=lambda calls: calls == 5)
    listed.meanwhile = lambda: listed.faxes.__setitem__(slice(0), faxes(145, 100))
    watch = watch_faxes(listed)
    assert await looked(watch) + await looked(watch) == handles(145)
    assert await looked(watch) == []


@pytest.mark.parametrize("place", range(1, 6))
async def test_older_ones_are_not_requested_again(place: int) -> None:
    listed = Failing(
        [make_fax(number, "waiting" if number % 10 == 0 else "complete") for number in reversed(range(60))]
    )
    watch = watch_faxes(listed)
    assert len(await looked(watch)) == 60
    listed.calls, listed.fails = 0, lambda calls: calls == place
    listed.faxes[-1], listed.faxes[19] = make_fax(0), make_fax(40)
    assert await looked(watch) == handles(1) + handles(41, 40)
    assert listed.calls <= 8
    assert await looked(watch) == []


async def test_new_faxes_are_yielded_while_a_page_always_fails() -> None:
    listed = Failing(faxes(50))
    watch = watch_faxes(listed)
    broken = listed.get_page

    async def page(offset: int) -> ds.FaxMessageInformation:
        if offset + 10 > len(listed.faxes) - 30:
            raise ds.ServerError("it is broken", status=500)
        return await broken(offset)

    listed.get_page = page  # type: ignore[method-assign]
    reported = list[str]()
    for new in range(50, 55):
        with pytest.raises(ds.ServerError):
            await watch.poll()
        reported += [message.message_handle or "" for message in watch.take_fresh()]
        listed.faxes.insert(0, make_fax(new, "complete"))
    assert reported == handles(50, 30) + handles(54, 50)


async def test_unreadable_fax_does_not_block_new_faxes() -> None:
    listed = Failing([*faxes(40, 1), make_fax(0, "waiting")])
    watch = watch_faxes(listed)
    assert len(await looked(watch)) == 40
    listed.fails = lambda _: listed.is_single
    for new in range(40, 43):
        listed.faxes.insert(0, make_fax(new, "complete"))
        with pytest.raises(ds.ServerError):
            await watch.poll()
        assert [message.message_handle for message in watch.take_fresh()] == [str(new)]


@pytest.mark.parametrize("deleted", [9, 10, 11, 25, 54, 100])
async def test_deletions_between_pages_hide_no_existing_fax(deleted: int) -> None:
    listed = Failing(faxes(100), fails=lambda calls: calls == 6)
    listed.meanwhile = lambda: listed.faxes.__delitem__(slice(deleted))
    watch = watch_faxes(listed)
    assert set(await looked(watch)) | set(await looked(watch)) >= set(handles(100 - deleted))


async def test_poll_after_failure_ends_if_server_ignores_offset() -> None:
    listed = Failing(faxes(10), repeats_from=0, fails=lambda calls: calls == 2)
    listed.meanwhile = lambda: listed.faxes.__setitem__(slice(0), faxes(11, 10))
    watch = watch_faxes(listed)
    with pytest.raises(ds.ServerError):
        await watch.poll()
    listed.fails = lambda calls: calls > 20  # otherwise it would never end
    assert [each.message_handle for each in await watch.poll()] == handles(11)
    assert await watch.poll() == []


async def test_new_ones_that_shift_a_page_after_a_failure_hide_none_behind_it() -> None:
    listed = Failing(faxes(30), fails=lambda calls: calls == 3)
    listed.meanwhile = lambda: listed.faxes.__setitem__(slice(0), faxes(50, 30))
    watch = watch_faxes(listed)
    with pytest.raises(ds.ServerError):
        await watch.poll()
    page = listed.get_page

    async def shifting(offset: int) -> ds.FaxMessageInformation:
        answer = await page(offset)
        if len(listed.faxes) == 50:
            listed.faxes[:0] = faxes(60, 50)
        return answer

    listed.get_page = shifting  # type: ignore[method-assign]
    assert await looked(watch) == handles(60)
    assert await looked(watch) == []


async def test_bursts_during_polls_that_fail_hide_no_fax() -> None:
    for seed in SEEDS:
        chance, calls = random.Random(seed), itertools.count()
        listed = list(reversed(range(30)))

        async def page(
            offset: int, listed: list[int] = listed, chance: random.Random = chance, calls: Iterator[int] = calls
        ) -> ds.FaxMessageInformation:
            if len(listed) < 90 and chance.random() < 0.3:
                listed[:0] = reversed(range(len(listed), len(listed) + chance.choice([1, 2, 12])))
            if next(calls) < 120 and chance.random() < 0.3:
                raise ds.ServerError("it is broken", status=500)
            return ds.FaxMessageInformation(message_detail=[make_fax(each) for each in listed[offset : offset + 5]])

        watch, found = FaxPoller(page, page_of_none, lambda: 0.0), list[int]()
        while next(calls) < 400:
            found += [int(handle) for handle in await looked(watch)]
        assert sorted(found, reverse=True) == listed, f"seed {seed}"


async def page_of_none(_: str) -> ds.FaxMessageInformation:
    """Return no fax of this handle."""
    return ds.FaxMessageInformation()


async def test_faxes_before_second_failure_are_not_yielded_again() -> None:
    listed = Failing(faxes(40), fails=lambda calls: calls in (4, 6))
    listed.meanwhile = lambda: listed.faxes.__setitem__(slice(0), faxes(75, 40) if len(listed.faxes) == 40 else [])
    watch = watch_faxes(listed)
    reported = list[ds.FaxMessage]()
    for _ in range(3):
        try:
            reported += await watch.poll()
        except ds.ServerError:
            reported += watch.take_fresh()
    assert sorted(int(each.message_handle or 0) for each in reported) == list(range(75))
    assert await watch.poll() == []
