"""The sandbox under load: every operation that is measured succeeds for several callers at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.sandbox_load import measure, page, running
from directsuite.sandbox import Control

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.process
async def test_every_operation_is_measured_and_succeeds(tmp_path: Path) -> None:
    async with running(tmp_path) as sandbox:
        rates = await measure(sandbox, callers=10, lasting=0)
        with pytest.raises(RuntimeError, match="answered with 401"):
            await sandbox.call("GET", f"{sandbox.urls['signing']}/pdf/1", b"")
        async with Control(sandbox.urls["control"].removesuffix("/_sandbox")) as control:
            assert len(await control.ledger("Send")) == 10
        wrong = {"username": "alice@direct.example.test", "password": "wrong"}
        with pytest.raises(RuntimeError, match="answered with 200"):
            await sandbox.call("POST", f"{sandbox.urls['message']}/GetMessageCount/INBOX", wrong)
    assert [len(rate.seconds) for rate in rates] == [10] * 7
    assert all(0 < rate.peak < 300_000_000 for rate in rates)
    assert page([rates], sandbox.started_in).count("| 10 |") == 7
