"""The requests to which a fault rule applies, and the responses of the faults."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox.faults import Fault, Faults, _break_base64, _break_json
from directsuite.sandbox.files import PiecesPayload
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.sandbox.signing import documents

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Api


def rules(**members: Any) -> Faults:
    faults = Faults()
    faults.operations = frozenset({"Send", "login"})
    faults.add(Fault.from_members({"operation": "Send", "kind": "status", **members}))
    return faults


@given(skip=st.integers(0, 5), times=st.integers(1, 5))
def test_a_rule_skips_requests_and_then_applies(skip: int, times: int) -> None:
    faults = rules(skip=skip, times=times)
    applied = [faults.claim_fault("Send") is not None for _ in range(skip + times + 3)]
    assert applied == [False] * skip + [True] * times + [False] * 3


def test_each_rule_counts_skipped_requests_by_itself() -> None:
    faults = rules(skip=1, status=501)
    faults.add(Fault.from_members({"operation": "*", "kind": "status", "skip": 2, "status": 502}))
    applied = [faults.claim_fault("Send") for _ in range(4)]
    assert [fault and fault.status for fault in applied] == [None, 501, 502, None]


@given(seed=st.integers(0, 2**32), probability=st.floats(0, 1))
def test_the_seed_determines_the_random_numbers(seed: int, probability: float) -> None:
    first, second = (rules(seed=seed, probability=probability, times=None) for _ in range(2))
    assert [first.claim_fault("Send") for _ in range(30)] == [second.claim_fault("Send") for _ in range(30)]


def test_star_matches_every_operation_of_the_services_but_no_control() -> None:
    faults = rules(operation="*", times=None)
    assert faults.claim_fault("Send") is not None
    assert faults.claim_fault("login") is not None
    assert faults.claim_fault(None) is None
    assert rules().claim_fault("login") is None


def test_first_rule_that_applies_decides() -> None:
    faults = rules(status=500)
    faults.add(Fault(operation="Send", kind="status", status=502))
    assert [fault.status for _ in range(2) if (fault := faults.claim_fault("Send"))] == [500, 502]


def test_an_invalid_rule_is_rejected() -> None:
    cases: list[dict[str, Any]] = [
        *({"operation": "Sned"}, {"kind": "explode"}, {"kind": ["status"]}, {"colour": "red"}, {"seed": "x"}),
        *({"status": 99}, {"status": True}, {"retry_after": "1\r\nX: y"}, {"media_type": ""}, {"processed": 1}),
        *({"seconds": -1}, {"seconds": 1e9}, {"times": 0}, {"skip": -1}, {"probability": 1.5}),
    ]
    for members in cases:
        faults = rules()
        with pytest.raises(ValueError):
            faults.add(Fault.from_members({"operation": "Send", "kind": "status", **members}))
        with pytest.raises(ValueError, match="missing required field `kind`"):
            Fault.from_members({"operation": "Send"})
        with pytest.raises(ValueError, match=r"unknown field `code`\): its members are operation, kind, status,"):
            Fault.from_members({"operation": "Send", "kind": "status", "code": 503})


@given(st.dictionaries(st.text(), st.integers() | st.text(), max_size=4))
def test_broken_json_is_never_json(value: dict[str, Any]) -> None:
    broken = _break_json(PiecesPayload.from_bytes(json.dumps(value).encode()))
    with pytest.raises(ValueError):
        json.loads(broken.decode())


@given(st.binary(max_size=200))
def test_broken_base64_is_never_base64(content: bytes) -> None:
    text = base64.b64encode(content)
    broken = _break_base64(PiecesPayload(lambda: iter((text[:9], text[9:])), len(text), lambda: None))
    sent = broken.decode().encode()
    assert len(sent) == broken.size
    with pytest.raises(binascii.Error):
        base64.b64decode(sent)


async def test_a_status_fault_has_its_body_and_headers(api: Api) -> None:
    cases: list[tuple[dict[str, Any], str, bytes, str | None]] = [
        ({"status": 503, "retry_after": 2, "body": "<html>busy</html>"}, "text/html", b"<html>busy</html>", "2"),
        ({"status": 429}, "application/octet-stream", b"", None),
        ({"status": 500, "body": {"a": 1}, "media_type": "text/x+json"}, "text/x+json", b'{"a": 1}', None),
    ]
    for members, media_type, body, retry_after in cases:
        api.sandbox.inject_fault("login", "status", **members)
        async with api.http.post(f"{api.sandbox.registration_url}/login", json={}) as response:
            assert (response.status, response.content_type) == (members["status"], media_type), members
            assert (await response.read(), response.headers.get("Retry-After")) == (body, retry_after), members
        assert (await api.login("x", "x"))[0] == 200, (members, media_type, body, retry_after)


@pytest.mark.parametrize("processed", [False, True])
async def test_a_status_fault_runs_the_operation_if_processed(api: Api, *, processed: bool) -> None:
    await api.sandbox.add_account("alice@direct.example.test", "secret")
    api.sandbox.inject_fault("CreateFolder", "status", status=500, body={}, processed=processed)
    assert (await api.message("CreateFolder/INBOX.New"))[0] == 500
    assert len(await api.sandbox.ledger("CreateFolder")) == int(processed)


async def test_an_expired_token_stays_expired(api: Api) -> None:
    api.sandbox.inject_fault("getMultipleMessageInfo", "expire_token", skip=1)
    assert [await api.list_faxes() for _ in range(3)] == [200, 401, 401]


async def test_an_expired_session_stays_expired(api: Api) -> None:
    session = (await api.login(*DEMO_LOGIN))[1]["sessionId"]
    api.sandbox.inject_fault("GetPatientAddressByUsername", "expire_session", skip=1)
    url = f"{api.sandbox.registration_url}/GetPatientAddressByUsername/{session}/nowhere.example.test/ada"
    assert [(await api.request("GET", url))[1]["code"] for _ in range(3)] == ["208", "011", "011"]


async def test_a_malformed_response_has_its_status_and_media_type(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    for body, status in (
        (b"{", 400),
        (b'{"username": "nobody", "password": "x"}', 200),
        (b'{"username": "%b", "password": "%b"}' % tuple(text.encode() for text in DEMO_LOGIN), 200),
    ):
        sandbox.inject_fault("login", "malformed")
        headers = {"Content-Type": "application/json"}
        async with http.post(f"{sandbox.registration_url}/login", data=body, headers=headers) as response:
            assert (response.status, response.content_type) == (status, "application/json"), (body, status)
            with pytest.raises(ValueError):
                json.loads(await response.read())


@pytest.mark.parametrize(("kind", "share"), [("truncate", 2), ("malformed", 1)])
async def test_a_large_response_is_damaged_while_it_is_sent(tmp_path: Path, kind: str, share: int) -> None:
    size, body = 48 * 2**20, base64.b64encode(documents.make_plain_pages())
    async with Sandbox(tmp_path) as sandbox, aiohttp.ClientSession(headers=text_from(sandbox)) as http:
        async with http.post(f"{sandbox.signing_url}/pdf", data=body) as response:
            identifier = (await response.json())["identifier"]
        [file] = (tmp_path / "documents").iterdir()
        os.truncate(file, size)
        sandbox.inject_fault("GetDoc", kind)
        tracemalloc.start()
        try:
            async with http.get(f"{sandbox.signing_url}/pdf/{identifier}") as response:
                received = 0
                with contextlib.suppress(aiohttp.ClientPayloadError):
                    async for piece in response.content.iter_any():
                        received += len(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert abs(received - size // 3 * 4 // share) < 10
    assert peak < size / 4


def text_from(sandbox: Sandbox) -> dict[str, str]:
    """The headers of the demo account's documents."""
    return {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}", "Content-Type": "text/plain"}
