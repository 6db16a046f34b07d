"""Failing responses and connections: repeated operations, and operations that are never repeated.

The client's clock does not advance, so back-off takes no time. The ledger has the real effects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from .scenario import Scenario

if TYPE_CHECKING:
    pass

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
