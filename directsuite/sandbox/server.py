"""The sandbox: four services, OAuth 2.0, faults, a control API and a page on one port.

    async with Sandbox() as sandbox:
        await sandbox.add_account("alice@direct.example.test", "…")
        os.environ.update(sandbox.environment)      # the variables for a client of the demo account

The middlewares process a request in this order:

    calls → imitation → error responses → Host → faults → bearer token (signing and fax) → the operation
"""

from __future__ import annotations

import asyncio
import errno
import re
import weakref
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import msgspec.json
import msgspec.yaml
from aiohttp import web

from directsuite.sandbox import credentials, fax, oauth, registration
from directsuite.sandbox.access import Access, is_loopback
from directsuite.sandbox.calls import Calls
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.control import BASE, build_control_document, make_control_routes
from directsuite.sandbox.credentials import DEMO_ACCOUNT
from directsuite.sandbox.faults import make_fault_middleware
from directsuite.sandbox.messaging import service as messaging
from directsuite.sandbox.page.site import SandboxPage
from directsuite.sandbox.page.views import FILE_ROUTES, VIEWS
from directsuite.sandbox.quirks import Dialect, make_imitation_middleware, read_report
from directsuite.sandbox.rejections import build_error_response, handle_errors, protocol_logger
from directsuite.sandbox.state import SandboxState, Seed

if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.quirks import Profiles
    from directsuite.sandbox.signing import KeySource

DEMO_LOGIN = ("demo-reseller", "demo-login")
DEMO_CLIENT = ("demo-client", "demo-secret")
_URL_PATHS = {
    "signing": "/signing",
    "fax": "/fax",
    "message": messaging.BASE,
    "registration": registration.BASE,
    "token": "/oauth/token",
}
_DEMO_TOKEN_LIFETIME = timedelta(days=365)  # a test may advance the clock and keep its token
_OPENAPI_FILE = Path(__file__).with_name("openapi.yaml")
_MAX_BODY_BYTES = 64 * 2**20
_MIN_TOKEN_CHARS = 16
_PDF_LIBRARIES = ("pikepdf", "pyhanko", "cryptography", "reportlab")
_PARAMETER = re.compile(r"\{(\w+)\}")
_SHUTDOWN_TIMEOUT = 5.0  # seconds for requests in progress
_KEEPALIVE_TIMEOUT = 30.0  # seconds, longer than the idle timeout of clients, so that they close first


