"""The page's routes: views that show the state, forms that change it, and what both are guarded by.

    GET   /, /page/…              a view: a function that reads, and a template
    POST  /page/do/METHOD/PATH    a control of the control API, with a form for its body
    GET   /page/events            server-sent events: `call` after a call, `change` after a change of the state
    GET   /docs, /docs/NAME       the operations of the two OpenAPI documents

A browser is told to run this page's own scripts only, to load nothing from elsewhere, and to show the page in no other.
Mail's HTML, attachments and documents have policies of their own. jinja2 is imported with the first view.
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

from directsuite.sandbox.access import COOKIE, Access, Answer, is_same
from directsuite.sandbox.calls import masked
from directsuite.sandbox.client import DEFAULT_URL, TOKEN_VARIABLE
from directsuite.sandbox.clock import EPOCH
from directsuite.sandbox.control import CONTROLS, REFUSALS, control_document, status_of
from directsuite.sandbox.faults import EVERY_OPERATION, KINDS, kind_text, still_text
from directsuite.sandbox.files import FilePayload, PiecesPayload
from directsuite.sandbox.messaging.delivery import CONFIRMATION_MS
from directsuite.sandbox.messaging.mailboxes import SENT
from directsuite.sandbox.messaging.parsing import plain_alternative, read_message
from directsuite.sandbox.messaging.service import PROFILES
from directsuite.sandbox.page import content
from directsuite.sandbox.page.content import NEWEST, PAGE
from directsuite.sandbox.page.drawing import draw_page, neutral_html
from directsuite.sandbox.page.forms import Act, act_of
from directsuite.sandbox.page.live import Live
from directsuite.sandbox.page.reference import Operation, example_of, operations_of
from directsuite.sandbox.patients import USER_STATES
from directsuite.sandbox.refusals import RefusedError, too_large

if TYPE_CHECKING:
    from jinja2 import Environment
    from multidict import MultiDictProxy

    from directsuite.sandbox.calls import AnsweredCall, Calls
    from directsuite.sandbox.state import SandboxState

T = TypeVar("T")
View = Callable[["Page", web.Request], Awaitable[Mapping[str, Any]]]

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC = {file.name: file for file in (_HERE / "static").iterdir() if file.suffix in _TYPES}
_HEADERS = {
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
_LOCAL = re.compile(r"/(?![/\\])[!-~]*")
"""A path on this server, with its query."""
_LARGEST_DRAWN = 64 * 2**20
_MAX_FORM_BYTES = 2**16  # but for forms with a file; a form takes a hundred times its size in memory
_BEAT = 15.0  # seconds after which a browser that is gone is noticed
_GATHER = 0.25  # seconds in which changes are told together


class NotThereError(Exception):
    """There is nothing at this address."""


class UnreadableFormError(Exception):
    """The body is no form."""


class Page:
    """The page of one sandbox that runs."""

    def __init__(
        self, sandbox: SandboxState, calls: Calls, access: Access, services_document: Callable[[], dict[str, Any]]
    ) -> None:
        self.sandbox, self.calls, self.live = sandbox, calls, Live()
        self._services_document = services_document
        self._access = access
        self._drawing = asyncio.Semaphore(1)
        calls.listeners.append(self._tell_call)
        self._end = sandbox.listen(lambda: self.live.tell("change"))

    def routes(self) -> list[web.RouteDef]:
        """All routes; none has a name, so that they are no operations."""
        return [
            *(
                web.get(path, self._guarded(self._showing(template, view)), allow_head=False)
                for path, (template, view) in _VIEWS.items()
            ),
            *(web.get(path, self._guarded(_bound(self, file)), allow_head=False) for path, file in _FILES),
            *(
                web.post(f"/page/do/{entry.method}/{entry.path}", self._guarded(self._doing(act_of(entry))))
                for entry in CONTROLS
                if entry.method != "GET"
            ),
            web.get("/page/events", self._guarded(self._events), allow_head=False),
            web.get("/page/static/{name}", self._guarded(_static, open_to_all=True), allow_head=False),
            web.post("/page/token", self._guarded(self._take_token, open_to_all=True)),
        ]

    def close(self) -> None:
        """Let browsers go, and hear of nothing more: the sandbox stops."""
        self.live.end()
        self.calls.listeners.remove(self._tell_call)
        self._end()

    def _tell_call(self, call: AnsweredCall) -> None:
        self.live.tell("call")

    def _guarded(self, handler: Answer, *, open_to_all: bool = False) -> Answer:
        """The handler for browsers that may; its answers have the headers that keep others out."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if not self._access.admits_browser(request):
                response: web.StreamResponse = self._wrong(HTTPStatus.FORBIDDEN, "Another page has led here.")
            elif not open_to_all and not self._access.knows_browser(request):
                response = self._render("token.html", HTTPStatus.UNAUTHORIZED)
            else:
                response = await self._answered(handler, request)
            if not response.prepared:
                for name, value in _HEADERS.items():
                    response.headers.setdefault(name, value)
            return response

        return answer

    async def _answered(self, handler: Answer, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotThereError as missing:
            return self._wrong(HTTPStatus.NOT_FOUND, str(missing))
        except UnreadableFormError:
            return self._wrong(HTTPStatus.BAD_REQUEST, "That was no form of this page.")
        except web.HTTPRequestEntityTooLarge:
            limit = too_large(request.client_max_size)
            return self._wrong(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"That was refused: {limit}.")
        except ImportError:
            text = "The page needs packages: pip install 'directsuite[sandbox]'"
            return web.Response(status=HTTPStatus.NOT_IMPLEMENTED, text=text)

    def _wrong(self, status: HTTPStatus, text: str) -> web.Response:
        try:
            return self._render("wrong.html", status, text=text)
        except ImportError:
            return web.Response(status=status, text=text)

    def _render(self, template: str, status: HTTPStatus = HTTPStatus.OK, **context: Any) -> web.Response:
        clock = self.sandbox.clock
        state = {"version": self.live.version, "now": clock.milliseconds(), "frozen": clock.frozen}
        known = {"form_token": self._access.form_token, **state, **context}
        html = _templates().get_template(template).render(known)
        return web.Response(status=status, text=html, content_type="text/html")

    def _showing(self, template: str, view: View) -> Answer:
        async def show(request: web.Request) -> web.StreamResponse:
            version = self.live.version  # before anything is read
            context: dict[str, Any] = {**await view(self, request), "version": version}
            return self._render(template, here=request.path_qs, path=request.path, **context)

        return show

    def _doing(self, act: Act) -> Answer:
        """What a form does; then the page that the form was on is shown again."""

        async def do(request: web.Request) -> web.StreamResponse:
            form = await _form(request)
            if not is_same(str(form.get("form_token", "")), self._access.form_token):
                return self._wrong(HTTPStatus.FORBIDDEN, "The page is older than the sandbox: load it again.")
            try:
                await act(self.sandbox, request, form)
            except REFUSALS as refused:
                return self._wrong(status_of(refused), f"That was refused: {refused}.")
            back = str(form.get("back", "/"))
            return _redirect(back if _LOCAL.fullmatch(back) else "/")

        return do

    async def _take_token(self, request: web.Request) -> web.StreamResponse:
        """Ask for the token no more."""
        form, token = await _form(request, may_have_file=False), self._access.token
        if token is None or not is_same(str(form.get("token", "")).strip(), token):
            return self._render("token.html", HTTPStatus.UNAUTHORIZED, wrong=True)
        response = _redirect("/")
        response.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.live.is_full:
            text = "Too many pages of the sandbox are open: close some."
            full = web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
            full.force_close()  # else the connection would stay open, as the streams do
            return full
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        event, kinds = self.live.listen()
        if request.query.get("since", "") not in {"", str(self.live.version)}:
            kinds |= {"call", "change"}
        try:
            while "end" not in kinds:
                told = "".join(f"event: {kind}\ndata: 1\n\n" for kind in sorted(kinds))
                await response.write(told.encode() or b":\n\n")
                kinds.clear()
                event.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), _BEAT)
                    await asyncio.sleep(_GATHER)
        except ConnectionError:
            pass  # the browser has left
        finally:
            self.live.forget(event)
        return response

    @cached_property
    def operations(self) -> dict[str, Operation]:
        """Those of both OpenAPI documents, by their names. Raises ImportError without PyYAML."""
        both = [*operations_of(self._services_document()), *operations_of(control_document())]
        return {each.name: each for each in both}

    def example(self, name: str, here: str) -> str:
        """The example of an operation as commands for a shell. here: the URL of the page's server."""
        token = None if self._access.token is None else TOKEN_VARIABLE
        return "\n".join(each.command(here, token) for each in example_of(self.operations, name))

    @property
    def now(self) -> int:
        """The sandbox's time in milliseconds since 1970."""
        return self.sandbox.clock.milliseconds()

    async def document(self, identifier: str) -> content.Row:
        """A stored PDF, with the name of its file. Raises NotThereError."""
        return _there(await self.sandbox.read(lambda connection: content.document(connection, identifier)))

    @contextmanager
    def reading(self, document: content.Row) -> Generator[Path]:
        """The file of a stored PDF. Raises NotThereError if it has gone since."""
        try:
            with self.sandbox.reading_document(document["name"]) as file:
                yield file
        except FileNotFoundError:
            raise NotThereError("The document has changed or gone meanwhile.") from None

    @contextmanager
    def raw(self, message: content.Row) -> Generator[bytes | Path]:
        """What a message is: bytes, or their file. Raises NotThereError if it has gone since."""
        name: str | None = message["name"]
        if name is None:
            yield message["raw"]
            return
        try:
            with self.sandbox.message_files.reading(name) as file:
                yield file
        except FileNotFoundError:
            raise NotThereError("The message has gone meanwhile.") from None

    async def drawn(self, document: content.Row, number: int) -> bytes:
        """A page as PNG, one at a time. Raises NotThereError."""
        with self.reading(document) as file:
            async with self._drawing:
                try:
                    return await asyncio.to_thread(draw_page, file, number)
                except (LookupError, ValueError) as error:
                    raise NotThereError(str(error)) from None


