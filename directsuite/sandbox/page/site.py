"""The routes of the page: views that show the state, forms that change it, and the access checks of both.

    GET   /, /page/…              a view: a function that reads the state, and a template
    POST  /page/do/METHOD/PATH    a form: runs an operation of the control API
    GET   /page/events            server-sent events: `call` after a call, `change` after a change of the state

The security headers let a browser run only the page's own scripts and load only from this server, and forbid other
pages to embed this one. HTML of messages, attachments and documents have separate policies. The first view imports
jinja2, so that the sandbox also runs without it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache, cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from directsuite.sandbox.access import COOKIE, Access, RouteHandler, is_same_secret
from directsuite.sandbox.clock import EPOCH
from directsuite.sandbox.control import (
    CONTROLS,
    REJECTION_ERRORS,
    ControlOperation,
    choose_error_status,
)
from directsuite.sandbox.faults import describe_kind, describe_remaining
from directsuite.sandbox.rejections import describe_body_limit

if TYPE_CHECKING:
    from jinja2 import Environment
    from multidict import MultiDictProxy

    from directsuite.sandbox.calls import Calls
    from directsuite.sandbox.state import SandboxState


_PAGE_FOLDER = Path(__file__).parent
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC_FILES = {file.name: file for file in (_PAGE_FOLDER / "static").iterdir() if file.suffix in _MEDIA_TYPES}
_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
}
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-~]*")
_HYPHENATED = re.compile(r"(?:&lt;)?\b(?=[0-9A-Za-z-]{3,40}\b)[0-9A-Za-z]+(?:-[0-9A-Za-z]+)+")  # of escaped text
_MAX_FORM_BYTES = 2**16  # without a file; in memory it is a hundred times larger
NOTICE_COOKIE = "directsuite_sandbox_notice"
"""The cookie with the key of the notice that the next view shows."""
_NOTICE_SECONDS = 60
_MAX_NOTICES = 100
_MAX_NOTICE_CHARS = 300
_HEARTBEAT_INTERVAL = 15.0  # seconds until a disconnected browser is noticed
_EVENT_INTERVAL = 0.25  # seconds between checks for events


class PageNotFoundError(Exception):
    """Nothing exists at the requested address."""


View = Callable[["SandboxPage", web.Request], Awaitable[Mapping[str, Any]]]
FileHandler = Callable[["SandboxPage", web.Request], Awaitable[web.StreamResponse]]


class SandboxPage:
    """The page of a running sandbox."""

    def __init__(
        self, sandbox: SandboxState, calls: Calls, access: Access, services_document: Callable[[], dict[str, Any]]
    ) -> None:
        self.sandbox, self.calls = sandbox, calls
        self._build_services_document = services_document
        self._access = access
        self.drawing_slot = asyncio.Semaphore(1)  # one page at a time
        # A text, and the id of the section to show it in. Other web pages cannot make the page show their texts.
        self._notices = dict[str, tuple[str, str]]()
        self._is_closed = False

    def make_routes(
        self, views: Mapping[str, tuple[str, View]], files: Mapping[str, FileHandler]
    ) -> list[web.RouteDef]:
        """Return all routes, without names, because a named route is an operation of a service.

        views: the template and the function of each page, by path. files: the function of each file, by path.
        """

        def get(path: str, handler: RouteHandler, *, open_to_all: bool = False) -> web.RouteDef:
            return web.get(path, self._guard_handler(handler, open_to_all=open_to_all), allow_head=False)

        changes = [entry for entry in CONTROLS if entry.method != "GET"]
        return [
            *(get(path, self._make_view_handler(template, view)) for path, (template, view) in views.items()),
            *(get(path, partial(serve_file, self)) for path, serve_file in files.items()),
            *(
                web.post(f"/page/do/{each.method}/{each.path}", self._guard_handler(self._make_form_handler(each)))
                for each in changes
            ),
            get("/page/events", self._stream_events),
            get("/page/static/{name}", _serve_static, open_to_all=True),
            web.post("/page/token", self._guard_handler(self._accept_token, open_to_all=True)),
        ]

    def close(self) -> None:
        """End the event streams."""
        self._is_closed = True

    @property
    def _version(self) -> str:
        return f"{self.calls.count}-{self.sandbox.changes}"

    def _guard_handler(self, handler: RouteHandler, *, open_to_all: bool = False) -> RouteHandler:
        """Return the handler with access checks (403, 401) and security headers. open_to_all: require no token."""

        async def respond(request: web.Request) -> web.StreamResponse:
            if not self._access.has_allowed_origin(request):
                text = "The request came from another web page. Enter the sandbox's address in the browser instead."
                response: web.StreamResponse = self._render_error(HTTPStatus.FORBIDDEN, text)
            elif not open_to_all and not self._access.is_browser_authorized(request):
                response = self._render("token.html", HTTPStatus.UNAUTHORIZED)
            else:
                response = await self._run_handler(handler, request)
            if not response.prepared:
                for name, value in _SECURITY_HEADERS.items():
                    response.headers.setdefault(name, value)
            return response

        return respond

    async def _run_handler(self, handler: RouteHandler, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except PageNotFoundError as missing:
            return self._render_error(HTTPStatus.NOT_FOUND, str(missing))
        except FileNotFoundError:
            text = "The document or message was changed or deleted while it was read. Reload the page."
            return self._render_error(HTTPStatus.NOT_FOUND, text)
        except web.HTTPBadRequest:
            text = "The form could not be read. Reload the page and try again."
            return self._render_error(HTTPStatus.BAD_REQUEST, text)
        except web.HTTPRequestEntityTooLarge:
            limit = describe_body_limit(request.client_max_size)
            return self._render_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The form was rejected: {limit}.")
        except ImportError:
            text = "The sandbox's page needs more packages. In a copy of the repository, run: pip install '.[sandbox]'"
            return web.Response(status=HTTPStatus.NOT_IMPLEMENTED, text=text)

    def _render_error(self, status: HTTPStatus, text: str, back: str = "/") -> web.Response:
        try:
            return self._render("wrong.html", status, text=text, back=back)
        except ImportError:
            return web.Response(status=status, text=text)

    def _render(self, template: str, status: HTTPStatus = HTTPStatus.OK, **context: Any) -> web.Response:
        clock = self.sandbox.clock
        state = {"version": self._version, "now": clock.milliseconds(), "frozen": clock.frozen}
        state["active_faults"] = sum(rule["remaining"] != 0 for rule in self.sandbox.faults())
        known = {"form_token": self._access.form_token, "notice": None, "notice_section": "", **state, **context}
        html = _load_templates().get_template(template).render(known)
        return web.Response(status=status, text=html, content_type="text/html")

    def _make_view_handler(self, template: str, view: View) -> RouteHandler:
        async def show(request: web.Request) -> web.StreamResponse:
            version = self._version  # first, so that a change during the read leads to a reload
            context: dict[str, Any] = {**await view(self, request), "version": version}
            # An update of an open view, by htmx, must not remove the notice for the view that the form leads to.
            key = None if "HX-Request" in request.headers else request.cookies.get(NOTICE_COOKIE)
            context["notice"], context["notice_section"] = self._notices.pop(key or "", (None, ""))
            response = self._render(template, here=request.path_qs, path=request.path, **context)
            if key is not None:
                response.del_cookie(NOTICE_COOKIE)
            return response

        return show

    def _make_form_handler(self, entry: ControlOperation) -> RouteHandler:
        async def run_action(request: web.Request) -> web.StreamResponse:
            form = await _read_form(request)
            if not is_same_secret(str(form.get("form_token", "")), self._access.form_token):
                text = (
                    "The form is out of date, perhaps because the sandbox was restarted. Reload the page and try again."
                )
                return self._render_error(HTTPStatus.FORBIDDEN, text)
            members, back = _read_members(form), str(form.get("back", "/"))
            back = back if _LOCAL_PATH.fullmatch(back) else "/"
            try:
                if entry.is_body_raw:
                    await _deliver(self.sandbox, request, form)
                    result: Mapping[str, Any] = {}
                else:
                    body: Any = None
                    if entry.body_type is not None:
                        body = msgspec.convert(members, entry.body_type, strict=False)
                    result = await entry.handler(self.sandbox, request, body)
            except REJECTION_ERRORS as error:
                return self._render_error(choose_error_status(error), f"The change was rejected: {error}.", back)
            values = {**members, **request.match_info, **result, "now": _format_moment(self.now_ms)}
            key = secrets.token_urlsafe(16)
            self._notices[key] = entry.notice.format_map(values)[:_MAX_NOTICE_CHARS], back.partition("#")[2]
            if len(self._notices) > _MAX_NOTICES:
                del self._notices[next(iter(self._notices))]
            response = _redirect(back)
            cookie: dict[str, Any] = {"httponly": True, "samesite": "Strict", "secure": request.secure}
            response.set_cookie(NOTICE_COOKIE, key, max_age=_NOTICE_SECONDS, **cookie)
            return response

        return run_action

    async def _accept_token(self, request: web.Request) -> web.StreamResponse:
        form, token = await _read_form(request, may_have_file=False), self._access.token
        if token is None or not is_same_secret(str(form.get("token", "")).strip(), token):
            return self._render("token.html", HTTPStatus.UNAUTHORIZED, wrong=True)
        response = _redirect("/")
        response.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _stream_events(self, request: web.Request) -> web.StreamResponse:
        sent = (request.query.get("since") or self._version).split("-")
        response = web.StreamResponse(headers={**_SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        heartbeat = 0.0
        try:
            while not self._is_closed:
                seen, sent = sent, self._version.split("-")
                kinds = [kind for kind, old, new in zip(("call", "change"), seen, sent, strict=False) if old != new]
                if kinds or heartbeat <= 0:
                    events = "".join(f"event: {kind}\ndata: 1\n\n" for kind in kinds)
                    await response.write(events.encode() or b":\n\n")
                    heartbeat = _HEARTBEAT_INTERVAL
                await asyncio.sleep(_EVENT_INTERVAL)
                heartbeat -= _EVENT_INTERVAL
        except ConnectionError:
            pass  # the browser has disconnected
        return response

    @cached_property
    def summaries(self) -> dict[str, str]:
        """The summaries of the services' operations, by name. Raises ImportError without PyYAML."""
        paths: dict[str, dict[str, Any]] = self._build_services_document()["paths"]
        return {each["operationId"]: each["summary"] for methods in paths.values() for each in methods.values()}

    @property
    def now_ms(self) -> int:
        """The sandbox's time in milliseconds since 1970."""
        return self.sandbox.clock.milliseconds()


