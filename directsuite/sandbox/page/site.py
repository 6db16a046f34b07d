"""The routes of the page: views that show the state, forms that change it, and the access checks of both.

    GET   /, /page/…              a view: a function that reads the state, and a template
    POST  /page/do/METHOD/PATH    a form: runs an operation of the control API
    GET   /page/events            server-sent events: `call` after a call, `change` after a change of the state
    GET   /docs, /docs/NAME       the operations of the two OpenAPI documents

The security headers let a browser run only the page's own scripts and load only from this server, and forbid other
pages to embed this one. HTML of messages, attachments and documents have separate policies. The first view imports
jinja2, so that the sandbox also runs without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from aiohttp import web
from aiohttp.helpers import content_disposition_header

from directsuite.sandbox.access import COOKIE, Access, RouteHandler, is_same_secret
from directsuite.sandbox.calls import mask_secrets
from directsuite.sandbox.client import DEFAULT_URL, TOKEN_VARIABLE
from directsuite.sandbox.clock import EPOCH
from directsuite.sandbox.control import CONTROLS, REJECTION_ERRORS, build_control_document, choose_error_status
from directsuite.sandbox.faults import EVERY_OPERATION, FAULT_KINDS, describe_kind, describe_remaining
from directsuite.sandbox.files import FilePayload, PiecesPayload
from directsuite.sandbox.messaging.delivery import CONFIRMATION_TIMEOUT_MS
from directsuite.sandbox.messaging.mailboxes import SENT
from directsuite.sandbox.messaging.parsing import read_message, read_plain_alternative
from directsuite.sandbox.page import content
from directsuite.sandbox.page.content import MAX_ROW_ID, PAGE_ROWS
from directsuite.sandbox.page.drawing import draw_page, neutralize_html
from directsuite.sandbox.page.forms import FormAction, make_form_action
from directsuite.sandbox.page.notifier import ChangeNotifier
from directsuite.sandbox.page.reference import OpenApiOperation, build_example, list_operations
from directsuite.sandbox.patients import USER_STATES
from directsuite.sandbox.quirks import PROFILES
from directsuite.sandbox.rejections import RejectionError, describe_body_limit

if TYPE_CHECKING:
    from jinja2 import Environment
    from multidict import MultiDictProxy

    from directsuite.sandbox.calls import CallRecord, Calls
    from directsuite.sandbox.state import SandboxState

T = TypeVar("T")
View = Callable[["SandboxPage", web.Request], Awaitable[Mapping[str, Any]]]

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
_MAIL_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'self'"
)
_FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-~]*")
"""A path on this server, perhaps with a query."""
_MAX_DRAWN_BYTES = 64 * 2**20
_MAX_FORM_BYTES = 2**16  # without a file; in memory it is a hundred times larger
_FOREIGN_ORIGIN_TEXT = "The request came from another web page. Enter the sandbox's address in the browser instead."
_UNREADABLE_FORM_TEXT = "The form could not be read. Reload the page and try again."
_EXPIRED_FORM_TEXT = (
    "The form is out of date, perhaps because the sandbox was restarted. Reload the page and try again."
)
_HEARTBEAT_INTERVAL = 15.0  # seconds until a disconnected browser is noticed
_EVENT_BATCH_DELAY = 0.25  # seconds for a batch of events


class PageNotFoundError(Exception):
    """Nothing exists at the requested address."""


class UnreadableFormError(Exception):
    """The request body is not a readable form."""


class SandboxPage:
    """The page of a running sandbox."""

    def __init__(
        self, sandbox: SandboxState, calls: Calls, access: Access, services_document: Callable[[], dict[str, Any]]
    ) -> None:
        self.sandbox, self.calls, self.notifier = sandbox, calls, ChangeNotifier()
        self._build_services_document = services_document
        self._access = access
        self._drawing_slot = asyncio.Semaphore(1)
        calls.listeners.append(self._notify_call)
        self._stop_listening = sandbox.listen(lambda: self.notifier.notify("change"))

    def make_routes(self) -> list[web.RouteDef]:
        """Return all routes, without names, because a named route is an operation of a service."""
        return [
            *(
                web.get(path, self._guard_handler(self._make_view_handler(template, view)), allow_head=False)
                for path, (template, view) in _VIEWS.items()
            ),
            *(
                web.get(path, self._guard_handler(_bind_page(self, file)), allow_head=False)
                for path, file in _FILE_ROUTES
            ),
            *(
                web.post(
                    f"/page/do/{entry.method}/{entry.path}",
                    self._guard_handler(self._make_form_handler(make_form_action(entry))),
                )
                for entry in CONTROLS
                if entry.method != "GET"
            ),
            web.get("/page/events", self._guard_handler(self._stream_events), allow_head=False),
            web.get("/page/static/{name}", self._guard_handler(_serve_static, open_to_all=True), allow_head=False),
            web.post("/page/token", self._guard_handler(self._accept_token, open_to_all=True)),
        ]

    def close(self) -> None:
        """End the event streams and stop listening to the sandbox."""
        self.notifier.close()
        self.calls.listeners.remove(self._notify_call)
        self._stop_listening()

    def _notify_call(self, call: CallRecord) -> None:
        self.notifier.notify("call")

    def _guard_handler(self, handler: RouteHandler, *, open_to_all: bool = False) -> RouteHandler:
        """Return the handler with access checks and security headers. open_to_all: require no token."""

        async def respond(request: web.Request) -> web.StreamResponse:
            if not self._access.has_allowed_origin(request):
                response: web.StreamResponse = self._render_error(HTTPStatus.FORBIDDEN, _FOREIGN_ORIGIN_TEXT)
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
        except UnreadableFormError:
            return self._render_error(HTTPStatus.BAD_REQUEST, _UNREADABLE_FORM_TEXT)
        except web.HTTPRequestEntityTooLarge:
            limit = describe_body_limit(request.client_max_size)
            return self._render_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The form was rejected: {limit}.")
        except ImportError:
            text = "The sandbox's page needs more packages. Install them with: pip install 'directsuite[sandbox]'"
            return web.Response(status=HTTPStatus.NOT_IMPLEMENTED, text=text)

    def _render_error(self, status: HTTPStatus, text: str) -> web.Response:
        try:
            return self._render("wrong.html", status, text=text)
        except ImportError:
            return web.Response(status=status, text=text)

    def _render(self, template: str, status: HTTPStatus = HTTPStatus.OK, **context: Any) -> web.Response:
        clock = self.sandbox.clock
        state = {"version": self.notifier.version, "now": clock.milliseconds(), "frozen": clock.frozen}
        known = {"form_token": self._access.form_token, **state, **context}
        html = _load_templates().get_template(template).render(known)
        return web.Response(status=status, text=html, content_type="text/html")

    def _make_view_handler(self, template: str, view: View) -> RouteHandler:
        async def show(request: web.Request) -> web.StreamResponse:
            version = self.notifier.version  # first, so that a change during the read leads to a reload
            context: dict[str, Any] = {**await view(self, request), "version": version}
            return self._render(template, here=request.path_qs, path=request.path, **context)

        return show

    def _make_form_handler(self, act: FormAction) -> RouteHandler:
        async def run_action(request: web.Request) -> web.StreamResponse:
            form = await _read_form(request)
            if not is_same_secret(str(form.get("form_token", "")), self._access.form_token):
                return self._render_error(HTTPStatus.FORBIDDEN, _EXPIRED_FORM_TEXT)
            try:
                await act(self.sandbox, request, form)
            except REJECTION_ERRORS as error:
                return self._render_error(choose_error_status(error), f"The change was rejected: {error}.")
            back = str(form.get("back", "/"))
            return _redirect(back if _LOCAL_PATH.fullmatch(back) else "/")

        return run_action

    async def _accept_token(self, request: web.Request) -> web.StreamResponse:
        form, token = await _read_form(request, may_have_file=False), self._access.token
        if token is None or not is_same_secret(str(form.get("token", "")).strip(), token):
            return self._render("token.html", HTTPStatus.UNAUTHORIZED, wrong=True)
        response = _redirect("/")
        response.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _stream_events(self, request: web.Request) -> web.StreamResponse:
        if self.notifier.is_full:
            text = "Too many pages of the sandbox are open. Close some of them."
            full = web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
            full.force_close()  # like the streams, it would otherwise stay open
            return full
        response = web.StreamResponse(headers={**_SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        event, kinds = self.notifier.subscribe()
        if request.query.get("since", "") not in {"", str(self.notifier.version)}:
            kinds |= {"call", "change"}
        try:
            while "end" not in kinds:
                events = "".join(f"event: {kind}\ndata: 1\n\n" for kind in sorted(kinds))
                await response.write(events.encode() or b":\n\n")
                kinds.clear()
                event.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), _HEARTBEAT_INTERVAL)
                    await asyncio.sleep(_EVENT_BATCH_DELAY)
        except ConnectionError:
            pass  # the browser has disconnected
        finally:
            self.notifier.unsubscribe(event)
        return response

    @cached_property
    def operations(self) -> dict[str, OpenApiOperation]:
        """The operations of both OpenAPI documents, by name. Raises ImportError without PyYAML."""
        both = [*list_operations(self._build_services_document()), *list_operations(build_control_document())]
        return {each.name: each for each in both}

    def format_example(self, name: str, root_url: str) -> str:
        """Return the example of an operation as shell commands. root_url: the URL of this server."""
        token = None if self._access.token is None else TOKEN_VARIABLE
        return "\n".join(each.format_command(root_url, token) for each in build_example(self.operations, name))

    @property
    def now_ms(self) -> int:
        """The sandbox's time in milliseconds since 1970."""
        return self.sandbox.clock.milliseconds()

    async def find_document(self, identifier: str) -> content.Row:
        """Return a stored PDF's row with its file name. Raises PageNotFoundError."""
        return _require_found(await self.sandbox.read(lambda connection: content.find_document(connection, identifier)))

    @contextmanager
    def hold_document(self, document: content.Row) -> Generator[Path]:
        """Yield a PDF's file, and delay its deletion. Raises PageNotFoundError if it is gone."""
        try:
            with self.sandbox.reading_document(document["name"]) as file:
                yield file
        except FileNotFoundError:
            raise PageNotFoundError("The document was changed or deleted while it was read. Reload the page.") from None

    @contextmanager
    def hold_message(self, message: content.Row) -> Generator[bytes | Path]:
        """Yield a message's bytes or file, and delay its deletion. Raises PageNotFoundError if it is gone."""
        name: str | None = message["name"]
        if name is None:
            yield message["raw"]
            return
        try:
            with self.sandbox.message_files.hold_file(name) as file:
                yield file
        except FileNotFoundError:
            raise PageNotFoundError("The message was deleted while it was read. Reload the folder.") from None

    async def draw_document_page(self, document: content.Row, number: int) -> bytes:
        """Return a page as PNG. Raises PageNotFoundError if it does not exist or cannot be drawn."""
        with self.hold_document(document) as file:
            async with self._drawing_slot:  # one page at a time
                try:
                    return await asyncio.to_thread(draw_page, file, number)
                except (LookupError, ValueError) as error:
                    raise PageNotFoundError(str(error)) from None


