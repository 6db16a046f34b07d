"""A mailbox of a thousand messages, and more faxes than fit on three pages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .scenario import FAX_NUMBER, Scenario, make_raw_message, open_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.server import Sandbox

import pytest

pytestmark = pytest.mark.wide

MESSAGES = 1000


async def test_every_listing_gives_a_thousand_messages_in_order(scenario: Scenario) -> None:
    uids = await scenario.deliver(*(f"number {number}" for number in range(MESSAGES)))
    assert len(set(uids)) == MESSAGES
    assert await scenario.box.get_uids() == uids

    messages = [message async for message in scenario.box.iter_messages()]
    assert [message.uid for message in messages] == uids
    assert [message.subject for message in messages] == [f"number {number}" for number in range(MESSAGES)]
    assert [message async for message in scenario.box.stream_messages()] == messages
    assert await scenario.box.get_messages() == messages

    metadata = [message async for message in scenario.box.iter_metadata()]
    assert [(message.uid, message.body) for message in metadata] == [(uid, None) for uid in uids]

    raw = [message async for message in scenario.box.iter_raw(batch_size=64)]
    assert [message.uid for message in raw] == uids
    assert [message.data for message in raw] == [make_raw_message(f"number {number}") for number in range(MESSAGES)]


async def test_messages_deleted_while_listing_are_passed_over(scenario: Scenario) -> None:
    uids = await scenario.deliver(*(f"number {number}" for number in range(30)))
    seen: list[int | None] = []
    async with scenario.box.iter_messages(batch_size=1) as messages:
        async for message in messages:
            seen.append(message.uid)
            if len(seen) == 1:
                await scenario.box.delete_messages_by_uids("INBOX", uids[25:], forever=True)
    assert seen == uids[:25]


async def test_many_listings_share_the_connections(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_scenario(sandbox, tmp_path, max_connections=2) as world:
        uids = await world.deliver(*(f"number {number}" for number in range(40)))

        async def listed(listing: Any) -> list[int]:
            return [message.uid async for message in listing]

        box = world.box
        listings = [
            *(box.iter_messages(batch_size=3) for _ in range(4)),
            *(box.stream_messages() for _ in range(4)),
            *(box.iter_raw(batch_size=7) for _ in range(4)),
        ]
        assert await asyncio.gather(*(listed(listing) for listing in listings)) == [uids] * len(listings)


async def test_stream_left_early_gives_its_connection_back(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_scenario(sandbox, tmp_path, max_connections=1) as world:
        await world.deliver(*(f"number {number}" for number in range(20)))
        for _ in range(3):
            async with world.box.stream_messages() as messages:
                assert (await anext(messages)).subject == "number 0"
        assert await world.box.get_message_count() == 20


async def test_thirty_five_faxes_come_newest_first(scenario: Scenario) -> None:
    handles = [await scenario.sandbox.add_fax(FAX_NUMBER, description=f"Fax {number}") for number in range(35)]
    faxes = [fax async for fax in scenario.suite.fax.iter_messages(FAX_NUMBER)]
    assert [fax.message_handle for fax in faxes] == handles[::-1]
    assert len([fax async for fax in scenario.suite.fax.iter_messages(FAX_NUMBER, limit=12)]) == 12


async def test_faxes_that_arrive_while_listing_neither_hide_nor_repeat_others(scenario: Scenario) -> None:
    handles = [await scenario.sandbox.add_fax(FAX_NUMBER) for _ in range(35)]
    seen: list[str | None] = []
    async for fax in scenario.suite.fax.iter_messages(FAX_NUMBER):
        seen.append(fax.message_handle)
        if len(seen) % 10 == 5:
            await scenario.sandbox.add_fax(FAX_NUMBER)
    assert seen == handles[::-1]