async def _overview(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, after = _text(request), _number(request, "after", 0)
    totals = await page.sandbox.read(content.totals)
    accounts = await page.sandbox.read(lambda connection: content.accounts(connection, text, after))
    return {
        "totals": totals,
        "text": text,
        **_listed(accounts, request, "after"),
        "calls": _newest(page.calls, "", NEWEST)[:12],
    }


async def _mailbox(page: Page, request: web.Request) -> Mapping[str, Any]:
    address, text = request.match_info["address"], _text(request)
    chosen, before = request.query.get("folder", "INBOX"), _number(request, "before", NEWEST)

    def read(connection: Any) -> Mapping[str, Any]:
        mailbox = _there(content.mailbox(connection, address))
        folders = content.folders(connection, mailbox["id"])
        folder = _there(next((each for each in folders if each["name"] == chosen), None))
        rows = content.messages(connection, folder["id"], text, before)
        return {"address": address, "folders": folders, "folder": folder, **_listed(rows, request, "before", "uid")}

    return {**await page.sandbox.read(read), "text": text, "outgoing": chosen == SENT}


async def _find_message(page: Page, request: web.Request) -> dict[str, Any]:
    address, uid = request.match_info["address"], int(request.match_info["uid"])
    number, now = int(request.match_info["folder"]), page.now

    def read(connection: Any) -> dict[str, Any]:
        mailbox = _there(content.mailbox(connection, address))
        folders = content.folders(connection, mailbox["id"])
        folder = _there(next((each for each in folders if each["id"] == number), None))
        message = _there(content.message(connection, number, uid))
        sent = content.sent_message(connection, message["message_id"] or "", now=now)
        return {"address": address, "folder": folder, "message": message, "sent": sent}

    return await page.sandbox.read(read)


async def _message(page: Page, request: web.Request) -> Mapping[str, Any]:
    shown = await _find_message(page, request)
    with page.raw(shown["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
        plain = await asyncio.to_thread(plain_alternative, raw) if reading.html_body else None
    return {**shown, "reading": reading, "plain": plain, "timeout": CONFIRMATION_MS}


async def _sent(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, before, now = _text(request), _number(request, "before", NEWEST), page.now
    rows = await page.sandbox.read(lambda connection: content.sent(connection, text, before, now=now))
    return {"text": text, "timeout": CONFIRMATION_MS, **_listed(rows, request, "before")}


async def _calls(page: Page, request: web.Request) -> Mapping[str, Any]:
    text = _text(request)
    rows = _newest(page.calls, text, _number(request, "before", NEWEST))
    more = len(rows) > PAGE
    following = _link(request, before=rows[PAGE - 1].number) if more else None
    return {"rows": rows[:PAGE], "following": following, "text": text, "count": page.calls.count}


async def _call(page: Page, request: web.Request) -> Mapping[str, Any]:
    number = int(request.match_info["number"])
    call, exchange = _there(page.calls.find(number)), page.calls.exchange(number)
    bodies = None if exchange is None else (masked(exchange.request), masked(exchange.answer))
    return {"call": call, "exchange": exchange, "bodies": bodies}


async def _documents(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, before, now = _text(request), _number(request, "before", NEWEST), page.now
    rows = await page.sandbox.read(lambda connection: content.documents(connection, text, before, now=now))
    return {"text": text, **_listed(rows, request, "before")}


async def _document(page: Page, request: web.Request) -> Mapping[str, Any]:
    document = await page.document(request.match_info["identifier"])
    try:
        with page.reading(document):
            described: Mapping[str, Any] = await page.sandbox.describe_document(document["name"])
        trouble = None
    except (RefusedError, ImportError) as error:
        described, trouble = {}, str(error)
    pages = [each["index"] for each in described.get("pages", ())]
    first = _number(request, "page", 1)
    return {
        "document": document,
        "size": document["size"],
        "described": described,
        "trouble": trouble,
        "drawn": pages[first - 1 : first + 4] if document["size"] <= _LARGEST_DRAWN else [],
        "following": _link(request, page=first + 5) if len(pages) > first + 4 else None,
    }


async def _faxes(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, before = _text(request), _number(request, "before", NEWEST)
    rows = await page.sandbox.read(lambda connection: content.faxes(connection, text, before))
    return {"text": text, **_listed(rows, request, "before")}


async def _patients(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, after, now = _text(request), _number(request, "after", 0), page.now
    rows = await page.sandbox.read(lambda connection: content.people(connection, text, after, now=now))
    sessions = await page.sandbox.read(lambda connection: content.sessions(connection, now=now))
    return {"text": text, "sessions": sessions, "states": USER_STATES, **_listed(rows, request, "after")}


async def _effects(page: Page, request: web.Request) -> Mapping[str, Any]:
    text, before = _text(request), _number(request, "before", NEWEST)
    rows = await page.sandbox.read(lambda connection: content.effects(connection, text, before))
    return {"text": text, **_listed(rows, request, "before")}


async def _controls(page: Page, request: web.Request) -> Mapping[str, Any]:
    profile = page.sandbox.profile
    return {
        "faults": page.sandbox.faults(),
        "operations": [EVERY_OPERATION, *sorted(page.sandbox.operations)],
        "kinds": KINDS,
        "profiles": PROFILES,
        "profile": {profile} if isinstance(profile, str) else set(profile),
        "logins": await page.sandbox.read(content.logins),
    }


async def _docs(page: Page, request: web.Request) -> Mapping[str, Any]:
    text = _text(request)
    operations = await asyncio.to_thread(lambda: page.operations)
    return {"text": text, "rows": [each for each in operations.values() if each.matches(text)]}


async def _operation(page: Page, request: web.Request) -> Mapping[str, Any]:
    operations = await asyncio.to_thread(lambda: page.operations)
    operation = _there(operations.get(request.match_info["name"]))
    root = str(request.url.origin())
    at = "" if root == DEFAULT_URL else f" --at {root}"
    return {"operation": operation, "example": page.example(operation.name, root), "at": at, **operation.described()}


_ONE_MESSAGE = "/page/mail/{address}/{folder:[0-9]{1,15}}/{uid:[0-9]{1,15}}"
_VIEWS: dict[str, tuple[str, View]] = {
    "/": ("overview.html", _overview),
    "/page/mail/{address}": ("mailbox.html", _mailbox),
    _ONE_MESSAGE: ("message.html", _message),
    "/page/sent": ("sent.html", _sent),
    "/page/calls": ("calls.html", _calls),
    "/page/calls/{number:[0-9]{1,15}}": ("call.html", _call),
    "/page/documents": ("documents.html", _documents),
    "/page/documents/{identifier}": ("document.html", _document),
    "/page/faxes": ("faxes.html", _faxes),
    "/page/patients": ("patients.html", _patients),
    "/page/effects": ("effects.html", _effects),
    "/page/controls": ("controls.html", _controls),
    "/docs": ("docs.html", _docs),
    "/docs/{name}": ("operation.html", _operation),
}


async def _html(page: Page, request: web.Request) -> web.StreamResponse:
    """The HTML of a message, for a frame."""
    with page.raw((await _find_message(page, request))["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
    headers = {"Content-Security-Policy": _MAIL_POLICY}
    return web.Response(text=neutral_html(reading.body), content_type="text/html", headers=headers)


async def _raw(page: Page, request: web.Request) -> web.StreamResponse:
    """A message as it came, as text that no browser takes for anything else; a large one to download."""
    message = (await _find_message(page, request))["message"]
    with page.raw(message) as raw:
        if isinstance(raw, Path):
            return _file(FilePayload(raw), f"message-{message['uid']}.eml")
    headers = {"Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=raw, content_type="text/plain", charset="utf-8", headers=headers)


async def _attachment(page: Page, request: web.Request) -> web.StreamResponse:
    message, number = (await _find_message(page, request))["message"], int(request.match_info["number"])
    with page.raw(message) as raw:
        reading = await asyncio.to_thread(read_message, raw)
        part = _there(reading.attachments[number] if number < len(reading.attachments) else None)
        files = page.sandbox.message_files
        body = part.content if isinstance(part.content, bytes) else files.payload([part.content], base64=False)
        return _file(body, part.filename)


async def _pdf(page: Page, request: web.Request) -> web.StreamResponse:
    document = await page.document(request.match_info["identifier"])
    with page.reading(document) as file:
        return _file(FilePayload(file), f"{document['identifier']}.pdf")


async def _drawn(page: Page, request: web.Request) -> web.StreamResponse:
    document = await page.document(request.match_info["identifier"])
    drawn = await page.drawn(document, int(request.match_info["number"]))
    return web.Response(body=drawn, content_type="image/png", headers={"Content-Security-Policy": _FILE_POLICY})


_FILES = (
    (f"{_ONE_MESSAGE}/html", _html),
    (f"{_ONE_MESSAGE}/raw", _raw),
    (f"{_ONE_MESSAGE}/attachments/{{number:[0-9]{{1,6}}}}", _attachment),
    ("/page/documents/{identifier}/pdf", _pdf),
    ("/page/documents/{identifier}/{number:[0-9]{1,6}}.png", _drawn),
)


def _bound(page: Page, file: Callable[[Page, web.Request], Awaitable[web.StreamResponse]]) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await file(page, request)

    return answer


def _file(body: bytes | PiecesPayload, name: str) -> web.Response:
    """A download, whatever it holds: a browser shows none of it."""
    plain = "".join(character for character in name if character.isprintable() and character not in '/\\"') or "file"
    disposition = content_disposition_header("attachment", filename=plain[:150])
    headers = {"Content-Disposition": disposition, "Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=body, content_type="application/octet-stream", headers=headers)


async def _static(request: web.Request) -> web.StreamResponse:
    file = _STATIC.get(request.match_info["name"])
    if file is None:
        raise NotThereError("There is no such file.")
    body = await asyncio.to_thread(file.read_bytes)
    headers = {"Cache-Control": "max-age=3600" if file.name[-6:-4].isdigit() else "no-cache"}
    return web.Response(body=body, content_type=_TYPES[file.suffix], charset="utf-8", headers=headers)


async def _form(request: web.Request, *, may_have_file: bool = True) -> MultiDictProxy[Any]:
    if not (may_have_file and request.content_type == "multipart/form-data"):
        sent = request.content_length or 0
        if sent > _MAX_FORM_BYTES or len(await request.read()) > _MAX_FORM_BYTES:
            raise UnreadableFormError
    try:
        return await request.post()
    except (ValueError, LookupError):  # whatever aiohttp makes of a wrong boundary or charset
        raise UnreadableFormError from None


def _redirect(where: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": where})


def _there(found: T | None) -> T:
    if found is None:
        raise NotThereError("There is nothing here, or no longer.")
    return found


def _text(request: web.Request) -> str:
    return request.query.get("q", "").strip().casefold()[:200]


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return max(1, min(int(text), NEWEST)) if text.isascii() and text.isdecimal() and len(text) < 20 else default


def _listed(rows: list[content.Row], request: web.Request, name: str, key: str = "id") -> Mapping[str, Any]:
    """A page of rows, and the address of the one that follows."""
    following = _link(request, **{name: rows[PAGE - 1][key]}) if len(rows) > PAGE else None
    return {"rows": rows[:PAGE], "following": following}


def _link(request: web.Request, **changed: int) -> str:
    return f"{quote(request.path)}?{urlencode({**request.query, **changed})}"


def _newest(calls: Calls, text: str, before: int) -> list[AnsweredCall]:
    """Calls below a number, the newest first: a page of them, and one more where there are older ones."""
    answered, found = calls.answered, list[Any]()
    for place in range(min(len(answered), before - 1 - calls.count + len(answered)) - 1, -1, -1):
        call = answered[place]
        if not text or text in call.operation.casefold() or text == str(call.status) or text in call.path.casefold():
            found.append(call)
            if len(found) > PAGE:
                break
    return found


def _moment(milliseconds: int) -> str:
    return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}"


def _size(octets: int) -> str:
    return (
        f"{octets} B" if octets < 1000 else f"{octets / 1000:.1f} kB" if octets < 10**6 else f"{octets / 10**6:.1f} MB"
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {"moment": _moment, "size": _size, "segment": lambda text: quote(str(text), safe="@")}
    templates.filters |= {"kind_text": kind_text, "still_text": still_text}
    return templates
