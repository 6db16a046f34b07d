"""A mailbox with scripted responses: rejections, lost responses and delays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

import directsuite as ds
from tests.integration.scenario import ALICE, PASSWORD
from tests.jobs.delivery.clinic import Clinic

StatusResponder = Callable[[Sequence[str]], Mapping[str, Mapping[str, str]]]
"""Returns the statuses by smtp_id and recipient, or raises the service's error."""


class FragileMailbox(ds.Mailbox):
    """Calls a function instead of a service. asked: the smtp_ids of each request."""

    requested_ids: list[Sequence[str]]
    responder: StatusResponder

    async def get_message_statuses(
        self, smtp_ids: Iterable[str], *, timeout: float | None = None
    ) -> ds.DirectMessageStatusReportResponse:
        listed = list(smtp_ids)
        self.requested_ids.append(listed)
        logs = [
            make_log(recipient, status, smtp_id)
            for smtp_id, statuses in self.responder(listed).items()
            for recipient, status in statuses.items()
        ]
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=logs)


def make_fragile_mailbox(clinic: Clinic, responder: StatusResponder, *, address: str = ALICE) -> FragileMailbox:
    box = FragileMailbox(clinic.box._transport, address, PASSWORD)
    box.requested_ids, box.responder = [], responder
    return box


class RepeatingMailbox(ds.Mailbox):
    """A mailbox that returns these records, those of one response per poll, then repeats the last response."""

    responses: Sequence[Sequence[ds.DirectMessageLog]]

    async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        logs, self.responses = self.responses[0], self.responses[1:] or self.responses[:1]
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=list(logs))

    async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        return await self.get_message_status("")


def make_repeating_mailbox(clinic: Clinic, *responses: Sequence[ds.DirectMessageLog]) -> RepeatingMailbox:
    box = RepeatingMailbox(clinic.box._transport, ALICE, PASSWORD)
    box.responses = responses
    return box


def make_log(
    to: str | None, status: str, message_id: str | None = None, ts: datetime | None = None
) -> ds.DirectMessageLog:
    return ds.DirectMessageLog(message_id=message_id, to=to, status=ds.MessageStatus(status), ts=ts)


@attrs.frozen
class RejectingResponder:
    """Reports every message as delivered, but rejects requests that contain one of these ids."""

    rejected_ids: frozenset[str]
    make_error: Callable[[], ds.DirectSuiteError]

    def __call__(self, smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if self.rejected_ids & {*smtp_ids}:
            raise self.make_error()
        return {smtp_id: {"bob@hospital.example.test": "Delivered"} for smtp_id in smtp_ids}
