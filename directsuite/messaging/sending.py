"""Sending messages and reading their delivery statuses: the methods of mailboxes and T-Users, and the T-User itself."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from os import PathLike
from typing import ClassVar

from directsuite.core.events import Progress
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments, operations
from directsuite.messaging.models import (
    Attachment,
    Authentication,
    AuthenticationWithTuser,
    DirectMessageStatusReportResponse,
    Message,
    MessageWithHeader,
    Recipient,
    RecipientType,
    SendMessageResponse,
    SendRequest,
    SendWithHeaderWithTuserRequest,
    SendWithTuserRequest,
    to_attachments,
)
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER, Delivery, OnPoll, follow
from directsuite.wire.models import Secret, as_secret, require_instances


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
        poll = functools.partial(self.get_message_status, smtp_id, timeout=timeout)
        return await follow(self, poll, smtp_id, recipients=recipients, give_up_after=give_up_after, on_poll=on_poll)


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
