"""Messages that are larger than the maximum size of a response, together or alone."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import EmailMessage

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sync import Change, SqliteStore, Synchronizer, SyncStatus

ALICE = "alice@direct.example.test"
LARGEST = 1_000_000


def letter(number: int, size: int) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@clinic.example.test", ALICE, f"letter {number}"
    message["Message-ID"] = f"<{number}@clinic.example.test>"
    message.set_content("x")
    message.add_attachment(bytes(size), maintype="application", subtype="octet-stream", filename="scan")
    return bytes(message)


@pytest.mark.parametrize(
    ("sizes", "too_large"),
    [([400_000] * 10, []), ([1_000] * 3 + [2_000_000] + [1_000] * 3, [3])],
    ids=["together", "one of them"],
)
async def test_messages_that_fit_into_a_response_arrive(sizes: Sequence[int], too_large: Sequence[int]) -> None:
    told = list[str | None]()

    async def deliver(changes: Sequence[Change]) -> None:
        told.extend(change.message.subject for change in changes if change.message is not None)

    async def password(_: str) -> str:
        return "secret"

    async with Sandbox() as sandbox:
        await sandbox.add_account(ALICE, "secret")
        for number, size in enumerate(sizes):
            await sandbox.deliver(ALICE, letter(number, size))
        settings = ds.Settings(message_url=sandbox.message_url, max_response_bytes=LARGEST)
        async with ds.DirectSuite(settings) as suite, SqliteStore(":memory:") as store:
            sync = Synchronizer(suite, store, [ALICE], password, deliver=deliver)
            await sync.once()
            status = sync.status[ALICE]
    assert sorted(filter(None, told)) == [f"letter {n}" for n in range(len(sizes)) if n not in too_large]
    assert (status.status, status.quarantined) == (SyncStatus.UP_TO_DATE, len(too_large))
