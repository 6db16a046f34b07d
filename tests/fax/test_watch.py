"""A fax number, watched: what is new, what has changed, and how many requests that takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import directsuite as ds
from tests.integration.world import FAX_NUMBER
from tests.jobs.delivery.scene import Clinic, clinic


@pytest.fixture
async def stage() -> AsyncIterator[Clinic]:
    async with clinic() as opened:
        yield opened


async def add(stage: Clinic, count: int = 1, status: str = "complete") -> list[str]:
    """Faxes, a minute after one another; their handles."""
    handles = list[str]()
    for _ in range(count):
        stage.sandbox.clock.advance(timedelta(minutes=1))
        handles.append(await stage.sandbox.add_fax(FAX_NUMBER, status=status))
    return handles


async def some(watched: ds.Listing[ds.FaxMessage], count: int) -> list[str]:
    """The handles of the next records."""
    return [(await anext(watched)).message_handle or "" for _ in range(count)]


def asked(stage: Clinic) -> tuple[int, int]:
    """Requests since the last time: for pages, and for single faxes."""
    counts = stage.requests["getMultipleMessageInfo"], stage.requests["getSingleMessageInfo"]
    stage.requests.clear()
    return counts


def every_minute(stage: Clinic, works: list[Callable[[], Any]]) -> None:
    """Have a work done whenever the watch sleeps; after the last of them the suite is closed."""
    sleep = stage.time.sleep

    async def sleep_and_work(seconds: float) -> None:
        await sleep(seconds)
        await (works.pop(0)() if works else stage.suite.aclose())

    stage.time.sleep = sleep_and_work  # type: ignore[method-assign]


async def nothing() -> None:
    """Nothing happens."""


async def test_the_records_that_are_there_come_first_the_oldest_of_them_before_all(stage: Clinic) -> None:
    handles = await add(stage, 23)
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 23) == handles
    assert asked(stage) == (4, 0)  # the last page is empty


async def test_new_ones_follow_and_a_look_at_nothing_new_takes_one_request(stage: Clinic) -> None:
    await add(stage, 23)
    async with stage.suite.fax.watch(FAX_NUMBER, interval=30) as watched:
        await some(watched, 23)
        asked(stage)
        new = list[str]()

        async def arrive() -> None:
            """Two more."""
            new.extend(await add(stage, 2))

        every_minute(stage, [nothing, nothing, nothing, arrive])
        assert await some(watched, 2) == new
        assert asked(stage) == (5, 0)  # the new ones' look goes on to a page on which nothing is new
        assert stage.time.slept == [30] * 4


async def test_one_under_way_is_told_again_when_it_is_complete_however_old_it_is(stage: Clinic) -> None:
    [waiting] = await add(stage, 1, "waiting")
    await add(stage, 40)
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        assert len(await some(watched, 41)) == 41
        asked(stage)

        async def complete() -> None:
            """It has arrived."""
            await stage.sandbox.set_fax_status(waiting, "complete")

        every_minute(stage, [nothing, complete, nothing, lambda: add(stage)])
        changed = await anext(watched)
        assert (changed.message_handle, changed.status) == (waiting, ds.FaxStatus.COMPLETE)
        assert asked(stage) == (2, 2)
        await anext(watched)
        assert asked(stage)[1] == 0  # it is looked at no more


async def test_several_under_way_on_a_page_take_that_page(stage: Clinic) -> None:
    await add(stage, 5)
    waiting = await add(stage, 3, "waiting")
    await add(stage, 32)  # they stand on the fourth page
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        await some(watched, 40)
        asked(stage)

        async def complete() -> None:
            """Two have arrived."""
            for handle in waiting[:2]:
                await stage.sandbox.set_fax_status(handle, "complete")

        every_minute(stage, [nothing, complete])
        assert sorted(await some(watched, 2)) == sorted(waiting[:2])
        assert asked(stage) == (4, 0)


async def test_one_that_stays_under_way_for_a_day_is_looked_at_no_more(stage: Clinic) -> None:
    await add(stage, 1, "waiting")
    await add(stage, 20)
    watched = stage.suite.fax.watch(FAX_NUMBER, interval=3_600)
    await some(watched, 21)
    asked(stage)
    every_minute(stage, [nothing] * 48 * 60)
    assert [message async for message in watched] == []
    pages, singles = asked(stage)
    assert pages == 48
    assert 23 <= singles <= 24


async def test_since_leaves_out_what_the_caller_has(stage: Clinic) -> None:
    await add(stage, 30)
    stage.sandbox.clock.advance(timedelta(days=2))
    [waiting] = await add(stage, 1, "waiting")
    await add(stage, 5)
    since = stage.sandbox.clock.now() + timedelta(seconds=1)
    new = await add(stage, 2)
    async with stage.suite.fax.watch(FAX_NUMBER, since=since) as watched:
        assert await some(watched, 2) == new
        assert asked(stage) == (2, 0)  # the second page lies days before it

        async def complete() -> None:
            """One that the caller has, and that has changed since."""
            await stage.sandbox.set_fax_status(waiting, "complete")

        every_minute(stage, [complete])
        assert await some(watched, 1) == [waiting]


async def test_pages_that_since_left_out_are_not_new_when_new_ones_shift_them(stage: Clinic) -> None:
    await add(stage, 40)
    stage.sandbox.clock.advance(timedelta(days=2))
    async with stage.suite.fax.watch(FAX_NUMBER, since=stage.sandbox.clock.now()) as watched:
        new = list[str]()

        async def arrive() -> None:
            """Five more, which bring five to the second page that were never seen."""
            new.extend(await add(stage, 5))

        every_minute(stage, [arrive, arrive])
        assert await some(watched, 10) == new
    assert asked(stage) == (1 + 2 + 2, 0)


async def test_failures_are_waited_out_and_lose_nothing(stage: Clinic) -> None:
    handles = await add(stage, 23)
    stage.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, skip=1, times=3)
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 23) == handles[13:] + handles[:13]  # what was found before them is told first
    assert stage.time.slept == [60] * 7


async def test_each_poll_is_reported_with_its_error_once_its_records_were_taken(stage: Clinic) -> None:
    [handle] = await add(stage)
    happenings = list[object]()

    def polled(error: ds.DirectSuiteError | None, wait: float) -> None:
        """Note the error's class, and the seconds until the next poll."""
        happenings.append((error and type(error), wait))

    async with stage.suite.fax.watch(FAX_NUMBER, on_poll=polled) as watched:
        happenings.append(await some(watched, 1))
        stage.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=2)
        every_minute(stage, [nothing] * 4)
        assert [message async for message in watched] == []
    broken = ds.ServerError
    assert happenings == [[handle], (None, 60), (broken, 60), (broken, 120), (None, 60)]


