"""Lists in responses: null elements, absent lists, and other names of fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import directsuite as ds

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, PATIENT, open_suite, respond_after_login, stream_messages

WITH_NULLS = [
    None,
    {
        "uid": 1,
        "recipients": [None, {"email": "a@b", "type": "TO"}],
        "headers": [{"name": "X-A", "value": "1"}, None, None],
        "attachments": [None],
    },
    None,
]
NULLS = {
    "$.messages[]": 2,
    "$.messages[].recipients[]": 1,
    "$.messages[].headers[]": 2,
    "$.messages[].attachments[]": 1,
}


Read = Callable[[ds.DirectSuite], Awaitable[list[ds.MessageDetail]]]
WAYS: dict[str, Read] = {
    "whole": lambda suite: _box(suite).get_messages(),
    "by uid": lambda suite: _box(suite).get_messages_by_uids("INBOX", [1]),
    "streamed": stream_messages,
}

every_way = pytest.mark.parametrize("read", WAYS.values(), ids=WAYS.keys())


@pytest.mark.exhaustive
@every_way
@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "large"])
async def test_null_in_a_list_is_passed_over_and_counted(read: Read, padding: int, server: ScriptedServer) -> None:
    told: list[ds.Event] = []
    server.default_responder = responses.respond({"success": True, "messages": WITH_NULLS, "padding": "x" * padding})
    async with open_suite(server, listeners=[told.append]) as suite:
        [message] = await read(suite)
        server.default_responder = responses.respond({"success": True, "messages": [{"uid": 1}]})
        await read(suite)
    assert message.recipients == [ds.Recipient("a@b")]
    assert message.headers == [ds.MessageHeader("X-A", "1")]
    assert message.attachments == []
    [skipped] = [event for event in told if isinstance(event, ds.ValuesSkipped)]
    assert (skipped.operation[:11], skipped.paths) == ("GetMessages", NULLS)


@pytest.mark.exhaustive
@every_way
@pytest.mark.parametrize("padding", [0, 300_000], ids=["small", "large"])
async def test_broken_character_in_one_message_hides_no_other(read: Read, padding: int, server: ScriptedServer) -> None:
    messages = b'[{"uid":1,"subject":"a\\ud83d"},{"uid":2,"subject":"M\xfcller"},{"uid":3,"subject":"%s"}]'
    server.default_responder = responses.respond(b'{"success":true,"messages":%s}' % messages % (b"x" * padding))
    async with open_suite(server) as suite:
        found = await read(suite)
    assert [message.uid for message in found] == [1, 2, 3]
    assert [message.subject for message in found][:2] == ["a\ufffd", "M\ufffdller"]


Ask = Callable[[ds.DirectSuite], Awaitable[Any]]


def _box(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(ALICE, PASSWORD)


_OK = {"success": True}


def _get_raw(suite: ds.DirectSuite) -> Awaitable[object]:
    return _box(suite).get_raw_messages_by_uids("INBOX", [1])


def _get_patients(suite: ds.DirectSuite) -> Awaitable[Any]:
    return suite.registration.get_patient_address_by_username("direct.example.test", "ada")


def _get_faxes(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.fax.get_multiple_message_info("15551230001")


LISTS: dict[str, tuple[Ask, str, dict[str, Any]]] = {
    "messages": (lambda suite: _box(suite).get_messages(), "messages", _OK),
    "streamed messages": (stream_messages, "messages", _OK),
    "raw": (_get_raw, "messages", _OK),
    "uids": (lambda suite: _box(suite).get_uids(), "uids", _OK),
    "folders": (lambda suite: _box(suite).get_folders(), "folders", _OK),
    "status": (lambda suite: _box(suite).get_message_status("<1@x>"), "messageLogs", _OK),
    "patients": (_get_patients, "patient", _OK | {"code": "000"}),
    "faxes": (_get_faxes, "MessageDetail", {"Username": "a"}),
    "document": (lambda suite: suite.signing.get_doc_info("1"), "signatures", {"identifier": "1"}),
}


def _serve(server: ScriptedServer, answer: dict[str, Any]) -> None:
    server.default_responder = respond_after_login(responses.respond(answer))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("ask", "name", "answer"), LISTS.values(), ids=LISTS.keys())
async def test_absent_list_is_empty(ask: Ask, name: str, answer: dict[str, Any], server: ScriptedServer) -> None:
    forms: list[dict[str, Any]] = [{}, {name: None}, {name: []}, {"unknown": [{"uid": 1}]}]
    for own in forms:
        _serve(server, answer | own)
        server.requests.clear()
        async with open_suite(server) as suite:
            result = await ask(suite)
        assert (
            getattr(result, {"messageLogs": "records", "MessageDetail": "message_detail"}.get(name, name), result) == []
        )
        assert len(server.requests) <= 2  # the second request is a login


async def test_report_as_csv_needs_no_list(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond({"success": True, "csvData": "YUB4LGJAeQ==", "warnings": ["none"]})
    answer = await suite.mailbox(ALICE, PASSWORD).get_message_status("<1@x>")
    assert [record.to for record in answer.records] == ["b@y"]


@pytest.mark.parametrize("csv", ["*", 5, [], {"a": 1}])
async def test_report_with_unreadable_csv_has_its_logs(csv: object, server: ScriptedServer) -> None:
    logs = [{"to": "b@y", "ts": "soon", "status": 5}, {"to": "c@z"}]
    server.default_responder = responses.respond({"success": True, "csvData": csv, "messageLogs": logs})
    async with open_suite(server) as suite:
        report = await suite.mailbox(ALICE, PASSWORD).get_message_status("<1@x>")
    assert [record.to for record in report.records] == ["b@y", "c@z"]
    assert report.extra == {"csvData": csv}


async def test_one_event_counts_what_could_not_be_read(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[ds.Event] = []
    messages = [{"uid": 1, "sentDate": PATIENT}, {"uid": 2, "sentDate": PATIENT}, {"subject": PATIENT}]
    server.default_responder = responses.respond({"success": True, "code": PATIENT, "messages": messages})
    with caplog.at_level("INFO", "directsuite"):
        async with open_suite(server, listeners=[events.append]) as suite:
            found = await suite.mailbox(ALICE, PASSWORD).get_messages()
    assert [message.extra for message in found] == [{"sentDate": PATIENT}] * 2
    [skipped] = [event for event in events if isinstance(event, ds.ValuesSkipped)]
    assert skipped.paths == {"$.code": 1, "$.messages[].sentDate": 2, "$.messages[]": 1}
    assert "$.messages[].sentDate 2" in caplog.text
    assert PATIENT not in f"{caplog.text}{skipped}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("addresses", [[{"username": "ada"}], {"username": "ada"}], ids=["a list", "a bare element"])
@pytest.mark.parametrize("own", [{}, {"patient": []}, {"patient": None}], ids=str)
async def test_patients_are_read_under_addresses(
    addresses: object, own: dict[str, Any], server: ScriptedServer, suite: ds.DirectSuite
) -> None:
    _serve(server, {"success": True, "code": "000", "addresses": addresses} | own)
    found = await _get_patients(suite)
    assert [user.username for user in found] == ["ada"]
