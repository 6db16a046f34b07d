"""The journal's state has priority over that of a tracker that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.delivery.journal import RecipientStatus, TrackedMessage, TrackingState

KEY = "1@x.test"
NONE_SEEN: dict[str, RecipientStatus] = {}
SEEN = {"bob@x.test": RecipientStatus("bob@x.test", ds.MessageStatus.WAITING, 1, is_end=False)}


def make_message(number: int = 1, **members: Any) -> TrackedMessage:
    message = TrackedMessage(number=number, mailbox="m", smtp_id=f"<{KEY}>", added_at=0, recipients=1, give_up_after=1)
    return attrs.evolve(message, **members)


@pytest.mark.parametrize(
    ("known", "added", "read", "loaded"),
    [
        # statuses of the journal, and the schedule of the tracker
        ({"latest_poll_at": 40.0, "isolated": True}, None, {"seen": SEEN}, (1, SEEN, 40.0, True)),
        # forgotten and added again
        ({"latest_poll_at": 40.0}, None, {"number": 2}, (2, NONE_SEEN, 0.0, False)),
        # added while the journal is read
        (None, {"latest_poll_at": 5.0}, {"number": 1}, (1, NONE_SEEN, 5.0, False)),
    ],
)
async def test_reload_replaces_what_the_journal_knows(
    known: dict[str, Any] | None, added: dict[str, Any] | None, read: dict[str, Any], loaded: tuple[Any, ...]
) -> None:
    state = TrackingState(messages={} if known is None else {KEY: make_message(**known)})

    async def load() -> Sequence[TrackedMessage]:
        if added is not None:
            state.messages[KEY] = make_message(**added)
        return [make_message(**read)]

    await state.load(load)
    message = state.messages[KEY]
    assert (message.number, message.seen, message.latest_poll_at, message.isolated) == loaded
