"""Messages that are larger than the maximum size of a response, together or alone."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

import pytest

from directsuite.sandbox import Sandbox
from directsuite.sync import SqliteStore, SyncStatus
from tests.integration.scenario import ALICE, open_scenario
from tests.sync.mail_service import RecordingSink
from tests.sync.test_synchronizer import make_sync


def letter(number: int, size: int) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@clinic.example.test", ALICE, f"letter {number}"
    message["Message-ID"] = f"<{number}@clinic.example.test>"
    message.set_content("x")
    message.add_attachment(bytes(size), maintype="application", subtype="octet-stream", filename="scan")
    return bytes(message)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(
    ("sizes", "too_large"),
    [([40_000] * 10, []), ([1_000] * 3 + [200_000] + [1_000] * 3, [3])],
    ids=["together", "one of them"],
)
async def test_messages_that_fit_into_a_response_arrive(
    sizes: Sequence[int], too_large: Sequence[int], sandbox: Sandbox, store: SqliteStore, tmp_path: Path
) -> None:
    told = RecordingSink()
    for number, size in enumerate(sizes):
        await sandbox.deliver(ALICE, letter(number, size))
    async with open_scenario(sandbox, tmp_path, max_response_bytes=100_000) as scenario:
        status = (await make_sync(scenario, store, told).once())[ALICE]
    assert sorted(told.subjects) == [("new", f"letter {n}") for n in range(len(sizes)) if n not in too_large]
    assert (status.status, status.quarantined) == (SyncStatus.UP_TO_DATE, len(too_large))
