"""Sending messages, and following them to their recipients: which statuses are final, and when to poll again.

A message is polled each time its age has doubled: eleven times in the hour for which the service waits for a
confirmation (specification section 8). After the hour, the intervals start small again.

    age   5 s   10 s   20 s   40 s   80 s   …   43 min   1 h   1 h 2 min   1 h 4 min   …   given up
                                                         └── from here on, the service reports NO MDN Received
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import ClassVar

import attrs

from directsuite.core.checks import POSITIVE
from directsuite.core.clock import WAIT_TOLERANCE, wait_until
from directsuite.core.events import Progress
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.outcome import NOT_RETRYABLE, find_error_scope
from directsuite.core.retry import Backoff
from directsuite.core.transport import Transport
from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.messaging import arguments, operations
from directsuite.messaging.models import (
    Attachment,
    Authentication,
    AuthenticationWithTuser,
    DirectMessageLog,
    DirectMessageStatusReportResponse,
    Message,
    MessageStatus,
    MessageWithHeader,
    Recipient,
    RecipientType,
    SendMessageResponse,
    SendRequest,
    SendWithHeaderWithTuserRequest,
    SendWithTuserRequest,
    to_attachments,
)
from directsuite.wire.models import Secret, as_secret, require_instances

FINAL_STATUSES = frozenset(
    {
        MessageStatus.DELIVERED,
        MessageStatus.LOCALLY_FAILED,
        MessageStatus.REMOTELY_FAILED,
        MessageStatus.NO_MDN_RECEIVED,
    }
)
"""The final statuses. A status that the specification does not define is not final."""

DEFAULT_GIVE_UP_AFTER = 7_200.0
"""Time in seconds after which a message is given up. It is two hours, because the service's hour may end later."""

BACKOFF = Backoff(5.0, 300.0)
"""The delay, in seconds, before the next poll after failures."""