async def _serve_static(request: web.Request) -> web.StreamResponse:
    file = _STATIC_FILES.get(request.match_info["name"])
    if file is None:
        raise PageNotFoundError("The sandbox's page has no file of this name.")
    body = await asyncio.to_thread(file.read_bytes)
    headers = {"Cache-Control": "max-age=3600" if file.name[-6:-4].isdigit() else "no-cache"}
    return web.Response(body=body, content_type=_MEDIA_TYPES[file.suffix], charset="utf-8", headers=headers)


async def _deliver(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
    """Deliver the message in the form, pasted or uploaded, into a mailbox."""
    file, text = form.get("file"), str(form.get("raw", ""))
    uploaded = await asyncio.to_thread(file.file.read) if isinstance(file, web.FileField) else b""
    pasted = text.encode("utf-8", "surrogateescape") if text.strip() else b""
    if bool(uploaded.strip()) == bool(pasted):
        raise ValueError(
            "the form has a pasted message and a file: use only one"
            if pasted
            else "the form contains no message: paste one, or select a file"
        )
    folder = str(form.get("folder", "")).strip() or "INBOX"
    await sandbox.deliver(request.match_info["address"], pasted or uploaded, folder)


def _read_members(form: MultiDictProxy[Any]) -> dict[str, Any]:
    """Return the non-empty fields of a form, without `form_token` and `back`.

    The text of a field `name[]` becomes the list of words `name`. That of `name:json` becomes the JSON value `name`, or
    remains text if it is not JSON. A time `at` without an offset becomes UTC.
    """
    members = dict[str, Any]()
    for name in form.keys() - {"form_token", "back"}:
        texts = [text for text in map(str, form.getall(name)) if text.strip()]
        if name.endswith("[]"):
            members[name[:-2]] = " ".join(texts).replace(",", " ").split()
        elif texts:
            members[name.removesuffix(":json")] = texts[0]
            if name.endswith(":json"):
                with suppress(ValueError, RecursionError):
                    members[name.removesuffix(":json")] = json.loads(texts[0])
    if isinstance(members.get("at"), str) and len(members["at"]) < len("2026-05-01T12:00:00+00:00"):
        members["at"] = members["at"].removesuffix("Z") + "+00:00"  # date fields have no offset
    return members


async def _read_form(request: web.Request, *, may_have_file: bool = True) -> MultiDictProxy[Any]:
    if not (may_have_file and request.content_type == "multipart/form-data"):
        sent = request.content_length or 0
        if sent > _MAX_FORM_BYTES or len(await request.read()) > _MAX_FORM_BYTES:
            raise web.HTTPBadRequest
    try:
        return await request.post()
    except (ValueError, LookupError):  # a wrong boundary or charset
        raise web.HTTPBadRequest from None
    except web.HTTPRequestEntityTooLarge as error:
        if "fields" in (error.text or ""):  # the form has more than client_max_fields
            raise web.HTTPBadRequest from None
        raise


def _redirect(where: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": where})


def _format_moment(ms: int) -> str:
    return f"{EPOCH + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S}"


def _format_size(octets: int) -> str:
    if octets < 1000:
        return f"{octets} B"
    return f"{octets / 1000:.1f} kB" if octets < 10**6 else f"{octets / 10**6:.1f} MB"


def _mark_ids(text: str) -> str:
    """Return text as HTML in which ids such as UUIDs are not broken into lines at their hyphens."""
    from markupsafe import Markup, escape

    return Markup(_HYPHENATED.sub(r'<span class="unbroken">\g<0></span>', str(escape(text))))  # noqa: S704  escaped


@cache
def _load_templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(_PAGE_FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {
        "moment": _format_moment,
        "segment": lambda text: quote(str(text), safe="@"),
        "ids": _mark_ids,
    }
    templates.filters |= {"kind_text": describe_kind, "still_text": describe_remaining, "size": _format_size}
    return templates
