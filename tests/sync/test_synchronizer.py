"""Synchronisation of mailboxes of the sandbox: requests, changes and status."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.core.events import AttemptStarted, Event
from directsuite.sync import (
    Deliver,
    Kind,
    Passwords,
    RoundFinished,
    SqliteSink,
    SqliteStore,
    Store,
    Synchronizer,
    SyncStatus,
)
from tests.integration.scenario import ALICE, BOB, PASSWORD, Scenario, make_raw_message
from tests.sync.mail_service import RecordingSink, get_subject
from tests.waiting import wait_until

HALF_MINUTE_SECONDS = 30.0


@attrs.define
class FakePasswords:
    wrong: set[str] = attrs.field(factory=set[str])

    async def __call__(self, address: str) -> str:
        return "wrong" if address in self.wrong else PASSWORD


def make_sync(
    scenario: Scenario,
    store: Store,
    deliver: Deliver | None = None,
    *,
    mailboxes: Sequence[str] = (ALICE,),
    password: Passwords | None = None,
    **options: Any,
) -> Synchronizer:
    given: dict[str, Any] = {"clock": scenario.clock, **options}
    return Synchronizer(scenario.suite, store, mailboxes, password or FakePasswords(), deliver=deliver, **given)


@attrs.define
class EventCounter:
    requests: Counter[str] = attrs.field(factory=Counter[str])
    rounds: list[RoundFinished] = attrs.field(factory=list[RoundFinished])

    def __call__(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self.requests[event.operation] += 1
            case RoundFinished():
                self.rounds.append(event)
            case _:
                pass


async def test_mail_is_delivered_once_and_an_idle_poll_is_one_request(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    told = RecordingSink()
    await scenario.deliver("one", "two", "three")
    sync = make_sync(scenario, store, told)
    await sync.once()
    assert told.subjects == [("new", "one"), ("new", "two"), ("new", "three")]
    assert [str(each.key) for each in told.changes] == [f"{ALICE}/INBOX/1/{uid}" for uid in (1, 2, 3)]
    await sync.once()  # sentinels are looked at for the first time
    heard.requests.clear()
    for _ in range(5):
        await sync.once()
    assert heard.requests == {"GetUIDs": 5}
    await scenario.box.delete_messages_by_uids("INBOX", [2], forever=True)
    await scenario.deliver("four")
    status = await sync.once()
    assert told.subjects[3:] == [("new", "four"), ("gone", None)]
    assert status[ALICE].status is SyncStatus.UP_TO_DATE
    assert status[ALICE].changes == {Kind.NEW: 4, Kind.GONE: 1}
    assert sum(each.new for each in heard.rounds) == 4


async def test_messages_of_a_renamed_folder_are_reported_as_moved(scenario: Scenario, store: SqliteStore) -> None:
    told = RecordingSink()
    await scenario.box.create_folder("INBOX.Before")
    await scenario.deliver("one", "two", folder="INBOX.Before")
    sync = make_sync(scenario, store, told, folders=None)
    await sync.once()
    await scenario.box.move_folder("INBOX.Before", "INBOX.After")
    await sync.once()
    assert [each.kind for each in told.changes] == [Kind.NEW, Kind.NEW, Kind.MOVED, Kind.MOVED]
    assert [each.key.folder for each in told.changes[2:]] == ["INBOX.After"] * 2


async def test_sink_that_fails_gets_everything_again(scenario: Scenario, store: SqliteStore) -> None:
    told = RecordingSink(error=OSError(28, "no space"))
    await scenario.deliver("one")
    sync = make_sync(scenario, store, told)
    status = (await sync.once())[ALICE]
    assert status.status is SyncStatus.FAILING
    assert "disk of the sink is full" in str(status.problem)
    told.error = None
    status = (await sync.once())[ALICE]
    assert told.subjects == [("new", "one")]
    assert (status.status, status.problem, status.failures) == (SyncStatus.UP_TO_DATE, None, 0)


async def test_wrong_password_affects_one_mailbox_and_is_recovered(scenario: Scenario, store: SqliteStore) -> None:
    told, passwords = RecordingSink(), FakePasswords(wrong={ALICE})
    await scenario.deliver("hers")
    await scenario.sandbox.deliver(BOB, make_raw_message("his"))
    sync = make_sync(scenario, store, told, mailboxes=[ALICE, BOB], password=passwords)
    status = await sync.once()
    assert status[ALICE].status is SyncStatus.FAILING
    problem = "The service rejected the mailbox's password. Provide the correct one."
    assert status[ALICE].problem == problem
    with pytest.raises(ds.DirectSuiteError) as caught:
        status.raise_for_failures()
    number = status[ALICE].number
    assert str(caught.value) == f"1 of 2 mailboxes were not synchronised completely. Mailbox {number}: {problem}"
    assert status[BOB].status is SyncStatus.UP_TO_DATE
    assert repr(status) == "SyncProgress(1 failing, 1 up to date)"
    passwords.wrong.clear()
    status = await sync.once()
    status.raise_for_failures()
    assert status[ALICE].status is SyncStatus.UP_TO_DATE
    assert told.subjects == [("new", "his"), ("new", "hers")]


async def test_run_that_was_stopped_is_not_complete(scenario: Scenario, store: SqliteStore) -> None:
    sync = make_sync(scenario, store, RecordingSink())
    sync.stop()
    with pytest.raises(ds.DirectSuiteError) as caught:
        (await sync.once()).raise_for_failures()
    assert (
        str(caught.value) == "1 of 1 mailboxes were not synchronised completely. Call once() again to receive the rest."
    )
    complete = await sync.once()
    complete.raise_for_failures()
    sync.stop()
    stopped = await sync.once()
    assert (complete[ALICE].status, stopped[ALICE].status) == (SyncStatus.UP_TO_DATE, SyncStatus.CATCHING_UP)


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("password", "problem"),
    [
        (KeyError("vault"), "The password function raised KeyError. Correct the function."),
        (asyncio.CancelledError(), "The password function raised CancelledError. Correct the function."),
        *((each, "password") for each in (None, "", 7)),
    ],
)
async def test_invalid_password_is_reported_by_mailbox_number(
    scenario: Scenario, password: Any, problem: str, store: SqliteStore
) -> None:
    async def wrong(_: str) -> Any:
        if isinstance(password, BaseException):
            raise password
        return password

    sync = make_sync(scenario, store, RecordingSink(), password=wrong)
    status = (await sync.once())[ALICE]
    assert (status.status, status.number) == (SyncStatus.FAILING, 1)
    assert problem in str(status.problem)
    lease = await store.claim(ALICE)
    await sync.once()
    assert (await store.claim(ALICE)).lease_number == lease.lease_number + 1, "the second round took the lease"


async def test_a_deleted_folder_is_reported_and_others_are_synchronised(scenario: Scenario, store: SqliteStore) -> None:
    told = RecordingSink()
    await scenario.box.create_folder("INBOX.Short")
    folders = ("INBOX.Short", "INBOX")
    sync = make_sync(scenario, store, told, folders=folders)
    await sync.once()
    await scenario.box.delete_folder("INBOX.Short")
    await scenario.deliver("one")
    status = (await sync.once())[ALICE]
    assert (status.status, list(status.folders)) == (SyncStatus.FAILING, ["INBOX.Short"])
    assert "server has no such folder" in status.folders["INBOX.Short"]
    assert told.subjects == [("new", "one")]
    await scenario.box.create_folder("INBOX.Short")
    await scenario.deliver("two", folder="INBOX.Short")
    status = (await sync.once())[ALICE]
    assert status.status is SyncStatus.UP_TO_DATE
    assert told.subjects[-1] == ("new", "two")


@attrs.define
class SteppedClock:
    now: float = 0.0
    sleepers: list[tuple[float, asyncio.Future[None]]] = attrs.field(factory=list[tuple[float, asyncio.Future[None]]])

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + seconds, woken))
        await woken

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [woken for end, woken in self.sleepers if end <= self.now and not woken.done()]
        self.sleepers = [(end, woken) for end, woken in self.sleepers if end > self.now]
        for woken in due:
            woken.set_result(None)


async def test_run_polls_at_its_interval_and_ends_when_cancelled(scenario: Scenario, store: SqliteStore) -> None:
    finished = asyncio.Queue[RoundFinished]()
    scenario.suite.add_listener(lambda event: finished.put_nowait(event) if isinstance(event, RoundFinished) else None)
    clock = SteppedClock()
    sync = make_sync(scenario, store, RecordingSink(), mailboxes=[ALICE, BOB], clock=clock)
    running = asyncio.create_task(sync.run())
    for _ in range(5):
        for _ in range(2):
            assert (await finished.get()).failure is None
        clock.advance(0.8 * HALF_MINUTE_SECONDS)
        for _ in range(20):
            await asyncio.sleep(0)
        assert finished.empty()  # it is not time yet, whatever the jitter
        clock.advance(0.4 * HALF_MINUTE_SECONDS)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_changes_are_done_when_the_loop_asks_for_the_next(scenario: Scenario, store: SqliteStore) -> None:
    await scenario.deliver("one", "two")
    seen = list[str | None]()
    sync = make_sync(scenario, store)
    async with sync.changes() as changes:
        async for change in changes:
            seen.append(get_subject(change))
            if len(seen) == 2:
                break  # the second is not acknowledged, so the batch is repeated
    async with sync.changes() as changes:
        async for change in changes:
            seen.append(get_subject(change))
            if len(seen) == 4:
                await scenario.deliver("three")
            if len(seen) == 5:
                break
    assert seen == ["one", "two", "one", "two", "three"]


async def test_step_that_is_interrupted_is_continued_by_the_next(scenario: Scenario, store: SqliteStore) -> None:
    seen, clock = list[str | None](), SteppedClock()
    sync = make_sync(scenario, store, clock=clock)
    async with asyncio.timeout(60), sync.changes() as changes:
        for subject in ("one", "two", "three"):
            waiting = asyncio.ensure_future(anext(changes))
            for _ in range(len(subject)):  # at various points of a round
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
        await scenario.deliver("one", "two", "three")
        while len(seen) < 3:
            waiting = asyncio.ensure_future(anext(changes))
            for _ in range(3):
                await asyncio.sleep(0)
            if waiting.done():
                seen.append(get_subject(waiting.result()))
                continue
            waiting.cancel()
            await asyncio.wait([waiting])
            clock.advance(1.0)
        assert seen == ["one", "two", "three"]


async def test_second_stream_receives_the_mail_of_an_idle_mailbox(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    await scenario.deliver("one")
    sync = make_sync(scenario, store)
    async with sync.changes() as changes:
        assert get_subject(await anext(changes)) == "one"
        waiting = asyncio.ensure_future(anext(changes))
        await wait_until(lambda: len(heard.rounds) > 1)  # the second round has nothing to deliver
        waiting.cancel()
        await asyncio.wait([waiting])
    await scenario.deliver("two")
    async with asyncio.timeout(60), sync.changes() as changes:
        assert get_subject(await anext(changes)) == "two"


async def test_error_that_ends_the_synchronisation_is_raised_by_the_step(scenario: Scenario) -> None:
    async with SqliteStore(":memory:", sink=SqliteSink()) as store:
        sync = make_sync(scenario, store)
        async with sync.changes() as changes:
            with pytest.raises(ds.ConfigurationError, match="already has a sink"):
                await anext(changes)
            with pytest.raises(StopAsyncIteration):
                await anext(changes)


async def test_stream_that_nothing_refers_to_ends_its_synchronisation(scenario: Scenario, store: SqliteStore) -> None:
    await scenario.deliver("one")
    sync = make_sync(scenario, store)
    async for change in sync.changes():
        assert get_subject(change) == "one"
        break
    gc.collect()
    running = [task for task in asyncio.all_tasks() if "Synchronizer." in repr(task.get_coro())]
    if running:
        await asyncio.wait(running)
    async with sync.changes() as changes:
        assert get_subject(await anext(changes)) == "one"


async def test_changes_are_rejected_if_deliver_was_given(scenario: Scenario, store: SqliteStore) -> None:
    sync = make_sync(scenario, store, RecordingSink())
    with pytest.raises(ds.ConfigurationError, match="deliver="):
        await anext(sync.changes())


async def test_second_loop_is_rejected_until_the_first_has_ended(scenario: Scenario, store: SqliteStore) -> None:
    await scenario.deliver("one")
    sync = make_sync(scenario, store)
    async with sync.changes() as changes, sync.changes() as others:
        assert get_subject(await anext(changes)) == "one"
        with pytest.raises(ds.ConfigurationError, match="leave the `async with` block of the other loop first"):
            await anext(others)
        await scenario.deliver("two")
        assert get_subject(await anext(changes)) == "two"


async def test_repr_shows_no_mailbox_folder_or_subject(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    told = RecordingSink()
    await scenario.deliver("biopsy")
    sync = make_sync(scenario, store, told)
    status = await sync.once()
    shown = [repr(each) for each in (*told.changes, told.changes[0].key, *status.values(), *heard.rounds)]
    for text in shown:
        assert not any(word in text for word in ("alice", "biopsy", "INBOX")), text


async def test_synchronizer_without_sink_is_rejected_before_any_commit(scenario: Scenario, store: SqliteStore) -> None:
    sync = make_sync(scenario, store)
    for starting in (sync.once, sync.run):
        with pytest.raises(ds.ConfigurationError, match="No sink receives the changes"):
            await starting()


def test_text_instead_of_a_list_is_rejected(scenario: Scenario, store: SqliteStore) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="mailboxes: must be a list"):
        Synchronizer(scenario.suite, store, ALICE, FakePasswords())
    with pytest.raises(ds.InvalidArgumentError, match="folders: must be a list"):
        Synchronizer(scenario.suite, store, [ALICE], FakePasswords(), folders="INBOX")
