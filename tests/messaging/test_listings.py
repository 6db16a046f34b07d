"""Complete folders in one response, which is read while it is received: forms, errors, and values that are skipped."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from tests.fake_services import MESSAGE, SUCCESS, FakeServices

Numbered = ds.MessageDetail | ds.RawMessage

STREAMED = {"iter_metadata": "GetMessageMetaData", "stream_messages": "GetMessages"}


async def uids_of(listing: AsyncGenerator[Numbered, None]) -> list[int | None]:
    return [message.uid async for message in listing]


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


@pytest.mark.exhaustive(limit=3)
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


@pytest.mark.exhaustive(limit=4)
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


@pytest.mark.exhaustive(limit=2)
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


@pytest.mark.parametrize("name", ["iter_messages", "iter_raw", *STREAMED])
async def test_nothing_is_sent_before_the_first_step(name: str, services: FakeServices, box: ds.Mailbox) -> None:
    async with getattr(box, name)() as messages:
        assert aiter(messages) is messages
    assert services.requests_by_url == []
