"""The views of the page."""

from __future__ import annotations

import asyncio
import io
import re
import time
from contextlib import suppress
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import pytest
from PIL import Image

from directsuite.sandbox.calls import mask_secrets
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.page import views
from directsuite.sandbox.page.drawing import draw_page
from directsuite.sandbox.page.site import _load_templates
from directsuite.sandbox.samples import ALICE, FAX_NUMBER
from tests.sandbox.page.conftest import CREDENTIALS, SLOW_RECIPIENT, PageClient, save_document

if TYPE_CHECKING:
    import sqlite3


VIEWS = [
    *("/", "/page/sent", "/page/calls", "/page/documents", "/page/faxes", "/page/patients", "/page/effects"),
    *("/page/controls", f"/page/mail/{ALICE}", f"/page/mail/{ALICE}?all=1", "/page/documents?state=signed"),
]
MULTIPART = (
    b"From: lab@lab.example.test\r\nSubject: =?utf-8?q?Blut=C3=A4tter?=\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/mixed; boundary=q\r\n\r\n--q\r\nContent-Type: text/html\r\n\r\n<b>fine</b>\r\n"
    b'--q\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename="../a\xc3\xa4.csv"\r\n\r\n'
    b"1,2\r\n--q--\r\n"
)


async def test_every_view_has_the_number_of_active_faults(empty_page: PageClient) -> None:
    await empty_page.sandbox.add_account(ALICE, CREDENTIALS["password"])
    link = r'<a id="active-faults" href="/page/controls#faults"[^>]*>([^<]+)</a>'
    for number in ([], ["1 active fault"], ["2 active faults"]):
        for path in VIEWS:
            html = await empty_page.view(path)
            assert ("<h1>" in html, re.findall(link, html)) == (True, number), path
        empty_page.sandbox.inject_fault("GetMessageCount", "status")


async def test_a_fault_that_is_used_up_is_not_active(empty_page: PageClient) -> None:
    empty_page.sandbox.inject_fault("GetMessageCount", "status")
    before = empty_page.sandbox.changes
    async with empty_page.http.post(f"{empty_page.sandbox.message_url}/GetMessageCount/INBOX", json={}) as response:
        assert response.status == 503
    assert empty_page.sandbox.changes > before  # so that open views are updated
    assert "active-faults" not in await empty_page.view("/page/controls")


async def test_no_calls_are_no_failed_calls(empty_page: PageClient) -> None:
    assert "There are no failed calls." in await empty_page.view("/page/calls?failures=1")
    assert "There are no calls yet." in await empty_page.view("/page/calls")


async def test_mailboxes_folders_and_messages_are_shown(page: PageClient) -> None:
    assert f'href="/page/mail/{ALICE}"' in await page.view("/")
    box = await page.view(f"/page/mail/{ALICE}")
    assert "INBOX.Referrals" in box
    assert "Welcome to the sandbox" in box
    assert "<small>unread/all</small>" in box
    assert re.search(r"<strong>\d</strong>/\d", box)
    assert re.search(r">0/\d", box)
    found = await page.view(f"/page/mail/{ALICE}?q=BLOOD")
    assert "Blood count" in found
    assert "Welcome" not in found
    uid = await page.sandbox.deliver(ALICE, MULTIPART)
    folder = await page.sandbox.read(lambda connection: mailboxes.get_folder(connection, 1, "INBOX").id)
    own = f"/page/mail/{ALICE}/{folder}/{uid}"
    message = await page.view(own)
    assert "Blutätter" in message
    assert f'<iframe class="mailed" sandbox="" referrerpolicy="no-referrer" title="HTML" src="{own}/html">' in message
    assert await page.view(f"{own}/html") == "<b>fine</b>"
    assert (await page.view(f"{own}/raw")).startswith("From: lab@")
    async with page.http.get(f"{page.root}{own}/attachments/0") as response:
        assert (await response.read(), response.content_type) == (b"1,2", "application/octet-stream")
        disposition = response.headers["Content-Disposition"]
        assert (disposition.startswith("attachment"), "/" in disposition) == (True, False)
    for missing in (f"{own}9", f"{own}/attachments/7", f"/page/mail/{ALICE}?folder=x", "/page/mail/nobody@x.test"):
        async with page.http.get(f"{page.root}{missing}") as response:
            assert response.status == 404, missing


