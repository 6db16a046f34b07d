"""An open suite with the scripted server, which is checked for leaks when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

import aiohttp
import attrs
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.clock import Clock
from directsuite.core.events import Listener
from directsuite.types import Token

from .scripted_server import ScriptedServer
from .virtual_time import LoopClock, yield_until

PASSWORD = "sentinel-of-a-password"
TOKEN = "sentinel-of-a-token"
SESSION = "sentinel-of-a-session"
PATIENT = "sentinel-of-a-patient"
SECRETS = (PASSWORD, TOKEN, SESSION)

ALICE = "alice@direct.example.test"
CONNECTIONS = 10
LOGIN = ds.Login("reseller", PASSWORD)
LOGIN_RESPONSE = {"success": True, "code": "000", "sessionId": SESSION}
MESSAGE = ds.Message(subject=PATIENT, body=PATIENT, recipients=[ds.Recipient("bob@direct.example.test")])
INDIVIDUAL = ds.IDProofedIndividualRESTful(id=5, direct_username="ada")
PDF = b"%PDF-1.7 " + PATIENT.encode()

TWO_ATTEMPTS_POLICY = ds.RetryPolicy(attempts=2, wait=wait_fixed(1))
"""Two attempts, a second apart."""


def make_settings(server: ScriptedServer, **others: Any) -> ds.Settings:
    """Return settings with all four services on the scripted server, and two attempts per call."""
    values: dict[str, Any] = {
        "signing_url": server.url("signing"),
        "fax_url": server.url("fax"),
        "message_url": server.url("message"),
        "registration_url": server.url("registration"),
        "max_connections": CONNECTIONS,
        "retry": TWO_ATTEMPTS_POLICY,
    }
    return ds.Settings(**(values | others))


@contextlib.asynccontextmanager
async def open_suite(
    server: ScriptedServer,
    *,
    token: Token | None = TOKEN,
    login: ds.Login | None = LOGIN,
    clock: Clock | None = None,
    listeners: Iterable[Listener] = (),
    leaky: bool = False,
    **others: Any,
) -> AsyncGenerator[ds.DirectSuite]:
    """Open a suite on the scripted server. When it closes, no slot, connection or task may remain.

    leaky: skip this check, because the test ends while calls are in progress.
    """
    configured = make_settings(server, **others)
    suite = ds.DirectSuite(configured, token=token, login=login, listeners=listeners, clock=clock or LoopClock())
    before = asyncio.all_tasks()
    async with suite:
        yield suite
        if not leaky:
            assert_no_leaks(suite, configured.max_connections)
    await yield_until(lambda: not asyncio.all_tasks() - before - server.tasks)


def assert_no_leaks(suite: ds.DirectSuite, connections: int = CONNECTIONS) -> None:
    """Assert that no slot of the limits and no connection of the pool is in use."""
    for endpoint in suite._transport._endpoints.values():
        assert endpoint.limits._free_slots == connections
        assert not endpoint.limits._slot_waiters
        assert not endpoint.limits._rate_lock.locked()
        assert endpoint.limits._rate_waiters == 0
        assert not endpoint.limits.breaker._probe
    session = suite._session._http
    if session is not None:  # otherwise it is closed
        assert isinstance(session.connector, aiohttp.TCPConnector)
        assert not session.connector._acquired


@attrs.frozen
class ApiCall:
    operation: str
    call: Callable[[ds.DirectSuite], Awaitable[object]]
    service: str
    success_body: Any
    may_repeat: bool = True

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


_GOOD, _DOCUMENT = {"success": True}, {"identifier": "doc"}
GET_MESSAGE_COUNT = ApiCall(
    "GetMessageCount",
    lambda suite: suite.mailbox(ALICE, PASSWORD).get_message_count(),
    "messaging",
    _GOOD | {"count": 7},
)
GET_DOC_INFO = ApiCall("GetDocInfo", lambda suite: suite.signing.get_doc_info("doc"), "signing", _DOCUMENT)
GET_PATIENT_ADDRESS = ApiCall(
    "GetPatientAddressByUsername", _get_patients, "registration", _GOOD | {"code": "000", "patient": []}
)
DELETE = ApiCall("Delete", lambda suite: suite.signing.delete("doc"), "signing", {"documentDigest": ""})
MARK_AS_READ = ApiCall("MarkMessagesAsReadByUIDs", _mark_as_read, "messaging", _GOOD)
SAVE = ApiCall("Save", lambda suite: suite.signing.save(PDF), "signing", _DOCUMENT)
SAVE_STREAM = ApiCall("Save", _save_stream, "signing", _DOCUMENT)
SEND = ApiCall(
    "Send",
    lambda suite: suite.mailbox(ALICE, PASSWORD).send(MESSAGE),
    "messaging",
    _GOOD | {"smtpId": "<1@direct.example.test>"},
    may_repeat=False,
)
FLATTEN = ApiCall(
    "Flatten", lambda suite: suite.signing.flatten("doc"), "signing", {"documentDigest": "d"}, may_repeat=False
)
PROVISION = ApiCall("ProvisionIDProofedPatient", _provision, "registration", _GOOD | {"code": "000"}, may_repeat=False)

API_CALLS = [GET_MESSAGE_COUNT, GET_DOC_INFO, GET_PATIENT_ADDRESS, DELETE, MARK_AS_READ, SAVE, SEND, FLATTEN, PROVISION]
"""Calls of each semantics, method and kind of credentials."""


async def catch_error(call: Awaitable[object]) -> ds.DirectSuiteError:
    try:
        await call
    except ds.DirectSuiteError as error:
        return error
    raise AssertionError("the call succeeded")
