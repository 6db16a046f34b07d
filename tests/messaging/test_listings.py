"""Whole folders in one response, which is read while it is received: forms, errors, and values that are skipped."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

import directsuite as ds
from directsuite.testing import mocked_services
from directsuite.types import MessageList
from tests.examples import scale_examples
from tests.fake_services import ALICE, MESSAGE, SETTINGS, SUCCESS, FakeServices

Numbered = ds.MessageDetail | ds.RawMessage

STREAMED = {"iter_metadata": "GetMessageMetaData", "stream_messages": "GetMessages"}


async def uids_of(listing: AsyncGenerator[Numbered, None]) -> list[int | None]:
    return [message.uid async for message in listing]


async def until_failure(listing: AsyncGenerator[Numbered, None]) -> tuple[list[int | None], ds.DirectSuiteError | None]:
    seen: list[int | None] = []
    try:
        async for message in listing:
            seen.append(message.uid)  # noqa: PERF401  a comprehension would lose them
    except ds.DirectSuiteError as failure:
        return seen, failure
    return seen, None


@pytest.mark.parametrize("name", BATCHED)
async def test_empty_folder_asks_for_no_batch(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    folder = Folder(services, [])
    assert await uids_of(getattr(box, name)()) == []
    assert folder.batches == []


@pytest.mark.parametrize("name", BATCHED)
async def test_no_more_batches_are_fetched_ahead_than_the_window_holds(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    folder = Folder(services, list(range(1, 101)))
    listing: AsyncGenerator[Numbered, None] = getattr(box, name)(batch_size=1)
    assert (await anext(listing)).uid == 1
    for _ in range(200):  # lets all tasks start
        await asyncio.sleep(0)
    assert 1 < len(folder.batches) <= 2 * SETTINGS.max_connections + 1
    await listing.aclose()


@pytest.mark.parametrize("name", BATCHED)
async def test_one_connection_has_a_window_of_two(name: str, services: FakeServices) -> None:
    folder = Folder(services, list(range(1, 101)))
    async with ds.DirectSuite(attrs.evolve(SETTINGS, max_connections=1)) as suite:
        listing: AsyncGenerator[Numbered, None] = getattr(suite.mailbox(ALICE, "secret"), name)(batch_size=1)
        await anext(listing)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(folder.batches) <= 3
        await listing.aclose()


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.wide
async def test_batches_are_in_progress_together_within_the_connections(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    folder = Folder(services, list(range(1, 101)))
    folder.gate = asyncio.Event()
    listing: AsyncGenerator[Numbered, None] = getattr(box, name)(batch_size=1)
    first = asyncio.ensure_future(anext(listing))
    for _ in range(200):
        await asyncio.sleep(0)
    assert folder.in_progress == SETTINGS.max_connections
    folder.gate.set()
    assert (await first).uid == 1
    assert [1, *await uids_of(listing)] == list(range(1, 101))
    assert folder.max_in_progress == SETTINGS.max_connections


@pytest.mark.parametrize("name", BATCHED)
async def test_leaving_early_ends_the_requests_in_progress(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    folder = Folder(services, list(range(1, 101)))
    # Requests that were only waited for would end by their own time-out, in 20 seconds.
    async with asyncio.timeout(5), getattr(box, name)(batch_size=1) as messages:
        async for _ in messages:
            folder.gate = asyncio.Event()  # from here on no batch is answered
            for _ in range(50):
                await asyncio.sleep(0)
            assert folder.in_progress > 0
            break
    assert folder.in_progress == 0
    assert await uids_of(messages) == []


@pytest.mark.parametrize("name", BATCHED)
async def test_failed_batch_is_raised_after_the_messages_before_it(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": [1, 2]})
    url = f"{MESSAGE}/{BATCHED[name]}/INBOX"
    services.add_response("POST", url, SUCCESS | {"messages": [{"uid": 1}]})
    services.add_response("POST", url, {"success": False, "code": 3, "message": "broken"})
    seen, failure = await until_failure(getattr(box, name)(batch_size=1))
    assert seen == [1]
    assert type(failure) is ds.ServiceError
    assert failure.operation == BATCHED[name]


@pytest.mark.parametrize("name", BATCHED)
@settings(max_examples=scale_examples(30))
@given(uids=st.sets(st.integers(0, 2**63 - 1), max_size=30), batch_size=st.integers(1, 40), data=st.data())
async def test_every_existing_message_is_yielded_once_by_uid(
    name: str, uids: set[int], batch_size: int, data: st.DataObject
) -> None:
    vanished = data.draw(st.sets(st.sampled_from(sorted(uids)))) if uids else set[int]()
    with mocked_services() as mocked:
        Folder(FakeServices(mocked), data.draw(st.permutations(sorted(uids))), frozenset(vanished))
        async with ds.DirectSuite(SETTINGS) as suite:
            listing = getattr(suite.mailbox(ALICE, "secret"), name)(batch_size=batch_size)
            assert await uids_of(listing) == sorted(uids - vanished)


DAY = datetime(2026, 5, 1, tzinfo=UTC)

SELECTIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "newest first": ({"newest_first": True}, [9, 8, 6, 5, 3, 2]),
    "the oldest": ({"limit": 2}, [2, 3]),
    "the newest": ({"limit": 2, "newest_first": True}, [9, 8]),
    "the newest, in more requests": ({"limit": 5, "newest_first": True, "batch_size": 2}, [9, 8, 6, 5, 3]),
    "limit above the number": ({"limit": 50}, [2, 3, 5, 6, 8, 9]),
    "since": ({"since": DAY}, [6, 8, 9]),
    "the newest since": ({"since": DAY, "limit": 2, "newest_first": True}, [9, 8]),
}


@pytest.mark.parametrize(("options", "expected"), SELECTIONS.values(), ids=SELECTIONS)
async def test_messages_are_selected(
    options: dict[str, Any], expected: list[int], services: FakeServices, box: ds.Mailbox
) -> None:
    folder = Folder(services, list(range(1, 10)), vanished=frozenset({1, 4, 7}))
    milliseconds = int(DAY.timestamp() * 1000)
    found = [{"uid": uid} for uid in (9, 7, 6, 8)]
    search = f"{MESSAGE}/SearchMessagesMetadataByReceivedDate/INBOX/{milliseconds}/253402300799000"
    services.add_response("POST", search, SUCCESS | {"messages": found})
    assert await uids_of(box.iter_messages(**options)) == expected
    if "limit" in options:  # no more is fetched than was needed
        assert len({uid for batch in folder.batches for uid in batch} - {1, 4, 7}) == len(expected)


async def test_limit_holds_if_the_service_returns_more(services: FakeServices, box: ds.Mailbox) -> None:
    services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": [1, 2, 3]})
    more = SUCCESS | {"messages": [{"uid": uid} for uid in (1, 2, 3)]}
    services.add_response("POST", f"{MESSAGE}/GetMessagesByUIDs/INBOX", more)
    assert await uids_of(box.iter_messages(limit=2)) == [1, 2]


@pytest.mark.parametrize("name", ["get_messages_by_uids", "get_raw_messages_by_uids"])
async def test_uids_that_the_service_left_out_are_listed(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    Folder(services, [], vanished=frozenset({4, 7}))
    messages: MessageList[ds.MessageDetail] = await getattr(box, name)("INBOX", (uid for uid in [7, 3, 4, 7, 5]))
    assert [message.uid for message in messages] == [5, 3]
    assert messages.missing_uids == [7, 4]
    for copied in (copy.copy(messages), pickle.loads(pickle.dumps(messages))):  # noqa: S301  it is our own
        assert (copied, copied.missing_uids) == (messages, [7, 4])
    assert (await getattr(box, name)("INBOX", [])).missing_uids == []


@pytest.mark.parametrize("name", STREAMED)
async def test_streamed_response_gives_the_messages_as_they_come(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    messages = [{"uid": uid, "subject": 'a "]}" \\ b', "headers": [{"name": "n", "value": "[{"}]} for uid in (3, 1, 2)]
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", SUCCESS | {"messages": messages})
    listed = [message async for message in getattr(box, name)()]
    assert [message.uid for message in listed] == [3, 1, 2]
    assert {message.subject for message in listed} == {'a "]}" \\ b'}


STREAMED_FORMS: dict[str, tuple[str, list[int]]] = {
    "empty list": ('{"success": true, "code": 0, "messages": []}', []),
    "null": ('{"success": true, "messages": null}', []),
    "missing": ('{"success": true}', []),
    "single object": ('{"success": true, "messages": {"uid": 5}, "code": 0}', [5]),
    "messages before success": ('{"messages": [{"uid": 5}, {"uid": "6"}], "success": true}', [5, 6]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize(("body", "uids"), STREAMED_FORMS.values(), ids=STREAMED_FORMS)
async def test_forms_of_a_streamed_response(
    body: str, uids: list[int], name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=body)
    assert await uids_of(getattr(box, name)()) == uids


MALFORMED_STREAMS: dict[str, tuple[str, type[ds.DirectSuiteError], str | None]] = {
    "refused": ('{"success": false, "code": 1, "message": "no"}', ds.AuthenticationError, None),
    "refused with null messages": ('{"success": false, "code": 3, "messages": null}', ds.ServiceError, None),
    "no claim of success": ('{"messages": []}', ds.ResponseDecodeError, "$.success"),
    "broken off": ('{"success": true, "messages": [', ds.ResponseDecodeError, "$"),
    "not JSON": ("<html>", ds.ResponseDecodeError, "$"),
    "nothing": ("", ds.ResponseDecodeError, "$"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize(("body", "kind", "path"), MALFORMED_STREAMS.values(), ids=MALFORMED_STREAMS)
async def test_malformed_streamed_response_is_a_typed_error(
    body: str, kind: type[ds.DirectSuiteError], path: str | None, name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=body)
    with pytest.raises(kind) as caught:
        await uids_of(getattr(box, name)())
    assert type(caught.value) is kind
    assert caught.value.operation == STREAMED[name]
    assert getattr(caught.value, "path", None) == path


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize(
    ("messages", "uids"),
    [
        ('[{"uid": []}, {"uid": 2}, {"subject": "a"}, null, 5, {"uid": 6, "sentDate": ""}]', [2, 6]),
        ('{"uid": -1}', []),
        ('"x"', []),
        ('[], "items": [{"uid": 1, "subject": "a"}]', []),
    ],
)
async def test_streamed_messages_without_a_uid_are_left_out(
    messages: str, uids: list[int], name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response(
        "POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=f'{{"success": true, "messages": {messages}}}'
    )
    assert await uids_of(getattr(box, name)()) == uids


@pytest.mark.parametrize("name", STREAMED)
async def test_streamed_messages_are_read_under_another_name(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    body = '{"items": [{"uid": 1, "subject": "a"}, {"subject": "b"}], "warnings": [1], "success": true}'
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=body)
    assert await uids_of(getattr(box, name)()) == [1]


@pytest.mark.parametrize("name", STREAMED)
async def test_byte_order_mark_before_a_streamed_response_is_accepted(
    name: str, services: FakeServices, box: ds.Mailbox
) -> None:
    body = b'\xef\xbb\xbf{"success": true, "messages": [{"uid": 1}]}'
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=body)
    assert await uids_of(getattr(box, name)()) == [1]


@pytest.mark.parametrize("name", STREAMED)
async def test_messages_before_the_break_are_given(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    body = '{"success": true, "messages": [{"uid": 1}, {"uid": 2}, {"uid":'
    services.add_response("POST", f"{MESSAGE}/{STREAMED[name]}/INBOX", body=body)
    seen, failure = await until_failure(getattr(box, name)())
    assert seen == [1, 2]
    assert type(failure) is ds.ResponseDecodeError


@pytest.mark.parametrize("name", ["iter_messages", "iter_raw", *STREAMED])
async def test_nothing_is_sent_before_the_first_step(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    async with getattr(box, name)() as messages:
        assert aiter(messages) is messages
    assert services.requests_by_url == []