async def _show_overview(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, after = _read_search_text(request), _read_number(request, "after", 0)
    totals = await page.sandbox.read(content.count_totals)
    accounts = await page.sandbox.read(lambda connection: content.list_accounts(connection, text, after))
    return {
        "totals": totals,
        "text": text,
        **_paginate(accounts, request, "after"),
        "calls": _find_calls(page.calls, "", MAX_ROW_ID)[:12],
    }


async def _show_mailbox(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    address, text = request.match_info["address"], _read_search_text(request)
    chosen, before = request.query.get("folder", "INBOX"), _read_number(request, "before", MAX_ROW_ID)

    def read(connection: Any) -> Mapping[str, Any]:
        mailbox = _require_found(content.find_mailbox(connection, address))
        folders = content.list_folders(connection, mailbox["id"])
        folder = _require_found(next((each for each in folders if each["name"] == chosen), None))
        rows = content.list_messages(connection, folder["id"], text, before)
        return {"address": address, "folders": folders, "folder": folder, **_paginate(rows, request, "before", "uid")}

    return {**await page.sandbox.read(read), "text": text, "outgoing": chosen == SENT}


async def _find_message(page: SandboxPage, request: web.Request) -> dict[str, Any]:
    address, uid = request.match_info["address"], int(request.match_info["uid"])
    number, now = int(request.match_info["folder"]), page.now_ms

    def read(connection: Any) -> dict[str, Any]:
        mailbox = _require_found(content.find_mailbox(connection, address))
        folders = content.list_folders(connection, mailbox["id"])
        folder = _require_found(next((each for each in folders if each["id"] == number), None))
        message = _require_found(content.find_message(connection, number, uid))
        sent = content.find_sent_message(connection, message["message_id"] or "", now=now)
        return {"address": address, "folder": folder, "message": message, "sent": sent}

    return await page.sandbox.read(read)


async def _show_message(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    shown = await _find_message(page, request)
    with page.hold_message(shown["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
        plain = await asyncio.to_thread(read_plain_alternative, raw) if reading.html_body else None
    return {**shown, "reading": reading, "plain": plain, "timeout": CONFIRMATION_TIMEOUT_MS}


async def _show_sent(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, before, now = _read_search_text(request), _read_number(request, "before", MAX_ROW_ID), page.now_ms
    rows = await page.sandbox.read(lambda connection: content.list_sent_messages(connection, text, before, now=now))
    return {"text": text, "timeout": CONFIRMATION_TIMEOUT_MS, **_paginate(rows, request, "before")}


async def _show_calls(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text = _read_search_text(request)
    rows = _find_calls(page.calls, text, _read_number(request, "before", MAX_ROW_ID))
    more = len(rows) > PAGE_ROWS
    following = _build_link(request, before=rows[PAGE_ROWS - 1].number) if more else None
    return {"rows": rows[:PAGE_ROWS], "following": following, "text": text, "count": page.calls.count}


async def _show_call(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    number = int(request.match_info["number"])
    call, exchange = _require_found(page.calls.find(number)), page.calls.find_exchange(number)
    bodies = None if exchange is None else (mask_secrets(exchange.request), mask_secrets(exchange.response))
    return {"call": call, "exchange": exchange, "bodies": bodies}


async def _show_documents(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, before, now = _read_search_text(request), _read_number(request, "before", MAX_ROW_ID), page.now_ms
    rows = await page.sandbox.read(lambda connection: content.list_documents(connection, text, before, now=now))
    return {"text": text, **_paginate(rows, request, "before")}


async def _show_document(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    document = await page.find_document(request.match_info["identifier"])
    try:
        with page.hold_document(document):
            described: Mapping[str, Any] = await page.sandbox.describe_document(document["name"])
        trouble = None
    except (RejectionError, ImportError) as error:
        described, trouble = {}, str(error)
    pages = [each["index"] for each in described.get("pages", ())]
    first = _read_number(request, "page", 1)
    return {
        "document": document,
        "size": document["size"],
        "described": described,
        "trouble": trouble,
        "drawn": pages[first - 1 : first + 4] if document["size"] <= _MAX_DRAWN_BYTES else [],
        "following": _build_link(request, page=first + 5) if len(pages) > first + 4 else None,
    }


async def _show_faxes(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, before = _read_search_text(request), _read_number(request, "before", MAX_ROW_ID)
    rows = await page.sandbox.read(lambda connection: content.list_faxes(connection, text, before))
    return {"text": text, **_paginate(rows, request, "before")}


async def _show_patients(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, after, now = _read_search_text(request), _read_number(request, "after", 0), page.now_ms
    rows = await page.sandbox.read(lambda connection: content.list_individuals(connection, text, after, now=now))
    sessions = await page.sandbox.read(lambda connection: content.list_sessions(connection, now=now))
    return {"text": text, "sessions": sessions, "states": USER_STATES, **_paginate(rows, request, "after")}


async def _show_effects(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, before = _read_search_text(request), _read_number(request, "before", MAX_ROW_ID)
    rows = await page.sandbox.read(lambda connection: content.list_effects(connection, text, before))
    return {"text": text, **_paginate(rows, request, "before")}


async def _show_controls(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    profile = page.sandbox.profile
    return {
        "faults": page.sandbox.faults(),
        "operations": [EVERY_OPERATION, *sorted(page.sandbox.operations)],
        "kinds": FAULT_KINDS,
        "profiles": PROFILES,
        "profile": {profile} if isinstance(profile, str) else set(profile),
        "logins": await page.sandbox.read(content.list_logins),
    }


async def _show_docs(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text = _read_search_text(request)
    operations = await asyncio.to_thread(lambda: page.operations)
    return {"text": text, "rows": [each for each in operations.values() if each.matches(text)]}


async def _show_operation(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    operations = await asyncio.to_thread(lambda: page.operations)
    operation = _require_found(operations.get(request.match_info["name"]))
    root = str(request.url.origin())
    at = "" if root == DEFAULT_URL else f" --at {root}"
    return {
        "operation": operation,
        "example": page.format_example(operation.name, root),
        "at": at,
        **operation.describe(),
    }


_MESSAGE_PATH = "/page/mail/{address}/{folder:[0-9]{1,15}}/{uid:[0-9]{1,15}}"
_VIEWS: dict[str, tuple[str, View]] = {
    "/": ("overview.html", _show_overview),
    "/page/mail/{address}": ("mailbox.html", _show_mailbox),
    _MESSAGE_PATH: ("message.html", _show_message),
    "/page/sent": ("sent.html", _show_sent),
    "/page/calls": ("calls.html", _show_calls),
    "/page/calls/{number:[0-9]{1,15}}": ("call.html", _show_call),
    "/page/documents": ("documents.html", _show_documents),
    "/page/documents/{identifier}": ("document.html", _show_document),
    "/page/faxes": ("faxes.html", _show_faxes),
    "/page/patients": ("patients.html", _show_patients),
    "/page/effects": ("effects.html", _show_effects),
    "/page/controls": ("controls.html", _show_controls),
    "/docs": ("docs.html", _show_docs),
    "/docs/{name}": ("operation.html", _show_operation),
}


async def _serve_html(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    with page.hold_message((await _find_message(page, request))["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
    headers = {"Content-Security-Policy": _MAIL_POLICY}
    return web.Response(text=neutralize_html(reading.body), content_type="text/html", headers=headers)


async def _serve_raw(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    """Serve a message unmodified: as plain text, or as a download if it is in a file."""
    message = (await _find_message(page, request))["message"]
    with page.hold_message(message) as raw:
        if isinstance(raw, Path):
            return _build_download(FilePayload(raw), f"message-{message['uid']}.eml")
    headers = {"Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=raw, content_type="text/plain", charset="utf-8", headers=headers)


async def _serve_attachment(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    message, number = (await _find_message(page, request))["message"], int(request.match_info["number"])
    with page.hold_message(message) as raw:
        reading = await asyncio.to_thread(read_message, raw)
        part = _require_found(reading.attachments[number] if number < len(reading.attachments) else None)
        files = page.sandbox.message_files
        body = part.content if isinstance(part.content, bytes) else files.make_payload([part.content], base64=False)
        return _build_download(body, part.filename)


async def _serve_pdf(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    document = await page.find_document(request.match_info["identifier"])
    with page.hold_document(document) as file:
        return _build_download(FilePayload(file), f"{document['identifier']}.pdf")


async def _serve_picture(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    document = await page.find_document(request.match_info["identifier"])
    drawn = await page.draw_document_page(document, int(request.match_info["number"]))
    return web.Response(body=drawn, content_type="image/png", headers={"Content-Security-Policy": _FILE_POLICY})


_FILE_ROUTES = (
    (f"{_MESSAGE_PATH}/html", _serve_html),
    (f"{_MESSAGE_PATH}/raw", _serve_raw),
    (f"{_MESSAGE_PATH}/attachments/{{number:[0-9]{{1,6}}}}", _serve_attachment),
    ("/page/documents/{identifier}/pdf", _serve_pdf),
    ("/page/documents/{identifier}/{number:[0-9]{1,6}}.png", _serve_picture),
)


def _bind_page(
    page: SandboxPage, file: Callable[[SandboxPage, web.Request], Awaitable[web.StreamResponse]]
) -> RouteHandler:
    async def respond(request: web.Request) -> web.StreamResponse:
        return await file(page, request)

    return respond


def _build_download(body: bytes | PiecesPayload, name: str) -> web.Response:
    """Return a response that a browser saves and never displays."""
    plain = "".join(character for character in name if character.isprintable() and character not in '/\\"') or "file"
    disposition = content_disposition_header("attachment", filename=plain[:150])
    headers = {"Content-Disposition": disposition, "Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=body, content_type="application/octet-stream", headers=headers)


async def _serve_static(request: web.Request) -> web.StreamResponse:
    file = _STATIC_FILES.get(request.match_info["name"])
    if file is None:
        raise PageNotFoundError("The sandbox's page has no file of this name.")
    body = await asyncio.to_thread(file.read_bytes)
    headers = {"Cache-Control": "max-age=3600" if file.name[-6:-4].isdigit() else "no-cache"}
    return web.Response(body=body, content_type=_MEDIA_TYPES[file.suffix], charset="utf-8", headers=headers)


async def _read_form(request: web.Request, *, may_have_file: bool = True) -> MultiDictProxy[Any]:
    if not (may_have_file and request.content_type == "multipart/form-data"):
        sent = request.content_length or 0
        if sent > _MAX_FORM_BYTES or len(await request.read()) > _MAX_FORM_BYTES:
            raise UnreadableFormError
    try:
        return await request.post()
    except (ValueError, LookupError):  # a wrong boundary or charset
        raise UnreadableFormError from None
    except web.HTTPRequestEntityTooLarge as error:
        if "fields" in (error.text or ""):  # the form has more than client_max_fields
            raise UnreadableFormError from None
        raise


def _redirect(where: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": where})


def _require_found(found: T | None) -> T:
    if found is None:
        raise PageNotFoundError("There is nothing at this address. It may have been deleted.")
    return found


def _read_search_text(request: web.Request) -> str:
    return request.query.get("q", "").strip().casefold()[:200]


def _read_number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return max(1, min(int(text), MAX_ROW_ID)) if text.isascii() and text.isdecimal() and len(text) < 20 else default


def _paginate(rows: list[content.Row], request: web.Request, name: str, key: str = "id") -> Mapping[str, Any]:
    """Return one page of rows, and the link to the next page or None. key: the column that orders the rows."""
    following = _build_link(request, **{name: rows[PAGE_ROWS - 1][key]}) if len(rows) > PAGE_ROWS else None
    return {"rows": rows[:PAGE_ROWS], "following": following}


def _build_link(request: web.Request, **changed: int) -> str:
    return f"{quote(request.path)}?{urlencode({**request.query, **changed})}"


def _find_calls(calls: Calls, text: str, before: int) -> list[CallRecord]:
    """Return calls below the number `before`, newest first: one page, and one more if there are older calls."""
    records, found = calls.records, list[Any]()
    for place in range(min(len(records), before - 1 - calls.count + len(records)) - 1, -1, -1):
        call = records[place]
        if not text or text in call.operation.casefold() or text == str(call.status) or text in call.path.casefold():
            found.append(call)
            if len(found) > PAGE_ROWS:
                break
    return found


def _format_time(milliseconds: int) -> str:
    return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}"


def _format_size(octets: int) -> str:
    return (
        f"{octets} B" if octets < 1000 else f"{octets / 1000:.1f} kB" if octets < 10**6 else f"{octets / 10**6:.1f} MB"
    )


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
        "moment": _format_time,
        "size": _format_size,
        "segment": lambda text: quote(str(text), safe="@"),
    }
    templates.filters |= {"kind_text": describe_kind, "still_text": describe_remaining}
    return templates
