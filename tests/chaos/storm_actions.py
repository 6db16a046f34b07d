"""The actions of the storm, each with one or two calls on separate objects.

A claim is the result of one call, with a key that identifies its effect in the sandbox.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import attrs

import directsuite as ds
from directsuite.core.events import CallStarted
from tests.integration.documents import make_consent_form

from .matrix_rows import ALICE, BOB, DOMAIN, DRAFTS, make_message, make_message_with_header, make_raw_message
from .storm_context import (
    CREDENTIAL_SECONDS,
    FAX_COUNT,
    FAX_NUMBER,
    PATIENT,
    SHELF_FOLDER,
    SHELF_MESSAGES,
    StormContext,
)

T = TypeVar("T")

RETURNED = "returned"


@attrs.frozen
class CallReport:
    """The result of a call: RETURNED and the response, or the error."""

    operation: str
    key: str
    error: BaseException | None = None
    response: Any = None


class Storm:
    """The actions in progress, and their results."""

    def __init__(self, context: StormContext, seed: int) -> None:
        self.context = context
        self.dice = random.Random(seed)
        self.claims: list[CallReport] = []
        self.wrong: list[str] = []
        """Results that are impossible."""

    async def record_call(self, operation: str, key: str, call: Awaitable[T]) -> T | None:
        try:
            answer = await call
        except Exception as error:  # noqa: BLE001  whether it is one of ours is looked at in the end
            self.claims.append(CallReport(operation, key, error))
            return None
        self.claims.append(CallReport(operation, key, None, answer))
        return answer

    async def expect_result(self, operation: str, call: Awaitable[T], expected: T) -> None:
        answer = await self.record_call(operation, "", call)
        if answer is not None and answer != expected:
            self.wrong.append(f"{operation}: {answer!r}")


StormAction = Callable[[Storm, int], Awaitable[object]]


async def _list_subjects(messages: ds.Listing[ds.MessageDetail]) -> list[str | None]:
    async with messages:
        return [message.subject async for message in messages]


async def _list_raw_subjects(messages: ds.Listing[ds.RawMessage]) -> list[str | None]:
    async with messages:
        return [message.to_email()["Subject"] async for message in messages]


async def _count_faxes(faxes: ds.Listing[ds.FaxMessage]) -> int:
    async with faxes:
        return len({fax.message_handle async for fax in faxes})


_SHELF_SUBJECTS = [f"shelved {number}" for number in range(SHELF_MESSAGES)]


def _make_listing_action(listing: Callable[[ds.Mailbox], Awaitable[list[str | None]]]) -> StormAction:
    return lambda storm, _: storm.expect_result("listing", listing(storm.context.box), [*_SHELF_SUBJECTS])


async def _list_usernames(storm: Storm) -> list[str | None]:
    users = await storm.context.suite.registration.get_patient_address_by_username(DOMAIN, PATIENT)
    return [user.username for user in users]


async def _count_fax_records(storm: Storm) -> int:
    return len((await storm.context.suite.fax.get_multiple_message_info(FAX_NUMBER)).message_detail)


async def _get_status(storm: Storm, number: int) -> None:
    sent = await storm.record_call("SendWithTuser", str(number), storm.context.tuser.send(make_message(number)))
    if sent is not None and sent.smtp_id:
        report = await storm.record_call("GetMessageStatus", "", storm.context.box.get_message_status(sent.smtp_id))
        if report is not None and [record.to for record in report.records] != [BOB]:
            storm.wrong.append("GetMessageStatus: not of this message")


async def _save_document(storm: Storm) -> ds.StoredDocument | None:
    return await storm.record_call("Save", "", storm.context.suite.signing.save(make_consent_form()))


async def _save_and_get(storm: Storm, _: int) -> None:
    if (document := await _save_document(storm)) is not None:
        await storm.expect_result("GetDoc", storm.context.suite.signing.get_doc(document), make_consent_form())


async def _save_and_get_info(storm: Storm, _: int) -> None:
    if (document := await _save_document(storm)) is not None:
        info = await storm.record_call("GetDocInfo", "", storm.context.suite.signing.get_doc_info(document))
        if info is not None and info.document_digest != document.document_digest:
            storm.wrong.append("GetDocInfo: another document's")


def _make_document_action(
    operation: str, change: Callable[[ds.Signing, ds.StoredDocument | str], Awaitable[object]]
) -> StormAction:
    async def act(storm: Storm, number: int) -> None:
        document = await _save_document(storm)
        if document is not None:
            thing = document if number % 2 else document.identifier
            await storm.record_call(operation, document.identifier, change(storm.context.suite.signing, thing))

    return act


async def _forward(storm: Storm, number: int) -> None:
    uid = await storm.context.sandbox.deliver(ALICE, make_raw_message(f"storm {number}"))
    await storm.record_call("Forward", str(number), storm.context.box.forward("INBOX", [uid], [BOB]))


async def _copy(storm: Storm, number: int) -> None:
    uid = await storm.context.sandbox.deliver(ALICE, make_raw_message(f"copied {number}"))
    verify = number % 2 == 0
    await storm.record_call(
        "CopyMessagesByUIDs", str(uid), storm.context.box.copy_messages_by_uids("INBOX", DRAFTS, [uid], verify=verify)
    )


async def _save_raw(storm: Storm, number: int) -> None:
    message, verify = ds.RawMessage(data=make_raw_message(f"saved {number}")), number % 2 == 0
    await storm.record_call(
        "SaveRawMessages", f"saved {number}", storm.context.box.save_raw_messages(DRAFTS, [message], verify=verify)
    )


async def _change_folders(storm: Storm, number: int) -> None:
    box, name = storm.context.box, f"INBOX.Case{number}"
    await storm.record_call("CreateFolder", name, box.create_folder(name))
    if number % 3 == 0:
        await storm.record_call("MoveFolder", name, box.move_folder(name, f"{name}b"))
    elif number % 3 == 1:
        await storm.record_call("DeleteFolder", name, box.delete_folder(name))


async def _move_message(storm: Storm, number: int) -> None:
    uid = await storm.context.sandbox.deliver(ALICE, make_raw_message(f"moved {number}"))
    move = storm.context.box.move_messages_by_uids("INBOX", "INBOX.Trash", [uid])
    await storm.record_call("MoveMessagesByUIDs", str(uid), move)


async def _mark_as_read(storm: Storm, number: int) -> None:
    uid = await storm.context.sandbox.deliver(ALICE, make_raw_message(f"marked {number}"))
    mark = storm.context.box.mark_messages_as_read_by_uids("INBOX", [uid])
    await storm.record_call("MarkMessagesAsReadByUIDs", str(uid), mark)


async def _provision(storm: Storm, number: int) -> None:
    name = f"patient{number}"
    names: dict[str, Any] = {"first_name": "Ada", "last_name": "Example"} if number % 2 else {}
    individual = ds.IDProofedIndividualRESTful(id=7, direct_username=name, **names)
    call = storm.context.suite.registration.provision_id_proofed_patient(DOMAIN, individual)
    await storm.record_call("ProvisionIDProofedPatient", f"{name}@{DOMAIN}", call)


async def _set_passwords(storm: Storm, number: int) -> None:
    passwords = [ds.UserPassword(PATIENT, f"password {number}")]
    await storm.record_call(
        "SetPatientsPasswords", "", storm.context.suite.registration.set_patients_passwords(DOMAIN, passwords)
    )


async def _send(storm: Storm, number: int) -> None:
    await storm.record_call("Send", str(number), storm.context.box.send(make_message(number)))


async def _send_with_header(storm: Storm, number: int) -> None:
    sending = storm.context.box.send_with_header(make_message_with_header(number))
    await storm.record_call("SendWithHeader", str(number), sending)


async def _send_once(storm: Storm, number: int) -> None:
    await storm.record_call("SendWithHeader", str(number), storm.context.box.send_once(make_message(number)))


async def _send_as_tuser(storm: Storm, number: int) -> None:
    sending = storm.context.tuser.send_with_header(make_message_with_header(number))
    await storm.record_call("SendWithHeaderWithTuser", str(number), sending)


async def _count_shelf(storm: Storm, _: int) -> None:
    await storm.expect_result("GetMessageCount", storm.context.box.get_message_count(SHELF_FOLDER), SHELF_MESSAGES)


async def _iterate_faxes(storm: Storm, _: int) -> None:
    await storm.expect_result("faxes", _count_faxes(storm.context.suite.fax.iter_messages(FAX_NUMBER)), FAX_COUNT)


_SIGNATURE = ds.Signature(name="PatientSig")

ACTIONS: tuple[tuple[int, StormAction], ...] = (
    (9, _count_shelf),
    (8, lambda storm, _: storm.record_call("GetFolders", "", storm.context.box.get_folders())),
    (5, _make_listing_action(lambda box: _list_subjects(box.iter_messages(SHELF_FOLDER, batch_size=7)))),
    (3, _make_listing_action(lambda box: _list_subjects(box.iter_metadata(SHELF_FOLDER)))),
    (3, _make_listing_action(lambda box: _list_subjects(box.stream_messages(SHELF_FOLDER)))),
    (3, _make_listing_action(lambda box: _list_raw_subjects(box.iter_raw(SHELF_FOLDER, batch_size=13)))),
    (9, lambda storm, _: storm.expect_result("getMultipleMessageInfo", _count_fax_records(storm), 10)),
    (4, _iterate_faxes),
    (9, lambda storm, _: storm.expect_result("GetPatientAddressByUsername", _list_usernames(storm), [PATIENT])),
    (2, _set_passwords),
    (5, _provision),
    (9, _send),
    (5, _send_with_header),
    (5, _send_once),
    (2, _send_as_tuser),
    (4, _get_status),
    (4, _forward),
    (2, _copy),
    (2, _save_raw),
    (4, _change_folders),
    (3, _move_message),
    (3, _mark_as_read),
    (3, _save_and_get),
    (2, _save_and_get_info),
    (2, _make_document_action("Delete", lambda signing, document: signing.delete(document))),
    (3, _make_document_action("Flatten", lambda signing, document: signing.flatten(document))),
    (2, _make_document_action("ClearUnsignedFieldsAndPull", ds.Signing.clear_unsigned_fields_and_pull)),
    (1, _make_document_action("Sign", lambda signing, document: signing.sign(document, _SIGNATURE))),
)
"""The weight of each action."""
CALLERS = 64


async def run_calls(storm: Storm, calls: int, seed: int) -> None:
    """Run the storm: many concurrent callers, and three moments at which all credentials expire."""
    context = storm.context
    context.inject_faults(seed)
    actions = [action for _, action in ACTIONS]
    weights = [weight for weight, _ in ACTIONS]
    number = 0
    shocks = [calls // 4, calls // 2, 3 * calls // 4]

    async def caller() -> None:
        nonlocal number
        while context.events.count(CallStarted) < calls:
            number += 1
            [action] = storm.dice.choices(actions, weights)
            await action(storm, number)
            context.note_action_ended()
            if shocks and context.events.count(CallStarted) > shocks[0]:
                shocks.pop(0)
                if len(shocks) == 1:
                    context.sandbox.clock.advance(timedelta(seconds=CREDENTIAL_SECONDS + 1))
                else:
                    await context.sandbox.expire_sessions()
                    await context.sandbox.expire_tokens()

    time = asyncio.create_task(context.run_clock())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
    finally:
        time.cancel()
        await asyncio.wait([time])
