"""The changes that the page's forms make."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.page import site
from directsuite.sandbox.page.site import NOTICE_COOKIE
from directsuite.sandbox.samples import ALICE, add_sample_content
from directsuite.sandbox.server import Sandbox
from tests.sandbox.page.conftest import CREDENTIALS, SLOW_RECIPIENT, PageClient

DONE = (303, "/page/controls")
INBOUND = f"POST/inbound/{ALICE}"
MESSAGE = "From: dr@elsewhere.test\r\nSubject: Größe\r\n\r\nfine\r\n"


async def test_a_message_is_confirmed_and_fails(page: PageClient, sent_message_id: str) -> None:
    path = f"POST/messages/{quote(sent_message_id, safe='')}/status"
    for status, shown in (("Delivered", "good"), ("Remotely Failed", "bad")):
        assert await page.submit(path, {"recipient": SLOW_RECIPIENT, "status": status}) == DONE
        async with page.http.post(
            f"{page.sandbox.message_url}/GetMessageStatus/{quote(sent_message_id)}", json=CREDENTIALS
        ) as response:
            assert [log["status"] for log in (await response.json())["messageLogs"]][1] == status
        assert f'<span class="state {shown}">{status}</span>' in await page.view("/page/sent?q=slow")


async def test_the_clock_is_advanced_stopped_and_set(empty_page: PageClient) -> None:
    assert await empty_page.submit("POST/clock/advance", {"seconds": "3600"}) == DONE
    assert empty_page.sandbox.clock.now() == datetime(2026, 5, 1, 13, tzinfo=UTC)
    for text in ("2027-01-02T03:04:05", "2027-01-02T03:04:05Z", "2027-01-02T04:04:05+01:00"):
        assert await empty_page.submit("POST/clock/set", {"at": text}) == DONE
        assert empty_page.sandbox.clock.now() == datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert await empty_page.submit("POST/clock/resume", {}) == DONE
    assert not empty_page.sandbox.clock.frozen


async def test_forms_add_and_remove_faults(empty_page: PageClient) -> None:
    members = {
        "operation": "Send",
        "kind": "status",
        "times": "null",
        "status": "500",
        "retry_after": "7",
        "seconds": "1",
    }
    assert await empty_page.submit("POST/faults", {**members, "processed": "true"}) == DONE
    [rule] = empty_page.sandbox.faults()
    assert (rule["operation"], rule["status"], rule["times"], rule["processed"]) == ("Send", 500, None, True)
    assert "Remove fault 1" in await empty_page.view("/page/controls")
    assert await empty_page.submit("DELETE/faults/1", {}) == DONE
    assert empty_page.sandbox.faults() == []
    assert (await empty_page.submit("DELETE/faults/1", {}))[0] == 404


async def test_a_form_adds_a_fault_with_a_body_and_skipped_requests(empty_page: PageClient) -> None:
    html = await empty_page.view("/page/controls")
    form = html.partition('aria-label="Add a fault"')[2].partition("</form>")[0]
    assert {"skip", "body:json"} <= set(re.findall(r'name="([^"]+)"', form))
    table: list[tuple[str, object]] = [  # what is typed, and the body
        ('{"success": false}', {"success": False}),
        ("[1, null]", [1, None]),
        ("<h1>Down for maintenance</h1>", "<h1>Down for maintenance</h1>"),
        ('{"success": ', '{"success": '),
        ("", None),
        ("[" * 5_000, "[" * 5_000),  # nested too deeply for a JSON parser
    ]
    for typed, body in table:
        members = {"operation": "Send", "kind": "status", "skip": "2", "body:json": typed}
        assert await empty_page.submit("POST/faults", members) == DONE
        rule = empty_page.sandbox.faults()[-1]
        assert (rule["skip"], rule["body"]) == (2, body)
    assert "after 2 requests" in await empty_page.view("/page/controls")


async def test_forms_add_accounts_individuals_and_faxes(empty_page: PageClient) -> None:
    forms: dict[str, list[dict[str, Any]]] = {
        "POST/accounts": [
            {"kind": "mailbox", "address": ALICE, "password": "secret"},
            {"kind": "tuser", "username": "nurse", "password": "secret", "direct_addresses[]": f"{ALICE}, b@c.test"},
            {"kind": "reseller", "username": "seller", "password": "secret", "domains[]": "clinic.example.test"},
            {"kind": "client", "client_id": "app", "client_secret": "secret"},
        ],
        "POST/individuals": [
            {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29", "email": ""}
        ],
        "POST/fax": [{"fax_number": "15550100100", "status": "waiting", "description": "a referral"}],
        "POST/profile": [{"profile[]": "java"}],
    }
    for path, each in forms.items():
        for members in each:
            assert await empty_page.submit(path, members) == DONE, path
    assert empty_page.sandbox.profile == ["java"]
    assert (await empty_page.submit("POST/accounts", forms["POST/accounts"][0]))[0] == 409
    assert (
        await empty_page.sandbox.read(lambda connection: mailboxes.find_tuser_account_id(connection, "nurse", ALICE))
        == 1
    )
    assert "a referral" in await empty_page.view("/page/faxes")


NOTICES: list[tuple[str, dict[str, str], str]] = [
    ("POST/clock/freeze", {}, "The clock was stopped at 2026-05-01 12:00:00 UTC."),
    ("POST/clock/resume", {}, "The clock was resumed."),
    ("POST/clock/advance", {"seconds": "60"}, "The clock was advanced. It is now 2026-05-01 12:01:00 UTC."),
    ("POST/clock/set", {"at": "2027-01-02T03:04:05"}, "The clock was set. It is now 2027-01-02 03:04:05 UTC."),
    ("POST/faults", {"operation": "Send", "kind": "hang"}, "Fault 2 was added: hang for Send."),
    ("DELETE/faults/1", {}, "Fault 1 was removed."),
    ("DELETE/faults", {}, "All faults were removed."),
    (
        "POST/accounts",
        {"kind": "mailbox", "address": "zoe@direct.example.test", "password": "{seconds}"},
        "The account zoe@direct.example.test was added.",
    ),
    (
        "POST/individuals",
        {"firstName": "<b>", "lastName": "{0}", "ssn4": "1234", "dob": "1980-02-29"},
        "&lt;b&gt; {0} was added.",
    ),
    ("POST/fax", {"fax_number": "15550100100", "status": "waiting"}, "The fax "),
    (f"POST/inbound/{ALICE}", {"raw": MESSAGE}, f"The message was delivered to {ALICE}."),
    ("POST/profile", {"profile[]": ""}, "The response profiles were changed."),
    ("POST/sessions/expire", {}, "All registration sessions were ended."),
    ("POST/reset", {}, "The sandbox was reset to its initial content."),
]


async def test_a_change_is_confirmed_once(empty_page: PageClient) -> None:
    await empty_page.sandbox.add_account(ALICE, "secret")
    empty_page.sandbox.inject_fault("Send", "hang")
    for path, members, text in NOTICES:
        assert await empty_page.submit(path, members) == DONE
        assert empty_page.notice_cookie is not None
        cookies = {NOTICE_COOKIE: empty_page.notice_cookie}
        shown = [
            f'<p class="feedback" role="status">{text}' in await empty_page.view("/", headers=headers, cookies=cookies)
            for headers in ({"HX-Request": "true"}, {}, {})
        ]
        assert shown == [False, True, False], path  # an update of the view that is open does not count


async def test_a_notice_is_shown_in_the_section_of_its_form(empty_page: PageClient) -> None:
    html = await empty_page.view("/page/controls")
    form = html.partition('aria-label="Add a fault"')[2].partition("</form>")[0]
    [back] = re.findall(r'name="back" value="([^"]+)"', form)
    members = {"operation": "Send", "kind": "malformed", "back": back}
    assert await empty_page.submit("POST/faults", members) == (303, "/page/controls#faults")
    assert empty_page.notice_cookie is not None
    html = await empty_page.view("/page/controls", cookies={NOTICE_COOKIE: empty_page.notice_cookie})
    assert html.count("Fault 1 was added: malformed for Send.") == 1
    section = html.partition('<section id="faults"')[2].partition("</section>")[0]
    assert "Fault 1 was added: malformed for Send." in section


async def test_only_the_newest_notices_are_stored(empty_page: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_MAX_NOTICES", 1)
    keys = list[str]()
    for _ in range(2):
        await empty_page.submit("POST/faults", {"operation": "Send", "kind": "hang"})
        keys.append(str(empty_page.notice_cookie))
    views = [await empty_page.view("/", cookies={NOTICE_COOKIE: key}) for key in keys]
    assert ["was added: hang for Send" in html for html in views] == [False, True]


async def test_wrong_input_is_explained(empty_page: PageClient) -> None:
    for path, members, text in (
        ("POST/clock/advance", {"seconds": "soon"}, "seconds"),
        ("POST/clock/set", {"at": "tomorrow"}, "ISO 8601"),
        ("POST/faults", {"operation": "Nothing", "kind": "hang"}, "no operation"),
        ("POST/fax", {"fax_number": "<b>none</b>"}, "digits"),
        ("POST/profile", {"profile[]": "axios"}, "axios"),
    ):
        status, body = await empty_page.submit(path, members)
        assert (status, text in body, "<b>none" in body) == (400, True, False), path
        assert '<a data-up href="/page/controls">Go back to the form</a>' in body
        assert empty_page.notice_cookie is None


async def test_a_raw_message_is_delivered(page: PageClient) -> None:
    for members in ({"raw": MESSAGE}, {"raw": "", "file": io.BytesIO(MESSAGE.encode())}):
        assert await page.submit(INBOUND, {"folder": "INBOX.Referrals", **members}) == DONE
    url = f"{page.sandbox.message_url}/GetMessages/INBOX.Referrals"
    async with page.http.post(url, json=CREDENTIALS) as response:
        messages = [each for each in (await response.json())["messages"] if each["subject"] == "Größe"]
    assert [(each["body"], each["sender"]) for each in messages] == [("fine\r\n", "dr@elsewhere.test")] * 2


async def test_an_invalid_message_form_is_rejected(http: aiohttp.ClientSession) -> None:
    table: list[tuple[str, dict[str, Any], int, str]] = [
        (INBOUND, {"raw": " "}, 400, "the form contains no message"),
        (INBOUND, {"raw": MESSAGE, "file": io.BytesIO(b"Subject: x")}, 400, "use only one"),
        (INBOUND, {"raw": MESSAGE, "folder": "Nowhere"}, 400, "Nowhere"),
        ("POST/inbound/nobody@clinic.example.test", {"raw": MESSAGE}, 404, "nobody@clinic.example.test"),
        (INBOUND, {"raw": MESSAGE, "form_token": "guessed"}, 403, "The form is out of date"),
        (INBOUND, {"file": io.BytesIO(bytes(3000))}, 413, "larger than 2,000 bytes"),
        (INBOUND, {"raw": "x" * 3000}, 413, "larger than 2,000 bytes"),
    ]
    async with Sandbox(seed=add_sample_content, max_body=2000) as sandbox:
        before = await sandbox.ledger()
        for path, members, status, text in table:
            found, body = await PageClient(sandbox, http).submit(path, members)
            assert (found, text in body) == (status, True), (path, members)
        assert await sandbox.ledger() == before
