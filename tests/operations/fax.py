"""The operations of the fax service (specification 4.B)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import directsuite as ds

from .case import BEARER_JSON, OperationCase

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

_NUMBER = "15550100100"
_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def _get_single_message_info(scenario: Scenario) -> None:
    recipient = {"Address": _NUMBER, "Name": "Clinic", "PageCount": 3, "description": "sent"}
    handle = await scenario.sandbox.add_fax(_NUMBER, status="waiting", recipients=[recipient], description="queued")
    information = await scenario.suite.fax.get_single_message_info(_NUMBER, handle)
    assert (information.username, information.message_handle) == ("demo", handle)
    assert information.message_detail == [
        ds.FaxMessage(
            message_handle=handle,
            fax_number=_NUMBER,
            status=ds.FaxStatus.WAITING,
            updated_ts=_NOON,
            recipients=[ds.FaxRecipient(address=_NUMBER, name="Clinic", page_count=3, description="sent")],
            description="queued",
        )
    ]


async def _get_multiple_message_info(scenario: Scenario) -> None:
    handles = [await scenario.sandbox.add_fax(_NUMBER) for _ in range(12)]
    newest = await scenario.suite.fax.get_multiple_message_info(_NUMBER)
    rest = await scenario.suite.fax.get_multiple_message_info(_NUMBER, 10)
    listed = [fax.message_handle for fax in (*newest.message_detail, *rest.message_detail)]
    assert listed == handles[::-1]


_RESPONSE = {
    "Username": "demo",
    "MessageHandle": "h1",
    "MessageDetail": [
        {
            "MessageHandle": "h1",
            "fax_number": _NUMBER,
            "status": "complete",
            "updated_ts": "2026-05-01T12:00:00.000+0000",
            "recipients": [{"Address": _NUMBER, "Name": "Clinic", "PageCount": 3, "description": "sent"}],
            "description": "Fax 1",
        }
    ],
    "description": "1 message",
}
_RESULT = ds.FaxMessageInformation(
    username="demo",
    message_handle="h1",
    message_detail=[
        ds.FaxMessage(
            message_handle="h1",
            fax_number=_NUMBER,
            status=ds.FaxStatus.COMPLETE,
            updated_ts=_NOON,
            recipients=[ds.FaxRecipient(address=_NUMBER, name="Clinic", page_count=3, description="sent")],
            description="Fax 1",
        )
    ],
    description="1 message",
)


def _make_list_case(target: str, **arguments: object) -> OperationCase:
    return OperationCase(
        name="getMultipleMessageInfo",
        method="GET",
        facade="fax",
        function="get_multiple_message_info",
        arguments=arguments,
        path_texts=("fax_number",),
        target=f"/fax/api/fax/getMessageList/{target}",
        headers=BEARER_JSON,
        response=_RESPONSE,
        result=_RESULT,
        exercise=_get_multiple_message_info,
    )


FAX = [
    OperationCase(
        name="getSingleMessageInfo",
        method="GET",
        facade="fax",
        function="get_single_message_info",
        arguments={"fax_number": "+1 (555) 010/0199", "message_handle": "h#1%2F"},
        path_texts=("fax_number", "message_handle"),
        target="/fax/api/fax/%2B1%20%28555%29%20010%2F0199/h%231%252F",
        headers=BEARER_JSON,
        response=_RESPONSE,
        result=_RESULT,
        exercise=_get_single_message_info,
    ),
    _make_list_case("%2B15550100199%3F/20", fax_number="+15550100199?", offset=20),
]

FAX_VARIANTS = [_make_list_case("15550100199/0", fax_number="15550100199")]