_HOUR = 3_600.0
# Seconds after the hour within which the next poll is due. Messages sent in the same minute share the poll.
_MAX_POLL_DELAY_AFTER_HOUR = 60.0
_MIN_POLL_INTERVAL = 5.0
# The share of the interval after which a message joins a poll of other messages. Joining earlier would make responses
# longer without saving many requests.
_MIN_INTERVAL_SHARE = 0.25
# The limit of a line (RFC 5322, section 2.1.1).
_MAX_ID_CHARS = 998
# Control characters, and surrogates, which SQLite cannot store.
_UNSTORABLE_CHARS = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Sender(Facade):
    """Sends messages from one Direct address, and reads their delivery statuses."""

    _send_operation: ClassVar[Operation[SendMessageResponse]]
    _send_with_header_operation: ClassVar[Operation[SendMessageResponse]]
    _status_operation: ClassVar[Operation[DirectMessageStatusReportResponse]]
    _request_type: ClassVar[type[SendRequest]]
    _request_with_header_type: ClassVar[type[SendRequest]]

    def __init__(self, transport: Transport, address: str, authentication: Authentication) -> None:
        super().__init__(transport)
        self._address = address
        self._authentication = authentication
        self._credentials = self._encode_body(authentication)

    async def send(
        self,
        message: Message | None = None,
        *,
        to: str | Iterable[str] = (),
        cc: str | Iterable[str] = (),
        bcc: str | Iterable[str] = (),
        subject: str | None = None,
        body: str | None = None,
        html_body: bool = False,
        attachments: Iterable[Attachment | str | PathLike[str]] = (),
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message. The service stores a copy, marked as unread, in the user's INBOX.Sent.

            await box.send(to="nurse@direct.example.org", subject="Report", body="See the file.", attachments=["r.pdf"])

        message: the message, instead of the parameters from `to` to `attachments`.
        to, cc, bcc: one address or several, such as `nurse@direct.example.org`. At least one of the three is required.
        subject: the subject. None: no subject.
        body: the text, or HTML if `html_body` is True. None: no text.
        attachments: paths of files, which are read while they are sent, and Attachments.
        progress: called with the total progress of the streamed attachments (paths, `Attachment.from_path`,
            `from_file`, `from_stream`), see `Progress`. It is not called if there are none.
        timeout: timeout in seconds. None: use the suite's, but with streamed attachments, or more than 256 KB of
            attachments in memory, continue until sending pauses for `attempt_timeout` seconds.

        Raises InvalidArgumentError, and sends nothing, if an address, an attachment or the combination is invalid.
        """
        given = bool(to or cc or bcc or subject or body or html_body or attachments)
        if given and message is not None:
            raise InvalidArgumentError("give either a Message, or to, subject, body and so on", parameter="message")
        if given:
            recipients = [
                *_make_recipients(to, RecipientType.TO, "to"),
                *_make_recipients(cc, RecipientType.CC, "cc"),
                *_make_recipients(bcc, RecipientType.BCC, "bcc"),
            ]
            if not recipients:
                raise InvalidArgumentError("at least one address in to, cc or bcc is required", parameter="to")
            message = Message(
                subject=subject,
                body=body,
                html_body=html_body,
                recipients=recipients,
                attachment_list=require_instances(
                    to_attachments(attachments, "attachments"), Attachment, "attachments"
                ),
            )
        if isinstance(message, MessageWithHeader):
            return await self.send_with_header(message, progress=progress, timeout=timeout)
        parameter = "attachments" if given else "attachment_list"
        return await self._send(self._send_operation, self._request_type, message, progress, timeout, parameter)

    async def send_with_header(
        self, message: MessageWithHeader, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message with additional headers. See `send`."""
        operation, request_type = self._send_with_header_operation, self._request_with_header_type
        return await self._send(operation, request_type, message, progress, timeout)

    async def _send(
        self,
        operation: Operation[SendMessageResponse],
        request_type: type[SendRequest],
        message: Message | None,
        progress: Progress | None,
        timeout: float | None,
        attachments_parameter: str = "attachment_list",
    ) -> SendMessageResponse:
        validated = arguments.validate_message(message, self._address, attachments_parameter=attachments_parameter)
        request = request_type(authentication=self._authentication, message=validated)
        prepare = functools.partial(
            arguments.make_send_body,
            self.environment.codec,
            request,
            progress,
            attachments_parameter=attachments_parameter,
        )
        return await self._call(operation, prepare=prepare, timeout=timeout)

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """Return the delivery status of a message for each of its recipients.

        smtp_id: the `smtp_id` of the response to `send`.
        """
        return await self._call(self._status_operation, smtp_id, body=self._credentials, timeout=timeout)

    async def track(
        self,
        smtp_id: str,
        *,
        recipients: int | Iterable[Recipient | str] = 1,
        give_up_after: float = DEFAULT_GIVE_UP_AFTER,
        on_poll: OnPoll | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Wait until a message has a final status for every recipient, and return the statuses.

        Final statuses are Delivered, Locally Failed, Remotely Failed, and NO MDN Received (after one hour). The
        service is polled immediately, after 5 seconds, and then each time the age of the message has doubled: eleven
        times within the first hour. Failed polls are repeated. Errors that a repeat cannot resolve, such as
        AuthenticationError, are raised.

        To follow many messages, or to continue after a restart, use `directsuite.jobs.delivery`.

        smtp_id: the `smtp_id` of the response to `send`.
        recipients: the expected recipients (duplicates are ignored), or their minimum number. Polling continues until
            the service reports all of them.
        give_up_after: time in seconds after which polling stops. The last known statuses are then returned with
            `given_up` set. If the last poll fails, its error is raised.
        on_poll: called after each poll except the last, with the latest record of each recipient and the number of
            seconds until the next poll.
        timeout: timeout of each poll, in seconds.
        """
        validate_smtp_id(smtp_id)
        count, give_up_after = validate_recipient_count(recipients), validate_give_up_after(give_up_after)
        clock, sleep = self.environment.clock, self.environment.session.sleep
        began, failures, last = clock.monotonic(), 0, give_up_after - WAIT_TOLERANCE
        latest = list[DirectMessageLog]()
        while True:
            age = clock.monotonic() - began
            try:
                records = (await self.get_message_status(smtp_id, timeout=timeout)).records
            except DirectSuiteError as error:  # also if the service does not know the message yet
                if age >= last or find_error_scope(error) in NOT_RETRYABLE:
                    raise
                failures += 1
                wait = BACKOFF.compute_wait(failures, error.retry_after)
            else:
                (own,) = group_by_message([smtp_id], records).values()
                latest = list(select_latest_by_recipient(own).values())
                if has_only_final_statuses([record.status for record in latest], count):
                    return Delivery(smtp_id=smtp_id, records=latest)
                if age >= last:
                    return Delivery(smtp_id=smtp_id, records=latest, given_up=True)
                failures = 0
                wait = compute_next_poll(age, give_up_after).latest - age
            wait = min(wait, max(0.0, give_up_after - age))
            if on_poll is not None:
                on_poll(latest, wait)
            await wait_until(clock.monotonic() + wait, clock.monotonic, sleep)


class TUser(Sender):
    """Sends messages and reads delivery statuses for a user's Direct address. `suite.tuser(...)`; needs `message_url`.

    `directsuite guide methods` lists the operation of each method (specification 4.C). Every method raises
    TransportError if there is no usable response, and ServiceError if the service rejects the request. A message that
    may have been sent is never sent again: OutcomeUnknownError is raised instead.
    """

    _send_operation = operations.SEND_WITH_TUSER
    _send_with_header_operation = operations.SEND_WITH_HEADER_WITH_TUSER
    _status_operation = operations.GET_MESSAGE_STATUS_WITH_TUSER
    _request_type = SendWithTuserRequest
    _request_with_header_type = SendWithHeaderWithTuserRequest

    def __init__(self, transport: Transport, username: str, password: str | Secret, direct_addr: str) -> None:
        password = as_secret(password)
        arguments.validate_address(direct_addr, "direct_addr")
        authentication = AuthenticationWithTuser(username=username, password=password, direct_addr=direct_addr)
        super().__init__(transport, direct_addr, authentication)


def _make_recipients(addresses: str | Iterable[str], kind: RecipientType, parameter: str) -> list[Recipient]:
    is_single = isinstance(addresses, str)
    listed = [addresses] if is_single and addresses else require_instances(addresses, str, parameter)
    names = (parameter if is_single else f"{parameter}[{number}]" for number in range(len(listed)))
    return [Recipient(arguments.validate_address(each, name), kind) for each, name in zip(listed, names, strict=True)]


@attrs.frozen(repr=False, eq=False)
class PollWindow:
    """The time of a message's next poll, given as ages of the message in seconds."""

    earliest: float
    """The age from which the message joins a poll of other messages, which needs no additional request."""
    latest: float
    """The age at which a poll is due."""


def compute_next_poll(age: float, give_up_after: float = DEFAULT_GIVE_UP_AFTER) -> PollWindow:
    """Return the earliest and latest age for a message's next poll.

    age: age of the message at its latest poll, in seconds; 0 if it was not polled yet.
    give_up_after: age in seconds at which the message is polled for the last time.
    """
    base = _HOUR if age >= _HOUR else 0.0
    distance = max(age - base, _MIN_POLL_INTERVAL)
    earliest, latest = age + _MIN_INTERVAL_SHARE * distance, age + distance
    if not base:
        earliest, latest = min(earliest, _HOUR), min(latest, _HOUR + _MAX_POLL_DELAY_AFTER_HOUR)
    latest = min(latest, max(age, give_up_after))
    return PollWindow(min(earliest, latest), latest)


def normalize_smtp_id(smtp_id: str) -> str:
    """Return a Message-ID in the form used for comparison: case-folded, without blanks and angle brackets around it."""
    return smtp_id.strip().removeprefix("<").removesuffix(">").casefold()


def is_final(status: MessageStatus | None) -> bool:
    """Return True if a status is final. Case, and blanks around it, are ignored. None is not final."""
    return status is not None and _fold_case(status) in _FOLDED_FINAL_STATUSES


def is_delivered(status: MessageStatus | None) -> bool:
    """Return True if the status is Delivered."""
    return status is not None and _fold_case(status) == _fold_case(MessageStatus.DELIVERED)


def is_unconfirmed(status: MessageStatus | None) -> bool:
    """Return True if the status is NO MDN Received. The recipient may have received the message nevertheless."""
    return status is not None and _fold_case(status) == _fold_case(MessageStatus.NO_MDN_RECEIVED)


def group_by_message(smtp_ids: Iterable[str], records: Iterable[DirectMessageLog]) -> dict[str, list[DirectMessageLog]]:
    """Group the records of a response by normalized Message-ID. A message without records has an empty list.

    Records without a Message-ID belong to the requested message if it is the only one. Otherwise, they are dropped,
    like records of other messages.
    """
    by_id = {normalize_smtp_id(smtp_id): list[DirectMessageLog]() for smtp_id in smtp_ids}
    only = next(iter(by_id)) if len(by_id) == 1 else ""
    for record in records:
        by_id.get(normalize_smtp_id(record.message_id or "") or only, []).append(record)
    return by_id


def select_latest_by_recipient(records: Iterable[DirectMessageLog]) -> dict[str, DirectMessageLog]:
    """Return one record per recipient, by case-folded address. Without an address, the key is the record's position.

    Of several records, the one with the latest `ts` is returned. If that does not decide, because a `ts` is missing or
    several are equal, a record whose status is not final is preferred to the last one.
    """
    by_address = dict[str, list[DirectMessageLog]]()
    for place, record in enumerate(records):
        by_address.setdefault(_fold_case(record.to or "") or str(place), []).append(record)
    return {address: _select_latest(several) for address, several in by_address.items()}


def _select_latest(records: Sequence[DirectMessageLog]) -> DirectMessageLog:
    times = [record.ts for record in records if record.ts is not None]
    if len(times) == len(records):
        latest = max(times)
        records = [record for record in records if record.ts == latest]
    return next((record for record in records if not is_final(record.status)), records[-1])


def has_only_final_statuses(statuses: Sequence[MessageStatus | None], recipients: int) -> bool:
    """Return True if there are at least `recipients` statuses, and all are final."""
    return len(statuses) >= recipients and all(map(is_final, statuses))


def validate_smtp_id(smtp_id: object) -> str:
    """Return an smtp_id. Raises InvalidArgumentError unless it is a str for which `can_be_followed` is True."""
    if not isinstance(smtp_id, str) or not can_be_followed(smtp_id):
        raise InvalidArgumentError("must be the smtp_id of the response to sending", parameter="smtp_id")
    return smtp_id


def can_be_followed(smtp_id: str) -> bool:
    """Return True if a status request can contain this Message-ID.

    False if it is empty, too long, or contains control characters or surrogates.
    """
    return bool(normalize_smtp_id(smtp_id)) and len(smtp_id) <= _MAX_ID_CHARS and not _UNSTORABLE_CHARS.search(smtp_id)


def validate_recipient_count(recipients: int | Iterable[Recipient | str]) -> int:
    """Return the number of recipients, without duplicates.

    Raises InvalidArgumentError if a recipient is invalid or the number is less than 1.
    """
    if isinstance(recipients, Iterable):
        recipients = len({_fold_case(each.email) for each in arguments.validate_recipients(recipients)})
    if type(recipients) is not int or recipients < 1:
        raise InvalidArgumentError(
            "must be the recipients of the message, or their number, 1 or more", parameter="recipients"
        )
    return recipients


def _fold_case(text: str) -> str:
    return text.strip().casefold()


_FOLDED_FINAL_STATUSES = frozenset(map(_fold_case, FINAL_STATUSES))


def validate_give_up_after(give_up_after: float) -> float:
    """Return the time as a float. Raises InvalidArgumentError if it is not a number greater than 0."""
    if not POSITIVE.predicate(give_up_after):
        raise InvalidArgumentError("must be a number of seconds greater than 0", parameter="give_up_after")
    return float(give_up_after)


@attrs.frozen(kw_only=True, repr=False)
class Delivery:
    """The result of following a message."""

    smtp_id: str
    """The Message-ID of the message."""
    records: Sequence[DirectMessageLog]
    """The latest record of each recipient."""
    given_up: bool = False
    """True if polling has stopped although some recipients have no final status."""

    @property
    def delivered(self) -> bool:
        """True if the service has confirmed the delivery to every recipient."""
        return not self.given_up and bool(self.records) and not self.undelivered

    @property
    def undelivered(self) -> Sequence[DirectMessageLog]:
        """The records of the recipients for whom no delivery is confirmed."""
        return [record for record in self.records if not is_delivered(record.status)]

    def __repr__(self) -> str:
        count = len(self.records)
        return f"Delivery(recipients={count}, undelivered={len(self.undelivered)}, given_up={self.given_up})"


OnPoll = Callable[[Sequence[DirectMessageLog], float], None]
"""Called after each poll except the last, with each recipient's latest record and the seconds until the next poll."""
