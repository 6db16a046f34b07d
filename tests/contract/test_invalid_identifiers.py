"""Path parameters that would change the path itself are refused before anything is sent.

An empty segment, `.` and `..` survive no percent-encoding: servers and proxies resolve them to another path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import directsuite as ds

from .recorder import CannedResponse, RecordedRequest, Recorder
from .row import LOGIN, PASSWORD, TOKEN, USERNAME, make_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True, slots=True)
class PathParameter:
    """A path parameter of an operation, and the call that puts a value there."""

    operation: str
    parameter: str
    call: Callable[[ds.DirectSuite, str], Awaitable[object]]


def _get_mailbox(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(USERNAME, PASSWORD)


_SIGNATURE = ds.Signature(name="s")
_PERSON = ds.IDProofedIndividual(id=1)
_NEW_PATIENT = ds.IDProofedIndividualRESTful(id=1)
_RAW = ds.RawMessage(data=b"Subject: a\r\n\r\n")
_RECIPIENTS = ["bob@direct.example.test"]

_SIGNING = [
    PathParameter("GetDoc", "identifier", lambda suite, value: suite.signing.get_doc(value)),
    PathParameter("GetDocInfo", "identifier", lambda suite, value: suite.signing.get_doc_info(value)),
    PathParameter("Delete", "identifier", lambda suite, value: suite.signing.delete(value)),
    PathParameter("Flatten", "identifier", lambda suite, value: suite.signing.flatten(value)),
    PathParameter("FlattenAndPull", "identifier", lambda suite, value: suite.signing.flatten_and_pull(value)),
    PathParameter("ClearUnsignedFields", "identifier", lambda suite, value: suite.signing.clear_unsigned_fields(value)),
    PathParameter(
        "ClearUnsignedFieldsAndPull",
        "identifier",
        lambda suite, value: suite.signing.clear_unsigned_fields_and_pull(value),
    ),
    PathParameter("Sign", "identifier", lambda suite, value: suite.signing.sign(value, _SIGNATURE)),
    PathParameter("SignAndPull", "identifier", lambda suite, value: suite.signing.sign_and_pull(value, _SIGNATURE)),
    PathParameter("MultiSign", "identifier", lambda suite, value: suite.signing.multi_sign(value, [_SIGNATURE])),
    PathParameter(
        "MultiSignAndPull", "identifier", lambda suite, value: suite.signing.multi_sign_and_pull(value, [_SIGNATURE])
    ),
]

_FAX = [
    PathParameter(
        "getSingleMessageInfo", "fax_number", lambda suite, value: suite.fax.get_single_message_info(value, "h1")
    ),
    PathParameter(
        "getSingleMessageInfo",
        "message_handle",
        lambda suite, value: suite.fax.get_single_message_info("15550100199", value),
    ),
    PathParameter(
        "getMultipleMessageInfo", "fax_number", lambda suite, value: suite.fax.get_multiple_message_info(value)
    ),
]

_STATUS = [
    PathParameter("GetMessageStatus", "smtp_id", lambda suite, value: _get_mailbox(suite).get_message_status(value)),
    PathParameter(
        "GetMessageStatusWithTuser",
        "smtp_id",
        lambda suite, value: suite.tuser("t", "p", USERNAME).get_message_status(value),
    ),
]

_FOLDERS: list[tuple[str, str, Callable[[ds.Mailbox, str], Awaitable[object]]]] = [
    ("Forward", "folder", lambda box, value: box.forward(value, [1], _RECIPIENTS)),
    ("GetMessageCount", "folder", lambda box, value: box.get_message_count(value)),
    ("GetUnreadMessageCount", "folder", lambda box, value: box.get_unread_message_count(value)),
    ("GetDeletedMessageCount", "folder", lambda box, value: box.get_deleted_message_count(value)),
    ("GetMessagesByUIDs", "folder", lambda box, value: box.get_messages_by_uids(value, [1])),
    ("GetUnreadMessages", "folder", lambda box, value: box.get_unread_messages(value)),
    ("GetMessagesByReceivedDate", "folder", lambda box, value: box.get_messages_by_received_date(value, None, None)),
    (
        "GetMessagesByReceivedDateUTC",
        "folder",
        lambda box, value: box.get_messages_by_received_date_utc(value, None, None),
    ),
    ("GetMessagesBySender", "folder", lambda box, value: box.get_messages_by_sender(value, "bob@example.test")),
    ("GetMessagesBySender", "sender", lambda box, value: box.get_messages_by_sender("INBOX", value)),
    ("GetMessagesBySubject", "folder", lambda box, value: box.get_messages_by_subject(value, "a")),
    ("GetMessagesBySubject", "subject", lambda box, value: box.get_messages_by_subject("INBOX", value)),
    ("GetMessages", "folder", lambda box, value: box.get_messages(value)),
    ("GetMessageMetaData", "folder", lambda box, value: box.get_message_metadata(value)),
    (
        "SearchMessagesMetadataByReceivedDate",
        "folder",
        lambda box, value: box.search_messages_metadata_by_received_date(value, None, None),
    ),
    (
        "SearchMessagesMetadataByReceivedDateUTC",
        "folder",
        lambda box, value: box.search_messages_metadata_by_received_date_utc(value, None, None),
    ),
    ("GetUIDs", "folder", lambda box, value: box.get_uids(value)),
    ("GetFolders", "root", lambda box, value: box.get_folders(value)),
    ("CreateFolder", "folder", lambda box, value: box.create_folder(value)),
    ("MoveFolder", "folder", lambda box, value: box.move_folder(value, "INBOX.b")),
    ("MoveFolder", "new_folder", lambda box, value: box.move_folder("INBOX.a", value)),
    ("DeleteFolder", "folder", lambda box, value: box.delete_folder(value)),
    ("CopyMessagesByUIDs", "folder", lambda box, value: box.copy_messages_by_uids(value, "INBOX.b", [1])),
    ("CopyMessagesByUIDs", "dest_folder", lambda box, value: box.copy_messages_by_uids("INBOX", value, [1])),
    ("MoveMessagesByUIDs", "folder", lambda box, value: box.move_messages_by_uids(value, "INBOX.b", [1])),
    ("MoveMessagesByUIDs", "dest_folder", lambda box, value: box.move_messages_by_uids("INBOX", value, [1])),
    ("DeleteMessagesByUIDs", "folder", lambda box, value: box.delete_messages_by_uids(value, [1])),
    ("MarkMessagesAsReadByUIDs", "folder", lambda box, value: box.mark_messages_as_read_by_uids(value, [1])),
    ("MarkMessagesAsUnreadByUIDs", "folder", lambda box, value: box.mark_messages_as_unread_by_uids(value, [1])),
    ("GetRawMessagesByUIDs", "folder", lambda box, value: box.get_raw_messages_by_uids(value, [1])),
    ("SaveRawMessages", "folder", lambda box, value: box.save_raw_messages(value, [_RAW])),
]


def _make_mailbox_parameter(
    operation: str, parameter: str, call: Callable[[ds.Mailbox, str], Awaitable[object]]
) -> PathParameter:
    return PathParameter(operation, parameter, lambda suite, value: call(_get_mailbox(suite), value))


_REGISTRATION = [
    PathParameter(
        "ProvisionIDProofedPatient",
        "direct_domain",
        lambda suite, value: suite.registration.provision_id_proofed_patient(value, _NEW_PATIENT),
    ),
    PathParameter(
        "GetPatientAddressByMeta",
        "direct_domain",
        lambda suite, value: suite.registration.get_patient_address_by_meta(value, _PERSON),
    ),
    PathParameter(
        "GetPatientAddressByUsername",
        "direct_domain",
        lambda suite, value: suite.registration.get_patient_address_by_username(value, "zoe"),
    ),
    PathParameter(
        "GetPatientAddressByUsername",
        "direct_username",
        lambda suite, value: suite.registration.get_patient_address_by_username("direct.example.test", value),
    ),
    PathParameter(
        "SetPatientsPasswords",
        "direct_domain",
        lambda suite, value: suite.registration.set_patients_passwords(value, [ds.UserPassword("zoe", "z")]),
    ),
]

PATH_PARAMETERS = [
    *_SIGNING,
    *_FAX,
    *_STATUS,
    *(_make_mailbox_parameter(*folder) for folder in _FOLDERS),
    *_REGISTRATION,
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", ["", ".", ".."])
@pytest.mark.parametrize("at", PATH_PARAMETERS, ids=lambda at: f"{at.operation}-{at.parameter}")
async def test_path_parameter_that_changes_the_path_is_never_sent(at: PathParameter, value: str) -> None:
    def answer(_: RecordedRequest) -> CannedResponse:
        return CannedResponse(b"{}")

    async with (
        Recorder(answer) as recorder,
        ds.DirectSuite(make_settings(recorder.url), token=TOKEN, login=LOGIN) as suite,
    ):
        with pytest.raises(ds.InvalidArgumentError, match=at.parameter):
            await at.call(suite, value)
    assert recorder.requests == []
