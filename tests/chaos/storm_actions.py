"""What is done in the storm: a table of actions, each of one or two calls, each with things of its own.

A claim says what the caller of one call was told, under a key by which its effect is found in the sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

import directsuite as ds
from tests.integration.documents import consent

from .matrix_row import ALICE, BOB, DOMAIN, DRAFTS
from .storm_stage import FAX_NUMBER, FAXES, PATIENT, SHELF, SHELVED, Stage, raw_message

T = TypeVar("T")

RETURNED = "returned"


@attrs.frozen
class Claim:
    """What the caller of a call was told: RETURNED and the answer, or the error."""

    operation: str
    key: str
    error: BaseException | None = None
    answer: Any = None


class Storm:
    """The actions under way, and what came of them."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.dice = random.Random(seed)
        self.claims: list[Claim] = []
        self.wrong: list[str] = []
        """Answers that can't be."""

    async def told(self, operation: str, key: str, call: Awaitable[T]) -> T | None:
        """What a call gives, None where it raises; either is noted."""
        try:
            answer = await call
        except Exception as error:  # noqa: BLE001  whether it is one of ours is looked at in the end
            self.claims.append(Claim(operation, key, error))
            return None
        self.claims.append(Claim(operation, key, None, answer))
        return answer

    async def expected(self, operation: str, call: Awaitable[T], expected: T) -> None:
        """A call that reads what never changes."""
        answer = await self.told(operation, "", call)
        if answer is not None and answer != expected:
            self.wrong.append(f"{operation}: {answer!r}")


Action = Callable[[Storm, int], Awaitable[object]]


def _message(number: int) -> ds.Message:
    return ds.Message(subject=f"storm {number}", body="once", recipients=[ds.Recipient(BOB)])


def _with_header(number: int) -> ds.MessageWithHeader:
    recipients, headers = [ds.Recipient(BOB)], [ds.MessageHeader("X-Case", str(number))]
    return ds.MessageWithHeader(subject=f"storm {number}", recipients=recipients, headers=headers)


async def _subjects(messages: ds.Listing[ds.MessageDetail]) -> list[str | None]:
    async with messages:
        return [message.subject async for message in messages]


async def _raw(messages: ds.Listing[ds.RawMessage]) -> list[str | None]:
    async with messages:
        return [message.to_email()["Subject"] async for message in messages]


async def _faxes(faxes: ds.Listing[ds.FaxMessage]) -> int:
    async with faxes:
        return len({fax.message_handle async for fax in faxes})


_SHELF = [f"shelved {number}" for number in range(SHELVED)]


def _shelf(listing: Callable[[ds.Mailbox], Awaitable[list[str | None]]]) -> Action:
    return lambda storm, _: storm.expected("listing", listing(storm.stage.box), [*_SHELF])


async def _usernames(storm: Storm) -> list[str | None]:
    users = await storm.stage.suite.registration.get_patient_address_by_username(DOMAIN, PATIENT)
    return [user.username for user in users]


async def _count_of_faxes(storm: Storm) -> int:
    return len((await storm.stage.suite.fax.get_multiple_message_info(FAX_NUMBER)).message_detail)


async def _status(storm: Storm, number: int) -> None:
    sent = await storm.told("SendWithTuser", str(number), storm.stage.tuser.send(_message(number)))
    if sent is not None and sent.smtp_id:
        report = await storm.told("GetMessageStatus", "", storm.stage.box.get_message_status(sent.smtp_id))
        if report is not None and [record.to for record in report.records] != [BOB]:
            storm.wrong.append("GetMessageStatus: not of this message")


async def _saved(storm: Storm) -> ds.StoredDocument | None:
    return await storm.told("Save", "", storm.stage.suite.signing.save(consent()))


async def _save_and_get(storm: Storm, _: int) -> None:
    if (document := await _saved(storm)) is not None:
        await storm.expected("GetDoc", storm.stage.suite.signing.get_doc(document), consent())


async def _save_and_look(storm: Storm, _: int) -> None:
    if (document := await _saved(storm)) is not None:
        info = await storm.told("GetDocInfo", "", storm.stage.suite.signing.get_doc_info(document))
        if info is not None and info.document_digest != document.document_digest:
            storm.wrong.append("GetDocInfo: another document's")


def _document_action(
    operation: str, change: Callable[[ds.Signing, ds.StoredDocument | str], Awaitable[object]]
) -> Action:
    async def act(storm: Storm, number: int) -> None:
        document = await _saved(storm)
        if document is not None:
            thing = document if number % 2 else document.identifier
            await storm.told(operation, document.identifier, change(storm.stage.suite.signing, thing))

    return act


async def _forward(storm: Storm, number: int) -> None:
    uid = await storm.stage.sandbox.deliver(ALICE, raw_message(f"storm {number}"))
    await storm.told("Forward", str(number), storm.stage.box.forward("INBOX", [uid], [BOB]))


