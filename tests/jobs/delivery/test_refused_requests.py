"""A Message-ID that the service doesn't like spoils its own message, and not those that were asked for with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryTracker, Journal
from directsuite.messaging.tracking import GIVE_UP_AFTER
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, Refusing, fragile_mailbox
from tests.jobs.delivery.scene import Clinic, clinic

IDS = [f"<{number}@direct.example.test>" for number in range(1_000)]


def refused() -> ds.DirectSuiteError:
    """As most services say it."""
    return ds.ServiceError("it is refused", status=200, code=4)


def broken() -> ds.DirectSuiteError:
    """As some Java services say it."""
    return ds.ServerError("it is broken", status=500)


def denied() -> ds.DirectSuiteError:
    """As services say it that look whose message it is."""
    return ds.PermissionDeniedError("it is not yours", status=403)


def unreadable() -> ds.DirectSuiteError:
    """A record that no one can read spoils the whole answer."""
    return ds.ResponseDecodeError("it can't be read")


def down() -> ds.DirectSuiteError:
    """Nothing is wrong with what was asked for."""
    return ds.ServerError("it is down", status=503)


@pytest.fixture
async def stage() -> AsyncIterator[Clinic]:
    async with clinic() as opened:
        yield opened


async def followed(stage: Clinic, box: FragileMailbox, folder: Path, smtp_ids: Sequence[str]) -> dict[str, bool]:
    """Whether each of these messages was delivered, in the order in which they ended."""
    async with Journal(folder / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=stage.time.monotonic)
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
        return {change.smtp_id: change.delivered async for change in tracker.changes() if change.ends_message}


@pytest.mark.parametrize("error", [refused, unreadable, broken, denied])
async def test_the_others_are_delivered_at_once_and_it_is_given_up(
    error: Callable[[], ds.DirectSuiteError], stage: Clinic, tmp_path: Path
) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset({IDS[7], IDS[40]}), error))
    delivered = await followed(stage, box, tmp_path, IDS[:50])
    assert [smtp_id for smtp_id, good in delivered.items() if not good] == [IDS[7], IDS[40]]
    assert len(delivered) == 50
    found = next(count for count, asked in enumerate(box.asked) if asked == [IDS[40]])
    assert found < 50
    assert all(len(asked) == 1 for asked in box.asked[found:])
    assert len(box.asked) < 100


@pytest.mark.parametrize("error", [broken, denied])
async def test_one_that_alone_is_left_is_given_up_after_a_restart_too(
    error: Callable[[], ds.DirectSuiteError], stage: Clinic, tmp_path: Path
) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset({IDS[3]}), error))
    async with Journal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=stage.time.monotonic)
        for smtp_id in IDS[:5]:
            await tracker.add(smtp_id)
        async with tracker.changes() as changes:
            ended = [(await anext(changes)).smtp_id for _ in range(4)]
    assert {*ended} == {*IDS[:5]} - {IDS[3]}
    assert await followed(stage, box, tmp_path, ()) == {ended[-1]: True, IDS[3]: False}
    assert len(box.asked) < 60


async def test_a_service_that_denies_everything_ends_the_loop_and_loses_nothing(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(IDS), denied))
    for _ in range(2):
        with pytest.raises(ds.PermissionDeniedError):
            await followed(stage, box, tmp_path, IDS[:50])
    box.answer = Refusing(frozenset(), denied)
    assert len(await followed(stage, box, tmp_path, ())) == 50


async def test_the_only_message_is_denied_once_and_stands_in_no_other_s_way(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset({IDS[0]}), denied))
    with pytest.raises(ds.PermissionDeniedError):
        await followed(stage, box, tmp_path, IDS[:1])
    assert await followed(stage, box, tmp_path, IDS[1:3]) == {IDS[1]: True, IDS[2]: True, IDS[0]: False}


async def test_a_service_that_is_broken_for_all_gives_nothing_up(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(IDS), broken))
    box.answer = Mended(box)
    assert [*(await followed(stage, box, tmp_path, IDS[:50])).values()] == [True] * 50
    assert sum(stage.time.slept) > GIVE_UP_AFTER


class Mended:
    """Refuses for 250 requests, and then no more."""

    def __init__(self, box: FragileMailbox) -> None:
        self._box = box
        self._refusing = box.answer

    def __call__(self, smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if len(self._box.asked) > 250:
            return Refusing(frozenset(), broken)(smtp_ids)
        return self._refusing(smtp_ids)


@pytest.mark.wide
async def test_a_service_that_refuses_everything_is_left_alone_more_and_more(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(IDS), refused))
    ends = await followed(stage, box, tmp_path, IDS)
    assert set(ends.values()) == {False}
    assert len(ends) == 1_000
    assert len(box.asked) < 250


async def test_one_is_found_in_spite_of_an_outage_before(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(IDS), refused))
    bad, all_refused = Refusing(frozenset({IDS[7]}), refused), box.answer
    box.answer = lambda smtp_ids: (all_refused if len(box.asked) < 100 else bad)(smtp_ids)
    ends = await followed(stage, box, tmp_path, IDS[:500])
    assert [smtp_id for smtp_id, good in ends.items() if not good][-1] == IDS[7]
    assert sum(ends.values()) == 499


async def test_old_ones_are_not_given_up_for_a_refusal_of_the_moment(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(), refused))
    async with Journal(tmp_path / "delivery.db") as journal:
        for smtp_id in IDS[:50]:
            await DeliveryTracker(box, journal=journal, now=stage.time.monotonic).add(smtp_id)
    stage.sandbox.clock.advance(timedelta(days=3))
    good, bad, begins = box.answer, Refusing(frozenset(IDS), refused), stage.time.monotonic()
    box.answer = lambda smtp_ids: (bad if stage.time.monotonic() < begins + 240 else good)(smtp_ids)
    ends = await followed(stage, box, tmp_path, ())
    assert list(ends.values()) == [True] * 50


async def test_a_service_that_is_down_is_asked_for_all_together(stage: Clinic, tmp_path: Path) -> None:
    box = fragile_mailbox(stage, Refusing(frozenset(IDS[:50]), down))
    async with Journal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=stage.time.monotonic)
        for smtp_id in IDS[:50]:
            await tracker.add(smtp_id)
        changes = tracker.changes()
        box.answer = Mended(box)
        await anext(changes)
    assert all(len(asked) == 50 for asked in box.asked)
