"""`Fax.watch`: the pauses between polls, errors, and the end of the iterator."""

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
async def clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


async def add_faxes(clinic: Clinic, count: int = 1, status: str = "complete") -> list[str]:
    handles = list[str]()
    for _ in range(count):
        clinic.sandbox.clock.advance(timedelta(minutes=1))
        handles.append(await clinic.sandbox.add_fax(FAX_NUMBER, status=status))
    return handles


async def read_handles(watched: ds.Listing[ds.FaxMessage], count: int) -> list[str]:
    return [(await anext(watched)).message_handle or "" for _ in range(count)]


def count_requests(clinic: Clinic) -> tuple[int, int]:
    counts = clinic.request_counts["getMultipleMessageInfo"], clinic.request_counts["getSingleMessageInfo"]
    clinic.request_counts.clear()
    return counts


def run_between_polls(clinic: Clinic, actions: list[Callable[[], Any]]) -> None:
    sleep = clinic.time.sleep

    async def sleep_and_run(seconds: float) -> None:
        await sleep(seconds)
        await (actions.pop(0)() if actions else clinic.suite.aclose())

    clinic.time.sleep = sleep_and_run  # type: ignore[method-assign]


async def nothing() -> None: ...


async def test_new_faxes_follow_the_existing_ones(clinic: Clinic) -> None:
    handles = await add_faxes(clinic, 23)
    async with clinic.suite.fax.watch(FAX_NUMBER, interval=30) as watched:
        assert await read_handles(watched, 23) == handles
        assert count_requests(clinic) == (4, 0)  # the last page is empty
        new = list[str]()

        async def arrive() -> None:
            new.extend(await add_faxes(clinic, 2))

        run_between_polls(clinic, [nothing, nothing, nothing, arrive])
        assert await read_handles(watched, 2) == new
        assert count_requests(clinic) == (5, 0)  # the poll continues until a page without new faxes
        assert clinic.time.sleeps == [30] * 4


async def test_failures_are_waited_out_and_lose_nothing(clinic: Clinic) -> None:
    handles = await add_faxes(clinic, 23)
    clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, skip=1, times=3)
    async with clinic.suite.fax.watch(FAX_NUMBER) as watched:
        # The faxes found before the failures are yielded first.
        assert await read_handles(watched, 23) == handles[13:] + handles[:13]
    assert clinic.time.sleeps == [60] * 7


async def test_each_poll_is_reported_after_its_records(clinic: Clinic) -> None:
    [handle] = await add_faxes(clinic)
    reports = list[object]()

    def polled(error: ds.DirectSuiteError | None, wait: float) -> None:
        reports.append((error and type(error), wait))

    async with clinic.suite.fax.watch(FAX_NUMBER, on_poll=polled) as watched:
        reports.append(await read_handles(watched, 1))
        clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=2)
        run_between_polls(clinic, [nothing] * 4)
        assert [message async for message in watched] == []
    broken = ds.ServerError
    assert reports == [[handle], (None, 60), (broken, 60), (broken, 120), (None, 60)]


async def test_single_fax_of_any_age_is_watched_until_complete(clinic: Clinic) -> None:
    [waiting] = await add_faxes(clinic, 1, "waiting")
    await add_faxes(clinic, 40)
    clinic.sandbox.clock.advance(timedelta(days=3))
    run_between_polls(clinic, [nothing, lambda: clinic.sandbox.set_fax_status(waiting, "complete")])
    async with clinic.suite.fax.watch(FAX_NUMBER, message_handle=waiting) as watched:
        records = [(message.message_handle, message.status) async for message in watched]
    assert records == [(waiting, ds.FaxStatus.WAITING), (waiting, ds.FaxStatus.COMPLETE)]
    assert count_requests(clinic) == (0, 3)


