"""The control API: what it changes, and how it says no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import aiohttp

    from directsuite.sandbox.server import Sandbox

ALICE = "alice@direct.example.test"
ADA = {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29"}


async def control(
    sandbox: Sandbox, http: aiohttp.ClientSession, method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any]]:
    async with http.request(method, f"{sandbox.root_url}/_sandbox/{path}", json=body) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def test_health_tells_the_urls(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    status, body = await control(sandbox, http, "GET", "health")
    assert (status, body["status"], body["urls"]["fax"]) == (200, "ok", sandbox.fax_url)


async def test_the_environment_has_a_token_that_is_valid(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    tokens = list[str]()
    for _ in range(2):
        _, body = await control(sandbox, http, "GET", "environment")
        tokens.append(body["environment"]["DIRECTSUITE_TOKEN"])
        headers = {"Authorization": f"Bearer {tokens[-1]}"}
        async with http.get(f"{sandbox.signing_url}/pdf/none/info", headers=headers) as answer:
            assert answer.status == 400  # there is no such document
        await sandbox.expire_tokens()
    assert tokens[0] != tokens[1] == sandbox.environment["DIRECTSUITE_TOKEN"]


async def test_clock_can_be_frozen_set_advanced_and_resumed(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    _, body = await control(sandbox, http, "POST", "clock/freeze", {"at": "2030-01-01T00:00:00+00:00"})
    assert body == {"now": "2030-01-01T00:00:00+00:00", "frozen": True}
    _, body = await control(sandbox, http, "POST", "clock/advance", {"seconds": 90})
    assert body["now"] == "2030-01-01T00:01:30+00:00"
    _, body = await control(sandbox, http, "POST", "clock/set", {"at": "2029-01-01T01:00:00+01:00"})
    assert body["now"] == "2029-01-01T00:00:00+00:00"
    _, body = await control(sandbox, http, "POST", "clock/set", {"at": "2029-01-01T01:00+01:00"})
    assert body["now"] == "2029-01-01T00:00:00+00:00"
    _, body = await control(sandbox, http, "POST", "clock/resume")
    assert body["frozen"] is False
    _, body = await control(sandbox, http, "GET", "clock")
    assert body["now"].startswith("2029-01-01T00:00:0")


async def test_profiles_can_be_set_one_or_several(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    assert (await control(sandbox, http, "GET", "profile"))[1] == {"profile": "strict"}
    for profile in ("java", ["java", "attachment-list"], []):
        assert await control(sandbox, http, "POST", "profile", {"profile": profile}) == (200, {"profile": profile})
        assert sandbox.profile == profile
    wrongs: list[Any] = ["axios", ["axios"], None, 1, {"java": True}, [[]]]
    for wrong in wrongs:
        assert (await control(sandbox, http, "POST", "profile", {"profile": wrong}))[0] == 400
    assert sandbox.profile == []


async def test_accounts_of_every_kind_work_at_once(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    accounts: list[dict[str, Any]] = [
        {"kind": "mailbox", "address": ALICE, "password": "secret"},
        {"kind": "tuser", "username": "nurse", "password": "secret", "direct_addresses": [ALICE]},
        {"kind": "reseller", "username": "seller", "password": "secret", "domains": ["clinic.example.test"]},
        {"kind": "client", "client_id": "app", "client_secret": "secret"},
    ]
    for account in accounts:
        assert (await control(sandbox, http, "POST", "accounts", account))[0] == 201
    for username in ("nurse", "seller"):
        login = {"username": username, "password": "secret"}
        async with http.post(f"{sandbox.registration_url}/login", json=login) as answer:
            assert (await answer.json())["success"]
    form = {"grant_type": "client_credentials", "client_id": "app", "client_secret": "secret"}
    async with http.post(sandbox.token_url, data=form) as answer:
        assert answer.status == 200
    assert (await control(sandbox, http, "POST", "accounts", accounts[0]))[0] == 409


async def test_individual_can_be_provisioned_and_its_state_forced(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    await sandbox.add_reseller("seller", "secret", ["direct.example.test"])
    person = {"id": 5, "firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29"}
    assert await control(sandbox, http, "POST", "individuals", person) == (201, {"created": 5})
    assert (await control(sandbox, http, "POST", "individuals", person))[0] == 400
    async with http.post(
        f"{sandbox.registration_url}/login", json={"username": "seller", "password": "secret"}
    ) as answer:
        session = (await answer.json())["sessionId"]
    url = f"{sandbox.registration_url}/ProvisionIDProofedPatient/{session}/direct.example.test"
    async with http.post(url, json={"id": 5, "directUsername": "ada"}) as answer:
        assert (await answer.json())["success"]
    path = "patients/ada@direct.example.test/state"
    assert (await control(sandbox, http, "POST", path, {"state": "disabled"}))[0] == 200
    assert (await control(sandbox, http, "POST", path, {"state": "happy"}))[0] == 400
    assert (await control(sandbox, http, "POST", "patients/x@y/state", {"state": "disabled"}))[0] == 404


async def test_fax_is_added_and_updated(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    recipients = [{"Address": "15550100199", "PageCount": 2}]
    wanted = {"fax_number": "15550100100", "status": "waiting", "recipients": recipients}
    status, body = await control(sandbox, http, "POST", "fax", wanted)
    assert status == 201
    handle = body["created"]
    assert (await control(sandbox, http, "PATCH", f"fax/{handle}", {"status": "complete"}))[0] == 200
    assert (await control(sandbox, http, "PATCH", f"fax/{handle}", {"status": "lost"}))[0] == 400
    assert (await control(sandbox, http, "PATCH", "fax/unknown", {"status": "complete"}))[0] == 404
    assert (await control(sandbox, http, "POST", "fax", {**wanted, "account": "other"}))[0] == 409
    assert (await control(sandbox, http, "POST", "fax", {**wanted, "recipients": 5}))[0] == 400


async def test_ledger_of_a_misspelt_operation_is_refused(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    status, body = await control(sandbox, http, "GET", "ledger?operation=Sned")
    assert (status, "did you mean Send?" in str(body)) == (400, True)


async def test_raw_message_is_delivered(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_account(ALICE, "secret")
    raw = b"From: bob@clinic.example.test\r\nSubject: results\r\n\r\nfine\r\n"
    async with http.post(f"{sandbox.root_url}/_sandbox/inbound/{ALICE}", data=raw) as answer:
        assert (answer.status, await answer.json()) == (201, {"created": 1})
    credentials = {"username": ALICE, "password": "secret"}
    async with http.post(f"{sandbox.message_url}/GetMessages/INBOX", json=credentials) as answer:
        [message] = (await answer.json())["messages"]
        assert message["subject"] == "results"
    for path, body, expected in (
        ("inbound/nobody@clinic.example.test", raw, 404),
        (f"inbound/{ALICE}?folder=INBOX.None", raw, 400),
        (f"inbound/{ALICE}", b"", 400),
    ):
        async with http.post(f"{sandbox.root_url}/_sandbox/{path}", data=body) as answer:
            assert answer.status == expected, path


async def test_folders_that_are_not_there_are_named(sandbox: Sandbox) -> None:
    await sandbox.add_account(ALICE, "secret")
    with pytest.raises(ValueError, match=r"no folder 'INBOX\.None'"):
        await sandbox.deliver(ALICE, b"Subject: results\r\n\r\nfine\r\n", "INBOX.None")
    with pytest.raises(ValueError, match=r"no folder 'INBOX\.None'"):
        await sandbox.renumber(ALICE, "INBOX.None")


async def test_folder_is_numbered_anew(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_account(ALICE, "secret")
    for number in range(3):
        await sandbox.deliver(ALICE, f"From: b@clinic.example.test\r\nSubject: {number}\r\n\r\nfine\r\n".encode())
    path = f"{sandbox.root_url}/_sandbox/mailboxes/{ALICE}/renumber"
    for first in (2, 101):  # the first time onto uids that other messages have
        async with http.post(path, json={"first": first}) as answer:
            assert (answer.status, await answer.json()) == (200, {"renumbered": 3})
        credentials = {"username": ALICE, "password": "secret"}
        async with http.post(f"{sandbox.message_url}/GetMessages/INBOX", json=credentials) as answer:
            messages = (await answer.json())["messages"]
            assert [(each["uid"], each["subject"]) for each in messages] == [
                (first + number, str(number)) for number in range(3)
            ]
    assert await sandbox.deliver(ALICE, b"Subject: next\r\n\r\nfine\r\n") == 104
    for address, body, expected in (
        ("nobody@x.test", {}, 404),
        (ALICE, {"folder": "INBOX.None"}, 400),
        (ALICE, {"first": 0}, 400),
    ):
        async with http.post(f"{sandbox.root_url}/_sandbox/mailboxes/{address}/renumber", json=body) as answer:
            assert answer.status == expected, body


async def test_message_status_is_forced(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    for address in (ALICE, "bob@direct.example.test"):
        await sandbox.add_account(address, "secret")
    credentials = {"username": ALICE, "password": "secret"}
    message = {
        "sender": ALICE,
        "subject": "s",
        "body": "b",
        "htmlBody": False,
        "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
    }
    async with http.put(
        f"{sandbox.message_url}/Send", json={"authentication": credentials, "message": message}
    ) as answer:
        smtp_id = (await answer.json())["smtpId"]
    path = f"messages/{smtp_id.replace('<', '%3C').replace('>', '%3E')}/status"
    forced = {"recipient": "bob@direct.example.test", "status": "Remotely Failed"}
    assert (await control(sandbox, http, "POST", path, forced))[0] == 200
    async with http.post(f"{sandbox.message_url}/GetMessageStatus/{smtp_id}", json=credentials) as answer:
        assert [log["status"] for log in (await answer.json())["messageLogs"]] == ["Remotely Failed"]
    assert (await control(sandbox, http, "POST", path, {**forced, "status": "Lost"}))[0] == 400
    assert (await control(sandbox, http, "POST", "messages/unknown/status", forced))[0] == 404


async def test_faults_are_listed_added_and_removed(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    wanted = {"operation": "login", "kind": "status", "status": 503, "times": 2}
    status, body = await control(sandbox, http, "POST", "faults", wanted)
    assert status == 201
    async with http.post(f"{sandbox.registration_url}/login", json={}) as answer:
        assert answer.status == 503
    _, listed = await control(sandbox, http, "GET", "faults")
    [rule] = listed["faults"]
    assert (rule["id"], rule["kind"], rule["applied"], rule["remaining"]) == (body["created"], "status", 1, 1)
    assert (await control(sandbox, http, "DELETE", f"faults/{body['created']}"))[0] == 200
    assert (await control(sandbox, http, "DELETE", f"faults/{body['created']}"))[0] == 404
    await control(sandbox, http, "POST", "faults", wanted)
    assert await control(sandbox, http, "DELETE", "faults") == (200, {"faults": []})
    async with http.post(f"{sandbox.registration_url}/login", json={}) as answer:
        assert answer.status == 200


async def test_tokens_and_sessions_are_issued_and_expired(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    status, body = await control(sandbox, http, "POST", "tokens", {"account": "demo", "seconds": 60})
    assert status == 201
    headers = {"Authorization": f"Bearer {body['created']}"}
    url = f"{sandbox.fax_url}/api/fax/getMessageList/1/0"
    async with http.get(url, headers=headers) as answer:
        assert answer.status == 200
    _, expired = await control(sandbox, http, "POST", "tokens/expire", {})
    assert expired["expired"] >= 2
    async with http.get(url, headers=headers) as answer:
        assert answer.status == 401
    await sandbox.add_reseller("seller", "secret")
    async with http.post(
        f"{sandbox.registration_url}/login", json={"username": "seller", "password": "secret"}
    ) as answer:
        assert (await answer.json())["success"]
    assert await control(sandbox, http, "POST", "sessions/expire", {"username": "seller"}) == (200, {"expired": 1})


async def test_ledger_is_filtered_by_operation(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_account(ALICE, "secret")
    await sandbox.deliver(ALICE, b"Subject: a\r\n\r\nb\r\n")
    _, everything = await control(sandbox, http, "GET", "ledger")
    assert len(everything["effects"]) == 1
    assert await control(sandbox, http, "GET", "ledger?operation=Send") == (200, {"effects": []})


async def test_reset_of_an_unknown_account_is_refused(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    assert (await control(sandbox, http, "POST", "reset", {"account": "nobody"}))[0] == 404
    assert (await control(sandbox, http, "POST", "reset"))[0] == 200


@pytest.mark.parametrize("path", ["clock/advance", "tokens"])
async def test_too_many_seconds_are_refused_in_words(sandbox: Sandbox, http: aiohttp.ClientSession, path: str) -> None:
    _, answer = await control(sandbox, http, "POST", path, {"seconds": 999_999_999 * 3600})
    assert answer["description"] == "seconds must be at most 3,153,600,000, which is a hundred years"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "clock/set", {"at": "tomorrow"}),
        ("POST", "clock/set", {"at": "2030-01-01T00:00:00"}),
        ("POST", "clock/set", {}),
        ("POST", "clock/advance", {"seconds": -1}),
        ("POST", "clock/advance", {"seconds": "90"}),
        ("POST", "clock/advance", {"seconds": 1e300}),
        ("POST", "clock/advance", {}),
        ("POST", "clock/advance", []),
        ("POST", "clock/set", {"at": "9999-12-31T23:59:59-14:00"}),
        ("POST", "clock/set", {"at": "0001-01-01T00:00:00+00:00"}),
        ("POST", "clock/freeze", {"at": "9999-12-31T23:59:59+00:00"}),
        ("POST", "faults", {"operation": "Sned", "kind": "status"}),
        ("POST", "faults", {"operation": "login", "kind": "status", "status": "x"}),
        ("POST", "faults", {}),
        ("POST", "faults", {"operation": "login", "kind": "status", "self": 1}),
        ("POST", "accounts", {"kind": "king", "username": "a", "password": "b"}),
        ("POST", "accounts", {"kind": "mailbox", "address": "no-address", "password": "b"}),
        ("POST", "accounts", {"kind": "mailbox", "address": ALICE}),
        ("POST", "accounts", {"kind": "tuser", "username": "a", "password": "b", "direct_addresses": "x"}),
        ("POST", "individuals", {"firstName": "Ada"}),
        ("POST", "individuals", {"firstName": "A", "lastName": "B", "ssn4": "12", "dob": "1980-01-01"}),
        ("POST", "individuals", {"firstName": "A", "lastName": "B", "ssn4": "1234", "dob": "1980", "id": "x"}),
        ("POST", "individuals", {"firstName": "A", "lastName": "B", "ssn4": "1234", "dob": "1980-01-01", "id": 2**64}),
        (
            "POST",
            "individuals",
            {"firstName": "A", "lastName": "B", "ssn4": "1234", "dob": "1980-01-01", "id": "9" * 19},
        ),
        ("POST", "fax", {"fax_number": "none"}),
        ("POST", "fax", {"fax_number": "1", "status": "lost"}),
        ("POST", "fax", {"fax_number": "1", "recipients": ["x"]}),
        ("POST", "fax", {"fax_number": "1", "recipients": [{"Address": 1}]}),
        ("POST", "fax", {"fax_number": "1", "recipients": [{"Name": None}]}),
        ("POST", "fax", {"fax_number": "1", "recipients": [{"PageCount": "2"}]}),
        ("POST", "fax", {"fax_number": "1", "recipients": [{"PageCount": True}]}),
        ("POST", "fax", {"fax_number": "1", "recipients": [{"PageCount": -1}]}),
        ("POST", "tokens", {"account": 5}),
        ("POST", "tokens", {"seconds": None}),
        ("POST", "reset", "everything"),
    ],
)
async def test_bad_input_is_refused_with_a_reason(
    sandbox: Sandbox, http: aiohttp.ClientSession, method: str, path: str, body: object
) -> None:
    status, answer = await control(sandbox, http, method, path, body)
    assert (status, set(answer)) == (400, {"error", "description"})
    assert answer["description"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("reset", {"account": None}),
        ("clock/freeze", {"at": None}),
        ("accounts", {"kind": "client", "client_id": "a", "client_secret": "b", "account": None}),
        (
            "individuals",
            {"firstName": "A", "lastName": "B", "ssn4": "1234", "dob": "1980-01-01", "id": None, "state": None},
        ),
        ("individuals", {"firstName": "A", "lastName": "B", "ssn4": "1234", "dob": "1980-01-01", "id": "5"}),
        ("fax", {"fax_number": "1", "status": None, "recipients": None, "description": None, "account": None}),
        (f"mailboxes/{ALICE}/renumber", {"folder": None, "first": None}),
        (f"mailboxes/{ALICE}/renumber", {"first": "7"}),
        ("tokens", {"account": None}),
        ("tokens/expire", {"account": None}),
        ("sessions/expire", {"username": None}),
    ],
)
async def test_members_that_may_be_left_out_may_be_null_and_numbers_may_be_text(
    sandbox: Sandbox, http: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    await sandbox.add_account(ALICE, "secret")
    status, _ = await control(sandbox, http, "POST", path, body)
    assert status in {200, 201}


async def test_reset_of_an_account_that_has_nothing_is_done(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_client("app", "secret", "clinic")
    for account in ("demo", "clinic"):
        assert await control(sandbox, http, "POST", "reset", {"account": account}) == (200, {"reset": account})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example.test"}, 403),
        ({"Origin": "null", "Content-Type": "text/plain"}, 403),
        ({"Host": "evil.example.test"}, 403),
        ({"Host": "127.0.0.1.example.test:80"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "192.0.2.1"}, 403),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "[::1]:80"}, 200),
    ],
)
async def test_requests_of_web_pages_are_refused(
    sandbox: Sandbox, http: aiohttp.ClientSession, headers: dict[str, str], status: int
) -> None:
    await sandbox.add_account(ALICE, "secret")
    await sandbox.deliver(ALICE, b"Subject: a\r\n\r\nb\r\n")
    async with http.post(f"{sandbox.root_url}/_sandbox/reset", data=b"{}", headers=headers) as answer:
        assert answer.status == status
    assert len(await sandbox.ledger()) == (1 if status == 403 else 0)
    async with http.get(f"{sandbox.root_url}/_sandbox/ca.pem", headers=headers) as answer:
        assert answer.status == status


async def test_authority_of_the_signatures_is_served(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sandbox.root_url}/_sandbox/ca.pem") as answer:
        assert (answer.status, await answer.read()) == (200, sandbox.authority_pem())
    assert sandbox.authority_pem().startswith(b"-----BEGIN CERTIFICATE-----")