async def _copy(storm: Storm, number: int) -> None:
    uid = await storm.stage.sandbox.deliver(ALICE, raw_message(f"copied {number}"))
    verify = number % 2 == 0
    await storm.told(
        "CopyMessagesByUIDs", str(uid), storm.stage.box.copy_messages_by_uids("INBOX", DRAFTS, [uid], verify=verify)
    )


async def _save_raw(storm: Storm, number: int) -> None:
    message, verify = ds.RawMessage(data=raw_message(f"saved {number}")), number % 2 == 0
    await storm.told(
        "SaveRawMessages", f"saved {number}", storm.stage.box.save_raw_messages(DRAFTS, [message], verify=verify)
    )


async def _folders(storm: Storm, number: int) -> None:
    box, name = storm.stage.box, f"INBOX.Case{number}"
    await storm.told("CreateFolder", name, box.create_folder(name))
    if number % 3 == 0:
        await storm.told("MoveFolder", name, box.move_folder(name, f"{name}b"))
    elif number % 3 == 1:
        await storm.told("DeleteFolder", name, box.delete_folder(name))


async def _move_message(storm: Storm, number: int) -> None:
    uid = await storm.stage.sandbox.deliver(ALICE, raw_message(f"moved {number}"))
    move = storm.stage.box.move_messages_by_uids("INBOX", "INBOX.Trash", [uid])
    await storm.told("MoveMessagesByUIDs", str(uid), move)


async def _mark(storm: Storm, number: int) -> None:
    uid = await storm.stage.sandbox.deliver(ALICE, raw_message(f"marked {number}"))
    mark = storm.stage.box.mark_messages_as_read_by_uids("INBOX", [uid])
    await storm.told("MarkMessagesAsReadByUIDs", str(uid), mark)


async def _provision(storm: Storm, number: int) -> None:
    name = f"patient{number}"
    names: dict[str, Any] = {"first_name": "Ada", "last_name": "Example"} if number % 2 else {}
    individual = ds.IDProofedIndividualRESTful(id=7, direct_username=name, **names)
    call = storm.stage.suite.registration.provision_id_proofed_patient(DOMAIN, individual)
    await storm.told("ProvisionIDProofedPatient", f"{name}@{DOMAIN}", call)


async def _passwords(storm: Storm, number: int) -> None:
    passwords = [ds.UserPassword(PATIENT, f"password {number}")]
    await storm.told(
        "SetPatientsPasswords", "", storm.stage.suite.registration.set_patients_passwords(DOMAIN, passwords)
    )


ACTIONS: tuple[tuple[int, Action], ...] = (
    (9, lambda storm, _: storm.expected("GetMessageCount", storm.stage.box.get_message_count(SHELF), SHELVED)),
    (8, lambda storm, _: storm.told("GetFolders", "", storm.stage.box.get_folders())),
    (5, _shelf(lambda box: _subjects(box.iter_messages(SHELF, batch_size=7)))),
    (3, _shelf(lambda box: _subjects(box.iter_metadata(SHELF)))),
    (3, _shelf(lambda box: _subjects(box.stream_messages(SHELF)))),
    (3, _shelf(lambda box: _raw(box.iter_raw(SHELF, batch_size=13)))),
    (9, lambda storm, _: storm.expected("getMultipleMessageInfo", _count_of_faxes(storm), 10)),
    (4, lambda storm, _: storm.expected("faxes", _faxes(storm.stage.suite.fax.iter_messages(FAX_NUMBER)), FAXES)),
    (9, lambda storm, _: storm.expected("GetPatientAddressByUsername", _usernames(storm), [PATIENT])),
    (2, _passwords),
    (5, _provision),
    (9, lambda storm, number: storm.told("Send", str(number), storm.stage.box.send(_message(number)))),
    (
        5,
        lambda storm, number: storm.told(
            "SendWithHeader", str(number), storm.stage.box.send_with_header(_with_header(number))
        ),
    ),
    (5, lambda storm, number: storm.told("SendWithHeader", str(number), storm.stage.box.send_once(_message(number)))),
    (
        2,
        lambda storm, number: storm.told(
            "SendWithHeaderWithTuser", str(number), storm.stage.tuser.send_with_header(_with_header(number))
        ),
    ),
    (4, _status),
    (4, _forward),
    (2, _copy),
    (2, _save_raw),
    (4, _folders),
    (3, _move_message),
    (3, _mark),
    (3, _save_and_get),
    (2, _save_and_look),
    (2, _document_action("Delete", lambda signing, document: signing.delete(document))),
    (3, _document_action("Flatten", lambda signing, document: signing.flatten(document))),
    (
        2,
        _document_action(
            "ClearUnsignedFieldsAndPull", lambda signing, document: signing.clear_unsigned_fields_and_pull(document)
        ),
    ),
    (1, _document_action("Sign", lambda signing, document: signing.sign(document, ds.Signature(name="PatientSig")))),
)
"""How often, and what."""
