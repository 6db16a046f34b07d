"""The control API: the changes that it makes, and the requests that it rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from directsuite.sandbox.messaging.mailboxes import UnknownAccount

if TYPE_CHECKING:
    import aiohttp

    from directsuite.sandbox.server import Sandbox

    from .conftest import Api

ALICE, BOB = "alice@direct.example.test", "bob@direct.example.test"
ADA = {"firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29"}


async def test_health_has_the_urls(api: Api) -> None:
    status, body = await api.control("GET", "health")
    assert (status, body["status"], body["urls"]) == (200, "ok", api.sandbox.urls)
    assert body["urls"]["control"] == api.sandbox.root_url


async def test_the_environment_has_a_valid_token(api: Api) -> None:
    tokens = list[str]()
    for _ in range(2):
        _, body = await api.control("GET", "environment")
        tokens.append(body["environment"]["DIRECTSUITE_TOKEN"])
        assert await api.list_faxes(token=tokens[-1]) == 200
        await api.sandbox.expire_tokens()
    assert tokens[0] != tokens[1] == api.sandbox.environment["DIRECTSUITE_TOKEN"]


async def test_the_clock_can_be_frozen_set_advanced_and_resumed(api: Api) -> None:
    _, body = await api.control("POST", "clock/freeze", {"at": "2030-01-01T00:00:00+00:00"})
    assert body == {"now": "2030-01-01T00:00:00+00:00", "frozen": True}
    _, body = await api.control("POST", "clock/advance", {"seconds": 90})
    assert body["now"] == "2030-01-01T00:01:30+00:00"
    for at in ("2029-01-01T01:00:00+01:00", "2029-01-01T01:00+01:00"):
        assert (await api.control("POST", "clock/set", {"at": at}))[1]["now"] == "2029-01-01T00:00:00+00:00"
    assert (await api.control("POST", "clock/resume"))[1]["frozen"] is False
    assert (await api.control("GET", "clock"))[1]["now"].startswith("2029-01-01T00:00:0")


async def test_one_or_several_profiles_can_be_set(api: Api) -> None:
    assert (await api.control("GET", "profile"))[1] == {"profile": "strict"}
    for profile in ("java", ["java", "attachment-list"], []):
        assert await api.control("POST", "profile", {"profile": profile}) == (200, {"profile": profile})
        assert api.sandbox.profile == profile
    invalid: list[Any] = ["axios", ["axios"], None, 1, {"java": True}, [[]]]
    for profile in invalid:
        assert (await api.control("POST", "profile", {"profile": profile}))[0] == 400
        with pytest.raises(ValueError, match="one of strict, java, attachment-list"):
            api.sandbox.profile = profile
    assert api.sandbox.profile == []


async def test_a_new_account_of_each_kind_works(api: Api) -> None:
    accounts: list[dict[str, Any]] = [
        {"kind": "mailbox", "address": ALICE, "password": "secret"},
        {"kind": "tuser", "username": "nurse", "password": "secret", "direct_addresses": [ALICE]},
        {"kind": "reseller", "username": "seller", "password": "secret", "domains": ["clinic.example.test"]},
        {"kind": "client", "client_id": "app", "client_secret": "secret"},
    ]
    for account in accounts:
        assert (await api.control("POST", "accounts", account))[0] == 201
    assert (await api.message("GetMessageCount/INBOX"))[1]["success"]
    for username in ("nurse", "seller"):
        assert (await api.login(username, "secret"))[1]["success"]
    form = {"grant_type": "client_credentials", "client_id": "app", "client_secret": "secret"}
    assert (await api.request("POST", api.sandbox.token_url, data=form))[0] == 200
    assert (await api.control("POST", "accounts", accounts[0]))[0] == 409


async def test_an_individual_can_be_provisioned_and_its_state_set(api: Api) -> None:
    await api.sandbox.add_reseller("seller", "secret", ["direct.example.test"])
    assert await api.control("POST", "individuals", {"id": 5, **ADA}) == (201, {"created": 5})
    assert (await api.control("POST", "individuals", {"id": 5, **ADA}))[0] == 400
    session = (await api.login("seller", "secret"))[1]["sessionId"]
    url = f"{api.sandbox.registration_url}/ProvisionIDProofedPatient/{session}/direct.example.test"
    assert (await api.request("POST", url, json={"id": 5, "directUsername": "ada"}))[1]["success"]
    for address, state, status in (("ada@direct.example.test", "disabled", 200), ("x@y", "disabled", 404)):
        assert (await api.control("POST", f"patients/{address}/state", {"state": state}))[0] == status
    assert (await api.control("POST", "patients/ada@direct.example.test/state", {"state": "happy"}))[0] == 400


async def test_a_fax_is_added_and_updated(api: Api) -> None:
    fax = {"fax_number": "15550100100", "status": "waiting", "recipients": [{"Address": "1555", "PageCount": 2}]}
    status, body = await api.control("POST", "fax", fax)
    assert status == 201
    for handle, changed, status in (
        (body["created"], "complete", 200),
        (body["created"], "lost", 400),
        ("x", "complete", 404),
    ):
        assert (await api.control("PATCH", f"fax/{handle}", {"status": changed}))[0] == status
    assert (await api.control("POST", "fax", {**fax, "account": "other"}))[0] == 409
    assert (await api.control("POST", "fax", {**fax, "recipients": 5}))[0] == 400


async def test_a_raw_message_is_delivered(api: Api) -> None:
    await api.sandbox.add_account(ALICE, "secret")
    raw = b"From: bob@clinic.example.test\r\nSubject: results\r\n\r\nfine\r\n"
    url = f"{api.sandbox.root_url}/_sandbox/inbound"
    assert await api.request("POST", f"{url}/{ALICE}", data=raw) == (201, {"created": 1})
    [message] = (await api.message("GetMessages/INBOX"))[1]["messages"]
    assert message["subject"] == "results"
    for path, body, status in (
        ("nobody@clinic.example.test", raw, 404),
        (f"{ALICE}?folder=INBOX.None", raw, 400),
        (ALICE, b"", 400),
    ):
        assert (await api.request("POST", f"{url}/{path}", data=body))[0] == status, path
    with pytest.raises(ValueError, match=r"no folder 'INBOX\.None'"):
        await api.sandbox.deliver(ALICE, raw, "INBOX.None")
    with pytest.raises(UnknownAccount):
        await api.sandbox.deliver("nobody@x.test", raw)


async def test_the_status_of_a_message_is_set(api: Api) -> None:
    for address in (ALICE, BOB):
        await api.sandbox.add_account(address, "secret")
    message = {"sender": ALICE, "htmlBody": False, "recipients": [{"email": BOB, "type": "TO"}]}
    body = {"authentication": {"username": ALICE, "password": "secret"}, "message": message}
    smtp_id = (await api.request("PUT", f"{api.sandbox.message_url}/Send", json=body))[1]["smtpId"]
    path = f"messages/{smtp_id.replace('<', '%3C').replace('>', '%3E')}/status"
    final = {"recipient": BOB, "status": "Remotely Failed"}
    assert (await api.control("POST", path, final))[0] == 200
    logs = (await api.message(f"GetMessageStatus/{smtp_id}"))[1]["messageLogs"]
    assert [log["status"] for log in logs] == ["Remotely Failed"]
    assert (await api.control("POST", path, {**final, "status": "Lost"}))[0] == 400
    assert (await api.control("POST", "messages/unknown/status", final))[0] == 404


async def test_faults_are_listed_added_and_removed(api: Api) -> None:
    fault: dict[str, Any] = {"operation": "login", "kind": "status", "status": 503, "body": {}, "times": 2}
    status, body = await api.control("POST", "faults", fault)
    assert status == 201
    assert (await api.login("x", "x"))[0] == 503
    [rule] = (await api.control("GET", "faults"))[1]["faults"]
    assert (rule["id"], rule["kind"], rule["applied"], rule["remaining"]) == (body["created"], "status", 1, 1)
    for status in (200, 404):
        assert (await api.control("DELETE", f"faults/{body['created']}"))[0] == status
    await api.control("POST", "faults", fault)
    assert await api.control("DELETE", "faults") == (200, {"faults": []})
    assert (await api.login("x", "x"))[0] == 200


async def test_tokens_and_sessions_are_issued_and_expired(api: Api) -> None:
    status, body = await api.control("POST", "tokens", {"account": "demo", "seconds": 60})
    assert (status, await api.list_faxes(token=body["created"])) == (201, 200)
    assert await api.sandbox.expire_tokens() >= 2
    assert await api.list_faxes(token=body["created"]) == 401
    await api.sandbox.add_reseller("seller", "secret")
    assert (await api.login("seller", "secret"))[1]["success"]
    assert await api.control("POST", "sessions/expire", {"username": "seller"}) == (200, {"expired": 1})


async def test_the_ledger_is_filtered_by_operation(api: Api) -> None:
    await api.sandbox.add_account(ALICE, "secret")
    await api.sandbox.deliver(ALICE, b"Subject: a\r\n\r\nb\r\n")
    assert len((await api.control("GET", "ledger"))[1]["effects"]) == 1
    assert await api.control("GET", "ledger?operation=Send") == (200, {"effects": []})
    status, body = await api.control("GET", "ledger?operation=Sned")
    assert (status, "did you mean Send?" in str(body)) == (400, True)


async def test_a_reset_preserves_the_demo_account(api: Api) -> None:
    await api.sandbox.add_account(ALICE, "secret")
    await api.sandbox.deliver(ALICE, b"Subject: hello\r\n\r\nhello\r\n")
    await api.sandbox.add_fax("15550100100", account="other")
    api.sandbox.inject_fault("login", "status", status=500)
    await api.sandbox.reset()
    assert (api.sandbox.faults(), await api.sandbox.ledger()) == ([], [])
    assert await api.list_faxes("15550100100") == 200
    await api.sandbox.add_account(ALICE, "secret")


async def test_reset_that_fails_changes_nothing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("in the middle")

    await sandbox.add_account(ALICE, "secret")
    await sandbox.deliver(ALICE, b"Subject: hello\r\n\r\nhello\r\n")
    sandbox.inject_fault("login", "status", status=500)
    with monkeypatch.context() as broken:
        broken.setattr("directsuite.sandbox.oauth.add_client", fails)
        with pytest.raises(KeyError):
            await sandbox.reset()
    assert len(await sandbox.ledger()) == 1
    assert len(sandbox.faults()) == 1


async def test_invalid_input_is_rejected_with_a_reason(api: Api) -> None:
    cases: list[tuple[str, object]] = [
        *(("clock/set", {"at": at}) for at in ("tomorrow", "2030-01-01T00:00:00", "9999-12-31T23:59:59-14:00")),
        *(("clock/set", {"at": "0001-01-01T00:00:00+00:00"}), ("clock/set", {})),
        *(("clock/advance", {"seconds": seconds}) for seconds in (-1, "90", 3_153_600_001)),
        ("tokens", {"seconds": 1e300}),
        *(("clock/advance", {}), ("clock/advance", []), ("clock/freeze", {"at": "9999-12-31T23:59:59+00:00"})),
        *(("faults", {}), ("faults", {"operation": "Sned", "kind": "status"})),
        ("faults", {"operation": "login", "kind": "status", "status": "x"}),
        ("faults", {"operation": "login", "kind": "status", "self": 1}),
        ("accounts", {"kind": "king", "username": "a", "password": "b"}),
        *(
            ("accounts", {"kind": "mailbox", "address": address, "password": "b"})
            for address in ("", "no-address", "@x.test", "alice@", "a@b@c")
        ),
        ("accounts", {"kind": "mailbox", "address": ALICE}),
        ("accounts", {"kind": "tuser", "username": "a", "password": "b", "direct_addresses": "x"}),
        ("individuals", {"firstName": "Ada"}),
        *(("individuals", {**ADA, **change}) for change in ({"ssn4": "12"}, {"dob": "1980", "id": "x"})),
        *(("individuals", {**ADA, "id": number}) for number in (2**64, "9" * 19)),
        *(("fax", {"fax_number": "none"}), ("fax", {"fax_number": "1", "status": "lost"})),
        *(
            ("fax", {"fax_number": "1", "recipients": [recipient]})
            for recipient in (
                "x",
                {"Address": 1},
                {"Name": None},
                {"PageCount": "2"},
                {"PageCount": -1},
                {"address": "1"},
            )
        ),
        *(("tokens", {"account": 5}), ("tokens", {"seconds": None})),
    ]
    for path, body in cases:
        status, response = await api.control("POST", path, body)
        assert (status, set(response), bool(response["description"])) == (400, {"error", "description"}, True), path


async def test_optional_members_may_be_null_and_numbers_text(api: Api) -> None:
    await api.sandbox.add_account(ALICE, "secret")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("tokens", {"account": None}),
        *(("clock/freeze", {"at": None}), ("sessions/expire", {"username": None})),
        ("accounts", {"kind": "client", "client_id": "a", "client_secret": "b", "account": None}),
        *(("individuals", {**ADA, "id": None, "state": None}), ("individuals", {**ADA, "id": "5"})),
        ("fax", {"fax_number": "1", "status": None, "recipients": None, "description": None, "account": None}),
    ]
    for path, body in cases:
        assert (await api.control("POST", path, body))[0] in {200, 201}, (path, body)


async def test_requests_of_web_pages_are_rejected(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_account(ALICE, "secret")
    await sandbox.deliver(ALICE, b"Subject: a\r\n\r\nb\r\n")
    cases: list[tuple[dict[str, str], int]] = [
        *(({"Origin": "https://evil.example.test"}, 403), ({"Origin": "null", "Content-Type": "text/plain"}, 403)),
        *(({"Host": host}, 403) for host in ("evil.example.test", "127.0.0.1.example.test:80", "[::1", "192.0.2.1")),
        *(({"Host": "localhost:80"}, 200), ({"Host": "[::1]:80"}, 200)),
    ]
    for headers, status in cases:
        async with http.post(f"{sandbox.root_url}/_sandbox/reset", data=b"{}", headers=headers) as response:
            assert response.status == status, (headers, status)
        assert len(await sandbox.ledger()) == (1 if status == 403 else 0), (headers, status)
        async with http.get(f"{sandbox.root_url}/_sandbox/ca.pem", headers=headers) as response:
            assert response.status == status, (headers, status)


async def test_the_authority_of_the_signatures_is_available(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sandbox.root_url}/_sandbox/ca.pem") as response:
        assert (response.status, await response.read()) == (200, sandbox.authority_pem())
    assert sandbox.authority_pem().startswith(b"-----BEGIN CERTIFICATE-----")
