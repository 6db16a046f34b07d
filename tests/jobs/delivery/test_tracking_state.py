"""The state of tracked messages: the journal has priority over an interrupted tracker, and batches are split."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.delivery.journal import RecipientStatus, TrackedMessage, TrackingState
from directsuite.jobs.delivery.tracker import BatchQuery

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


async def test_message_that_succeeds_alone_is_requested_alone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = make_message(1), make_message(2)
    requests = list[Sequence[TrackedMessage]]()

    async def request(messages: Sequence[TrackedMessage]) -> ds.DirectSuiteError | None:
        requests.append(messages)
        return ds.ServiceError("it is refused", status=200, code=4) if bad in messages else None

    def sample(messages: list[TrackedMessage], _: int) -> list[TrackedMessage]:
        return messages

    monkeypatch.setattr(random, "sample", sample)
    query = BatchQuery(request)
    await query.run([[good, bad]])
    assert requests == [[good, bad], [good]]
    assert [each.messages for each in query.rejected_batches] == [[bad]]


async def test_only_denials_of_all_requests_deny_a_mailbox() -> None:
    async def request(messages: Sequence[TrackedMessage]) -> ds.DirectSuiteError:
        if len(messages) > 1:
            return ds.ServiceError("it is refused", status=200, code=4)
        return ds.PermissionDeniedError("it is not yours", status=403)

    query = BatchQuery(request)
    await query.run([[make_message(1), make_message(2)]])
    assert not query.is_denied
