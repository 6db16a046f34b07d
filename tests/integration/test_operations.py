"""All 53 operations of the specification, from the facade's method to the effect in the sandbox and back."""

from __future__ import annotations

import pytest

from . import mailbox_exercises, sending_exercises, signing_exercises
from .world import World

EXERCISES = {**signing_exercises.EXERCISES, **sending_exercises.EXERCISES, **mailbox_exercises.EXERCISES}

# By hand, from the specification (section 4): neither the client's table nor the sandbox's.
OPERATIONS = """
    Save GetDoc GetDocInfo Delete Flatten FlattenAndPull ClearUnsignedFields ClearUnsignedFieldsAndPull
    Sign SignAndPull MultiSign MultiSignAndPull
    getSingleMessageInfo getMultipleMessageInfo
    Send SendWithHeader Forward SendWithTuser SendWithHeaderWithTuser
    GetMessageStatus GetMessageStatusMany GetMessageStatusWithTuser
    GetMessageCount GetUnreadMessageCount GetDeletedMessageCount
    GetMessagesByUIDs GetUnreadMessages GetMessagesByReceivedDate GetMessagesByReceivedDateUTC
    GetMessagesBySender GetMessagesBySubject GetMessages GetMessageMetaData
    SearchMessagesMetadataByReceivedDate SearchMessagesMetadataByReceivedDateUTC
    GetUIDs GetFolders SetFoldersSubscribed CreateFolder MoveFolder DeleteFolder
    CopyMessagesByUIDs MoveMessagesByUIDs DeleteMessagesByUIDs
    MarkMessagesAsReadByUIDs MarkMessagesAsUnreadByUIDs GetRawMessagesByUIDs SaveRawMessages
    login ProvisionIDProofedPatient GetPatientAddressByMeta GetPatientAddressByUsername SetPatientsPasswords
""".split()  # noqa: SIM905  a list of names to read


def test_every_operation_has_an_exercise() -> None:
    assert len(set(OPERATIONS)) == len(OPERATIONS) == 53
    assert set(EXERCISES) == set(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_operation_has_its_effect(operation: str, world: World) -> None:
    # A delay of nothing changes nothing, and counts the requests that reach the route of this name.
    number = world.sandbox.inject_fault(operation, "latency", seconds=0, times=None)
    await EXERCISES[operation](world)
    applied = {fault["id"]: fault["applied"] for fault in world.sandbox.faults()}
    assert applied[number] >= 1
    assert world.clock.slept == []
