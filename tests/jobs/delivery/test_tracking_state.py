"""The journal's state has priority over that of a tracker that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence

import directsuite as ds
from directsuite.jobs.delivery.changes import RecipientStatus, TrackedMessage, TrackingState


def message(number: int, **members: object) -> TrackedMessage:
    followed = TrackedMessage(
        number=number, mailbox="m", smtp_id="<1@x.test>", added_at=0, recipients=1, give_up_after=1
    )
    for name, value in members.items():
        setattr(followed, name, value)
    return followed


async def test_reload_takes_statuses_from_journal_and_schedule_from_tracker() -> None:
    seen = {"bob@x.test": RecipientStatus("bob@x.test", ds.MessageStatus.WAITING, 1, is_end=False)}
    state = TrackingState(messages={"1@x.test": message(1, latest_poll_at=40.0, isolated=True)})

    async def read() -> Sequence[TrackedMessage]:
        return [message(1, seen=seen)]

    await state.load(read)
    loaded = state.messages["1@x.test"]
    assert (loaded.seen, loaded.latest_poll_at, loaded.isolated) == (seen, 40.0, True)


async def test_forgotten_and_added_message_is_taken_from_journal() -> None:
    state = TrackingState(messages={"1@x.test": message(1, latest_poll_at=40.0)})

    async def read() -> Sequence[TrackedMessage]:
        return [message(2)]

    await state.load(read)
    loaded = state.messages["1@x.test"]
    assert (loaded.number, loaded.latest_poll_at) == (2, 0.0)


async def test_message_added_during_reload_is_unchanged() -> None:
    state = TrackingState()

    async def read() -> Sequence[TrackedMessage]:
        state.messages["1@x.test"] = message(1, latest_poll_at=5.0)
        return [message(1)]

    await state.load(read)
    assert state.messages["1@x.test"].latest_poll_at == 5.0
