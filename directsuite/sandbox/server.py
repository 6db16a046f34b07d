"""The sandbox as one object: four services, OAuth 2.0, faults and a control API behind one port on loopback.

    async with Sandbox() as sandbox:
        await sandbox.add_account("alice@direct.example.test", "…")
        os.environ.update(sandbox.environment)      # what a client of the demo account needs

A request passes, from the outside in:

    refusals → faults → bearer check (signing and fax) → the operation
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from aiohttp import web

from directsuite.sandbox import credentials, oauth
from directsuite.sandbox.clock import Clock, ClockState
from directsuite.sandbox.control import BASE, control_routes
from directsuite.sandbox.database import Database
from directsuite.sandbox.faults import fault_injection
from directsuite.sandbox.loopback import is_loopback, local_only
from directsuite.sandbox.refusals import protocol_logger, refusals
from directsuite.sandbox.registration import sessions
from directsuite.sandbox.services import (
    SCHEMAS,
    Habits,
    Services,
    openapi_document,
    pdf_libraries_installed,
    without_pdf_libraries,
)
from directsuite.sandbox.tables import empty_account, empty_all_tables
from directsuite.sandbox.verbs import DEMO_ACCOUNT, Verbs

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path
    from types import TracebackType

    from directsuite.sandbox.messaging.profile import Profiles

Seed = Callable[["sqlite3.Connection", int], None]
"""Adds content, given a connection inside a transaction and the time in milliseconds since 1970."""

DEMO_LOGIN = ("demo-reseller", "demo-login")
DEMO_CLIENT = ("demo-client", "demo-secret")
_DEMO_LIFETIME = timedelta(days=365)  # so that a test may advance the clock by hours and keep its token
_LARGEST_BODY = 64 * 2**20
_STOP_WITHIN = 5.0  # seconds that requests under way have to finish when the sandbox stops


class Sandbox(Verbs):
    """The four services on one port of a loopback address, from `__aenter__` to `__aexit__`.

    folder: where the state is kept, the clock with it; None keeps it in memory. port: 0 takes a free one. clock: a
    Clock of your own, which is taken as it stands. seed: what the state begins with, at a start and after a reset, in
    one transaction; it finds its own work where a state was kept. profile, csv_above, missing_status: what the
    attributes of these names are at first. Raises ValueError for a host that is not loopback: nothing here is fit for
    a network.
    """

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
        self,
        folder: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        seed: Seed | None = None,
        profile: Profiles = "strict",
        csv_above: int = 100,
        missing_status: int = 400,
    ) -> None:
        if not is_loopback(host):
            raise ValueError("the sandbox listens on loopback only: give it 127.0.0.1, ::1 or localhost")
        super().__init__(Clock() if clock is None else clock)
        self._own_clock = clock is not None
        self._seed = seed
        self._habits = Habits(profile=profile, csv_above=csv_above, missing_status=missing_status)
        self._folder = folder
        self._host = host
        self._port = port
        self._closing = AsyncExitStack()
        self._demo_token = credentials.new_secret()

    async def __aenter__(self) -> Self:
        """Open the state, listen, and seed the demo account."""
        self._faults.stopped = False
        async with AsyncExitStack() as opening:
            database = Database(self._folder, SCHEMAS)
            opening.callback(database.close)
            opening.callback(self._forget)
            self._opened = database, Services.open(self._folder, database, self.clock, self._habits)
            await self._keep_time(opening)
            runner = web.AppRunner(
                self._application(), access_log=None, logger=protocol_logger, shutdown_timeout=_STOP_WITHIN
            )
            opening.push_async_callback(runner.cleanup)
            await runner.setup()
            opening.callback(self._release_hanging_requests)
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
            self._name_urls(runner.addresses[0][1])
            await database.write(self._sow)
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

    async def reset(self, account: str | None = None) -> bool:
        """Start over, at once: no state, no faults, all seeded again. Token and clock stay as they are.

        With an account or mailbox address, only its documents and faxes, or its messages and folders, go; False if
        there was nothing of that name.
        """
        if account is not None:
            now = self.clock.milliseconds()
            return await self._database.write(lambda connection: empty_account(connection, account, now=now))

        def start_over(connection: sqlite3.Connection) -> None:
            """Empty and seed, in one transaction."""
            empty_all_tables(connection)
            self._sow(connection)

        await self._database.write(start_over)
        self._faults.clear()
        return True

    async def keep_clock(self) -> None:
        """Have the clock, which is kept soon after each change, kept when this returns."""
        await self._database.write(lambda connection: self.clock.state.store(connection))

    def _application(self) -> web.Application:
        middlewares = [
            refusals,
            fault_injection(self._faults, expire_token=self._expire_token, expire_session=self._expire_session),
            credentials.bearer_check(self._database, self.clock),
        ]
        application = web.Application(middlewares=middlewares, client_max_size=_LARGEST_BODY)
        application.add_routes(self._services.routes())
        endpoints = oauth.OAuth(self._database, self.clock, sessions.authenticate)
        application.add_routes(endpoints.routes())
        self._faults.know(application.router.named_resources())
        application.add_routes(control_routes(self))
        application.router.add_get(f"{BASE}/ca.pem", local_only(self._authority), allow_head=False)
        application.router.add_get("/openapi.json", openapi_document, allow_head=False)
        return application

    async def _keep_time(self, opening: AsyncExitStack) -> None:
        """Go on from the time that is kept, unless the clock is the caller's own, and keep each change from here on."""
        database = self._database
        kept = await database.read(ClockState.load)
        if kept is not None and not self._own_clock:
            self.clock.restore(kept)

        def store(connection: sqlite3.Connection) -> None:
            self.clock.state.store(connection)

        opening.callback(self.clock.listen(lambda: database.post(store)))

    def _forget(self) -> None:
        self._opened = None

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
        self.control_url = f"{root}{BASE}"
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

    def _sow(self, connection: sqlite3.Connection) -> None:
        """The demo account, and what `seed` adds, inside the caller's transaction."""
        now = self.clock.milliseconds()
        self.clock.state.store(connection)
        credentials.store_token(connection, self._demo_token, account=DEMO_ACCOUNT, now=now, lifetime=_DEMO_LIFETIME)
        oauth.add_client(connection, *DEMO_CLIENT, DEMO_ACCOUNT)
        sessions.add_reseller(connection, *DEMO_LOGIN)
        if self._seed is not None:
            self._seed(connection, now)

    async def _authority(self, request: web.Request) -> web.Response:
        if not pdf_libraries_installed():
            return await without_pdf_libraries(request)
        pem = await asyncio.to_thread(self.authority_pem)
        return web.Response(body=pem, content_type="application/x-pem-file")

    async def _expire_token(self, request: web.Request) -> None:
        token = credentials.bearer_token(request)
        if token is not None:
            await self._database.write(lambda connection: credentials.expire_tokens(connection, token=token))

    async def _expire_session(self, request: web.Request) -> None:
        session_id = request.match_info.get("session_id")
        if session_id is not None:
            await self._database.write(lambda connection: sessions.expire(connection, session_id=session_id))