async def test_messages_are_found_in_all_folders(page: PageClient) -> None:
    page.sandbox.clock.freeze()
    for folder in ("INBOX", "INBOX.Referrals"):
        for number in range(26):
            raw = f"From: a@b.test\r\nSubject: Sought {folder} {number}\r\n\r\n"
            await page.sandbox.deliver(ALICE, raw.encode(), folder)
    page.sandbox.clock.advance(timedelta(minutes=1))
    await page.sandbox.deliver(ALICE, b"From: a@b.test\r\nSubject: Sought last\r\n\r\n", "INBOX.Referrals")
    path = f"/page/mail/{ALICE}?folder=INBOX&q=sought"
    html = await page.view(path)
    everywhere = unescape(re.findall(r'Only INBOX is searched. <a href="([^"]+)">Search all folders<', html)[0])
    assert (html.count("Sought INBOX "), "Referrals 1" in html) == (26, False)
    first = await page.view(everywhere)
    following = unescape(re.findall(r'<a href="([^"]+)" rel="next">', first)[0])
    rows = re.findall(r'<a id="message-[^"]+" href="([^"]+)">([^<]+)</a>', first + await page.view(following))
    assert (len(rows), len({link for link, _ in rows})) == (53, 53)
    assert rows[0][1] == "Sought last"  # the newest
    assert "Sought last" in await page.view(rows[0][0])
    assert "<th>Folder</th>" in first
    assert re.search(r"<td[^>]*><span[^>]*>Folder </span>INBOX.Referrals</td>", first)


async def test_the_delivery_to_each_recipient_is_shown(page: PageClient, sent_message_id: str) -> None:
    page.sandbox.clock.freeze()
    for path in ("/page/sent", "/page/sent?q=slow%2B30m"):
        html = await page.view(path)
        assert html.count(">Confirm the delivery<") == 1
        assert "confirmation expected" in html
        assert "<strong>Referral of A. Example</strong>" in html
        assert SLOW_RECIPIENT in html


async def test_documents_are_drawn_with_fields_and_signatures(page: PageClient, signed_document_id: str) -> None:
    documents = await page.view("/page/documents")
    assert signed_document_id in documents
    assert "1 of 4 signed" in documents
    html = await page.view(f"/page/documents/{signed_document_id}")
    for text in (
        "Approval",
        "valid",
        "unchanged since",
        "PatientSig",
        "not signed",
        "patient_name",
        f"/page/documents/{signed_document_id}/1.png",
    ):
        assert text in html
    async with page.http.get(f"{page.root}/page/documents/{signed_document_id}/1.png") as response:
        assert (await response.read()).startswith(b"\x89PNG")
    for missing in (f"{signed_document_id}/4.png", "nothing", "nothing/pdf"):
        async with page.http.get(f"{page.root}/page/documents/{missing}") as response:
            assert response.status == 404
    async with page.http.get(f"{page.root}/page/documents/{signed_document_id}/pdf") as response:
        assert (await response.read()).startswith(b"%PDF")


