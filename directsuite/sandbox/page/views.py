"""The views of the page: functions that read the state for a template, and functions that serve a file.

A query of a list begins after `place`, an exclusive id, and returns at most _PAGE_ROWS rows, and one more if there is a
next page. Its rows contain `text`, which is case-folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web
from aiohttp.helpers import content_disposition_header

from directsuite.sandbox.calls import mask_secrets
from directsuite.sandbox.faults import EVERY_OPERATION, FAULT_KINDS
from directsuite.sandbox.files import FileRange, PiecesPayload
from directsuite.sandbox.messaging.delivery import CONFIRMATION_TIMEOUT_MS, add_brackets, list_deliveries
from directsuite.sandbox.messaging.mailboxes import SENT, find_account_id
from directsuite.sandbox.messaging.parsing import read_message
from directsuite.sandbox.page.drawing import draw_page, neutralize_html
from directsuite.sandbox.page.site import FileHandler, PageNotFoundError, SandboxPage, View
from directsuite.sandbox.patients import USER_STATES, find_user_state
from directsuite.sandbox.quirks import PROFILES
from directsuite.sandbox.rejections import RejectionError
from directsuite.sandbox.signing.service import DOCUMENT_LIFETIME_MS

if TYPE_CHECKING:
    import sqlite3

    from directsuite.sandbox.calls import CallRecord

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]

_MAIL_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'self'"
)
_FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
_MAX_DRAWN_BYTES = 64 * 2**20
_MAX_FILTERED_PAGES = 10  # that are read for one page of a filtered list
_SIGNATURE_STATES: Mapping[str, Callable[[int | None], bool]] = {
    "all": lambda signed: True,
    "signed": bool,
    "unsigned": lambda signed: signed == 0,
}
"""The filters of documents by their number of signatures, which is None if a document cannot be read."""

_PAGE_ROWS = 50
_MAX_ROW_ID = 2**62
"""Larger than any uid or row id: `place` of the first page of a list with the newest rows first."""

_CONSTANTS = {"page": _PAGE_ROWS + 1, "chars": 1000, "lifetime": DOCUMENT_LIFETIME_MS}

_MESSAGE_COLUMNS = """
        SELECT folder, uid, received, seen, substr(json_extract(members, '$.sender'), 1, :chars) AS sender,
          substr(json_extract(members, '$.subject'), 1, :chars) AS subject,
          json_array_length(members, '$.attachments') AS attachments,
          (SELECT substr(group_concat(json_extract(value, '$.email'), ', '), 1, :chars)
           FROM (SELECT value FROM json_each(members, '$.recipients') LIMIT :page)) AS recipients"""
_MESSAGE_MATCHES = "(:text = '' OR instr(subject, :text) OR instr(sender, :text))"

_QUERIES = {
    # by id
    "mailboxes": """
        SELECT id, address,
          (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id) AS messages,
          (SELECT count(*) FROM folder JOIN message ON folder = folder.id WHERE account = a.id AND NOT seen) AS unread
        FROM mailbox_account a WHERE id > :place AND instr(folded, :text) ORDER BY id LIMIT :page""",
    "people": """
        SELECT id, first_name, last_name, dob FROM individual
        WHERE id > :place AND instr(name_key, :text) ORDER BY id LIMIT :page""",
    # newest first
    "messages": f"""{_MESSAGE_COLUMNS}
        FROM (SELECT folder, uid, received, seen, CAST(metadata AS TEXT) AS members
              FROM message JOIN content ON content.id = content WHERE folder = :folder AND uid < :place
              AND {_MESSAGE_MATCHES} ORDER BY uid DESC LIMIT :page)
        ORDER BY uid DESC""",  # noqa: S608  constants
    # Of the mailbox to which a folder belongs. No id orders these messages, so `place` is their rank.
    "messages of all folders": f"""{_MESSAGE_COLUMNS}, folder_name, place
        FROM (SELECT folder, uid, received, seen, CAST(metadata AS TEXT) AS members, folder_name, place
              FROM (SELECT folder, uid, f.name AS folder_name,
                      row_number() OVER (ORDER BY received DESC, folder, uid DESC) AS place
                    FROM folder f JOIN message ON folder = f.id JOIN content ON content.id = content
                    WHERE f.account = (SELECT account FROM folder WHERE id = :folder) AND {_MESSAGE_MATCHES})
              JOIN message USING(folder, uid) JOIN content ON content.id = content
              WHERE place > :place ORDER BY place LIMIT :page)
        ORDER BY place""",  # noqa: S608  constants
    # The subject is NULL if no mailbox has a copy.
    "sent": """
        SELECT id, smtp_id, sender, size, at,
          (SELECT substr(json_extract(CAST(metadata AS TEXT), '$.subject'), 1, :chars) FROM content
           WHERE message_id = s.smtp_id LIMIT 1) AS subject
        FROM sent_message s WHERE id < :place
        AND (:text = '' OR instr(lower(sender), :text) OR instr(lower(smtp_id), :text)
             OR EXISTS (SELECT 1 FROM delivery WHERE message = s.id AND instr(lower(recipient), :text)))
        ORDER BY id DESC LIMIT :page""",
    # Expired documents are included until the next Save request.
    "documents": """
        SELECT d.rowid AS id, identifier, account, created, last_activity, digest, size, name,
          :now - last_activity >= :lifetime AS expired, last_activity + :lifetime AS expires
        FROM signing_document d JOIN signing_file USING(identifier) WHERE d.rowid < :place
        AND (:text = '' OR instr(identifier, :text) OR instr(lower(account), :text))
        ORDER BY d.rowid DESC LIMIT :page""",
    "faxes": """
        SELECT id, handle, fax_number, status, updated_at, description, recipients, account
        FROM fax JOIN fax_number USING(digits) WHERE id < :place
        AND (:text = '' OR instr(digits, :text) OR instr(lower(description), :text) OR instr(handle, :text))
        ORDER BY id DESC LIMIT :page""",
    "effects": """
        SELECT id, operation, substr(subject, 1, :chars) AS subject, substr(detail, 1, :chars) AS detail, at
        FROM effect WHERE id < :place
        AND (:text = '' OR instr(lower(operation), :text) OR instr(lower(subject), :text))
        ORDER BY id DESC LIMIT :page""",
    # complete lists, and single rows
    "folders": """
        SELECT f.id, f.name, f.subscribed, count(m.uid) AS messages, total(m.seen = 0) AS unread
        FROM folder f LEFT JOIN message m ON m.folder = f.id WHERE f.account = :account
        GROUP BY f.id ORDER BY f.name""",
    "patients": """
        SELECT username || '@' || domain AS address, expires_on, state AS forced FROM patient
        WHERE individual = :individual""",
    "message": """
        SELECT uid, received, seen, message_id, json_extract(CAST(metadata AS TEXT), '$.size') AS size, raw,
          name, (SELECT max(uid) FROM message WHERE folder = :folder AND uid < :uid) AS older,
          (SELECT min(uid) FROM message WHERE folder = :folder AND uid > :uid) AS newer
        FROM message JOIN content ON content.id = content LEFT JOIN content_file USING(content)
        WHERE folder = :folder AND uid = :uid""",
    "sent message": "SELECT id, smtp_id, sender, size, at FROM sent_message WHERE smtp_id = :smtp_id",
    "document": """
        SELECT identifier, account, created, last_activity, digest, name, size, last_activity + :lifetime AS expires
        FROM signing_document JOIN signing_file USING(identifier) WHERE identifier = :identifier""",
    "totals": """
        SELECT (SELECT count(*) FROM mailbox_account) AS mailboxes, (SELECT count(*) FROM sent_message) AS sent,
          (SELECT count(*) FROM signing_document) AS documents, (SELECT count(*) FROM fax) AS faxes,
          (SELECT count(*) FROM individual) AS people, (SELECT count(*) FROM patient) AS patients,
          (SELECT count(*) FROM effect) AS effects""",
    "sessions": """
        SELECT account AS username, expires_at FROM secret WHERE kind = 'session' AND expires_at > :now
        ORDER BY expires_at DESC LIMIT :page""",
    "tusers": "SELECT username FROM tuser ORDER BY 1 LIMIT :page",
    "resellers": "SELECT username FROM reseller ORDER BY 1 LIMIT :page",
    "clients": "SELECT client_id, account FROM oauth_client ORDER BY 1 LIMIT :page",
}


async def _show_overview(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    calls = [*islice(reversed(page.calls.records), 12)]
    return {
        "totals": _require_found(await page.sandbox.read(lambda connection: _find_row(connection, "totals"))),
        "calls": calls,
        "titles": await _find_titles(page, calls),
        **await _list_page(page, request, "mailboxes", "after"),
    }


async def _show_mailbox(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    address, chosen = request.match_info["address"], request.query.get("folder", "INBOX")
    folders = await page.sandbox.read(lambda connection: _list_folders(connection, address))
    folder = _require_found(next((each for each in folders if each["name"] == chosen), None))
    all_folders = "all" in request.query
    query = ("messages of all folders", "after", "place") if all_folders else ("messages", "before", "uid")
    return {
        "address": address,
        "folders": folders,
        "folder": folder,
        "all_folders": all_folders,
        "all_folders_link": _build_link(request, before=None, after=None, all=1),
        "outgoing": chosen == SENT and not all_folders,
        **await _list_page(page, request, *query, folder=folder["id"]),
    }


async def _find_message(page: SandboxPage, request: web.Request) -> dict[str, Any]:
    address, uid = request.match_info["address"], int(request.match_info["uid"])
    number, now = int(request.match_info["folder"]), page.now_ms

    def read(connection: sqlite3.Connection) -> dict[str, Any]:
        folders = _list_folders(connection, address)
        folder = _require_found(next((each for each in folders if each["id"] == number), None))
        message = _require_found(_find_row(connection, "message", folder=number, uid=uid))
        sent = _find_row(connection, "sent message", smtp_id=add_brackets(message["message_id"] or ""), now=now)
        return {"address": address, "folder": folder, "message": message, "sent": sent}

    return await page.sandbox.read(read)


@contextmanager
def _hold_message(page: SandboxPage, message: Row) -> Generator[bytes | Path]:
    """Yield a message's bytes, or its file, not deleted in the block. Raises FileNotFoundError if it is gone."""
    if message["name"] is None:
        yield message["raw"]
        return
    with page.sandbox.services.messaging.files.hold_file(message["name"]) as file:
        yield file


