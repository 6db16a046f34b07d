"""Access to the page and the control API. The services use credentials, and only check the Host header.

On loopback, programs on this machine and the sandbox's own page have access. Another web page can make a browser send
requests to loopback. Such a request has an Origin or Sec-Fetch-Site header, or, if the page's host name was changed to
resolve to loopback (DNS rebinding), that name as its Host. Changes by a browser need a form with `form_token`, which
other pages cannot read.

With `allow_remote`, the sandbox's token is required. Programs send it as a bearer token. A browser asks for it once,
and then sends a cookie.
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
    """The tokens of a running sandbox, and the checks of requests."""

    token: str | None = attrs.field(default=None, repr=False)
    """The token for the page and the control API, or None if the sandbox is for this machine only."""
    form_token: str = attrs.field(factory=lambda: secrets.token_urlsafe(24), repr=False)
    """The token in every form of the page."""

    @property
    def cookie(self) -> str:
        """The value of the cookie that a browser has after the token was entered."""
        return hashlib.sha256(f"page:{self.token}".encode()).hexdigest()

    def guard_control_handler(self, handler: RouteHandler, *, without_token: bool = False) -> RouteHandler:
        """Return the handler with a check that rejects requests of web pages, and requests without the token."""
        expected = None if without_token else self.token

        async def respond(request: web.Request) -> web.StreamResponse:
            """Reject the request, or call the handler."""
            if "Origin" in request.headers or not self._is_host_known(request):
                text = "the control API is for programs on this machine only"
                return build_error_response(HTTPStatus.FORBIDDEN, "forbidden", text)
            if expected is not None and not is_same_secret(parse_bearer_token(request) or "", expected):
                text = "send the sandbox's token as Authorization: Bearer TOKEN, or set DIRECTSUITE_SANDBOX_TOKEN"
                return build_error_response(HTTPStatus.UNAUTHORIZED, "unauthorized", text)
            return await handler(request)

        return respond

    @property
    def host_check_middleware(self) -> Middleware:
        """The middleware that rejects service calls with another host name, as after DNS rebinding."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Reject a service call with an unknown host name."""
            if request.match_info.route.name is not None and not self._is_host_known(request):
                raise web.HTTPForbidden
            return await handler(request)

        return check

    def has_allowed_origin(self, request: web.Request) -> bool:
        """Return False if the headers show that a page of another site has made the request.

        Such a page may link to the sandbox, but not embed it, fetch from it, or send anything to it.
        """
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "same-origin")
        leads_here = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        return (
            self._is_host_known(request)
            and (origin is None or _parse_netloc(origin) == request.host)
            and (site in {"same-origin", "none"} or leads_here)
        )

    def is_browser_authorized(self, request: web.Request) -> bool:
        """Return True if the token was entered in this browser, or is not required."""
        return self.token is None or is_same_secret(request.cookies.get(COOKIE, ""), self.cookie)

    def _is_host_known(self, request: web.Request) -> bool:
        return self.token is not None or is_loopback(_parse_host(request.headers.get("Host", "")))


def is_same_secret(shown: str, expected: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), expected.encode())


def _parse_netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _parse_host(header: str) -> str:
    try:
        split = urlsplit(f"//{header}")
        _ = split.port  # raises ValueError if it is not a number
    except ValueError:
        return ""
    return split.hostname or ""