async def test_documents_are_filtered_by_signatures(
    page: PageClient, signed_document_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifiers = [signed_document_id, *[await save_document(page.sandbox, page.http) for _ in range(3)]]
    monkeypatch.setattr(views, "_PAGE_ROWS", 1)
    monkeypatch.setitem(views._CONSTANTS, "page", 2)
    table: list[tuple[str, int, list[int], str]] = [  # query, pages that are searched, documents that are shown, text
        ("", 10, [3], ""),
        ("?state=all", 10, [3], ""),
        ("?state=other", 10, [3], ""),
        ("?state=signed", 10, [0], ""),
        ("?state=signed", 2, [], "There are no signed documents on this page."),
        ("?state=signed&before=1", 10, [], "There are no more signed documents."),
        ("?state=unsigned", 10, [3], ""),
        ("?state=unsigned&q=nowhere", 10, [], "No unsigned documents match “nowhere”."),
    ]
    for query, max_pages, shown, text in table:
        monkeypatch.setattr(views, "_MAX_FILTERED_PAGES", max_pages)
        html = await page.view(f"/page/documents{query}")
        links = [number for number, each in enumerate(identifiers) if f'href="/page/documents/{each}"' in html]
        assert (links, text in html) == (shown, True), query
        assert ('rel="next"' in html) == (shown == [3] or max_pages == 2), query


async def test_the_filter_of_documents_links_to_each_state(page: PageClient, signed_document_id: str) -> None:
    html = await page.view("/page/documents?q=demo&state=signed&before=99")
    assert '<a href="/page/documents?q=demo">all</a>, <strong>signed</strong>' in html
    assert '<a href="/page/documents?q=demo&amp;state=unsigned">unsigned</a>' in html
    assert '<input type="hidden" name="state" value="signed">' in html


@pytest.mark.parametrize(
    ("signed", "unsigned", "text"),
    [
        (None, None, "unreadable"),
        (0, 0, "not signed"),
        (0, 2, "not signed"),
        (1, 1, "1 of 2 signed"),
        (1, 0, "signed"),
        (2, 0, "signed (2)"),
    ],
)
def test_the_signature_fields_of_a_document_are_summed_up(signed: int | None, unsigned: int | None, text: str) -> None:
    parts: Any = _load_templates().get_template("parts.html").module
    assert f">{text}</span>" in parts.signatures(signed, unsigned)


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7\n", b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n%%EOF"])
def test_an_invalid_document_is_not_drawn(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "document.pdf"
    file.write_bytes(content)
    with pytest.raises((ValueError, LookupError)):
        draw_page(file, 1)


@pytest.mark.parametrize("box", ["0 0 14400 14400", "0 0 1 14400", "0 0 14400 1", "0 0 0.01 0.01", "-1e9 -1e9 1e9 1e9"])
def test_a_page_of_any_size_is_a_picture_of_bounded_size(box: str, tmp_path: Path) -> None:
    file = tmp_path / "document.pdf"
    pdf = f"""%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[{box}]/AA<</O<</S/URI/URI(http://canary.test/)>>>>>>endobj
trailer<</Root 1 0 R>>"""
    file.write_bytes(pdf.encode())
    with Image.open(io.BytesIO(draw_page(file, 1))) as picture:
        assert max(picture.size) <= 3000


async def test_faxes_patients_and_sessions_are_shown(page: PageClient, patient_address: str) -> None:
    assert FAX_NUMBER in await page.view("/page/faxes")
    assert "Fax 7" in await page.view("/page/faxes?q=fax%207")
    patients = await page.view("/page/patients")
    for text in (patient_address, "activated", "demo-reseller", "Zoë"):
        assert text in patients
    assert patient_address in await page.view("/page/effects?q=provision")


async def test_calls_are_shown_with_effects_and_without_secrets(
    page: PageClient, sent_message_id: str, patient_address: str
) -> None:
    async with page.http.post(
        f"{page.sandbox.message_url}/GetMessageCount/INBOX", json={**CREDENTIALS, "password": "x"}
    ) as response:
        assert response.status == 200
    async with page.http.post(f"{page.sandbox.registration_url}/login/hush-hush-hush/at/all", json={}) as response:
        assert response.status == 404
    calls = await page.view("/page/calls")
    for text in (
        "Send",
        "ProvisionIDProofedPatient",
        "no operation",
        "200 rejected",
        f"ProvisionIDProofedPatient {patient_address}",
    ):
        assert text in calls
    assert "login" not in (await page.view("/page/calls?q=send")).partition("<main")[2]
    shown = ""
    for number in range(1, 6):
        shown += await page.view(f"/page/calls/{number}")
    assert "•••" in shown
    for secret in ("hush-hush-hush", '"sandbox"', "sandbox&#34;", "demo-login"):
        assert secret not in shown, secret
    assert re.search(r"(?<![\w.-])1234(?![\w.-])", shown) is None  # ids and times may contain these digits
    assert 2 in page.sandbox.calls.exchanges
    for secret in ("hush", "sessionId"):
        assert secret not in repr(page.sandbox.calls.find(3))
    async with page.http.get(f"{page.root}/page/calls/99") as response:
        assert response.status == 404


@pytest.mark.usefixtures("sent_message_id")
async def test_a_search_without_results_links_to_all_rows(page: PageClient) -> None:
    for path, things in (
        ("/", "mailboxes"),
        ("/page/sent", "sent messages"),
        ("/page/calls", "calls"),
        ("/page/calls?failures=1", "failed calls"),
        ("/page/documents", "documents"),
        ("/page/faxes", "faxes"),
        ("/page/patients", "people"),
        ("/page/effects", "effects"),
        ("/page/documents?state=signed", "signed documents"),
        (f"/page/mail/{ALICE}?all=1", "messages"),
        (f"/page/mail/{ALICE}?folder=INBOX.Referrals", "messages in INBOX.Referrals"),
    ):
        html = await page.view(f"{path}{'&' if '?' in path else '?'}q=<Nowhere>")
        link = f'<a href="{path}">Show all {things}</a>'
        assert f'<p class="nothing">No {things} match “&lt;nowhere&gt;”. {link}</p>' in html
        assert html.count('<p class="nothing">') == 1 + (path == "/page/patients")  # no session is open


@pytest.fixture
async def failed_calls(page: PageClient) -> None:
    """Calls of GetMessageCount with each kind of result. Their order is that of RESULTS."""
    inject, url = page.sandbox.inject_fault, f"{page.sandbox.message_url}/GetMessageCount"
    for folder, kind, members in (
        ("INBOX", None, {}),
        ("INBOX.Nowhere", None, {}),
        ("INBOX", "status", {"status": 404}),
        ("INBOX", "status", {"status": 503}),
        ("INBOX", "latency", {"seconds": 0}),
        ("INBOX", "malformed", {}),
        ("INBOX", "truncate", {}),
        ("INBOX", "reset_after", {}),
    ):
        if kind is not None:
            inject("GetMessageCount", kind, **members)
        with suppress(aiohttp.ClientError):
            async with page.http.post(f"{url}/{folder}", json=CREDENTIALS) as response:
                await response.read()


RESULTS = [
    ("good", "200"),
    ("open", "200 rejected"),
    ("open", "404 (fault: status)"),
    ("bad", "503 (fault: status)"),
    ("good", "200 (fault: latency)"),
    ("bad", "200 (fault: malformed)"),
    ("bad", "no response (fault: truncate)"),
    ("bad", "no response (fault: reset_after)"),
]


def _list_results(html: str) -> list[tuple[str, str]]:
    """Return the colour and text of the status of each call in a list, oldest first."""
    found = re.findall(r'<span class="state (\w+)">(?:<span class="unseen">failed: </span>)?([^<]+)</span>', html)
    return found[::-1]


@pytest.mark.usefixtures("failed_calls")
async def test_a_failed_call_has_the_colour_of_a_failure(page: PageClient) -> None:
    html = await page.view("/page/calls")
    assert _list_results(html) == RESULTS
    assert html.count(">failed: <") == 6
    assert "from this machine's clock" in html
    assert "from this machine's clock" in await page.view("/")


@pytest.mark.usefixtures("failed_calls")
async def test_calls_are_found_by_what_their_rows_show(page: PageClient) -> None:
    for query, indexes in (
        ("failures=1", [1, 2, 3, 5, 6, 7]),
        ("q=failed", [1, 2, 3, 5, 6, 7]),
        ("q=Rejected", [1]),
        ("q=fault", [2, 3, 4, 5, 6, 7]),
        ("q=malformed", [5]),
        ("q=404", [2]),
        ("q=no+response", [6, 7]),
        ("q=Nowhere", [1]),
        ("q=post+getmessagecount+503", [3]),
        ("q=200&failures=1", [1, 5]),
    ):
        found = _list_results(await page.view(f"/page/calls?{query}"))
        assert found == [RESULTS[index] for index in indexes], query


async def test_calls_are_found_by_title_and_effect(page: PageClient, sent_message_id: str) -> None:
    for text in ("send a message.", sent_message_id.strip("<>")):
        assert _list_results(await page.view(f"/page/calls?q={quote(text)}")) == [("good", "200")]


async def test_a_search_and_a_filter_are_kept_on_other_pages(page: PageClient) -> None:
    for _ in range(51):
        async with page.http.post(f"{page.sandbox.message_url}/GetMessageCount/INBOX.Nowhere", json=CREDENTIALS):
            pass
    html = await page.view("/page/calls?q=count&failures=1")
    assert 'href="/page/calls?q=count&amp;failures=1&amp;before=2" rel="next"' in html
    assert 'href="/page/calls?q=count">Also show successful calls<' in html
    assert '<input type="hidden" name="failures" value="1">' in html
    html = await page.view("/page/calls?q=count&failures=1&before=2")
    assert '<a href="/page/calls?q=count&amp;failures=1">First page</a>' in html
    assert "There are no more calls." in await page.view("/page/calls?q=count&before=1")
    assert 'href="/page/calls?q=count&amp;failures=1">Show only failures<' in await page.view("/page/calls?q=count")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"password": "pa ss", "code": 4}', '{\n  "password": "•••",\n  "code": 4\n}'),
        (r'{"pass\u0077ord": "hidden"}', '{\n  "password": "•••"\n}'),
        ('[{"users": [{"directPassword": {"a": "hidden"}}]}]', None),
        ('{"authentication": {"password": "hidd\\"en", "b": 1', None),
        ("{'password': 'hidden', 'b': 1}", None),
        ("grant_type=password&password=hidden&client_secret=hidden", None),
        ("password: hidden", None),
        ('{"sessionId":"hidden"', None),
        ('{"note": token: hidden', None),
        (r'"{\"password\": \"hidden\"}', None),
    ],
)
def test_members_named_like_secrets_are_masked(body: str, shown: str | None) -> None:
    text = mask_secrets(body.encode())
    assert "hidd" not in text
    assert "•••" in text
    assert shown in {None, text}


