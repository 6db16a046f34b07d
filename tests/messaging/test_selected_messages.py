"""Messages that are selected by time, number and order, and uids that the service leaves out."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from aioresponses import CallbackResult
from yarl import URL

import directsuite as ds
from directsuite.types import MessageList
from tests.fake_services import MESSAGE, SUCCESS, FakeServices
from tests.messaging.test_listings import uids_of

DAY = datetime(2026, 5, 1, tzinfo=UTC)


class Folder:
    """Responds to GetUIDs for INBOX, and to batches by uid in descending order."""

    def __init__(self, services: FakeServices, uids: list[int], vanished: frozenset[int] = frozenset()) -> None:
        self.batches: list[list[int]] = []
        self._vanished = vanished
        services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": uids})
        for operation in ("GetMessagesByUIDs", "GetRawMessagesByUIDs"):
            services.add_response("POST", f"{MESSAGE}/{operation}/INBOX", callback=self._respond, repeat=True)

    async def _respond(self, _url: URL, **request: Any) -> CallbackResult:
        uids: list[int] = json.loads(request["data"])["uids"]
        self.batches.append(uids)
        messages = [{"uid": uid, "msgID": f"<{uid}>"} for uid in reversed(uids) if uid not in self._vanished]
        return CallbackResult(payload=SUCCESS | {"messages": messages})


SELECTIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "newest first": ({"newest_first": True}, [9, 8, 6, 5, 3, 2]),
    "the oldest": ({"limit": 2}, [2, 3]),
    "the newest": ({"limit": 2, "newest_first": True}, [9, 8]),
    "the newest, in more requests": ({"limit": 5, "newest_first": True, "batch_size": 2}, [9, 8, 6, 5, 3]),
    "limit above the number": ({"limit": 50}, [2, 3, 5, 6, 8, 9]),
    "since": ({"since": DAY}, [6, 8, 9]),
    "the newest since": ({"since": DAY, "limit": 2, "newest_first": True}, [9, 8]),
}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(("options", "expected"), SELECTIONS.values(), ids=SELECTIONS)
async def test_messages_are_selected(
    options: dict[str, Any], expected: list[int], services: FakeServices, box: ds.Mailbox
) -> None:
    folder = Folder(services, list(range(1, 10)), vanished=frozenset({1, 4, 7}))
    milliseconds = int(DAY.timestamp() * 1000)
    found = [{"uid": uid} for uid in (9, 7, 6, 8)]
    search = f"{MESSAGE}/SearchMessagesMetadataByReceivedDate/INBOX/{milliseconds}/253402300799000"
    services.add_response("POST", search, SUCCESS | {"messages": found})
    assert await uids_of(box.iter_messages(**options)) == expected
    if "limit" in options:  # no more is fetched than was needed
        assert len({uid for batch in folder.batches for uid in batch} - {1, 4, 7}) == len(expected)


async def test_limit_holds_if_the_service_returns_more(services: FakeServices, box: ds.Mailbox) -> None:
    services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": [1, 2, 3]})
    more = SUCCESS | {"messages": [{"uid": uid} for uid in (1, 2, 3)]}
    services.add_response("POST", f"{MESSAGE}/GetMessagesByUIDs/INBOX", more)
    assert await uids_of(box.iter_messages(limit=2)) == [1, 2]


@pytest.mark.parametrize("name", ["get_messages_by_uids", "get_raw_messages_by_uids"])
async def test_uids_that_the_service_left_out_are_listed(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    Folder(services, [], vanished=frozenset({4, 7}))
    messages: MessageList[ds.MessageDetail] = await getattr(box, name)("INBOX", (uid for uid in [7, 3, 4, 7, 5]))
    assert [message.uid for message in messages] == [5, 3]
    assert messages.missing_uids == [7, 4]
    for copied in (copy.copy(messages), pickle.loads(pickle.dumps(messages))):  # noqa: S301  it is our own
        assert (copied, copied.missing_uids) == (messages, [7, 4])
    assert (await getattr(box, name)("INBOX", [])).missing_uids == []
