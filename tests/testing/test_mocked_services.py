"""directsuite.testing.mocked_services."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import aiohttp
import pytest
from aioresponses import CallbackResult
from yarl import URL

import directsuite as ds
from directsuite.testing import mocked_services
from tests.fake_services import ALICE, BOB, DOMAIN, MESSAGE, SETTINGS, SUCCESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def mocked() -> Iterator[Any]:  # aioresponses has no complete types
    with mocked_services() as mocked:
        yield mocked


@pytest.fixture
async def suite(mocked: Any) -> AsyncIterator[ds.DirectSuite]:
    async with ds.DirectSuite(SETTINGS, token="access-token", login=ds.Login("reseller", "secret")) as suite:
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
    mocked.respond("Send", smtp_id="<1>", repeat=True)
    for folder in ("INBOX.A", "INBOX.B"):
        mocked.respond("GetMessageCount", folder=folder, count=1)
    assert await patient.get_message_count("INBOX.A") == 1
    text = (
        "No response is mocked for GetMessageCount (folder='INBOX'). Already used: GetMessageCount (folder='INBOX.A'). "
        "Responses left: Send, GetMessageCount (folder='INBOX.B')."
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(text)}$") as caught:
        await patient.get_message_count()
    assert [len(calls) for calls in mocked.requests.values()] == [2, 1]
    assert [each.name for each in caught.traceback] == ["test_request_without_a_response_fails_the_test_immediately"]


async def test_request_without_a_response_is_recorded_even_if_the_program_ignores_it(
    mocked: Any, suite: ds.DirectSuite
) -> None:
    mocked.respond("Save", identifier="d")
    mocked.respond("SignAndPull", identifier="d", pdf=b"%PDF-1.7")
    assert await suite.signing.sign_pdf(b"%PDF-1.7", ds.Signature(name="approval")) == b"%PDF-1.7"
    with pytest.raises(AssertionError, match="No response is mocked for Save") as caught:
        await suite.signing.sign_pdf(b"%PDF-1.7", ds.Signature(name="approval"))
    assert len(caught.traceback) == 1
    async with aiohttp.ClientSession() as session:
        with pytest.raises(AssertionError, match=r"No response is mocked for GET http://other.example.test/x\.$"):
            await session.get("http://other.example.test/x")
    assert mocked.unexpected == ["Delete (identifier='d')", "Save", "GET http://other.example.test/x"]


async def test_flags_of_a_path_are_given_as_in_python(mocked: Any, box: ds.Mailbox) -> None:
    mocked.respond("GetFolders", root="INBOX", subscribed_only=False, folders=["INBOX.Sent"])
    mocked.respond("DeleteMessagesByUIDs", folder="INBOX", forever=True)
    assert await box.get_folders("INBOX", subscribed_only=False) == ["INBOX.Sent"]
    await box.delete_messages_by_uids("INBOX", [1], forever=True)
    assert mocked.unexpected == mocked.unused == []


async def test_bodies_are_in_the_order_of_the_requests(mocked: Any, box: ds.Mailbox) -> None:
    for folder in ("INBOX.a", "INBOX.b", "INBOX.a"):
        mocked.respond("MarkMessagesAsReadByUIDs", folder=folder)
    for uid, folder in enumerate(("INBOX.a", "INBOX.b", "INBOX.a"), start=1):
        await box.mark_messages_as_read_by_uids(folder, [uid])
    assert [body["uids"] for body in mocked.bodies("MarkMessagesAsReadByUIDs")] == [[1], [2], [3]]


async def test_json_body_is_kept_as_bytes(mocked: Any, box: ds.Mailbox) -> None:
    url = f"{MESSAGE}/GetMessageCount/INBOX"
    mocked.post(url, payload=SUCCESS | {"count": 1})
    await box.get_message_count()
    (call,) = mocked.requests["POST", URL(url)]
    body = {"username": ALICE, "password": "secret"}
    assert json.loads(call.kwargs["data"]) == body
    assert (mocked.bodies("GetMessageCount"), mocked.bodies("GetUIDs")) == ([body], [])
    with pytest.raises(ValueError, match="there is no operation 'GetCount'"):
        mocked.bodies("GetCount")


async def test_streamed_body_is_kept_as_bytes(mocked: Any, suite: ds.DirectSuite, tmp_path: Path) -> None:
    pdf = tmp_path / "consent.pdf"
    pdf.write_bytes(b"%PDF-1.7")
    mocked.post("http://signing.example.test/pdf", payload={"identifier": "d1"})
    await suite.signing.save(pdf)
    ((call,),) = mocked.requests.values()
    assert call.kwargs["data"] == b"JVBERi0xLjc="
    assert mocked.bodies("Save") == [b"JVBERi0xLjc="]


async def test_callback_sees_the_body(mocked: Any, box: ds.Mailbox) -> None:
    def count(_url: URL, **kwargs: Any) -> CallbackResult:
        return CallbackResult(payload=SUCCESS | {"count": len(json.loads(kwargs["data"]))})

    mocked.post(f"{MESSAGE}/GetMessageCount/INBOX", callback=count)
    assert await box.get_message_count() == 2


async def test_url_matches_however_it_is_quoted(mocked: Any, box: ds.Mailbox) -> None:
    mocked.post(f"{MESSAGE}/GetMessagesBySender/INBOX/{BOB}", payload=SUCCESS | {"messages": []})
    assert await box.get_messages_by_sender("INBOX", BOB) == []


async def test_each_service_responds_by_operation(mocked: Any, suite: ds.DirectSuite, box: ds.Mailbox) -> None:
    folder = "Größe+1 (50%) & a/b@c"
    mocked.respond("GetDoc", identifier="a/b", pdf=b"%PDF-1.7")
    mocked.respond("getMultipleMessageInfo", fax_number="1555", offset=20, username="clinic", message_detail=[])
    mocked.respond("GetMessageCount", folder=folder, count=3)
    mocked.respond("login", session_id="s/1")
    mocked.respond(
        "GetPatientAddressByUsername", session_id="s/1", direct_domain=DOMAIN, direct_username="ada", patient=[]
    )
    assert await suite.signing.get_doc("a/b") == b"%PDF-1.7"
    assert (await suite.fax.get_multiple_message_info("1555", 20)).username == "clinic"
    assert await box.get_message_count(folder) == 3
    assert await suite.registration.get_patient_address_by_username(DOMAIN, "ada") == []


async def test_response_is_not_used_for_a_longer_path(mocked: Any, suite: ds.DirectSuite) -> None:
    mocked.respond("GetDocInfo", identifier="d")
    mocked.respond("GetDoc", identifier="d", error="no such document")
    with pytest.raises(ds.DocumentNotFoundError):
        await suite.signing.get_doc("d")
    assert mocked.bodies("GetDoc") == [None]
    with pytest.raises(AssertionError, match=r"No response is mocked for GetDocInfo \(identifier='other'\)"):
        await suite.signing.get_doc_info("other")


async def test_responses_are_used_in_order_and_the_last_may_repeat(mocked: Any, box: ds.Mailbox) -> None:
    mocked.respond("GetMessageCount", folder="INBOX", count=1)
    mocked.respond("GetMessageCount", folder="INBOX", count=2, repeat=True)
    assert [await box.get_message_count() for _ in range(4)] == [1, 2, 2, 2]


async def test_response_has_the_given_headers(mocked: Any, box: ds.Mailbox) -> None:
    mocked.respond("Send", status=503, headers={"Retry-After": "7"})
    with pytest.raises(ds.DirectSuiteError) as caught:
        await box.send(to=BOB, subject="Report")
    assert caught.value.retry_after == 7


def test_method_for_responses_is_documented(mocked: Any) -> None:
    text = inspect.getdoc(mocked.respond) or ""
    assert all(f"{parameter}:" in text for parameter in inspect.signature(mocked.respond).parameters)


@pytest.mark.parametrize("exception", [aiohttp.ServerDisconnectedError(), TimeoutError()])
async def test_lost_response_leaves_a_send_unknown(exception: Exception, mocked: Any, box: ds.Mailbox) -> None:
    mocked.respond("Send", exception=exception)
    with pytest.raises(ds.OutcomeUnknownError):
        await box.send(ds.Message(recipients=[ds.Recipient(BOB)]))


async def test_lost_response_to_a_request_without_a_body_is_no_failed_connection(
    mocked: Any, suite: ds.DirectSuite
) -> None:
    mocked.respond("GetDoc", identifier="d", exception=TimeoutError())
    with pytest.raises(ds.ConnectionLostError):
        await suite.signing.get_doc("d")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"exception": ValueError()}, r"exception must be TimeoutError\(\), or one of aiohttp, such as "),
        ({"exception": TimeoutError}, r"exception must be TimeoutError\(\)"),
        ({"exception": TimeoutError(), "smtp_id": "<1>"}, "with exception, .* no smtp_id"),
        ({"exception": TimeoutError(), "status": 503}, "with exception, .* no status"),
        ({"exception": TimeoutError(), "headers": {"Retry-After": 1}}, "with exception, .* no headers"),
    ],
)
def test_exception_that_is_not_of_the_network_or_has_fields_is_rejected(
    values: dict[str, Any], text: str, mocked: Any
) -> None:
    with pytest.raises(TypeError, match=text):
        mocked.respond("Send", **values)


async def test_middlewares_of_another_program_are_ignored(mocked: Any) -> None:
    async def fail(_request: object, _handler: object) -> Any:
        raise AssertionError

    mocked.get("http://other.example.test/", status=204)
    async with aiohttp.ClientSession(middlewares=(fail,)) as session:
        response = await session.get("http://other.example.test/", middlewares=(fail, fail))
        assert response.status == 204


def test_any_is_only_for_parameters_and_a_status_is_a_number(mocked: Any) -> None:
    with pytest.raises(TypeError, match="but not for error"):
        mocked.respond("GetDocInfo", identifier="a", error=ANY)
    for status in ("complete", 99, 600):
        with pytest.raises(TypeError, match="status must be an HTTP status"):
            mocked.respond("getSingleMessageInfo", fax_number="1", message_handle="h", status=status)


async def test_any_value_of_a_parameter_matches(mocked: Any, suite: ds.DirectSuite, box: ds.Mailbox) -> None:
    mocked.respond("GetMessagesBySender", folder="INBOX", sender=ANY, messages=[])
    mocked.respond("Delete", identifier=ANY)
    mocked.respond("GetDoc", identifier=ANY, pdf=b"%PDF-1.7")
    assert await box.get_messages_by_sender("INBOX", BOB) == []
    assert (await suite.signing.delete("d")).identifier == "d"
    assert mocked.unused == ["GetDoc (identifier='<ANY>')"]


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
    monkeypatch.delitem(sys.modules, "directsuite.testing.mocked")
    with pytest.raises(ModuleNotFoundError, match="pip install aioresponses") as caught:
        importlib.import_module("directsuite.testing.mocked")
    assert caught.value.name == "aioresponses"


async def test_unused_lists_the_responses_that_were_not_requested(box: ds.Mailbox, mocked: Any) -> None:
    for count in (1, 2):
        mocked.respond("GetMessageCount", folder="INBOX", count=count)
    mocked.respond("Send", smtp_id="<1>")
    mocked.respond("GetUIDs", folder="INBOX", uids=[], repeat=True)
    mocked.add("http://other.example.test/x", "GET")
    assert await box.get_message_count() == 1
    unused = ["GetMessageCount (folder='INBOX')", "Send", "GET http://other.example.test/x"]
    assert mocked.unused == unused
    mocked.stop()
    assert mocked.unused == unused
    mocked.start()
    assert mocked.unused == []
