"""The facade of a T-User that acts for one Direct address."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from directsuite.core.events import Progress
from directsuite.core.facade import Facade
from directsuite.core.transport import Transport
from directsuite.messaging import arguments, operations
from directsuite.messaging.arguments import make_send_body
from directsuite.messaging.models import (
    AuthenticationWithTuser,
    DirectMessageStatusReportResponse,
    Message,
    MessageWithHeader,
    Recipient,
    SendMessageResponse,
    SendWithHeaderWithTuserRequest,
    SendWithTuserRequest,
)
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER, Delivery, OnPoll, follow
from directsuite.secret import Secret, as_secret


class TUser(Facade):
    """Sends messages and reads delivery statuses for a user's Direct address. `suite.tuser(...)`; needs `message_url`.

    `directsuite guide methods` lists the operation of each method (specification 4.C). Every method raises
    TransportError if there is no usable response, and ServiceError if the service rejects the request. A message that
    may have been sent is never sent again: OutcomeUnknownError is raised instead.
    """

    def __init__(self, transport: Transport, username: str, password: str | Secret, direct_addr: str) -> None:
        super().__init__(transport)
        password = as_secret(password)
        self._address = arguments.validate_address(direct_addr, "direct_addr")
        self._authentication = AuthenticationWithTuser(username=username, password=password, direct_addr=direct_addr)

    async def send(
        self, message: Message, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message. The service stores an unread copy in the user's INBOX.Sent. See `Mailbox.send`."""
        if isinstance(message, MessageWithHeader):
            return await self.send_with_header(message, progress=progress, timeout=timeout)
        message = arguments.validate_message(message, self._address)
        request = SendWithTuserRequest(authentication=self._authentication, message=message)
        prepare = functools.partial(make_send_body, self._transport.codec, request, progress)
        return await self._call(operations.SEND_WITH_TUSER, prepare=prepare, timeout=timeout)

    async def send_with_header(
        self, message: MessageWithHeader, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message with additional headers. See `Mailbox.send`."""
        message = arguments.validate_message(message, self._address)
        request = SendWithHeaderWithTuserRequest(authentication=self._authentication, message=message)
        prepare = functools.partial(make_send_body, self._transport.codec, request, progress)
        return await self._call(operations.SEND_WITH_HEADER_WITH_TUSER, prepare=prepare, timeout=timeout)

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """Return the delivery status of a message for each of its recipients.

        smtp_id: the `smtp_id` of the response to `send`.
        """
        body = self._encode_body(self._authentication)
        return await self._call(operations.GET_MESSAGE_STATUS_WITH_TUSER, smtp_id, body=body, timeout=timeout)

    async def track(
        self,
        smtp_id: str,
        *,
        recipients: int | Iterable[Recipient | str] = 1,
        give_up_after: float = DEFAULT_GIVE_UP_AFTER,
        on_poll: OnPoll | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Wait until a message has a final status for every recipient, and return the statuses. See `Mailbox.track`."""
        poll = functools.partial(self.get_message_status, smtp_id, timeout=timeout)
        return await follow(self, poll, smtp_id, recipients=recipients, give_up_after=give_up_after, on_poll=on_poll)
