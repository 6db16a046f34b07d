"""The fax service: pages, single messages, and whose they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from directsuite.sandbox.fax import NumberTakenError

if TYPE_CHECKING:
    from directsuite.sandbox.server import Sandbox

    from .conftest import Api

NUMBER = "15550100100"
Get = Callable[[str], Awaitable[tuple[int, dict[str, Any]]]]


@pytest.fixture
def get(api: Api, bearer: dict[str, str]) -> Get:
    return lambda path: api.request("GET", f"{api.sandbox.fax_url}/api/fax/{path}", headers=bearer)


async def test_single_message_has_the_shape_of_the_specification(sandbox: Sandbox, get: Get) -> None:
    recipient = {"Address": NUMBER, "Name": "Clinic", "PageCount": 3, "description": "sent"}
    handle = await sandbox.add_fax(NUMBER, status="waiting", recipients=[recipient], description="in the queue")
    status, body = await get(f"{NUMBER}/{handle}")
    assert status == 200
    assert body == {
        "Username": "demo",
        "MessageHandle": handle,
        "MessageDetail": [
            {
                "MessageHandle": handle,
                "fax_number": NUMBER,
                "status": "waiting",
                "updated_ts": "2026-05-01T12:00:00.000+0000",
                "recipients": [recipient],
                "description": "in the queue",
            }
        ],
        "description": "1 message",
    }


async def test_pages_of_ten_begin_at_the_record_offset_newest_first(sandbox: Sandbox, get: Get) -> None:
    for number in range(25):
        await sandbox.add_fax(NUMBER, description=str(number))
    cases: list[tuple[str, range]] = [
        *(("0", range(24, 14, -1)), ("10", range(14, 4, -1)), ("23", range(1, -1, -1)), ("007", range(17, 7, -1))),
        *((offset, range(0)) for offset in ("25", "99999999999999999999999", "9" * 4400)),
    ]
    for offset, expected in cases:
        status, body = await get(f"getMessageList/{NUMBER}/{offset}")
        assert status == 200, (offset, expected)
        assert [int(record["description"]) for record in body["MessageDetail"]] == list(expected), (offset, expected)
        assert len({record["MessageHandle"] for record in body["MessageDetail"]}) == len(expected), (offset, expected)


async def test_an_invalid_offset_is_rejected(sandbox: Sandbox, get: Get) -> None:
    for offset in ("-1", "x", "1.5", "%D9%A3", "1e3", "%00"):
        status, body = await get(f"getMessageList/{NUMBER}/{offset}")
        assert (status, set(body)) == (400, {"error", "description"}), offset


async def test_number_without_digits_is_rejected(sandbox: Sandbox, get: Get) -> None:
    for path in ("none/0", "%20/0"):
        for whole in (f"getMessageList/{path}", path):
            status, body = await get(whole)
            assert (status, body["error"]) == (400, "invalid_parameter"), path
            assert "digits" in body["description"], path


async def test_numbers_and_handles_of_others_are_rejected(sandbox: Sandbox, get: Get) -> None:
    handle, other = await sandbox.add_fax(NUMBER), await sandbox.add_fax("15550100999", account="other")
    status, body = await get("getMessageList/19990100100/0")
    assert (status, body["MessageDetail"]) == (200, [])
    for path, expected in (
        *((f"{NUMBER}/unknown", 400), (f"19990100100/{handle}", 400)),
        *((f"15550100999/{other}", 403), ("getMessageList/15550100999/0", 403)),
    ):
        assert (await get(path))[0] == expected, path
    with pytest.raises(NumberTakenError):
        await sandbox.add_fax("15550100999")


async def test_a_number_is_identified_by_its_digits(sandbox: Sandbox, get: Get) -> None:
    await sandbox.add_fax("+1 (555) 010-0100")
    _, body = await get(f"getMessageList/{NUMBER}/0")
    assert [record["fax_number"] for record in body["MessageDetail"]] == ["+1 (555) 010-0100"]


async def test_new_status_is_dated_and_keeps_the_order(sandbox: Sandbox, get: Get) -> None:
    first = await sandbox.add_fax(NUMBER, status="waiting")
    second = await sandbox.add_fax(NUMBER)
    sandbox.clock.advance(timedelta(minutes=1))
    assert await sandbox.set_fax_status(first, "complete")
    _, body = await get(f"getMessageList/{NUMBER}/0")
    records = body["MessageDetail"]
    assert [record["MessageHandle"] for record in records] == [second, first]
    assert (records[1]["status"], records[1]["updated_ts"]) == ("complete", "2026-05-01T12:01:00.000+0000")
