"""The errors of a second send (`resend=True`) after a first request without a response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import directsuite as ds

from .verification_scenario import ALICE, VerificationScenario, open_scenario

MESSAGE = ds.Message(subject="Result", body="See attachment.", recipients=[ds.Recipient(ALICE)])


@pytest.fixture
async def scenario() -> AsyncIterator[VerificationScenario]:
    async with open_scenario() as running:
        await running.box.send_once(MESSAGE, key="another")
        running.sandbox.inject_fault("SendWithHeader", "reset_before")
        yield running


REJECTIONS = {
    "no token": (401, None, None),
    "not allowed": (403, None, None),
    "wrong password": (200, 1, None),
    "some other error": (200, 3, None),
    "address": (200, 2, ds.AddressError),
    "request": (400, None, ds.BadRequestError),
}


@pytest.mark.parametrize(("status", "code", "reported"), REJECTIONS.values(), ids=REJECTIONS)
async def test_only_rejection_of_message_resolves_first_send(
    scenario: VerificationScenario, status: int, code: int | None, reported: type[ds.ServiceError] | None
) -> None:
    body = None if code is None else {"success": False, "code": code}
    scenario.sandbox.inject_fault("SendWithHeader", "status", status=status, body=body)
    with pytest.raises(reported or ds.OutcomeUnknownError) as caught:
        await scenario.box.send_once(MESSAGE, key="this", resend=True)
    if reported is None:
        assert isinstance(caught.value.__cause__, ds.ServiceError)
        assert isinstance(caught.value.__cause__.__cause__, ds.ConnectionLostError)


async def test_suite_that_closes_before_the_second_send_leaves_the_first_open(scenario: VerificationScenario) -> None:
    closing: list[asyncio.Task[None]] = []

    async def close() -> None:
        closing.append(asyncio.create_task(scenario.suite.aclose(grace=60)))

    scenario.clock.actions_during_waits = [close]
    with pytest.raises(ds.OutcomeUnknownError):
        await scenario.box.send_once(MESSAGE, key="this", resend=True)
    await closing[0]


async def test_attachment_that_is_gone_by_then_leaves_the_first_send_open(
    scenario: VerificationScenario, tmp_path: Path
) -> None:
    file = tmp_path / "result.txt"
    file.write_text("negative", encoding="utf-8")
    message = ds.Message(recipients=MESSAGE.recipients, attachment_list=[ds.Attachment.from_path(file)])

    async def removed() -> None:
        file.unlink()

    scenario.clock.actions_during_waits = [removed]
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await scenario.box.send_once(message, key="this", resend=True)
    assert isinstance(caught.value.__cause__, ds.InvalidArgumentError | OSError)


async def test_lost_request_is_reported_although_the_second_succeeded(scenario: VerificationScenario) -> None:
    left: list[ds.Event] = []
    scenario.suite.add_listener(lambda event: left.append(event) if isinstance(event, ds.OutcomeLeftUnknown) else None)
    assert (await scenario.box.send_once(MESSAGE, key="this", resend=True)).smtp_id
    assert len(left) == 1
