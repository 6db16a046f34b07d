"""Listings compare fax records by handle, or completely if they have none."""

from __future__ import annotations

from contextlib import aclosing

import directsuite as ds
from tests.fake_services import FAX, FakeServices

NUMBER = "15550100100"
LIST = f"{FAX}/api/fax/getMessageList/{NUMBER}"


async def test_same_handle_with_a_new_status_is_the_same_fax(services: FakeServices, suite: ds.DirectSuite) -> None:
    waiting, complete = {"MessageHandle": "h1", "status": "waiting"}, {"MessageHandle": "h1", "status": "complete"}
    services.add_response("GET", f"{LIST}/0", {"MessageDetail": [waiting, complete]})
    services.add_response("GET", f"{LIST}/2", {"MessageDetail": []})
    assert [message.status async for message in suite.fax.iter_messages(NUMBER)] == [ds.FaxStatus.WAITING]


async def test_records_without_handle_that_differ_are_different_faxes(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    records = [{"description": "Fax", "updated_ts": 1}, {"description": "Fax", "updated_ts": 2}]
    services.add_response("GET", f"{LIST}/0", {"MessageDetail": records})
    services.add_response("GET", f"{LIST}/2", {"MessageDetail": []})
    assert len([message async for message in suite.fax.iter_messages(NUMBER)]) == 2


async def test_nothing_is_sent_before_the_first_step(services: FakeServices, suite: ds.DirectSuite) -> None:
    async with aclosing(suite.fax.iter_messages(NUMBER)):
        pass
    assert services.requests_by_url == []
