"""What a journal knows better than a tracker that was broken off, and what it doesn't know."""

from __future__ import annotations

from collections.abc import Sequence

import directsuite as ds
from directsuite.jobs.delivery.changes import Followed, Seen
from directsuite.jobs.delivery.following import Following


def message(number: int, **members: object) -> Followed:
    """The same message, in a row of this number."""
    followed = Followed(number=number, mailbox="m", smtp_id="<1@x.test>", added_at=0, recipients=1, give_up_after=1)
    for name, value in members.items():
        setattr(followed, name, value)
    return followed


async def test_what_was_seen_is_the_journal_s_and_when_to_look_is_the_tracker_s() -> None:
    seen = {"bob@x.test": Seen("bob@x.test", ds.MessageStatus.WAITING, 1, is_end=False)}
    following = Following(messages={"1@x.test": message(1, latest=40.0, apart=True)})

    async def read() -> Sequence[Followed]:
        return [message(1, seen=seen)]

    await following.load(read)
    loaded = following.messages["1@x.test"]
    assert (loaded.seen, loaded.latest, loaded.apart) == (seen, 40.0, True)


async def test_one_that_was_forgotten_and_added_again_is_the_journal_s() -> None:
    following = Following(messages={"1@x.test": message(1, latest=40.0)})

    async def read() -> Sequence[Followed]:
        return [message(2)]

    await following.load(read)
    loaded = following.messages["1@x.test"]
    assert (loaded.number, loaded.latest) == (2, 0.0)


async def test_one_that_is_added_while_the_journal_is_read_stays_as_it_was_added() -> None:
    following = Following()

    async def read() -> Sequence[Followed]:
        following.messages["1@x.test"] = message(1, latest=5.0)
        return [message(1)]

    await following.load(read)
    assert following.messages["1@x.test"].latest == 5.0
