"""The sandbox as one object: four services, OAuth 2.0, faults and a control API behind one port on loopback.

    async with Sandbox() as sandbox:
        await sandbox.add_account("alice@direct.example.test", "…")
        os.environ.update(sandbox.environment)      # what a client of the demo account needs

A request passes, from the outside in:

    refusals → faults → refusals → bearer check (signing and fax) → the operation

The refusals stand twice: the inner ones turn what an operation raises into the answer that a fault then spoils, the
outer ones do the same for a request whose body cannot even be read.
"""

from __future__ import annotations

import ipaddress
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from directsuite.sandbox import fax, ledger, oauth, tokens
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.control import control_routes
from directsuite.sandbox.database import Database
from directsuite.sandbox.faults import Fault, Faults
from directsuite.sandbox.faulty_answers import fault_injection
from directsuite.sandbox.json_body import MalformedMemberError
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.refusals import protocol_logger, refusals
from directsuite.sandbox.registration import individuals, patients, sessions
from directsuite.sandbox.registration.answers import RefusedError
from directsuite.sandbox.services import SCHEMAS, Services, openapi_document
from directsuite.sandbox.tables import empty_account, empty_all_tables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

DEMO_ACCOUNT = "demo"
DEMO_LOGIN = ("demo-reseller", "demo-login")
DEMO_CLIENT = ("demo-client", "demo-secret")
_DEMO_LIFETIME = timedelta(days=365)  # so that a test may advance the clock by hours and keep its token
_LARGEST_BODY = 64 * 2**20
_STOP_WITHIN = 5.0  # seconds that requests under way have to finish when the sandbox stops


