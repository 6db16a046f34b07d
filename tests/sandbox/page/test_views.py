"""What the page shows."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from directsuite.sandbox.calls import mask_secrets
from directsuite.sandbox.database import EFFECTS, record_effect
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.page.drawing import draw_page
from directsuite.sandbox.samples import ALICE, FAX_NUMBER
from tests.sandbox.page.conftest import CREDENTIALS, SLOW_RECIPIENT, get_view

if TYPE_CHECKING:
    import sqlite3

    import aiohttp

    from directsuite.sandbox.server import Sandbox

VIEWS = [
    *("/", "/page/sent", "/page/calls", "/page/documents", "/page/faxes", "/page/patients", "/page/effects"),
    *("/page/controls", "/docs", "/docs/Send", f"/page/mail/{ALICE}"),
]
MULTIPART = (
    b"From: lab@lab.example.test\r\nSubject: =?utf-8?q?Blut=C3=A4tter?=\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/mixed; boundary=q\r\n\r\n--q\r\nContent-Type: text/html\r\n\r\n<b>fine</b>\r\n"
    b'--q\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename="../a\xc3\xa4.csv"\r\n\r\n'
    b"1,2\r\n--q--\r\n"
)


@pytest.mark.parametrize("path", VIEWS)
async def test_every_view_is_there_in_an_empty_sandbox_too(
    path: str, sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    if path.startswith("/page/mail/"):
        await sandbox.add_account(ALICE, "secret")
    assert "<h1>" in await get_view(sandbox, http, path)


async def test_mailboxes_folders_and_messages_are_shown(
    populated_sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    assert f'href="/page/mail/{ALICE}"' in await get_view(populated_sandbox, http, "/")
    box = await get_view(populated_sandbox, http, f"/page/mail/{ALICE}")
    assert "INBOX.Referrals" in box
    assert "Welcome to the sandbox" in box
    found = await get_view(populated_sandbox, http, f"/page/mail/{ALICE}?q=BLOOD")
    assert "Blood count" in found
    assert "Welcome" not in found
    uid = await populated_sandbox.deliver(ALICE, MULTIPART)
    folder = await populated_sandbox.read(lambda connection: mailboxes.get_folder_id(connection, 1, "INBOX"))
    own = f"/page/mail/{ALICE}/{folder}/{uid}"
    message = await get_view(populated_sandbox, http, own)
    assert "Blutätter" in message
    assert f'<iframe class="mailed" sandbox="" referrerpolicy="no-referrer" title="HTML" src="{own}/html">' in message
    assert await get_view(populated_sandbox, http, f"{own}/html") == "<b>fine</b>"
    assert (await get_view(populated_sandbox, http, f"{own}/raw")).startswith("From: lab@")
    async with http.get(f"{populated_sandbox.root_url}{own}/attachments/0") as answer:
        assert (await answer.read(), answer.content_type) == (b"1,2", "application/octet-stream")
        disposition = answer.headers["Content-Disposition"]
        assert (disposition.startswith("attachment"), "/" in disposition) == (True, False)
    for missing in (f"{own}9", f"{own}/attachments/7", f"/page/mail/{ALICE}?folder=x", "/page/mail/nobody@x.test"):
        async with http.get(f"{populated_sandbox.root_url}{missing}") as answer:
            assert answer.status == 404, missing


async def test_the_plain_text_beside_html_is_shown(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    own, folder = (
        f"/page/mail/{ALICE}",
        await populated_sandbox.read(lambda it: mailboxes.get_folder_id(it, 1, "INBOX")),
    )
    both = MULTIPART.replace(b"mixed", b"alternative").replace(
        b"\r\n\r\n--q\r\n", b"\r\n\r\n--q\r\n\r\nNo <i>alarm</i>\r\n--q\r\n", 1
    )
    shown = await get_view(populated_sandbox, http, f"{own}/{folder}/{await populated_sandbox.deliver(ALICE, both)}")
    assert '<pre class="text" tabindex="0">No &lt;i&gt;alarm&lt;/i&gt;</pre>' in shown
    assert "&lt;b&gt;fine&lt;/b&gt;" in shown
    assert "The plain-text alternative" not in await get_view(
        populated_sandbox, http, f"{own}/{folder}/{await populated_sandbox.deliver(ALICE, MULTIPART)}"
    )


async def test_a_messages_way_to_each_recipient_is_shown(
    populated_sandbox: Sandbox, sent_message_id: str, http: aiohttp.ClientSession
) -> None:
    populated_sandbox.clock.freeze()
    for path in ("/page/sent", "/page/sent?q=slow%2B30m"):
        page = await get_view(populated_sandbox, http, path)
        assert page.count(">Confirm the delivery<") == 1
        assert "confirmation expected" in page
        assert "<strong>Referral of A. Example</strong>" in page
    assert "Nothing was found" in await get_view(populated_sandbox, http, "/page/sent?q=nobody")


async def test_documents_are_drawn_with_fields_and_signatures(
    populated_sandbox: Sandbox, signed_document_id: str, http: aiohttp.ClientSession
) -> None:
    assert signed_document_id in await get_view(populated_sandbox, http, "/page/documents")
    page = await get_view(populated_sandbox, http, f"/page/documents/{signed_document_id}")
    for text in (
        "Approval",
        "valid",
        "unchanged since",
        "PatientSig",
        "not signed",
        "patient_name",
        f"/page/documents/{signed_document_id}/1.png",
    ):
        assert text in page
    async with http.get(f"{populated_sandbox.root_url}/page/documents/{signed_document_id}/1.png") as answer:
        assert (await answer.read()).startswith(b"\x89PNG")
    for missing in (f"{signed_document_id}/4.png", "nothing", "nothing/pdf"):
        async with http.get(f"{populated_sandbox.root_url}/page/documents/{missing}") as answer:
            assert answer.status == 404
    async with http.get(f"{populated_sandbox.root_url}/page/documents/{signed_document_id}/pdf") as answer:
        assert (await answer.read()).startswith(b"%PDF")


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7\n", b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n%%EOF"])
def test_what_is_no_document_is_not_drawn(content: bytes, tmp_path: Path) -> None:
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


async def test_faxes_patients_and_sessions_are_shown(
    populated_sandbox: Sandbox, patient_address: str, http: aiohttp.ClientSession
) -> None:
    assert FAX_NUMBER in await get_view(populated_sandbox, http, "/page/faxes")
    assert "Fax 7" in await get_view(populated_sandbox, http, "/page/faxes?q=fax%207")
    patients = await get_view(populated_sandbox, http, "/page/patients")
    for text in (patient_address, "activated", "demo-reseller", "Zoë"):
        assert text in patients
    assert patient_address in await get_view(populated_sandbox, http, "/page/effects?q=provision")


async def test_calls_are_shown_with_effects_and_without_secrets(
    populated_sandbox: Sandbox, sent_message_id: str, patient_address: str, http: aiohttp.ClientSession
) -> None:
    async with http.post(
        f"{populated_sandbox.message_url}/GetMessageCount/INBOX", json={**CREDENTIALS, "password": "x"}
    ) as answer:
        assert answer.status == 200
    async with http.post(f"{populated_sandbox.registration_url}/login/hush-hush-hush/at/all", json={}) as answer:
        assert answer.status == 404
    calls = await get_view(populated_sandbox, http, "/page/calls")
    for text in (
        "Send",
        "ProvisionIDProofedPatient",
        "no operation",
        "200 rejected",
        f"ProvisionIDProofedPatient {patient_address}",
    ):
        assert text in calls
    assert "login" not in (await get_view(populated_sandbox, http, "/page/calls?q=send")).partition("<main")[2]
    shown = ""
    for number in range(1, 6):
        shown += await get_view(populated_sandbox, http, f"/page/calls/{number}")
    assert "•••" in shown
    for secret in ("hush-hush-hush", '"sandbox"', "sandbox&#34;", "demo-login", "1234"):
        assert secret not in shown, secret
    exchange = populated_sandbox.calls.find_exchange(2)
    assert exchange is not None
    for secret in ("hush", "sessionId"):
        assert secret not in repr(populated_sandbox.calls.find(3))
    async with http.get(f"{populated_sandbox.root_url}/page/calls/99") as answer:
        assert answer.status == 404


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
def test_what_is_named_like_a_secret_is_masked(body: str, shown: str | None) -> None:
    text = mask_secrets(body.encode())
    assert "hidd" not in text
    assert "•••" in text
    assert shown in {None, text}


@pytest.mark.parametrize("unit", ["token", "a", "token ", 'token="', "token='", "token:", "'a\\", "a:", "token -"])
def test_masking_takes_steps_in_proportion_to_the_body(unit: str) -> None:
    assert mask_secrets((unit * 65_536)[:65_536].encode())[:2] == unit[:2] or len(unit) == 1


def test_half_a_surrogate_pair_in_a_call_is_shown_as_a_question_mark() -> None:
    assert mask_secrets(b'["\\ud800"]') == '[\n  "?"\n]'


def test_a_call_does_not_show_what_it_carried() -> None:
    assert mask_secrets(b"plain") == "plain"
    assert mask_secrets(b"\xff\xfe") == "\ufffd\ufffd"


async def test_effects_that_were_undone_are_not_a_calls(sandbox: Sandbox) -> None:
    def work(connection: sqlite3.Connection, *, fails: bool) -> None:
        record_effect(connection, operation="Send", subject="x", at=0)
        if fails:
            raise ValueError("undone")

    effects = list[str]()
    EFFECTS.set(effects)
    await sandbox._database.write(lambda connection: work(connection, fails=False))
    with pytest.raises(ValueError, match="undone"):
        await sandbox._database.write(lambda connection: work(connection, fails=True))
    assert effects == ["Send x"]


@pytest.mark.wide
async def test_large_mailboxes_and_many_calls_stay_quick(
    populated_sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        folder = mailboxes.get_folder_id(connection, 1, "INBOX")
        for number in range(10_000):
            raw = b"From: a@b.test\r\nSubject: message %d\r\n\r\ntext" % number
            mailboxes.append_message(connection, folder, build_content(raw), received_ms=number)

    await populated_sandbox._database.write(fill)
    call = populated_sandbox.calls.records
    async with http.post(f"{populated_sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS) as answer:
        await answer.read()
    last = call[-1]
    call.extend([last] * 100_000)
    began = time.perf_counter()
    box = await get_view(populated_sandbox, http, f"/page/mail/{ALICE}")
    await get_view(populated_sandbox, http, f"/page/mail/{ALICE}?q=message%205000")
    await get_view(populated_sandbox, http, f"/page/mail/{ALICE}?before=5000")
    await get_view(populated_sandbox, http, "/page/calls")
    await get_view(populated_sandbox, http, "/page/calls?q=nothing")
    assert time.perf_counter() - began < 5  # together; each takes some 20 ms
    assert (box.count('<a id="message-'), len(box) < 100_000, len(call)) == (50, True, 10_000)
    assert 'rel="next"' in box


async def test_changes_and_calls_are_told_as_they_come(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(20), http.get(f"{populated_sandbox.root_url}/page/events") as answer:
        assert answer.content_type == "text/event-stream"
        await answer.content.readuntil(b"\n\n")
        for change, kind in (
            (populated_sandbox.deliver(ALICE, b"Subject: new\r\n\r\n"), b"change"),
            (asyncio.to_thread(populated_sandbox.clock.freeze), b"change"),
            (http.post(f"{populated_sandbox.message_url}/GetMessageCount/INBOX", json=CREDENTIALS), b"call"),
        ):
            await change
            assert await answer.content.readuntil(b"\n\n") == b"event: " + kind + b"\ndata: 1\n\n"


async def test_what_has_changed_since_the_page_was_made_is_told(
    populated_sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    version = (await get_view(populated_sandbox, http, "/")).partition('data-version="')[2].partition('"')[0]
    await populated_sandbox.deliver(ALICE, b"Subject: new\r\n\r\n")
    async with asyncio.timeout(20), http.get(f"{populated_sandbox.root_url}/page/events?since={version}") as answer:
        assert await answer.content.readuntil(b"\n\n") == b"event: call\ndata: 1\n\n"
        assert await answer.content.readuntil(b"\n\n") == b"event: change\ndata: 1\n\n"


async def test_a_sandbox_that_stops_lets_browsers_go(populated_sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(4), http.get(f"{populated_sandbox.root_url}/page/events") as answer:
        await answer.content.readuntil(b"\n\n")
        await populated_sandbox.__aexit__(None, None, None)
        assert await answer.content.read() == b""


async def test_the_way_is_named_by_address(
    populated_sandbox: Sandbox, sent_message_id: str, http: aiohttp.ClientSession
) -> None:
    assert SLOW_RECIPIENT in await get_view(populated_sandbox, http, "/page/sent")
