"""An open suite against the scripted server, which is checked for leaks when it closes."""

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
from .virtual_time import LoopClock, until

PASSWORD = "sentinel-of-a-password"
TOKEN = "sentinel-of-a-token"
SESSION = "sentinel-of-a-session"
PATIENT = "sentinel-of-a-patient"
SECRETS = (PASSWORD, TOKEN, SESSION)

ALICE = "alice@direct.example.test"
CONNECTIONS = 10
LOGIN = ds.Login("reseller", PASSWORD)
LOGGED_IN = {"success": True, "code": "000", "sessionId": SESSION}
MESSAGE = ds.Message(subject=PATIENT, body=PATIENT, recipients=[ds.Recipient("bob@direct.example.test")])
INDIVIDUAL = ds.IDProofedIndividualRESTful(id=5, direct_username="ada")
PDF = b"%PDF-1.7 " + PATIENT.encode()

TWICE = ds.RetryPolicy(attempts=2, wait=wait_fixed(1))
"""One more try, a second later."""


def settings(server: ScriptedServer, **others: Any) -> ds.Settings:
    """All four services on the scripted server; two attempts a call."""
    values: dict[str, Any] = {
        "signing_url": server.url("signing"),
        "fax_url": server.url("fax"),
        "message_url": server.url("message"),
        "registration_url": server.url("registration"),
        "max_connections": CONNECTIONS,
        "retry": TWICE,
    }
    return ds.Settings(**(values | others))


@contextlib.asynccontextmanager
async def opened(
    server: ScriptedServer,
    *,
    token: Token | None = TOKEN,
    login: ds.Login | None = LOGIN,
    clock: Clock | None = None,
    listeners: Iterable[Listener] = (),
    leaky: bool = False,
    **others: Any,
) -> AsyncGenerator[ds.DirectSuite]:
    """A suite on the scripted server; when it closes, no place, connection or task of it may be left over.

    leaky: the test ends with calls under way, on purpose.
    """
    configured = settings(server, **others)
    suite = ds.DirectSuite(configured, token=token, login=login, listeners=listeners, clock=clock or LoopClock())
    before = asyncio.all_tasks()
    async with suite:
        yield suite
        if not leaky:
            assert_nothing_held(suite, configured.max_connections)
    await until(lambda: not asyncio.all_tasks() - before - server.tasks)


def assert_nothing_held(suite: ds.DirectSuite, connections: int = CONNECTIONS) -> None:
    """No place of the limits and no connection of the pool is taken."""
    for endpoint in suite._transport._endpoints.values():
        assert endpoint.limits._free == connections
        assert not endpoint.limits._waiting
        assert not endpoint.limits._queue.locked()
        assert endpoint.limits._queued == 0
        assert not endpoint.limits.breaker._probe
    session = suite._session._http
    if session is not None:  # else it is closed
        assert isinstance(session.connector, aiohttp.TCPConnector)
        assert not session.connector._acquired


@attrs.frozen
class Ask:
    """One call of a facade, by the name of its operation."""

    operation: str
    call: Callable[[ds.DirectSuite], Awaitable[object]]
    service: str
    may_repeat: bool
    good: Any

    def __str__(self) -> str:
        return self.operation


async def _save_stream(suite: ds.DirectSuite) -> object:
    async def source() -> AsyncGenerator[bytes]:
        yield PDF

    return await suite.signing.save(source())


GET_MESSAGE_COUNT = Ask(
    "GetMessageCount",
    lambda suite: suite.mailbox(ALICE, PASSWORD).get_message_count(),
    "messaging",
    may_repeat=True,
    good={"success": True, "count": 7},
)
GET_DOC_INFO = Ask(
    "GetDocInfo",
    lambda suite: suite.signing.get_doc_info("doc"),
    "signing",
    may_repeat=True,
    good={"identifier": "doc"},
)
GET_PATIENT_ADDRESS = Ask(
    "GetPatientAddressByUsername",
    lambda suite: suite.registration.get_patient_address_by_username("direct.example.test", PATIENT),
    "registration",
    may_repeat=True,
    good={"success": True, "code": "000", "patient": []},
)
DELETE = Ask(
    "Delete", lambda suite: suite.signing.delete("doc"), "signing", may_repeat=True, good={"documentDigest": ""}
)
MARK_AS_READ = Ask(
    "MarkMessagesAsReadByUIDs",
    lambda suite: suite.mailbox(ALICE, PASSWORD).mark_messages_as_read_by_uids("INBOX", [1]),
    "messaging",
    may_repeat=True,
    good={"success": True},
)
SAVE = Ask("Save", lambda suite: suite.signing.save(PDF), "signing", may_repeat=True, good={"identifier": "doc"})
SAVE_STREAM = Ask("Save", _save_stream, "signing", may_repeat=True, good={"identifier": "doc"})
SEND = Ask(
    "Send",
    lambda suite: suite.mailbox(ALICE, PASSWORD).send(MESSAGE),
    "messaging",
    may_repeat=False,
    good={"success": True, "smtpId": "<1@direct.example.test>"},
)
FLATTEN = Ask(
    "Flatten", lambda suite: suite.signing.flatten("doc"), "signing", may_repeat=False, good={"documentDigest": "d"}
)
PROVISION = Ask(
    "ProvisionIDProofedPatient",
    lambda suite: suite.registration.provision_id_proofed_patient("direct.example.test", INDIVIDUAL),
    "registration",
    may_repeat=False,
    good={"success": True, "code": "000"},
)

ASKS = [GET_MESSAGE_COUNT, GET_DOC_INFO, GET_PATIENT_ADDRESS, DELETE, MARK_AS_READ, SAVE, SEND, FLATTEN, PROVISION]
"""Each semantics, each method and each way of carrying credentials."""


async def failure_of(call: Awaitable[object]) -> ds.DirectSuiteError:
    """The error of a call, as it was raised."""
    try:
        await call
    except ds.DirectSuiteError as error:
        return error
    raise AssertionError("the call succeeded")
