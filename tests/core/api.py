"""Calls of the API, of each semantics, method and kind of credentials."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import attrs

import directsuite as ds

from .scripted_suite import ALICE, INDIVIDUAL, MESSAGE, PASSWORD, PATIENT, PDF

SuiteCall = Callable[[ds.DirectSuite], Awaitable[object]]


@attrs.frozen
class ApiCall:
    operation: str
    call: SuiteCall
    service: str
    may_repeat: bool = True

    def __call__(self, suite: ds.DirectSuite) -> Awaitable[object]:
        return self.call(suite)

    def __str__(self) -> str:
        return self.operation


async def _save_stream(suite: ds.DirectSuite) -> object:
    async def source() -> AsyncGenerator[bytes]:
        yield PDF

    return await suite.signing.save(source())


async def _get_patients(suite: ds.DirectSuite) -> object:
    return await suite.registration.get_patient_address_by_username("direct.example.test", PATIENT)


async def _provision(suite: ds.DirectSuite) -> object:
    return await suite.registration.provision_id_proofed_patient("direct.example.test", INDIVIDUAL)


async def _mark_as_read(suite: ds.DirectSuite) -> object:
    await suite.mailbox(ALICE, PASSWORD).mark_messages_as_read_by_uids("INBOX", [1])
    return None


GET_MESSAGE_COUNT = ApiCall(
    "GetMessageCount", lambda suite: suite.mailbox(ALICE, PASSWORD).get_message_count(), "messaging"
)
GET_DOC_INFO = ApiCall("GetDocInfo", lambda suite: suite.signing.get_doc_info("doc"), "signing")
GET_PATIENT_ADDRESS = ApiCall("GetPatientAddressByUsername", _get_patients, "registration")
DELETE = ApiCall("Delete", lambda suite: suite.signing.delete("doc"), "signing")
MARK_AS_READ = ApiCall("MarkMessagesAsReadByUIDs", _mark_as_read, "messaging")
SAVE = ApiCall("Save", lambda suite: suite.signing.save(PDF), "signing")
SAVE_STREAM = ApiCall("Save", _save_stream, "signing")
SEND = ApiCall("Send", lambda suite: suite.mailbox(ALICE, PASSWORD).send(MESSAGE), "messaging", may_repeat=False)
FLATTEN = ApiCall("Flatten", lambda suite: suite.signing.flatten("doc"), "signing", may_repeat=False)
PROVISION = ApiCall("ProvisionIDProofedPatient", _provision, "registration", may_repeat=False)

API_CALLS = [GET_MESSAGE_COUNT, GET_DOC_INFO, GET_PATIENT_ADDRESS, DELETE, MARK_AS_READ, SAVE, SEND, FLATTEN, PROVISION]
"""Calls of each semantics, method and kind of credentials."""
