"""Who may talk to the page and the control API. The services have credentials, and check the Host header only.

On loopback: programs on this machine, and the sandbox's own page. A page from elsewhere can make its visitor's browser
send requests to loopback; such a request bears an Origin header or Sec-Fetch-Site, or, where the page's own name was
made to lead to loopback (DNS rebinding), that name as its Host. What a browser changes comes from a form that holds
`form_token`, which a page from elsewhere can't read.

Elsewhere, with `allow_remote`: whoever has the sandbox's token. Programs send it as a bearer token; a browser is asked
for it once, and has a cookie then.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
from aiohttp import web

from directsuite.sandbox.credentials import parse_bearer_token
from directsuite.sandbox.rejections import build_error_response

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

RouteHandler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]

COOKIE = "directsuite-sandbox"


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address or `localhost`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@attrs.frozen
class Access:
    """The tokens of a sandbox that listens."""

    token: str | None = attrs.field(default=None, repr=False)
    """What whoever isn't on this machine shows; None where the sandbox is for this machine only."""
    form_token: str = attrs.field(factory=lambda: secrets.token_urlsafe(24), repr=False)
    """What every form of the page holds."""

    @property
    def cookie(self) -> str:
        """What a browser shows that has given the token."""
        return hashlib.sha256(f"page:{self.token}".encode()).hexdigest()

    def guard_control_handler(self, handler: RouteHandler, *, without_token: bool = False) -> RouteHandler:
        """The handler, behind a refusal for requests that may come from a web page, or lack the token."""
        expected = None if without_token else self.token

        async def respond(request: web.Request) -> web.StreamResponse:
            """Refuse, or let the handler answer."""
            if "Origin" in request.headers or not self._is_host_known(request):
                text = "the control API is for programs on this machine only"
                return build_error_response(HTTPStatus.FORBIDDEN, "forbidden", text)
            if expected is not None and not is_same_secret(parse_bearer_token(request) or "", expected):
                text = "the sandbox's token is missing: Authorization: Bearer TOKEN, or DIRECTSUITE_SANDBOX_TOKEN"
                return build_error_response(HTTPStatus.UNAUTHORIZED, "unauthorized", text)
            return await handler(request)

        return respond

    @property
    def host_check_middleware(self) -> Middleware:
        """The middleware that refuses a call of a service whose Host is another's name, as after DNS rebinding."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Reject the call, or handle it."""
            if request.match_info.route.name is not None and not self._is_host_known(request):
                raise web.HTTPForbidden
            return await handler(request)

        return check

    def has_allowed_origin(self, request: web.Request) -> bool:
        """Return True unless the request's names say that a page from elsewhere made it.

        Such a page may lead its visitor here, but neither embed nor fetch anything, and send nothing.
        """
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "same-origin")
        leads_here = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        return (
            self._is_host_known(request)
            and (origin is None or _parse_netloc(origin) == request.host)
            and (site in {"same-origin", "none"} or leads_here)
        )

    def is_browser_authorized(self, request: web.Request) -> bool:
        """Return True if the browser has given the token, or needs none."""
        return self.token is None or is_same_secret(request.cookies.get(COOKIE, ""), self.cookie)

    def _is_host_known(self, request: web.Request) -> bool:
        return self.token is not None or is_loopback(_parse_host(request.headers.get("Host", "")))


def is_same_secret(shown: str, expected: str) -> bool:
    """Compare secrets in the same time, whatever is shown."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), expected.encode())


def _parse_netloc(origin: str) -> str | None:
    """The host and port of an Origin header, if it is one."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _parse_host(header: str) -> str:
    try:
        split = urlsplit(f"//{header}")
        _ = split.port  # raises where it is no number
    except ValueError:
        return ""
    return split.hostname or ""
