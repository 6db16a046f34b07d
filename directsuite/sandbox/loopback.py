"""Who may talk to the control API: programs on this machine, and no page that a browser has loaded from elsewhere.

A page can make its visitor's browser send requests to loopback. Such a request bears an Origin header, or, where the
page's own name was made to lead to loopback (DNS rebinding), that name as its Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web

from directsuite.sandbox.refusals import refusal

Answer = Callable[[web.Request], Awaitable[web.Response]]


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or `localhost`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_only(handler: Answer) -> Answer:
    """The handler, behind a refusal for requests that may come from a web page."""

    async def answer(request: web.Request) -> web.Response:
        """The handler's answer, or 403."""
        if "Origin" in request.headers or not is_loopback(_host(request.headers.get("Host", ""))):
            return refusal(HTTPStatus.FORBIDDEN, "forbidden", "the control API is for programs on this machine only")
        return await handler(request)

    return answer


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