async def _find_document(page: SandboxPage, request: web.Request) -> Row:
    identifier = request.match_info["identifier"]
    found = await page.sandbox.read(lambda connection: _find_row(connection, "document", identifier=identifier))
    return _require_found(found)


async def _show_message(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    shown = await _find_message(page, request)
    with _hold_message(page, shown["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
    return {**shown, "reading": reading, "timeout": CONFIRMATION_TIMEOUT_MS}


def _list_folders(connection: sqlite3.Connection, address: str) -> list[Row]:
    return _list_rows(connection, "folders", account=_require_found(find_account_id(connection, address)))


async def _list_page(
    page: SandboxPage, request: web.Request, name: str, link: str, key: str = "id", **parameters: Any
) -> dict[str, Any]:
    """Return the `rows` of a list's page, the search `text`, and the links of `_build_page_links`.

    link: the query parameter with the page's place: `before` for a list with the newest rows first, or `after`.
    key: the column with the places.
    """
    text, place = _read_search_text(request), _read_number(request, link, _MAX_ROW_ID if link == "before" else 0)
    known = {"text": text, "place": place, "now": page.now_ms, **parameters}
    rows = await page.sandbox.read(lambda connection: _list_rows(connection, name, **known))
    last = rows[_PAGE_ROWS - 1][key] if len(rows) > _PAGE_ROWS else None
    return {"text": text, "rows": rows[:_PAGE_ROWS], **_build_page_links(request, link, last)}


def _make_list_view(name: str, **context: Any) -> View:
    async def show(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
        return {**context, **await _list_page(page, request, name, "before")}

    return show


async def _show_calls(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    text, only_failures = _read_search_text(request), "failures" in request.query
    titles, before = await _find_titles(page, page.calls.records), _read_number(request, "before", _MAX_ROW_ID)
    found = (
        call
        for call in reversed(page.calls.records)
        if call.number < before and (call.has_failed or not only_failures) and _matches_call(call, titles, text)
    )
    rows = list(islice(found, _PAGE_ROWS + 1))
    last = rows[_PAGE_ROWS - 1].number if len(rows) > _PAGE_ROWS else None
    return {
        "rows": rows[:_PAGE_ROWS],
        "titles": titles,
        "text": text,
        "count": page.calls.count,
        "only_failures": only_failures,
        "other_filter": _build_link(request, before=None, failures=None if only_failures else 1),
        **_build_page_links(request, "before", last),
    }


def _matches_call(call: CallRecord, titles: Mapping[str, str], text: str) -> bool:
    """Return True if the call's row in the list contains each word of a case-folded text."""
    if not text:
        return True
    shown = [call.operation, titles.get(call.operation, ""), call.method, call.path, call.outcome, *call.effects]
    row = " ".join([*shown, "failed" if call.has_failed else ""]).casefold()
    return all(word in row for word in text.split())


async def _find_titles(page: SandboxPage, calls: Collection[CallRecord]) -> dict[str, str]:
    """Return the summaries of the operations of these calls, by name. Other endpoints have none."""
    summaries = await asyncio.to_thread(lambda: page.summaries) if calls else {}
    return {name: summaries[name] for name in {call.operation for call in calls} & summaries.keys()}


async def _show_call(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    number = int(request.match_info["number"])
    call, exchange = _require_found(page.calls.find(number)), page.calls.exchanges.get(number)
    bodies = None if exchange is None else (mask_secrets(exchange.request), mask_secrets(exchange.response))
    return {"call": call, "exchange": exchange, "bodies": bodies, "titles": await _find_titles(page, [call])}


async def _show_documents(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    state = request.query.get("state", "")
    state = state if state in _SIGNATURE_STATES else "all"
    shown = await _list_documents(page, request)
    rows = [row for row in shown["rows"] if _SIGNATURE_STATES[state](row["signed"])]
    for _ in range(_MAX_FILTERED_PAGES - 1):
        if len(rows) >= _PAGE_ROWS or shown["following"] is None:
            break
        shown = await _list_documents(page, request, place=shown["rows"][-1]["id"])
        rows += [row for row in shown["rows"] if _SIGNATURE_STATES[state](row["signed"])]
    links = {
        each: _build_link(request, before=None, state=None if each == "all" else each) for each in _SIGNATURE_STATES
    }
    return {**shown, "rows": rows, "state": state, "state_links": links}


async def _list_documents(page: SandboxPage, request: web.Request, **place: Any) -> dict[str, Any]:
    """Return a page of the list with the numbers of `signed` and `unsigned` signature fields."""
    shown = await _list_page(page, request, "documents", "before", **place)
    for row in shown["rows"]:
        row["signed"] = row["unsigned"] = None  # if the document cannot be read
        with (
            suppress(RejectionError, FileNotFoundError, ImportError),
            page.sandbox.services.signing.files.hold_file(row["name"]) as file,
        ):
            row["signed"], row["unsigned"] = await asyncio.to_thread(_count_signatures, file)
    return shown


@lru_cache(maxsize=1000)
def _count_signatures(file: Path) -> tuple[int, int]:
    # The content of a file does not change: a changed document is a new file.
    from directsuite.sandbox.signing import engine

    return engine.count_signatures(file)


async def _show_document(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    document = await _find_document(page, request)
    try:
        with page.sandbox.services.signing.files.hold_file(document["name"]):
            described: Mapping[str, Any] = await page.sandbox.services.signing.describe(document["name"])
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


async def _show_patients(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    now = page.now_ms
    sessions = await page.sandbox.read(lambda connection: _list_rows(connection, "sessions", now=now))
    return {"sessions": sessions, "states": USER_STATES, **await _list_page(page, request, "people", "after")}


async def _show_controls(page: SandboxPage, request: web.Request) -> Mapping[str, Any]:
    profile, kinds = page.sandbox.profile, ("tusers", "resellers", "clients")
    return {
        "faults": page.sandbox.faults(),
        "operations": [EVERY_OPERATION, *sorted(page.sandbox.operations)],
        "kinds": FAULT_KINDS,
        "profiles": PROFILES,
        "profile": {profile} if isinstance(profile, str) else set(profile),
        "logins": {kind: await page.sandbox.read(partial(_list_rows, name=kind)) for kind in kinds},
    }


_MESSAGE_PATH = "/page/mail/{address}/{folder:[0-9]{1,15}}/{uid:[0-9]{1,15}}"
VIEWS: dict[str, tuple[str, View]] = {
    "/": ("overview.html", _show_overview),
    "/page/mail/{address}": ("mailbox.html", _show_mailbox),
    _MESSAGE_PATH: ("message.html", _show_message),
    "/page/sent": ("sent.html", _make_list_view("sent", timeout=CONFIRMATION_TIMEOUT_MS)),
    "/page/calls": ("calls.html", _show_calls),
    "/page/calls/{number:[0-9]{1,15}}": ("call.html", _show_call),
    "/page/documents": ("documents.html", _show_documents),
    "/page/documents/{identifier}": ("document.html", _show_document),
    "/page/faxes": ("faxes.html", _make_list_view("faxes")),
    "/page/patients": ("patients.html", _show_patients),
    "/page/effects": ("effects.html", _make_list_view("effects")),
    "/page/controls": ("controls.html", _show_controls),
}


async def _serve_html(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    with _hold_message(page, (await _find_message(page, request))["message"]) as raw:
        reading = await asyncio.to_thread(read_message, raw)
    headers = {"Content-Security-Policy": _MAIL_POLICY}
    return web.Response(text=neutralize_html(reading.body), content_type="text/html", headers=headers)


async def _serve_raw(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    message = (await _find_message(page, request))["message"]
    with _hold_message(page, message) as raw:
        if isinstance(raw, Path):
            body = page.sandbox.services.messaging.files.make_payload([FileRange.from_file(raw)], base64=False)
            return _build_download(body, f"message-{message['uid']}.eml")
    headers = {"Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=raw, content_type="text/plain", charset="utf-8", headers=headers)


async def _serve_attachment(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    message, number = (await _find_message(page, request))["message"], int(request.match_info["number"])
    with _hold_message(page, message) as raw:
        reading = await asyncio.to_thread(read_message, raw)
        part = _require_found(reading.attachments[number] if number < len(reading.attachments) else None)
        files = page.sandbox.services.messaging.files
        body = part.content if isinstance(part.content, bytes) else files.make_payload([part.content], base64=False)
        return _build_download(body, part.filename)


async def _serve_pdf(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    document = await _find_document(page, request)
    with page.sandbox.services.signing.files.hold_file(document["name"]) as file:
        body = page.sandbox.services.signing.files.make_payload([FileRange.from_file(file)], base64=False)
        return _build_download(body, f"{document['identifier']}.pdf")


async def _serve_picture(page: SandboxPage, request: web.Request) -> web.StreamResponse:
    document = await _find_document(page, request)
    number = int(request.match_info["number"])
    with page.sandbox.services.signing.files.hold_file(document["name"]) as file:
        async with page.drawing_slot:
            try:
                drawn = await asyncio.to_thread(draw_page, file, number)
            except (LookupError, ValueError) as error:
                raise PageNotFoundError(str(error)) from None
    return web.Response(body=drawn, content_type="image/png", headers={"Content-Security-Policy": _FILE_POLICY})


FILE_ROUTES: Mapping[str, FileHandler] = {
    f"{_MESSAGE_PATH}/html": _serve_html,
    f"{_MESSAGE_PATH}/raw": _serve_raw,
    f"{_MESSAGE_PATH}/attachments/{{number:[0-9]{{1,6}}}}": _serve_attachment,
    "/page/documents/{identifier}/pdf": _serve_pdf,
    "/page/documents/{identifier}/{number:[0-9]{1,6}}.png": _serve_picture,
}


def _list_rows(connection: sqlite3.Connection, name: str, **parameters: Any) -> list[Row]:
    """Return the rows of the query with this name."""
    rows = [dict(row) for row in connection.execute(_QUERIES[name], {**_CONSTANTS, **parameters})]
    for row in rows:
        match name:
            case "people":
                row["addresses"] = _list_rows(connection, "patients", individual=row["id"], **parameters)
            case "patients":
                row["state"] = find_user_state(connection, row["address"], parameters["now"])
            case "sent" | "sent message":
                row["passages"] = list_deliveries(connection, [row["smtp_id"]], now_ms=parameters["now"])
            case "faxes":
                row["recipients"] = msgspec.json.decode(row["recipients"])
            case _:
                break
    return rows


def _find_row(connection: sqlite3.Connection, name: str, **parameters: Any) -> Row | None:
    """Return the first row of the query with this name, or None if there is none."""
    return next(iter(_list_rows(connection, name, **parameters)), None)


def _require_found(found: T | None) -> T:
    """Return the value. Raise PageNotFoundError if it is None."""
    if found is None:
        raise PageNotFoundError("There is nothing at this address. It may have been deleted.")
    return found


def _build_download(body: bytes | PiecesPayload, name: str) -> web.Response:
    plain = "".join(character for character in name if character.isprintable() and character not in '/\\"') or "file"
    disposition = content_disposition_header("attachment", filename=plain[:150])
    headers = {"Content-Disposition": disposition, "Content-Security-Policy": _FILE_POLICY}
    return web.Response(body=body, content_type="application/octet-stream", headers=headers)


def _read_search_text(request: web.Request) -> str:
    return request.query.get("q", "").strip().casefold()[:200]


def _read_number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return max(1, min(int(text), _MAX_ROW_ID)) if text.isascii() and text.isdecimal() and len(text) < 20 else default


def _build_link(request: web.Request, **changed: int | str | None) -> str:
    """Return the path and query of a request with changed parameters. None removes a parameter."""
    query = {name: value for name, value in {**request.query, **changed}.items() if value is not None}
    return f"{quote(request.path)}?{urlencode(query)}" if query else quote(request.path)


def _build_page_links(request: web.Request, name: str, last: int | None) -> dict[str, str | None]:
    """Return the links `first_page` and `following` of a list, each None if it is not needed.

    name: the query parameter with the page's place. last: the place of the last row, None on the last page.
    """
    return {
        "first_page": _build_link(request, **{name: None}) if name in request.query else None,
        "following": None if last is None else _build_link(request, **{name: last}),
    }
