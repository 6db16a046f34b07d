"""One field of one message is wrong in every response of an operation: every other message arrives, none is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from directsuite.sync import Kind, SyncStatus
from tests.sync.mail_service import Document, MailScenario, make_message

pytestmark = pytest.mark.wide

REMOVED = "(removed)"
BROKEN = "(broken UTF-8)"
VALUES: dict[str, Any] = {
    "null": None,
    "empty text": "",
    "zero": 0,
    "text": "x",
    "list": [],
    "object": {},
    "huge": 10**30,
    "broken": BROKEN,
    "removed": REMOVED,
}
OPERATIONS = ["GetMessagesByUIDs", "GetMessageMetaData", "SearchMessagesMetadataByReceivedDate"]
PLACES = [*((each, field) for each in OPERATIONS for field in make_message("INBOX", 1)), ("GetUIDs", "uid")]
OTHERS = {("INBOX", 1), ("INBOX", 3), ("INBOX", 4), ("INBOX.Sent", 1)}
MUTATED = ("INBOX", 2)


@pytest.fixture
def mail(mail: MailScenario) -> MailScenario:
    mail.add("INBOX", 1, 2, 3, 4)
    mail.add("INBOX.Sent", 1)
    return mail


def mutate_message(field: str, value: Any) -> Callable[[str, Document], bytes]:
    def change(folder: str, document: Document) -> bytes:
        messages = [dict(each) for each in document.get("messages", ())]
        for each in messages:
            if folder == "INBOX" and each["uid"] == 2:
                each[field] = value
                if value == REMOVED:
                    del each[field]
        changed = document | {"messages": messages}
        if "uids" in document:
            uids = [value if folder == "INBOX" and uid == 2 else uid for uid in document["uids"]]
            changed["uids"] = [uid for uid in uids if uid != REMOVED]
        return json.dumps(changed).encode().replace(BROKEN.encode(), b"a\xffb")

    return change


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("operation", "field"), PLACES)
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "later"])
async def test_wrong_field_of_one_message_harms_no_other(
    operation: str, field: str, value: str, is_known: bool, mail: MailScenario
) -> None:
    if is_known:
        await mail.synchronise()
    mail.response_changes[operation] = mutate_message(field, VALUES[value])
    await mail.synchronise()
    assert mail.sink.messages - {MUTATED} == OTHERS
    mail.add("INBOX", 5)
    mail.add("INBOX.Sent", 2)
    await mail.synchronise()
    mail.now += 2 * 86_400
    mail.clock.now += 700
    await mail.synchronise()
    assert mail.sink.messages - {MUTATED} == OTHERS | {("INBOX", 5), ("INBOX.Sent", 2)}
    mail.response_changes.clear()
    mail.now += 2 * 86_400
    for _ in range(2):
        await mail.synchronise()
    status = await mail.synchronise()
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})
    assert mail.sink.messages == {*OTHERS, MUTATED, ("INBOX", 5), ("INBOX.Sent", 2)}
    gone = {change.key.uid for change in mail.sink.changes if change.kind is Kind.GONE}
    assert gone <= {2}  # it was delivered with the wrong field, and once more with the right one
    if is_known or operation != "GetMessagesByUIDs":
        assert mail.sink.kinds == [Kind.NEW] * 7