@pytest.mark.parametrize("unit", ["token", "a", "token ", 'token="', "token='", "token:", "'a\\", "a:", "token -"])
def test_secrets_are_masked_in_linear_time(unit: str) -> None:
    assert mask_secrets((unit * 65_536)[:65_536].encode())[:2] == unit[:2] or len(unit) == 1


def test_text_without_secrets_is_not_masked() -> None:
    assert mask_secrets(b"plain") == "plain"
    assert mask_secrets(b"\xff\xfe") == "\ufffd\ufffd"


@pytest.mark.wide
async def test_views_of_large_mailboxes_and_many_calls_are_fast(page: PageClient) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        folder = mailboxes.get_folder(connection, 1, "INBOX").id
        for number in range(10_000):
            raw = b"From: a@b.test\r\nSubject: message %d\r\n\r\ntext" % number
            mailboxes.append_message(connection, folder, build_content(raw), received_ms=number)

    await page.sandbox._database.write(fill)
    call = page.sandbox.calls.records
    async with page.http.post(f"{page.sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS) as response:
        await response.read()
    last = call[-1]
    call.extend([last] * 100_000)
    began = time.perf_counter()
    box = await page.view(f"/page/mail/{ALICE}")
    await page.view(f"/page/mail/{ALICE}?q=message%205000")
    await page.view(f"/page/mail/{ALICE}?before=5000")
    await page.view(f"/page/mail/{ALICE}?all=1&q=message")
    await page.view("/page/calls")
    await page.view("/page/calls?q=nothing")
    assert time.perf_counter() - began < 5  # together; each takes some 20 ms
    assert (box.count('<a id="message-'), len(box) < 100_000, len(call)) == (50, True, 10_000)
    assert 'rel="next"' in box


async def test_changes_and_calls_are_events(page: PageClient) -> None:
    async with asyncio.timeout(20), page.http.get(f"{page.root}/page/events") as response:
        assert response.content_type == "text/event-stream"
        await response.content.readuntil(b"\n\n")
        for change, kind in (
            (page.sandbox.deliver(ALICE, b"Subject: new\r\n\r\n"), b"change"),
            (asyncio.to_thread(page.sandbox.clock.freeze), b"change"),
            (page.http.post(f"{page.sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS), b"call"),
        ):
            await change
            while await response.content.readuntil(b"\n\n") != b"event: " + kind + b"\ndata: 1\n\n":
                pass


async def test_changes_since_the_page_was_loaded_are_events(page: PageClient) -> None:
    version = (await page.view("/")).partition('data-version="')[2].partition('"')[0]
    await page.sandbox.deliver(ALICE, b"Subject: new\r\n\r\n")
    async with asyncio.timeout(20), page.http.get(f"{page.root}/page/events?since={version}") as response:
        assert await response.content.readuntil(b"\n\n") == b"event: change\ndata: 1\n\n"


async def test_a_closing_sandbox_ends_event_streams(page: PageClient) -> None:
    async with asyncio.timeout(4), page.http.get(f"{page.root}/page/events") as response:
        await response.content.readuntil(b"\n\n")
        await page.sandbox.__aexit__(None, None, None)
        assert await response.content.read() == b""