async def test_missing_fax_raises_and_failures_are_retried(clinic: Clinic) -> None:
    with pytest.raises(ds.BadRequestError):
        await anext(clinic.suite.fax.watch(FAX_NUMBER, message_handle="none"))
    [handle] = await add_faxes(clinic)
    clinic.sandbox.inject_fault("getSingleMessageInfo", "status", status=503, times=2)
    async with clinic.suite.fax.watch(FAX_NUMBER, message_handle=handle) as watched:
        assert [message.message_handle async for message in watched] == [handle]
    assert clinic.time.sleeps == [60, 60, 60]


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("detail", [[], None])
async def test_empty_response_does_not_end_the_watching_of_a_fax(detail: object, clinic: Clinic) -> None:
    empty = {"status": 200, "body": {"MessageDetail": detail}, "times": 1}
    clinic.sandbox.inject_fault("getSingleMessageInfo", "status", **empty)
    with pytest.raises(ds.NotFoundError, match="no fax"):
        await anext(clinic.suite.fax.watch(FAX_NUMBER, message_handle="none"))
    [handle] = await add_faxes(clinic, 1, "waiting")
    async with clinic.suite.fax.watch(FAX_NUMBER, message_handle=handle) as watched:
        assert await read_handles(watched, 1) == [handle]
        clinic.sandbox.inject_fault("getSingleMessageInfo", "status", **empty)
        run_between_polls(clinic, [nothing, lambda: clinic.sandbox.set_fax_status(handle, "complete")])
        assert await read_handles(watched, 1) == [handle]


async def test_number_of_another_account_is_rejected_immediately(clinic: Clinic) -> None:
    await clinic.sandbox.add_fax("15550100999", account="another")
    with pytest.raises(ds.PermissionDeniedError):
        await anext(clinic.suite.fax.watch("15550100999"))
    assert count_requests(clinic) == (1, 0)


@pytest.mark.parametrize(("status", "kind"), [(400, ds.BadRequestError), (404, ds.NotFoundError)])
async def test_rejected_number_raises_until_a_poll_succeeded(
    status: int, kind: type[ds.ServiceError], clinic: Clinic
) -> None:
    clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=503, times=1)
    clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=status, times=1)
    with pytest.raises(kind):
        await anext(clinic.suite.fax.watch(FAX_NUMBER))
    assert count_requests(clinic) == (2, 0)


async def test_rejection_after_successful_poll_is_retried(clinic: Clinic) -> None:
    first = await add_faxes(clinic)
    async with clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await read_handles(watched, 1) == first
        second = await add_faxes(clinic)
        clinic.sandbox.inject_fault("getMultipleMessageInfo", "status", status=404, times=2)
        assert await read_handles(watched, 1) == second
    assert clinic.time.sleeps == [60] * 4


async def test_retry_after_is_limited_to_an_hour(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    handles, requests = await add_faxes(clinic), list[None]()
    get_page = ds.Fax.get_multiple_message_info

    async def page(fax: ds.Fax, number: str, offset: int = 0, **timeout: Any) -> ds.FaxMessageInformation:
        requests.append(None)
        if len(requests) == 1:
            raise ds.RateLimitedError("it is too much", status=429, retry_after=86_400)
        return await get_page(fax, number, offset, **timeout)

    monkeypatch.setattr(ds.Fax, "get_multiple_message_info", page)
    async with clinic.suite.fax.watch(FAX_NUMBER) as watched:
        assert await read_handles(watched, 1) == handles
    assert clinic.time.sleeps == [60] * 60  # in pieces that a clock of tests leaps over


async def test_suite_that_closes_ends_it_while_it_waits(clinic: Clinic) -> None:
    await add_faxes(clinic, 1)
    watched = clinic.suite.fax.watch(FAX_NUMBER)
    await anext(watched)
    clinic.time.hold()
    waiting = asyncio.create_task(anext(watched, None))
    for _ in range(20):
        await asyncio.sleep(0)
    assert clinic.time.sleeps == [60]
    await clinic.suite.aclose()
    assert await waiting is None


async def test_suite_that_is_not_open_is_reported(clinic: Clinic) -> None:
    suite = ds.DirectSuite(ds.Settings(fax_url=clinic.sandbox.fax_url), token="token")
    with pytest.raises(ds.ClosedError):
        await anext(suite.fax.watch(FAX_NUMBER))


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(
    "arguments",
    [
        *({"interval": 0}, {"interval": float("nan")}, {"since": 5}, {"timeout": -1}, {"fax_number": ""}),
        {"message_handle": ""},
    ],
)
async def test_invalid_arguments_are_rejected(arguments: dict[str, Any], clinic: Clinic) -> None:
    members: dict[str, Any] = {"fax_number": FAX_NUMBER} | arguments
    with pytest.raises(ds.InvalidArgumentError) as refused:
        clinic.suite.fax.watch(**members)
    assert refused.value.parameter == next(iter(arguments))
