"""Watching a fax number: new faxes, changed faxes, and the number of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import directsuite as ds
from tests.integration.scenario import FAX_NUMBER
from tests.jobs.delivery.clinic import Clinic, open_clinic


@pytest.fixture
async def opened_clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


async def add(context: Clinic, count: int = 1, status: str = "complete") -> list[str]:
    handles = list[str]()
    for _ in range(count):
        context.sandbox.clock.advance(timedelta(minutes=1))
        handles.append(await context.sandbox.add_fax(FAX_NUMBER, status=status))
    return handles


async def some(watched: ds.Listing[ds.FaxMessage], count: int) -> list[str]:
    return [(await anext(watched)).message_handle or "" for _ in range(count)]


def asked(context: Clinic) -> tuple[int, int]:
    counts = context.request_counts["getMultipleMessageInfo"], context.request_counts["getSingleMessageInfo"]
    context.request_counts.clear()
    return counts


def every_minute(context: Clinic, works: list[Callable[[], Any]]) -> None:
    sleep = context.time.sleep

    async def sleep_and_work(seconds: float) -> None:
        await sleep(seconds)
        await (works.pop(0)() if works else context.suite.aclose())

    context.time.sleep = sleep_and_work  # type: ignore[method-assign]


async def nothing() -> None: ...


async def test_existing_faxes_are_yielded_first_oldest_first(opened_clinic: Clinic) -> None:
    handles = await add(opened_clinic, 23)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 23) == handles
    assert asked(opened_clinic) == (4, 0)  # the last page is empty


async def test_new_faxes_follow_and_poll_without_news_takes_one_request(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 23)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER, interval=30) as watched:
        await some(watched, 23)
        asked(opened_clinic)
        new = list[str]()

        async def arrive() -> None:
            new.extend(await add(opened_clinic, 2))

        every_minute(opened_clinic, [nothing, nothing, nothing, arrive])
        assert await some(watched, 2) == new
        assert asked(opened_clinic) == (5, 0)  # the poll continues until a page without new faxes
        assert opened_clinic.time.sleeps == [30] * 4


async def test_fax_in_progress_is_yielded_again_when_complete(opened_clinic: Clinic) -> None:
    [waiting] = await add(opened_clinic, 1, "waiting")
    await add(opened_clinic, 40)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert len(await some(watched, 41)) == 41
        asked(opened_clinic)

        async def complete() -> None:
            await opened_clinic.sandbox.set_fax_status(waiting, "complete")

        every_minute(opened_clinic, [nothing, complete, nothing, lambda: add(opened_clinic)])
        changed = await anext(watched)
        assert (changed.message_handle, changed.status) == (waiting, ds.FaxStatus.COMPLETE)
        assert asked(opened_clinic) == (2, 2)
        await anext(watched)
        assert asked(opened_clinic)[1] == 0  # it is looked at no more


async def test_several_faxes_in_progress_are_read_by_page(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 5)
    waiting = await add(opened_clinic, 3, "waiting")
    await add(opened_clinic, 32)  # on the fourth page
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        await some(watched, 40)
        asked(opened_clinic)

        async def complete() -> None:
            for handle in waiting[:2]:
                await opened_clinic.sandbox.set_fax_status(handle, "complete")

        every_minute(opened_clinic, [nothing, complete])
        assert sorted(await some(watched, 2)) == sorted(waiting[:2])
        assert asked(opened_clinic) == (4, 0)


async def test_fax_in_progress_for_a_day_is_polled_no_more(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 1, "waiting")
    await add(opened_clinic, 20)
    watched = opened_clinic.suite.fax.watch(FAX_NUMBER, interval=3_600)
    await some(watched, 21)
    asked(opened_clinic)
    every_minute(opened_clinic, [nothing] * 48 * 60)
    assert [message async for message in watched] == []
    pages, singles = asked(opened_clinic)
    assert pages == 48
    assert 23 <= singles <= 24


async def test_since_leaves_out_what_the_caller_has(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 30)
    opened_clinic.sandbox.clock.advance(timedelta(days=2))
    [waiting] = await add(opened_clinic, 1, "waiting")
    await add(opened_clinic, 5)
    since = opened_clinic.sandbox.clock.now() + timedelta(seconds=1)
    new = await add(opened_clinic, 2)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER, since=since) as watched:
        assert await some(watched, 2) == new
        assert asked(opened_clinic) == (2, 0)  # the second page lies days before it

        async def complete() -> None:
            await opened_clinic.sandbox.set_fax_status(waiting, "complete")

        every_minute(opened_clinic, [complete])
        assert await some(watched, 1) == [waiting]


async def test_faxes_before_since_stay_excluded_when_pages_shift(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 40)
    opened_clinic.sandbox.clock.advance(timedelta(days=2))
    async with opened_clinic.suite.fax.watch(FAX_NUMBER, since=opened_clinic.sandbox.clock.now()) as watched:
        new = list[str]()

        async def arrive() -> None:
            new.extend(await add(opened_clinic, 5))

        every_minute(opened_clinic, [arrive, arrive])
        assert await some(watched, 10) == new
    assert asked(opened_clinic) == (1 + 2 + 2, 0)


async def test_failures_are_waited_out_and_lose_nothing(opened_clinic: Clinic) -> None:
    handles = await add(opened_clinic, 23)
    opened_clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, skip=1, times=3)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 23) == handles[13:] + handles[:13]  # what was found before them is told first
    assert opened_clinic.time.sleeps == [60] * 7


async def test_each_poll_is_reported_with_its_error_once_its_records_were_taken(opened_clinic: Clinic) -> None:
    [handle] = await add(opened_clinic)
    entries = list[object]()

    def polled(error: ds.DirectSuiteError | None, wait: float) -> None:
        entries.append((error and type(error), wait))

    async with opened_clinic.suite.fax.watch(FAX_NUMBER, on_poll=polled) as watched:
        entries.append(await some(watched, 1))
        opened_clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=2)
        every_minute(opened_clinic, [nothing] * 4)
        assert [message async for message in watched] == []
    broken = ds.ServerError
    assert entries == [[handle], (None, 60), (broken, 60), (broken, 120), (None, 60)]


async def test_one_fax_is_watched_until_it_is_complete_however_old_it_is(opened_clinic: Clinic) -> None:
    [waiting] = await add(opened_clinic, 1, "waiting")
    await add(opened_clinic, 40)
    opened_clinic.sandbox.clock.advance(timedelta(days=3))
    every_minute(opened_clinic, [nothing, lambda: opened_clinic.sandbox.set_fax_status(waiting, "complete")])
    async with opened_clinic.suite.fax.watch(FAX_NUMBER, message_handle=waiting) as watched:
        records = [(message.message_handle, message.status) async for message in watched]
    assert records == [(waiting, ds.FaxStatus.WAITING), (waiting, ds.FaxStatus.COMPLETE)]
    assert asked(opened_clinic) == (0, 3)


async def test_missing_fax_raises_and_failures_are_retried(opened_clinic: Clinic) -> None:
    with pytest.raises(ds.BadRequestError):
        await anext(opened_clinic.suite.fax.watch(FAX_NUMBER, message_handle="none"))
    [handle] = await add(opened_clinic)
    opened_clinic.sandbox.inject_fault("getSingleMessageInfo", "status", status=503, times=2)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER, message_handle=handle) as watched:
        assert [message.message_handle async for message in watched] == [handle]
    assert opened_clinic.time.sleeps == [60, 60, 60]


async def test_one_of_another_account_is_rejected_immediately(opened_clinic: Clinic) -> None:
    await opened_clinic.sandbox.add_fax("15550100999", account="another")
    with pytest.raises(ds.PermissionDeniedError):
        await anext(opened_clinic.suite.fax.watch("15550100999"))
    assert asked(opened_clinic) == (1, 0)


@pytest.mark.parametrize(("status", "kind"), [(400, ds.BadRequestError), (404, ds.NotFoundError)])
async def test_rejected_number_raises_until_a_poll_succeeded(
    status: int, kind: type[ds.ServiceError], opened_clinic: Clinic
) -> None:
    opened_clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=1)
    opened_clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=status, times=1)
    with pytest.raises(kind):
        await anext(opened_clinic.suite.fax.watch(FAX_NUMBER))
    assert asked(opened_clinic) == (2, 0)


async def test_rejection_after_successful_poll_is_retried(opened_clinic: Clinic) -> None:
    first = await add(opened_clinic)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 1) == first
        second = await add(opened_clinic)
        opened_clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=404, times=2)
        assert await some(watched, 1) == second
    assert opened_clinic.time.sleeps == [60] * 4


async def test_retry_after_is_limited_to_an_hour(opened_clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    handles, looks = await add(opened_clinic), list[None]()
    look = ds.Fax.get_multiple_message_info

    async def page(fax: ds.Fax, number: str, offset: int = 0, **timeout: Any) -> ds.FaxMessageInformation:
        looks.append(None)
        if len(looks) == 1:
            raise ds.RateLimitedError("it is too much", status=429, retry_after=86_400)
        return await look(fax, number, offset, **timeout)

    monkeypatch.setattr(ds.Fax, "get_multiple_message_info", page)
    async with opened_clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await some(watched, 1) == handles
    assert opened_clinic.time.sleeps == [60] * 60  # in pieces that a clock of tests leaps over


async def test_suite_that_closes_ends_it_while_it_waits(opened_clinic: Clinic) -> None:
    await add(opened_clinic, 1)
    watched = opened_clinic.suite.fax.watch(FAX_NUMBER)
    await anext(watched)
    opened_clinic.time.hold()
    waiting = asyncio.create_task(anext(watched, None))
    for _ in range(20):
        await asyncio.sleep(0)
    assert opened_clinic.time.sleeps == [60]
    await opened_clinic.suite.aclose()
    assert await waiting is None


async def test_suite_that_is_not_open_is_reported(opened_clinic: Clinic) -> None:
    suite = ds.DirectSuite(ds.Settings(fax_url=opened_clinic.sandbox.fax_url), token="token")
    with pytest.raises(ds.ClosedError):
        await anext(suite.fax.watch(FAX_NUMBER))


@pytest.mark.parametrize(
    "arguments",
    [
        *({"interval": 0}, {"interval": float("nan")}, {"since": 5}, {"timeout": -1}, {"fax_number": ""}),
        {"message_handle": ""},
    ],
)
async def test_invalid_arguments_are_rejected(arguments: dict[str, Any], opened_clinic: Clinic) -> None:
    members: dict[str, Any] = {"fax_number": FAX_NUMBER} | arguments
    with pytest.raises(ds.InvalidArgumentError) as refused:
        opened_clinic.suite.fax.watch(**members)
    assert refused.value.parameter == next(iter(arguments))