class Sandbox(SandboxState):
    """The four services on one port, open from `__aenter__` to `__aexit__`.

    folder: the folder of the state, including the clock. None: the state is in memory.
    host: the address to listen on. Without a token, only a loopback address.
    port: the port to listen on. 0: a free port.
    clock: a clock to use unchanged. None: a new clock, which resumes at its stored time.
    seed: adds initial data, at each start and after a reset, in one transaction. The state may already contain it.
    keys: the source of the signing key. None: a key in `folder`.
    profile, csv_above, missing_status: the initial values of the attributes.
    token: a token that programs and browsers must send to the control API and the page.
    imitate: a report of `directsuite doctor --deep`, whose differences the responses imitate.
    max_body: the maximum size of a request in bytes. None: 1 GiB for documents in Save, and attachments in Send, its
        variants and SaveRawMessages; 64 MiB for other operations.
    Raises ValueError for a host other than loopback without a token, a short token, a `max_body` below 1, and a file
    that is not a report. Raises OSError if the report cannot be read, and when opened, if the port is in use.
    """

    root_url: str
    """The start of all URLs, without a slash at the end. The page is there, and `Control` takes this URL."""
    signing_url: str
    fax_url: str
    message_url: str
    registration_url: str
    token_url: str
    environment: dict[str, str]
    """The environment variables for a client of the demo account."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        seed: Seed | None = None,
        keys: KeySource | None = None,
        profile: Profiles = "strict",
        csv_above: int = 100,
        missing_status: int = 400,
        token: str | None = None,
        imitate: Path | None = None,
        max_body: int | None = None,
    ) -> None:
        if token is None and not is_loopback(host):
            raise ValueError("without a token, the host must be a loopback address: use 127.0.0.1, ::1 or localhost")
        if token is not None and len(token) < _MIN_TOKEN_CHARS:
            raise ValueError(f"the sandbox's token must have {_MIN_TOKEN_CHARS} characters or more")
        if max_body is not None and max_body < 1:
            raise ValueError("max_body must be a number of bytes, 1 or more")
        super().__init__(folder, clock, self._seed_demo, keys, max_body, (profile, csv_above, missing_status))
        self._user_seed = seed
        self._dialect: Dialect = {} if imitate is None else read_report(imitate)
        self._host = host
        self._port = port
        self.calls = Calls()
        self._access = Access(token)
        # Requests with a response whose body aiohttp still reads, by id(), for up to 10 seconds.
        self._unread_requests = weakref.WeakValueDictionary[int, web.Request]()
        self._exit_stack = AsyncExitStack()
        self._demo_token = credentials.generate_secret()

    async def __aenter__(self) -> Self:
        self._faults.stopped = False
        async with AsyncExitStack() as opening:
            await self._open(opening)
            runner = web.AppRunner(
                self._build_application(),
                access_log=None,
                logger=protocol_logger,
                shutdown_timeout=_SHUTDOWN_TIMEOUT,
                keepalive_timeout=_KEEPALIVE_TIMEOUT,
            )
            opening.push_async_callback(runner.cleanup)
            await runner.setup()
            opening.callback(self._release_requests)
            site = web.TCPSite(runner, self._host, self._port)
            try:
                await site.start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                text = f"port {self._port} is in use: end the program that uses it, or use port=0 for a free port"
                raise OSError(error.errno, text) from None
            self._set_urls(runner.addresses[0][1])
            await self._database.write(self._seed_state)
            self._exit_stack = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit_stack.aclose()

    @property
    def urls(self) -> dict[str, str]:
        """The URLs by name (`signing` for `signing_url`, and so on), and `control`: the URL for `Control`."""
        return {**{name: getattr(self, f"{name}_url") for name in _URL_PATHS}, "control": self.root_url}

    def _build_application(self) -> web.Application:
        middlewares = [
            self._track_unread_body,
            self.calls.make_middleware(),
            make_imitation_middleware(self._dialect),
            handle_errors,
            self._access.host_check_middleware,
            make_fault_middleware(self._faults, expire_token=self._expire_token, expire_session=self._expire_session),
            credentials.make_bearer_middleware(self._database, self.clock),
        ]
        application = web.Application(middlewares=middlewares, client_max_size=self._max_body or _MAX_BODY_BYTES)
        application.add_routes(_allow_any_segment(self._make_routes()))
        application.add_routes(_allow_any_segment(oauth.make_routes(self._database, self.clock)))
        self._faults.operations = frozenset(application.router.named_resources())
        application.add_routes(_allow_any_segment(make_control_routes(self, self._access)))
        for name, handler in (
            ("health", self._access.guard_control_handler(self._get_health, without_token=True)),
            ("openapi.json", self._access.guard_control_handler(_serve_control_document)),
            ("environment", self._access.guard_control_handler(self._get_environment)),
            ("ca.pem", self._access.guard_control_handler(self._get_authority)),
        ):
            application.router.add_get(f"{BASE}/{name}", handler, allow_head=False)
        self._page = SandboxPage(self, self.calls, self._access, load_openapi_document)
        application.add_routes(_allow_any_segment(self._page.make_routes(VIEWS, FILE_ROUTES)))
        application.router.add_get("/openapi.json", _serve_openapi, allow_head=False)
        return application

    def _make_routes(self) -> list[web.RouteDef]:
        signing = self.services.signing.make_routes()
        if not has_pdf_libraries():
            signing = [attrs.evolve(route, handler=_report_missing_pdf_libraries) for route in signing]
        return [
            *signing,
            *fax.make_routes(self._database),
            *self.services.messaging.make_routes(),
            *registration.make_routes(self._database, self.clock),
        ]

    @web.middleware
    async def _track_unread_body(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            if not request.content.is_eof():
                self._unread_requests[id(request)] = request

    def _release_requests(self) -> None:
        self._faults.stopped = True
        for request in [*self._unread_requests.values()]:
            request.content.set_exception(TimeoutError())  # as aiohttp does later
        self._page.close()

    def _set_urls(self, port: int) -> None:
        every = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  a server on all addresses is also on loopback
        host = every.get(self._host, self._host)
        host = f"[{host}]" if ":" in host else host
        self.root_url = f"http://{host}:{port}"
        for name, path in _URL_PATHS.items():
            setattr(self, f"{name}_url", f"{self.root_url}{path}")
        username, password = DEMO_LOGIN
        services = ("signing", "fax", "message", "registration")
        self.environment = {
            **{f"DIRECTSUITE_{name.upper()}_URL": self.urls[name] for name in services},
            "DIRECTSUITE_TOKEN": self._demo_token,
            "DIRECTSUITE_LOGIN_USERNAME": username,
            "DIRECTSUITE_LOGIN_PASSWORD": password,
        }

    def _seed_demo(self, connection: sqlite3.Connection, now: int) -> None:
        expires_at = now + _DEMO_TOKEN_LIFETIME // timedelta(milliseconds=1)
        credentials.store_secret(
            connection, "access token", DEMO_ACCOUNT, expires_at=expires_at, secret=self._demo_token
        )
        oauth.add_client(connection, *DEMO_CLIENT, DEMO_ACCOUNT)
        registration.add_reseller(connection, *DEMO_LOGIN)
        if self._user_seed is not None:
            self._user_seed(connection, now)

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "now": self.clock.now().isoformat(), "urls": self.urls})

    async def _get_environment(self, request: web.Request) -> web.Response:
        """Respond with `environment` and a valid token. With an access token, the URLs have the request's Host."""
        token, now = self.environment["DIRECTSUITE_TOKEN"], self.clock.milliseconds()
        if await self._database.read(credentials.find_secret_account, "access token", token, now=now) is None:
            self.environment["DIRECTSUITE_TOKEN"] = await self.issue_token(lifetime=_DEMO_TOKEN_LIFETIME)
        environment = self.environment
        if self._access.token is not None:
            here = f"http://{request.host}"
            environment = {name: text.replace(self.root_url, here, 1) for name, text in environment.items()}
        return web.json_response({"environment": environment})

    async def _get_authority(self, request: web.Request) -> web.Response:
        if not has_pdf_libraries():
            return await _report_missing_pdf_libraries(request)
        pem = await asyncio.to_thread(self.authority_pem)
        return web.Response(body=pem, content_type="application/x-pem-file")

    async def _expire_token(self, request: web.Request) -> None:
        token = credentials.parse_bearer_token(request)
        if token is not None:
            await self._database.write(credentials.expire_secrets, "access token", secret=token)

    async def _expire_session(self, request: web.Request) -> None:
        session_id = request.match_info.get("session_id")
        if session_id is not None:
            await self._database.write(credentials.expire_secrets, "session", secret=session_id)


