"""The programs of the guides `delivery` and `faxes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from tests.guides.documents import execute_programs, find_code_blocks
from tests.integration.scenario import FAX_NUMBER
from tests.jobs.delivery.clinic import open_clinic


def programs() -> dict[str, Any]:
    return execute_programs(*find_code_blocks("delivery"), *find_code_blocks("faxes"))


async def test_batch_is_sent_and_missing_deliveries_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    send_all = programs()["send_all"]
    messages = {
        f"referral {number}": ds.Message(subject="Referral", recipients=[ds.Recipient(f"{name}@hospital.example.test")])
        for number, name in enumerate(("deliver", "bounce", "deliver"))
    }
    async with open_clinic() as context:
        await send_all(context.box, messages)
        assert context.request_counts["GetMessageStatusMany"] == 1
        assert capsys.readouterr().out == "call them: bounce@hospital.example.test Remotely Failed\n"
        await send_all(context.box, messages)  # the program runs again
        assert capsys.readouterr().out == ""
        assert len(await context.sandbox.ledger("SendWithHeader")) == 3


async def test_report_is_sent_to_two_recipients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.7")
    async with open_clinic() as context:
        delivery = await programs()["send_report"](context.box)
    assert sorted(str(record.to) for record in delivery.records) == [
        "nurse@hospital.example.test",
        "records@hospital.example.test",
    ]


async def test_faxes_are_watched(capsys: pytest.CaptureFixture[str]) -> None:
    watch = programs()["watch"]
    async with open_clinic() as context:
        handle = await context.sandbox.add_fax(FAX_NUMBER)
        sleep = context.time.sleep

        async def sleep_and_close(seconds: float) -> None:
            await sleep(seconds)
            await context.suite.aclose()

        context.time.sleep = sleep_and_close  # type: ignore[method-assign]
        await watch(context.suite, FAX_NUMBER, None)
    assert capsys.readouterr().out == f"{handle} complete\n"
