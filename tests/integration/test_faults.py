"""Failing responses and connections: repeated operations, and operations that are never repeated.

The client's clock does not advance, so back-off takes no time. The ledger has the real effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

import directsuite as ds

from .documents import make_consent_form
from .scenario import ALICE, LoopTime, Scenario, make_message, open_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.server import Sandbox

Call = Callable[[Scenario], Awaitable[Any]]

# Faults that a safe operation gets over, and the waits that the service asks for.
PASSING: dict[str, tuple[dict[str, Any], list[float] | None]] = {
    "500": ({"kind": "status", "status": 500}, None),
    "502 as HTML": ({"kind": "status", "status": 502, "body": "<html>"}, None),
    "503": ({"kind": "status", "status": 503}, None),
    "503 with Retry-After": ({"kind": "status", "status": 503, "retry_after": 17}, [17.0, 17.0]),
    "429 with Retry-After": ({"kind": "status", "status": 429, "retry_after": 3}, [3.0, 3.0]),
    "429": ({"kind": "status", "status": 429}, None),
    "truncate": ({"kind": "truncate"}, None),
    "malformed": ({"kind": "malformed"}, None),
    "reset_before": ({"kind": "reset_before"}, None),
    "reset_after": ({"kind": "reset_after"}, None),
    "success that is empty": ({"kind": "status", "status": 200, "body": {}}, None),
}


@pytest.mark.parametrize(("fault", "waits"), PASSING.values(), ids=PASSING)
async def test_safe_operation_gets_over_two_faults(
    fault: dict[str, Any], waits: list[float] | None, scenario: Scenario
) -> None:
    await scenario.deliver("a")
    scenario.sandbox.inject_fault("GetMessageCount", times=2, **fault)
    raw = await scenario.box.with_raw_response.get_message_count()
    assert (raw.value, raw.attempts) == (1, 3)
    assert len(scenario.clock.slept) == 2
    assert waits is None or scenario.clock.slept == waits


@pytest.mark.parametrize("kind", ["truncate", "malformed", "reset_after"])
async def test_download_gets_over_a_fault(kind: str, scenario: Scenario) -> None:
    document = await scenario.save()
    scenario.sandbox.inject_fault("GetDoc", kind, times=2)
    path = await scenario.suite.signing.download(document, scenario.folder / "d.pdf")
    assert read(path) == make_consent_form()
    assert files_in(scenario.folder) == [path]


def read(path: Path) -> bytes:
    return path.read_bytes()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
async def loop_clock() -> LoopTime:
    return LoopTime()


@pytest.mark.parametrize("kind", ["hang", "latency"])
async def test_attempt_that_takes_too_long_is_made_again(
    kind: str, loop_clock: LoopTime, sandbox: Sandbox, tmp_path: Path
) -> None:
    async with open_scenario(sandbox, tmp_path, attempt_timeout=20.0) as world:
        sandbox.inject_fault("GetMessageCount", kind, seconds=40)
        counting = asyncio.ensure_future(world.box.with_raw_response.get_message_count())
        while sandbox.faults()[0]["applied"] == 0:
            await sandbox.ledger()
        loop_clock.advance(21)
        raw = await counting
        loop_clock.advance(21)  # so that the sandbox need not wait for the end of a latency
    assert (raw.value, raw.attempts) == (0, 2)


async def test_latency_within_the_time_is_borne(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("Send", "latency", seconds=0.05)
    assert (await scenario.box.send(make_message())).smtp_id
    assert len(await scenario.list_effects("Send")) == 1


async def test_fault_that_stays_is_raised_after_four_attempts(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("GetMessageCount", "status", status=500, times=None)
    with pytest.raises(ds.ServerError) as caught:
        await scenario.box.get_message_count()
    assert (caught.value.attempts, caught.value.status) == (4, 500)


async def test_no_retries_where_none_are_wanted(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("GetMessageCount", "status", status=503, retry_after=1)
    with pytest.raises(ds.ServerError) as caught:
        await scenario.box.with_options(retry=ds.RetryPolicy.none()).get_message_count()
    assert (caught.value.attempts, caught.value.retry_after) == (1, 1.0)


# Faults after which a send may have succeeded, and the number of messages really sent.
LEFT_OPEN: dict[str, tuple[dict[str, Any], int]] = {
    "500 after sending": ({"kind": "status", "status": 500, "processed": True}, 1),
    "502 after sending": ({"kind": "status", "status": 502, "processed": True, "body": "<html>"}, 1),
    "503 after sending": ({"kind": "status", "status": 503, "processed": True}, 1),
    "500 instead of sending": ({"kind": "status", "status": 500}, 0),
    "truncate": ({"kind": "truncate"}, 1),
    "malformed": ({"kind": "malformed"}, 1),
    "reset_after": ({"kind": "reset_after"}, 1),
    "reset_before": ({"kind": "reset_before"}, 0),
    "empty success": ({"kind": "status", "status": 200, "body": {}, "processed": True}, 1),
}


@pytest.mark.parametrize(("fault", "effects"), LEFT_OPEN.values(), ids=LEFT_OPEN)
async def test_send_is_never_made_again_where_it_may_have_happened(
    fault: dict[str, Any], effects: int, scenario: Scenario
) -> None:
    await scenario.box.get_message_count()  # a connection kept alive is where aiohttp itself would send again
    number = scenario.sandbox.inject_fault("Send", times=None, **fault)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await scenario.box.send(make_message())
    error = caught.value
    assert (error.operation, error.outcome, error.attempts) == ("Send", ds.Outcome.UNKNOWN, 1)
    assert error.how_to_find_out
    assert len(await scenario.list_effects("Send")) == effects
    assert await scenario.bob.get_message_count() == effects
    assert {rule["id"]: rule["applied"] for rule in scenario.sandbox.faults()}[number] == 1
    assert scenario.clock.slept == []


async def test_send_that_hangs_beyond_the_deadline_leaves_the_outcome_open(
    loop_clock: LoopTime, scenario: Scenario
) -> None:
    scenario.sandbox.inject_fault("Send", "hang", processed=True)
    sending = asyncio.create_task(scenario.box.send(make_message(), timeout=60))
    while not await scenario.list_effects("Send"):
        assert not sending.done()
    loop_clock.advance(61)
    with pytest.raises(ds.OutcomeUnknownError):
        await sending
    assert len(await scenario.list_effects("Send")) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_send_that_was_put_off_is_made_again(status: int, scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("Send", "status", status=status, retry_after=5, times=2)
    raw = await scenario.box.with_raw_response.send(make_message())
    assert raw.attempts == 3
    assert scenario.clock.slept == [5.0, 5.0]
    assert len(await scenario.list_effects("Send")) == 1


async def test_send_rejected_with_500_has_not_happened(scenario: Scenario) -> None:
    refusal = {"success": False, "code": 4, "message": "no"}
    scenario.sandbox.inject_fault("Send", "status", status=500, body=refusal)
    with pytest.raises(ds.ServiceError) as caught:
        await scenario.box.send(make_message())
    assert (type(caught.value), caught.value.outcome) == (ds.ServiceError, ds.Outcome.FAILED)


# Idempotent operations, which are repeated whatever the repeat's response is.
REPEATED: dict[str, Call] = {
    "CreateFolder": lambda world: world.box.create_folder("INBOX.new"),
    "MoveFolder": lambda world: world.box.move_folder("INBOX.a", "INBOX.b"),
    "SetFoldersSubscribed": lambda world: world.box.set_folders_subscribed(["INBOX.a"], False),
    "MoveMessagesByUIDs": lambda world: world.box.move_messages_by_uids("INBOX", "INBOX.a", [1]),
    "DeleteMessagesByUIDs": lambda world: world.box.delete_messages_by_uids("INBOX", [1], forever=True),
    "MarkMessagesAsReadByUIDs": lambda world: world.box.mark_messages_as_read_by_uids("INBOX", [1]),
    "MarkMessagesAsUnreadByUIDs": lambda world: world.box.mark_messages_as_unread_by_uids("INBOX", [2]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["reset_after", "truncate"])
@pytest.mark.parametrize(("operation", "call"), REPEATED.items(), ids=REPEATED)
async def test_idempotent_operation_is_made_again(operation: str, call: Call, kind: str, scenario: Scenario) -> None:
    await scenario.deliver("a", "b")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", [2])
    await scenario.box.create_folder("INBOX.a")
    slept = len(scenario.clock.slept)
    before = len(await scenario.list_effects(operation))
    number = scenario.sandbox.inject_fault(operation, kind)
    await call(scenario)
    assert {rule["id"]: rule["applied"] for rule in scenario.sandbox.faults()}[number] == 1
    assert len(await scenario.list_effects(operation)) == before + 1
    assert len(scenario.clock.slept) == slept + 1


async def test_deletion_whose_response_was_lost_is_a_deletion(scenario: Scenario) -> None:
    document = await scenario.save()
    scenario.sandbox.inject_fault("Delete", "reset_after")
    update = await scenario.suite.signing.delete(document)
    assert update.identifier == document.identifier
    assert len(await scenario.list_effects("Delete")) == 1


async def test_password_shows_in_no_error(scenario: Scenario) -> None:
    scenario.sandbox.inject_fault("*", "reset_after", times=None)
    for call in (
        scenario.box.get_message_count(),
        scenario.box.send(make_message()),
        scenario.suite.registration.login(),
    ):
        with pytest.raises(ds.TransportError) as caught:
            await call
        texts = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.args}"
        assert not [secret for secret in ("correct horse", "demo-login", ALICE, "Referral") if secret in texts]
