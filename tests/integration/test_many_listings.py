"""Several listings of one mailbox at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from .scenario import open_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.server import Sandbox


@pytest.mark.wide
async def test_many_listings_share_the_connections(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_scenario(sandbox, tmp_path, max_connections=2) as scenario:
        box, uids = scenario.box, await scenario.deliver(*(f"number {number}" for number in range(40)))

        async def list_uids(listing: Any) -> list[int]:
            return [message.uid async for message in listing]

        listings = [
            *(box.iter_messages(batch_size=3) for _ in range(4)),
            *(box.stream_messages() for _ in range(4)),
            *(box.iter_raw(batch_size=7) for _ in range(4)),
            box.iter_metadata(),
        ]
        assert await asyncio.gather(*map(list_uids, listings)) == [uids] * len(listings)