def _allow_any_segment(routes: list[web.RouteDef]) -> list[web.RouteDef]:
    return [attrs.evolve(each, path=_PARAMETER.sub(r"{\1:[^/]+}", each.path)) for each in routes]


def load_openapi_document() -> dict[str, Any]:
    """Return a new copy of the OpenAPI document of the services, with paths from the root URL.

    Raises ImportError without PyYAML, which the extra `directsuite[sandbox]` installs.
    """
    document: dict[str, Any] = msgspec.json.decode(_load_openapi_json())
    return document


@cache
def _load_openapi_json() -> bytes:
    return msgspec.json.encode(msgspec.yaml.decode(_OPENAPI_FILE.read_bytes()))


def has_pdf_libraries() -> bool:
    """Return True if the PDF libraries of the extra `directsuite[sandbox]` are installed."""
    return all(find_spec(library) is not None for library in _PDF_LIBRARIES)


async def _report_missing_pdf_libraries(request: web.Request) -> web.Response:
    return build_error_response(
        HTTPStatus.NOT_IMPLEMENTED,
        "signing_unavailable",
        "the signing service needs PDF libraries: in a copy of the repository, run pip install '.[sandbox]'",
    )


async def _serve_control_document(request: web.Request) -> web.Response:
    return web.json_response(build_control_document())


async def _serve_openapi(request: web.Request) -> web.Response:
    try:
        return web.Response(body=await asyncio.to_thread(_load_openapi_json), content_type="application/json")
    except ImportError:
        description = "the OpenAPI document needs PyYAML: in a copy of the repository, run pip install '.[sandbox]'"
        return build_error_response(HTTPStatus.NOT_IMPLEMENTED, "openapi_unavailable", description)
