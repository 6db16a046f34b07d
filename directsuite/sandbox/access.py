"""Access to the page and the control API. The services use credentials, and check only the Host header.

Without a token, only programs on this machine and the sandbox's own page have access. Pages of other sites can make a
browser send requests to loopback. These requests have an Origin or Sec-Fetch-Site header, or the site's host name as
Host, if that name resolves to loopback (DNS rebinding). A form that changes something must contain `form_token`, which
other pages cannot read.

With a token, programs must send it as a bearer token. A browser asks for it once, and then sends a cookie.
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
    """Return True for a loopback address and `localhost`, False for any other text."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@attrs.frozen
class Access:
    """The tokens of a running sandbox, and the checks of requests."""

    token: str | None = attrs.field(default=None, repr=False)
    """The token for the page and the control API. None: only this machine has access."""
    form_token: str = attrs.field(factory=lambda: secrets.token_urlsafe(24), repr=False)
    """The token in the page's forms."""

    @property
    def cookie(self) -> str:
        """The value of the cookie that replaces the token in a browser."""
        return hashlib.sha256(f"page:{self.token}".encode()).hexdigest()

    def guard_control_handler(self, handler: RouteHandler, *, without_token: bool = False) -> RouteHandler:
        """Return a handler that responds 403 to web pages, 401 without the token, and otherwise calls `handler`.

        without_token: True to require no token.
        """
        expected = None if without_token else self.token

        async def respond(request: web.Request) -> web.StreamResponse:
            if "Origin" in request.headers or not self._is_host_known(request):
                text = "only programs on this machine may use the control API: use http://127.0.0.1, without Origin"
                return build_error_response(HTTPStatus.FORBIDDEN, "forbidden", text)
            if expected is not None and not is_same_secret(parse_bearer_token(request) or "", expected):
                text = "the sandbox's token is missing or wrong: set DIRECTSUITE_SANDBOX_TOKEN, or send a bearer token"
                return build_error_response(HTTPStatus.UNAUTHORIZED, "unauthorized", text)
            return await handler(request)

        return respond

    @property
    def host_check_middleware(self) -> Middleware:
        """The middleware that responds 403 to service calls whose Host is not loopback, unless there is a token."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.match_info.route.name is not None and not self._is_host_known(request):
                raise web.HTTPForbidden
            return await handler(request)

        return check

    def has_allowed_origin(self, request: web.Request) -> bool:
        """Return False if a page of another site made the request, except by a link, or if the Host is not loopback.

        With a token, any Host is allowed.
        """
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "same-origin")
        leads_here = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        return (
            self._is_host_known(request)
            and (origin is None or origin.partition("://")[2] == request.host)
            and (site in {"same-origin", "none"} or leads_here)
        )

    def is_browser_authorized(self, request: web.Request) -> bool:
        """Return True if the browser sends the cookie, or no token is required."""
        return self.token is None or is_same_secret(request.cookies.get(COOKIE, ""), self.cookie)

    def _is_host_known(self, request: web.Request) -> bool:
        return self.token is not None or is_loopback(_parse_host(request.headers.get("Host", "")))


def is_same_secret(received: str, expected: str) -> bool:
    """Return True if the secrets are equal. Compares them in constant time."""
    return hmac.compare_digest(received.encode("utf-8", "surrogatepass"), expected.encode())


def _parse_host(header: str) -> str:
    try:
        split = urlsplit(f"//{header}")
        _ = split.port  # raises ValueError if it is not a number
    except ValueError:
        return ""
    return split.hostname or ""