class Sandbox:
    """The four services on one port of a loopback address, from `__aenter__` to `__aexit__`.

    folder: where the state is kept; None keeps it in memory. port: 0 takes a free one. clock: a Clock of your own, to
    freeze or advance it. Raises ValueError for a host that is not loopback: nothing here is fit for a network.
    """

    clock: Clock
    """The time of the whole sandbox."""
    root_url: str
    """What all URLs begin with; /openapi.json is below it."""
    signing_url: str
    """Base URL of the signing service."""
    fax_url: str
    """Base URL of the fax service."""
    message_url: str
    """Base URL of the messaging service."""
    registration_url: str
    """Base URL of the registration service."""
    token_url: str
    """URL of the OAuth 2.0 token endpoint."""
    control_url: str
    """Base URL of the control API."""
    environment: dict[str, str]
    """The environment variables with which a client finds the sandbox and the demo account in it."""

    def __init__(
        self, folder: Path | None = None, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None
    ) -> None:
        if not _is_loopback(host):
            raise ValueError("the sandbox listens on loopback only: give it 127.0.0.1, ::1 or localhost")
        self.clock = clock or Clock()
        self._folder = folder
        self._host = host
        self._port = port
        self._faults = Faults()
        self._closing = AsyncExitStack()
        self._demo_token = tokens.new_secret()

    async def __aenter__(self) -> Self:
        """Open the state, listen, and seed the demo account."""
        self._faults.stopped = False
        async with AsyncExitStack() as opening:
            self._database = Database(self._folder, SCHEMAS)
            opening.callback(self._database.close)
            self._services = Services.open(self._folder, self._database, self.clock)
            runner = web.AppRunner(
                self._application(), access_log=None, logger=protocol_logger, shutdown_timeout=_STOP_WITHIN
            )
            opening.push_async_callback(runner.cleanup)
            await runner.setup()
            opening.callback(self._release_hanging_requests)
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
            self._name_urls(runner.addresses[0][1])
            await self._seed()
            self._closing = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let requests under way finish, stop listening, and close the state."""
        await self._closing.aclose()

    @property
    def urls(self) -> dict[str, str]:
        """The URLs by the names of their attributes, without `_url`."""
        return {
            "signing": self.signing_url,
            "fax": self.fax_url,
            "message": self.message_url,
            "registration": self.registration_url,
            "token": self.token_url,
            "control": self.control_url,
        }

    async def add_account(self, address: str, password: str) -> int:
        """Open a mailbox and return its id. Raises AccountExists, or ValueError for what is no address."""
        now = self.clock.milliseconds()
        return await self._database.write(
            lambda connection: accounts.create_account(connection, address, password, at_ms=now)
        )

    async def add_tuser(self, username: str, password: str, direct_addresses: Iterable[str]) -> None:
        """Add a T-User who may act for these addresses, and log in to registration. Raises AccountExists."""
        addresses = list(direct_addresses)
        await self._database.write(lambda connection: accounts.create_tuser(connection, username, password, addresses))

    async def add_reseller(self, username: str, password: str, domains: Iterable[str] = ()) -> None:
        """Add a reseller or change his password; `domains` become domains that patients can be registered in."""
        names = list(domains)
        await self._database.write(lambda connection: sessions.add_reseller(connection, username, password, names))

    async def add_client(self, client_id: str, client_secret: str, account: str = DEMO_ACCOUNT) -> None:
        """Register an OAuth 2.0 client that acts for `account` at the signing and fax services."""
        await self._database.write(lambda connection: oauth.add_client(connection, client_id, client_secret, account))

    async def issue_token(self, account: str = DEMO_ACCOUNT, *, lifetime: timedelta = timedelta(hours=1)) -> str:
        """A fresh access token of `account` for the signing and fax services."""
        token, now = tokens.new_secret(), self.clock.milliseconds()
        await self._database.write(
            lambda connection: tokens.store(connection, token, account=account, now=now, lifetime=lifetime)
        )
        return token

    async def expire_tokens(self, account: str | None = None) -> int:
        """End the access tokens of an account, or all; returns how many there were."""
        return await self._database.write(lambda connection: tokens.expire(connection, account=account))

    async def expire_sessions(self, username: str | None = None) -> int:
        """End the registration sessions of a login, or all; returns how many there were."""
        return await self._database.write(lambda connection: sessions.expire(connection, username=username))

    async def add_fax(
        self,
        fax_number: str,
        *,
        status: str = "complete",
        recipients: Iterable[Mapping[str, Any]] | None = None,
        description: str = "",
        account: str = DEMO_ACCOUNT,
    ) -> str:
        """Add a fax and return its handle. Raises ValueError for bad values, NumberTakenError for a foreign number."""
        record = fax.FaxRecord.of(fax_number, account, status, description, recipients)
        now = self.clock.milliseconds()
        return await self._database.write(lambda connection: fax.add_fax(connection, record, now=now))

    async def set_fax_status(self, handle: str, status: str) -> bool:
        """Give a fax a new status, as of now; False for an unknown handle. Raises ValueError for an unknown status."""
        now = self.clock.milliseconds()
        return await self._database.write(lambda connection: fax.update_status(connection, handle, status, now=now))

    async def add_individual(
        self,
        first_name: str,
        last_name: str,
        ssn4: str,
        dob: str,
        *,
        id: int | None = None,  # noqa: A002  the specification's name
        **contact: str,
    ) -> int:
        """Add an identity-proofed individual and return the id.

        contact: email, phone, address, city, state, country, zipcode. Raises ValueError for bad values.
        """
        members = {"id": id, "firstName": first_name, "lastName": last_name, "ssn4": ssn4, "dob": dob, **contact}
        if unknown := set(contact) - set(individuals.CONTACT):
            raise ValueError(f"unknown contact data: {', '.join(sorted(unknown))}")
        try:
            return await self._database.write(lambda connection: individuals.add(connection, members))
        except (RefusedError, MalformedMemberError) as refused:
            raise ValueError(str(refused)) from None

    async def set_patient_state(self, address: str, state: str | None) -> bool:
        """Force the UserStateType of a patient's address; None lets it follow the clock. False for an unknown one."""
        return await self._database.write(lambda connection: patients.set_state(connection, address, state))

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a raw message (RFC 5322) into a folder of a mailbox and return its uid. Raises UnknownAccount."""
        return await self._services.messaging.deliver_inbound(address, raw, folder)

    async def force_message_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Give a sent message's delivery to one recipient a status for good. Raises LookupError, ValueError."""
        await self._services.messaging.force_status(smtp_id, recipient, status)

    def inject_fault(self, operation: str, kind: str, **members: Any) -> int:
        """Add a fault rule and return its number; `members` are those of Fault. Raises ValueError."""
        return self._faults.add(Fault.from_members({"operation": operation, "kind": kind, **members}))

    def remove_fault(self, number: int) -> bool:
        """Remove one fault rule; False if there is none of this number."""
        return self._faults.remove(number)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self._faults.clear()

    def faults(self) -> list[dict[str, Any]]:
        """All fault rules, with how often each has applied."""
        return self._faults.rules()

    async def ledger(self, operation: str | None = None) -> list[Mapping[str, Any]]:
        """What really happened, in order: every side effect of the services, or of one operation."""
        return await self._database.read(lambda connection: ledger.effects(connection, operation))

    async def reset(self, account: str | None = None) -> bool:
        """Start over: no state, no faults, the demo account seeded again. Token and clock stay as they are.

        With an account or mailbox address, only its documents and faxes, or its messages and folders, go; False if
        there was nothing of that name.
        """
        if account is not None:
            now = self.clock.milliseconds()
            return await self._database.write(lambda connection: empty_account(connection, account, now=now))
        self._faults.clear()
        await self._database.write(empty_all_tables)
        await self._seed()
        return True

    def _application(self) -> web.Application:
        middlewares = [
            refusals,
            fault_injection(self._faults, expire_token=self._expire_token, expire_session=self._expire_session),
            refusals,
            tokens.bearer_check(self._database, self.clock),
        ]
        application = web.Application(middlewares=middlewares, client_max_size=_LARGEST_BODY)
        application.add_routes(self._services.routes())
        endpoints = oauth.OAuth(self._database, self.clock, sessions.authenticate)
        application.add_routes(endpoints.routes())
        self._faults.know(application.router.named_resources())
        application.add_routes(control_routes(self))
        application.router.add_get("/openapi.json", openapi_document, allow_head=False)
        return application

    def _release_hanging_requests(self) -> None:
        self._faults.stopped = True

    def _name_urls(self, port: int) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.root_url = root = f"http://{host}:{port}"
        self.signing_url = f"{root}/signing"
        self.fax_url = f"{root}/fax"
        self.message_url = f"{root}/message-rest/api/message"
        self.registration_url = f"{root}/DirectRegistrationRESTful/rest/Patient"
        self.token_url = f"{root}/oauth/token"
        self.control_url = f"{root}/_sandbox"
        username, password = DEMO_LOGIN
        self.environment = {
            "DIRECTSUITE_SIGNING_URL": self.signing_url,
            "DIRECTSUITE_FAX_URL": self.fax_url,
            "DIRECTSUITE_MESSAGE_URL": self.message_url,
            "DIRECTSUITE_REGISTRATION_URL": self.registration_url,
            "DIRECTSUITE_TOKEN": self._demo_token,
            "DIRECTSUITE_LOGIN_USERNAME": username,
            "DIRECTSUITE_LOGIN_PASSWORD": password,
        }

    async def _seed(self) -> None:
        now = self.clock.milliseconds()

        def seed(connection: sqlite3.Connection) -> None:
            tokens.store(connection, self._demo_token, account=DEMO_ACCOUNT, now=now, lifetime=_DEMO_LIFETIME)
            oauth.add_client(connection, *DEMO_CLIENT, DEMO_ACCOUNT)
            sessions.add_reseller(connection, *DEMO_LOGIN)

        await self._database.write(seed)

    async def _expire_token(self, request: web.Request) -> None:
        token = tokens.bearer_token(request)
        if token is not None:
            await self._database.write(lambda connection: tokens.expire(connection, token=token))

    async def _expire_session(self, request: web.Request) -> None:
        session_id = request.match_info.get("session_id")
        if session_id is not None:
            await self._database.write(lambda connection: sessions.expire(connection, session_id=session_id))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
