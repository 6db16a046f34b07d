"""The fax facade: single messages, pages, and the iterator that goes through all pages."""

from __future__ import annotations

import itertools
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

import directsuite as ds
from tests.fake_services import FAX, FakeServices

NUMBER = "15550100100"
LIST = f"{FAX}/api/fax/getMessageList/{NUMBER}"

_RECORD = {
    "MessageHandle": "h1",
    "fax_number": NUMBER,
    "status": "complete",
    "updated_ts": "2026-05-01T12:00:00.000+0000",
    "recipients": [{"Address": NUMBER, "Name": "Clinic", "PageCount": 3, "description": "sent"}],
    "description": "Fax 1",
}
_MESSAGE = ds.FaxMessage(
    message_handle="h1",
    fax_number=NUMBER,
    status=ds.FaxStatus.COMPLETE,
    updated_ts=datetime(2026, 5, 1, 12, tzinfo=UTC),
    recipients=[ds.FaxRecipient(address=NUMBER, name="Clinic", page_count=3, description="sent")],
    description="Fax 1",
)
_RESPONSE = {"Username": "demo", "MessageHandle": "h1", "MessageDetail": [_RECORD], "description": "1 message"}
_INFORMATION = ds.FaxMessageInformation(
    username="demo", message_handle="h1", message_detail=[_MESSAGE], description="1 message"
)


def make_record(number: int, *, handle: bool = True) -> dict[str, Any]:
    """A fax told apart by its number."""
    return {"MessageHandle": f"h{number}"} if handle else {"description": f"Fax {number}"}


def make_page(*numbers: int, handle: bool = True) -> dict[str, Any]:
    """An answer with these faxes."""
    return {"Username": "demo", "MessageDetail": [make_record(number, handle=handle) for number in numbers]}


def list_numbers(messages: list[ds.FaxMessage]) -> list[int]:
    """The faxes' numbers."""
    return [int((message.message_handle or message.description or "").strip("Faxh ")) for message in messages]


def add_page_responses(stage: FakeServices, *pages: range | list[int], handle: bool = True) -> None:
    """Answer with these faxes, page by page, once each, and with an empty page after them."""
    offset = 0
    for numbers in [*pages, []]:
        stage.add_response("GET", f"{LIST}/{offset}", make_page(*numbers, handle=handle))
        offset += len(numbers)


# Pages before the empty one that ends the listing, and the faxes that come of them.
PAGES: dict[str, tuple[list[list[int]], list[int]]] = {
    "nothing": ([], []),
    "short page": ([[3, 2, 1]], [3, 2, 1]),
    "full page": ([list(range(10, 0, -1))], list(range(10, 0, -1))),
    "short page between others": ([[9, 8, 7], [6, 5, 4, 3], [2, 1]], list(range(9, 0, -1))),
    "short last page": ([list(range(25, 15, -1)), list(range(15, 5, -1)), [5, 4]], list(range(25, 3, -1))),
    "shifted by three new ones": (
        [list(range(25, 15, -1)), list(range(18, 8, -1)), list(range(8, 0, -1))],
        list(range(25, 0, -1)),
    ),
    "shifted by a whole page": (
        [list(range(25, 15, -1)), list(range(25, 15, -1)), list(range(15, 5, -1)), [5, 4]],
        list(range(25, 3, -1)),
    ),
    "twice in one page": ([[2, 2, 1]], [2, 1]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("handle", [True, False], ids=["by handle", "by the whole record"])
@pytest.mark.parametrize(("pages", "expected"), PAGES.values(), ids=PAGES)
async def test_every_fax_comes_once_newest_first(
    pages: list[list[int]], expected: list[int], handle: bool, services: FakeServices, suite: ds.DirectSuite
) -> None:
    add_page_responses(services, *pages, handle=handle)
    assert list_numbers([message async for message in suite.fax.iter_messages(NUMBER)]) == expected
    offsets = itertools.accumulate(map(len, pages), initial=0)
    assert [request.url for request in services.requests_by_url] == [f"{LIST}/{offset}" for offset in offsets]


async def test_same_handle_with_a_new_status_is_the_same_fax(services: FakeServices, suite: ds.DirectSuite) -> None:
    waiting, complete = make_record(1) | {"status": "waiting"}, make_record(1) | {"status": "complete"}
    services.add_response("GET", f"{LIST}/0", {"MessageDetail": [waiting, complete]})
    services.add_response("GET", f"{LIST}/2", make_page())
    assert [message.status async for message in suite.fax.iter_messages(NUMBER)] == [ds.FaxStatus.WAITING]


async def test_records_without_handle_that_differ_are_different_faxes(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    records = [{"description": "Fax", "updated_ts": 1}, {"description": "Fax", "updated_ts": 2}]
    services.add_response("GET", f"{LIST}/0", {"MessageDetail": records})
    services.add_response("GET", f"{LIST}/2", make_page())
    assert len([message async for message in suite.fax.iter_messages(NUMBER)]) == 2


@pytest.mark.parametrize(("limit", "offsets"), [(1, [0]), (10, [0]), (11, [0, 10]), (99, [0, 10, 20, 21])])
async def test_limit_ends_the_listing_without_a_further_page(
    limit: int, offsets: list[int], services: FakeServices, suite: ds.DirectSuite
) -> None:
    add_page_responses(services, range(25, 15, -1), range(15, 5, -1), [5])
    listed = list_numbers([message async for message in suite.fax.iter_messages(NUMBER, limit=limit)])
    assert listed == list(range(25, 4, -1))[:limit]
    assert [request.url for request in services.requests_by_url] == [f"{LIST}/{offset}" for offset in offsets]


async def test_leaving_early_asks_for_no_further_page(services: FakeServices, suite: ds.DirectSuite) -> None:
    add_page_responses(services, range(25, 15, -1))
    async with suite.fax.iter_messages(NUMBER) as messages:
        async for message in messages:
            assert message.message_handle == "h25"
            break
    assert [message async for message in messages] == []
    assert len(services.requests_by_url) == 1


async def test_nothing_is_sent_before_the_first_step(services: FakeServices, suite: ds.DirectSuite) -> None:
    async with aclosing(suite.fax.iter_messages(NUMBER)):
        pass
    assert services.requests_by_url == []
