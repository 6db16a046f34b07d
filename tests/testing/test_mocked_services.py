"""directsuite.testing.mocked_services."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aioresponses import CallbackResult
from yarl import URL

import directsuite as ds
from directsuite.testing import mocked_services
from tests.fake_services import ALICE, BOB, MESSAGE, SETTINGS, SUCCESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def mocked() -> Iterator[Any]:  # aioresponses has no complete types
    with mocked_services() as mocked:
        yield mocked


@pytest.fixture
async def suite(mocked: Any) -> AsyncIterator[ds.DirectSuite]:
    async with ds.DirectSuite(SETTINGS, token="access-token") as suite:
        yield suite


@pytest.fixture
def box(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(ALICE, "secret")


async def test_any_aiohttp_request_is_responded_to_from_memory(mocked: Any) -> None:
    mocked.get("http://other.example.test/", payload={"answer": 42}, headers={"X-Seen": "yes"})
    async with aiohttp.ClientSession() as session, session.get("http://other.example.test/") as response:
        assert (response.status, response.headers["X-Seen"]) == (200, "yes")
        assert await response.json() == {"answer": 42}


async def test_request_without_a_response_fails_the_test_immediately(mocked: Any, box: ds.Mailbox) -> None:
    patient = box.with_options(retry=ds.RetryPolicy(attempts=4))
    mocked.post(f"{MESSAGE}/GetMessageCount/INBOX", payload=SUCCESS | {"count": 1})
    assert await patient.get_message_count() == 1
    with pytest.raises(AssertionError, match=r"No response is mocked for POST .*/GetMessageCount/INBOX"):
        await patient.get_message_count()
    assert [len(calls) for calls in mocked.requests.values()] == [2]


async def test_json_body_is_kept_as_bytes(mocked: Any, box: ds.Mailbox) -> None:
    url = f"{MESSAGE}/GetMessageCount/INBOX"
    mocked.post(url, payload=SUCCESS | {"count": 1})
    await box.get_message_count()
    (call,) = mocked.requests["POST", URL(url)]
    assert json.loads(call.kwargs["data"]) == {"username": ALICE, "password": "secret"}


async def test_streamed_body_is_kept_as_bytes(mocked: Any, suite: ds.DirectSuite, tmp_path: Path) -> None:
    pdf = tmp_path / "consent.pdf"
    pdf.write_bytes(b"%PDF-1.7")
    mocked.post("http://signing.example.test/pdf", payload={"identifier": "d1"})
    await suite.signing.save(pdf)
    ((call,),) = mocked.requests.values()
    assert call.kwargs["data"] == b"JVBERi0xLjc="


async def test_callback_sees_the_body(mocked: Any, box: ds.Mailbox) -> None:
    def count(_url: URL, **kwargs: Any) -> CallbackResult:
        return CallbackResult(payload=SUCCESS | {"count": len(json.loads(kwargs["data"]))})

    mocked.post(f"{MESSAGE}/GetMessageCount/INBOX", callback=count)
    assert await box.get_message_count() == 2


async def test_url_matches_however_it_is_quoted(mocked: Any, box: ds.Mailbox) -> None:
    mocked.post(f"{MESSAGE}/GetMessagesBySender/INBOX/{BOB}", payload=SUCCESS | {"messages": []})
    assert await box.get_messages_by_sender("INBOX", BOB) == []


async def test_lost_connection_after_the_body_leaves_a_send_unknown(mocked: Any, box: ds.Mailbox) -> None:
    mocked.put(f"{MESSAGE}/Send", exception=aiohttp.ServerDisconnectedError())
    with pytest.raises(ds.OutcomeUnknownError):
        await box.send(ds.Message(recipients=[ds.Recipient(BOB)]))


async def test_aiohttp_is_itself_again_after_the_block() -> None:
    original = aiohttp.ClientSession._request
    with mocked_services():
        assert aiohttp.ClientSession._request is not original
    assert aiohttp.ClientSession._request is original


async def test_unmatched_requests_may_pass_through_where_asked() -> None:
    with mocked_services(passthrough_unmatched=True):
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError):  # of a real attempt to connect
                await session.get("http://127.0.0.1:1/")


def test_missing_aioresponses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aioresponses", None)
    with pytest.raises(ModuleNotFoundError, match="pip install aioresponses") as caught, mocked_services():
        pass
    assert caught.value.name == "aioresponses"
