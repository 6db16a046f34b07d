"""Rejected requests, and the security headers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from directsuite.sandbox.access import COOKIE
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.page.drawing import neutralize_html
from directsuite.sandbox.samples import ALICE
from directsuite.sandbox.server import Sandbox
from tests.sandbox.page.conftest import PageClient

if TYPE_CHECKING:
    import aiohttp

TOKEN = "a token of the sandbox"


async def test_requests_of_other_pages_are_rejected(page: PageClient) -> None:
    for headers in (
        *({"Host": host} for host in ("evil.test", "127.0.0.1.evil.test:8025", "", "localhost:$(id)")),
        *({"Origin": origin} for origin in ("http://evil.test", "null")),
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ):
        for path in ("/", f"/page/mail/{ALICE}", "/page/calls", "/page/events", "/page/static/page.js"):
            async with page.http.get(f"{page.root}{path}", headers=headers) as response:
                assert response.status in {400, 403}, (path, headers)
                assert ALICE not in await response.text()


async def test_another_page_may_link_to_the_sandbox(page: PageClient) -> None:
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with page.http.get(f"{page.root}/", headers=led) as response:
        assert response.status == 200


async def test_only_the_pages_own_forms_change_anything(page: PageClient) -> None:
    page.sandbox.clock.freeze()
    forgeries: list[dict[str, Any]] = [
        *({"Origin": origin} for origin in ("http://evil.test", "null", "http://127.0.0.1:1")),
        {"Host": "evil.test"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        *({"form": {"form_token": token}} for token in ("", "guessed", "\U0001f600")),
    ]
    for changed in ({}, *forgeries):
        before = page.sandbox.clock.now()
        status, _ = await page.submit("POST/clock/advance", {"seconds": "60"}, **changed)
        assert (status, page.sandbox.clock.now() > before) == ((403, False) if changed else (303, True)), changed


_PART = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'


async def test_an_unreadable_or_too_long_form_is_rejected(empty_page: PageClient) -> None:
    for kind, body in (
        ("application/x-www-form-urlencoded", b"\xff\xfe"),
        ("application/x-www-form-urlencoded", b"a=&" * 100_000),
        ("multipart/form-data; boundary=x", b"\xff\xfe"),
        ("multipart/form-data; boundary=x", _PART * 10_000 + b"--x--\r\n"),
    ):
        for path in ("/page/do/POST/clock/freeze", "/page/token"):
            url, headers = f"{empty_page.root}{path}", {"Content-Type": kind}
            async with empty_page.http.post(url, data=body, headers=headers) as response:
                assert (response.status, "form could not be read" in await response.text()) == (400, True), path


async def test_long_texts_are_cut_on_the_page(page: PageClient) -> None:
    long, lab = "x" * 100_000, "lab@lab.example.test"
    raw = f"From: {lab}\nTo: {long}@x.test\nSubject: {long}\nX-Long: {long}\n\nThe text."
    uid = await page.sandbox.deliver(ALICE, raw.encode())
    for path in (ALICE, f"{ALICE}/1/{uid}"):
        async with page.http.get(f"{page.root}/page/mail/{path}") as response:
            text = await response.text()
        assert lab in text
        assert len(text) < 100_000


async def test_a_form_redirects_only_to_this_server(empty_page: PageClient) -> None:
    elsewhere = ("//evil.test", "/\\evil.test", "http://evil.test", "javascript:alert(1)", "", "/?a=\r\nb: c")
    for back, target in (("/?q=a%20b", "/?q=a%20b"), *((back, "/") for back in elsewhere)):
        assert await empty_page.submit("POST/clock/freeze", {}, form={"back": back}) == (303, target), back


async def test_security_headers_forbid_other_scripts_and_servers(page: PageClient, signed_document_id: str) -> None:
    folder = await page.sandbox.read(lambda connection: mailboxes.get_folder(connection, 1, "INBOX").id)
    message = f"/page/mail/{ALICE}/{folder}/1"
    for path in ("/", message, f"{message}/html", f"{message}/raw", f"/page/documents/{signed_document_id}/1.png"):
        async with page.http.get(f"{page.root}{path}") as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe-inline" not in policy or path.endswith("/html")
            assert ("frame-ancestors 'self'" in policy) == path.endswith("/html")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "same-origin"
            if path.endswith(("/html", "/raw", ".png")):
                assert "sandbox" in policy
            else:
                text = await response.text()
                assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", text)
                assert not re.search(r"(?:src|href|action)=\"(?!/|\?|#main)", text)


async def test_text_of_messages_is_escaped(page: PageClient) -> None:
    hostile = '"><script>alert(1)</script>{{ 7 * 7 }}'
    raw = (
        f"From: {hostile} <a@b.test>\r\nTo: {hostile}\r\nSubject: {hostile}\r\nX-{'a' * 9}: {hostile}\r\n\r\n{hostile}"
    )
    uid = await page.sandbox.deliver(ALICE, raw.encode())
    folder = await page.sandbox.read(lambda connection: mailboxes.get_folder(connection, 1, "INBOX").id)
    for path in (f"/page/mail/{ALICE}", f"/page/mail/{ALICE}/{folder}/{uid}", "/page/calls?q=%22%3E%3Cscript%3Ealert"):
        text = await page.view(path)
        assert "<script>" not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "html",
    [
        "<script src=http://evil.test></script>",
        "<ScRiPt/x>alert(1)</script>",
        "<meta http-equiv=refresh content='0;url=http://evil.test'>",
        "<link rel=preconnect href=//evil.test><LINK\nrel=dns-prefetch href=//evil.test>",
        "<base href=http://evil.test>",
        "<form action=http://evil.test><button>x</button></form>",
        "<iframe src=http://evil.test></iframe><object data=x></object><embed src=x>",
        "<svg><image href=http://evil.test /><use xlink:href=http://evil.test#x /><set attributeName=href /></svg>",
        "<a href=http://evil.test ping=http://evil.test>x</a>",
        "<video src=x poster=x></video><img srcset=x>",
    ],
)
def test_active_elements_and_link_attributes_are_renamed(html: str) -> None:
    neutral = neutralize_html(html)
    assert not re.search(r"<(?!/?(?:x-|svg|a\b|img))[a-z]", neutral, re.IGNORECASE)
    assert not re.search(r"(?<![-\w])(?:href|src|srcset|ping|poster)\s*=", neutral.replace("xlink:x-", "x-"))


def test_pictures_within_a_message_stay() -> None:
    html = '<img src="data:image/png;base64,AAAA"><p style="color: red">text</p>'
    assert neutralize_html(html) == html
    assert "x-src" in neutralize_html('<img src="data:image/svg+xml,<svg/>">')


async def test_other_machines_need_the_token(http: aiohttp.ClientSession) -> None:
    async with Sandbox(token=TOKEN) as sandbox:
        elsewhere = {"Host": "sandbox:8025"}
        root = sandbox.root_url
        async with http.get(f"{root}/", headers=elsewhere) as response:
            assert (response.status, "Sign in" in await response.text()) == (401, True)
        async with http.get(f"{root}/_sandbox/clock", headers=elsewhere) as response:
            assert response.status == 401
        async with http.get(f"{root}/_sandbox/health", headers=elsewhere) as response:
            assert response.status == 200
        for shown, status in (("guessed", 401), (f" {TOKEN} ", 303)):
            form = {"token": shown}
            async with http.post(f"{root}/page/token", data=form, headers=elsewhere, allow_redirects=False) as response:
                assert (response.status, COOKIE in response.cookies) == (status, status == 303)
                cookies = {name: morsel.value for name, morsel in response.cookies.items()}
        assert TOKEN not in str(cookies)
        async with http.get(f"{root}/", headers=elsewhere, cookies=cookies) as response:
            assert response.status == 200
        with_token = {**elsewhere, "Authorization": f"Bearer {TOKEN}"}
        async with http.get(f"{root}/_sandbox/environment", headers=with_token) as response:
            environment = (await response.json())["environment"]
            assert environment["DIRECTSUITE_FAX_URL"] == "http://sandbox:8025/fax"
        async with http.get(f"{root}/_sandbox/clock", headers={**with_token, "Origin": "http://evil.test"}) as response:
            assert response.status == 403


@pytest.mark.parametrize("token", ["", "short"])
def test_a_short_token_is_rejected(token: str) -> None:
    with pytest.raises(ValueError, match="16 characters"):
        Sandbox(host="0.0.0.0", token=token)  # noqa: S104  it is refused


async def test_no_path_causes_a_server_error(page: PageClient) -> None:
    for path in (
        *("/?q={0}&after={0}", "/page/mail/{0}", f"/page/mail/{ALICE}?folder={{0}}&before={{0}}", "/page/sent?q={0}"),
        *(f"/page/mail/{ALICE}/{{0}}/1", f"/page/mail/{ALICE}/1/{{0}}", f"/page/mail/{ALICE}/1/1/attachments/{{0}}"),
        *("/page/calls?q={0}&before={0}", "/page/calls/{0}", "/page/documents/{0}", "/page/documents/{0}/1.png"),
        *("/page/faxes?q={0}&before={0}", "/page/patients?q={0}&after={0}", "/page/static/{0}"),
    ):
        for text in (
            *("%00", "%FF", "%ED%A0%80", "..%2F..%2Fsite.py", "-1", "9" * 15, "9" * 30, "%D9%A1", "a" * 3000),
            "%27%22%3C",
        ):
            async with page.http.get(URL(f"{page.root}{path.format(text)}", encoded=True)) as response:
                assert response.status in {200, 404}, (path, text)