async def test_one_fax_is_watched_until_it_is_complete_however_old_it_is(stage: Clinic) -> None:
    [waiting] = await add(stage, 1, "waiting")
    await add(stage, 40)
    stage.sandbox.clock.advance(timedelta(days=3))
    every_minute(stage, [nothing, lambda: stage.sandbox.set_fax_status(waiting, "complete")])
    async with stage.suite.fax.watch(FAX_NUMBER, message_handle=waiting) as watched:
        records = [(message.message_handle, message.status) async for message in watched]
    assert records == [(waiting, ds.FaxStatus.WAITING), (waiting, ds.FaxStatus.COMPLETE)]
    assert asked(stage) == (0, 3)


async def test_one_fax_that_is_not_there_is_told_and_failures_are_waited_out(stage: Clinic) -> None:
    with pytest.raises(ds.BadRequestError):
        await anext(stage.suite.fax.watch(FAX_NUMBER, message_handle="none"))
    [handle] = await add(stage)
    stage.sandbox.inject_fault("getSingleMessageInfo", "status", status=503, times=2)
    async with stage.suite.fax.watch(FAX_NUMBER, message_handle=handle) as watched:
        assert [message.message_handle async for message in watched] == [handle]
    assert stage.time.slept == [60, 60, 60]


async def test_one_of_another_account_is_refused_at_once(stage: Clinic) -> None:
    await stage.sandbox.add_fax("15550100999", account="another")
    with pytest.raises(ds.PermissionDeniedError):
        await anext(stage.suite.fax.watch("15550100999"))
    assert asked(stage) == (1, 0)


@pytest.mark.parametrize(("status", "kind"), [(400, ds.BadRequestError), (404, ds.NotFoundError)])
async def test_a_number_that_is_refused_is_told_until_a_look_has_succeeded(
    status: int, kind: type[ds.ServiceError], stage: Clinic
) -> None:
    stage.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=1)
    stage.sandbox.inject_fault("getMultipleMessageInfo", "status", status=status, times=1)
    with pytest.raises(kind):
        await anext(stage.suite.fax.watch(FAX_NUMBER))
    assert asked(stage) == (2, 0)


async def test_a_refusal_after_a_look_that_succeeded_is_waited_out(stage: Clinic) -> None:
    first = await add(stage)
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 1) == first
        second = await add(stage)
        stage.sandbox.inject_fault("getMultipleMessageInfo", "status", status=404, times=2)
        assert await some(watched, 1) == second
    assert stage.time.slept == [60] * 4


async def test_of_a_longer_pause_than_an_hour_an_hour_is_kept(stage: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    handles, looks = await add(stage), list[None]()
    look = ds.Fax.get_multiple_message_info

    async def page(fax: ds.Fax, number: str, offset: int = 0, **timeout: Any) -> ds.FaxMessageInformation:
        """Too much, the first time."""
        looks.append(None)
        if len(looks) == 1:
            raise ds.RateLimitedError("it is too much", status=429, retry_after=86_400)
        return await look(fax, number, offset, **timeout)

    monkeypatch.setattr(ds.Fax, "get_multiple_message_info", page)
    async with stage.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 1) == handles
    assert stage.time.slept == [60] * 60  # in pieces that a clock of tests leaps over


async def test_a_suite_that_closes_ends_it_while_it_waits(stage: Clinic) -> None:
    await add(stage, 1)
    watched = stage.suite.fax.watch(FAX_NUMBER)
    await anext(watched)
    stage.time.hold()
    waiting = asyncio.create_task(anext(watched, None))
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.time.slept == [60]
    await stage.suite.aclose()
    assert await waiting is None


async def test_a_suite_that_is_not_open_is_told(stage: Clinic) -> None:
    suite = ds.DirectSuite(ds.Settings(fax_url=stage.sandbox.fax_url), token="token")
    with pytest.raises(ds.ClosedError):
        await anext(suite.fax.watch(FAX_NUMBER))


@pytest.mark.parametrize(
    "arguments",
    [
        *({"interval": 0}, {"interval": float("nan")}, {"since": 5}, {"timeout": -1}, {"fax_number": ""}),
        {"message_handle": ""},
    ],
)
async def test_what_can_t_be_is_refused(arguments: dict[str, Any], stage: Clinic) -> None:
    members: dict[str, Any] = {"fax_number": FAX_NUMBER} | arguments
    with pytest.raises(ds.InvalidArgumentError) as refused:
        stage.suite.fax.watch(**members)
    assert refused.value.parameter == next(iter(arguments))
