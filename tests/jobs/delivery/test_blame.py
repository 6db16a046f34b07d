"""A message is blamed for a request that named it alone, and for others only where nothing at all is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest

import directsuite as ds
from directsuite.messaging.tracking import GIVE_UP_AFTER
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, Refusing, fragile_mailbox
from tests.jobs.delivery.test_refused_requests import IDS, broken, denied, refused
from tests.jobs.delivery.trackers import PROMPT, Scene, told

pytestmark = pytest.mark.wide

DAY = 86_400.0
ERRORS = [refused, broken, denied]
Raised = Callable[[], ds.DirectSuiteError]


async def ends(scene: Scene, box: FragileMailbox, smtp_ids: Sequence[str]) -> dict[str, bool]:
    """Whether each of these was delivered."""
    async with scene.journal() as journal:
        tracker = scene.tracker(journal, box)
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
        return {change.smtp_id: change.delivered for change in await told(tracker) if change.ends_message}


def not_delivered(ended: Mapping[str, bool]) -> set[str]:
    """Those."""
    return {smtp_id for smtp_id, good in ended.items() if not good}


@pytest.mark.by_default(1)
@pytest.mark.parametrize("error", ERRORS)
async def test_a_block_of_bad_ones_in_front_spoils_none_behind(error: Raised, scene: Scene) -> None:
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(IDS[:50]), error))
    ended = await ends(scene, box, IDS)
    assert not_delivered(ended) == {*IDS[:50]}
    assert len(ended) == 1_000
    assert len(box.asked) < 1_000


async def test_old_ones_behind_a_block_of_bad_ones_are_delivered_after_a_restart(scene: Scene) -> None:
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(IDS[:50]), refused))
    async with scene.journal() as journal:
        for smtp_id in IDS[:500]:
            await scene.tracker(journal, box).add(smtp_id)
    scene.clinic.sandbox.clock.advance(timedelta(days=3))
    assert not_delivered(await ends(scene, box, ())) == {*IDS[:50]}


@pytest.mark.by_default(1)
@pytest.mark.parametrize("error", [refused, broken])
@pytest.mark.parametrize("bad", [{25}, {0, 60, 125, 250, 500, 999}])
async def test_bad_ones_are_found_after_an_outage(bad: set[int], error: Raised, scene: Scene) -> None:
    some = {IDS[number] for number in bad}
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(some), error))
    good, outage = box.answer, Refusing(frozenset(IDS), error)
    box.answer = lambda smtp_ids: (outage if len(box.asked) <= 60 else good)(smtp_ids)
    ended = await ends(scene, box, IDS)
    assert not_delivered(ended) == some
    assert len(ended) == 1_000


async def test_one_that_is_denied_is_found_after_all_were_denied_for_some_loops(scene: Scene) -> None:
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(IDS), denied))
    added: Sequence[str] = IDS
    for _ in range(5):
        with pytest.raises(ds.PermissionDeniedError):
            await ends(scene, box, added)
        added = ()
    box.answer = Refusing(frozenset({IDS[25]}), denied)
    ended = await ends(scene, box, ())
    assert not_delivered(ended) == {IDS[25]}
    assert len(ended) == 1_000


async def test_a_request_that_is_denied_ends_no_loop_where_another_of_the_look_is_answered(scene: Scene) -> None:
    more = [f"<{number}@other.example.test>" for number in range(3)]
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(more), denied))
    ended = await ends(scene, box, [*IDS, *more])
    assert not_delivered(ended) == {*more}
    assert len(ended) == 1_003


@pytest.mark.by_default(1)
@pytest.mark.parametrize("last", range(200, 204))
async def test_an_outage_that_ends_within_a_look_gives_none_up(last: int, scene: Scene) -> None:
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(), broken))
    good, outage = box.answer, Refusing(frozenset(IDS), broken)
    box.answer = lambda smtp_ids: (outage if len(box.asked) <= last else good)(smtp_ids)
    assert not_delivered(await ends(scene, box, IDS[:10])) == set()
    assert sum(scene.clinic.time.slept) > GIVE_UP_AFTER


async def test_one_that_the_service_knows_late_is_asked_for_with_the_others_again(scene: Scene) -> None:
    begins = scene.clinic.time.monotonic()

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Refuses some for twelve seconds, and delivers all after half an hour."""
        age = scene.clinic.time.monotonic() - begins
        if age < 12 and {*IDS[5:12]} & {*smtp_ids}:
            raise refused()
        return {smtp_id: {PROMPT: "Delivered" if age > 1_800 else "Waiting"} for smtp_id in smtp_ids}

    box = fragile_mailbox(scene.clinic, answer)
    assert not_delivered(await ends(scene, box, IDS[:50])) == set()
    assert len(box.asked) < 80
    assert max(map(len, box.asked[-3:])) == 50


async def test_one_that_was_refused_once_is_not_given_up_in_an_outage_for_all(scene: Scene) -> None:
    begins = scene.clinic.time.monotonic()

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Refuses the first for twelve seconds, breaks down for longer than messages are waited for, and delivers."""
        age = scene.clinic.time.monotonic() - begins
        if age < 12 and IDS[0] in smtp_ids:
            raise refused()
        if 6_000 < age < 12_000:
            raise broken()
        done = {IDS[1]} if age < 12_000 else {*IDS}
        return {smtp_id: {PROMPT: "Delivered" if smtp_id in done else "Waiting"} for smtp_id in smtp_ids}

    assert not_delivered(await ends(scene, fragile_mailbox(scene.clinic, answer), IDS[:2])) == set()


@pytest.mark.by_default(1)
@pytest.mark.parametrize("count", [1, 2])
async def test_a_service_that_is_broken_for_all_is_given_up_a_day_later(count: int, scene: Scene) -> None:
    box = fragile_mailbox(scene.clinic, Refusing(frozenset(IDS), broken))
    assert not_delivered(await ends(scene, box, IDS[:count])) == {*IDS[:count]}
    assert sum(scene.clinic.time.slept) == pytest.approx(GIVE_UP_AFTER + DAY, abs=600)
