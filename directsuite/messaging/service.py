"""The facade of the messaging service: one Direct mailbox."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from directsuite.core.call import SETTLE
from directsuite.core.progress import Progress
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments, once, operations
from directsuite.messaging.account import checked_uids
from directsuite.messaging.changing import Changing
from directsuite.messaging.listings import Listings
from directsuite.messaging.models import (
    DirectMessageStatusReportResponse,
    Message,
    MessageWithHeader,
    Recipient,
    SendMessageResponse,
    SendRequest,
    SendRequestWithHeader,
    SmtpIdsRequest,
)
from directsuite.messaging.sending import send_body
from directsuite.messaging.tracking import GIVE_UP_AFTER, Delivery, follow

M = TypeVar("M", bound=Message)


class Mailbox(Listings, Changing):
    """A Direct mailbox: sending, delivery status, folders and messages. `suite.mailbox(...)`; needs `message_url`.

    Cheap: it holds no connection. Every method raises TransportError where no usable answer came, ServiceError where
    the service said no. A message that may have gone is sent again by `send_once(resend=True)` only: all others raise
    OutcomeUnknownError then.
    """

    async def send(
        self, message: Message, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message; it is stored unread in INBOX.Sent.

        Operation Send (specification 4.C). progress: see `Progress`; it is told of all attachments together that are
        streamed (`Attachment.from_path`, `from_file`, `from_stream`), and of nothing where there is none. Without
        `timeout` such a message, and one with more than 256 KB of contents in memory, takes as long as it flows: beyond
        the suite's `timeout`, a pause of `attempt_timeout` seconds ends it.
        """
        if isinstance(message, MessageWithHeader):
            raise InvalidArgumentError("this message has headers: use send_with_header", parameter="message")
        message = self._checked(message)
        body = await send_body(
            self._transport.codec, SendRequest(authentication=self._authentication, message=message), progress
        )
        return await self._call(operations.SEND, body=body, timeout=timeout)

    async def send_with_header(
        self, message: MessageWithHeader, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message with header lines of one's own; it is stored unread in INBOX.Sent.

        Operation SendWithHeader (specification 4.C). progress, timeout: as for `send`.
        """
        message = self._checked(message)
        body = await send_body(
            self._transport.codec, SendRequestWithHeader(authentication=self._authentication, message=message), progress
        )
        return await self._call(operations.SEND_WITH_HEADER, body=body, timeout=timeout)

    async def send_once(
        self,
        message: Message,
        *,
        key: str | None = None,
        since: datetime | None = None,
        settle: float = SETTLE,
        resend: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message; where the answer gets lost, look in INBOX.Sent whether it went.

        Operation SendWithHeader (specification 4.C) with a header `X-Request-ID`, a hash of `key` that recipients see.
        key: your own name for this message, which makes the promise hold across a crash: call again with the same key
        and `since`, and a message that is there already is not sent again. settle: seconds to look for it, in which its
        request may still arrive. Raises OutcomeUnknownError where it may or may not have gone.

        since: the time of the first attempt, where there may have been one. The message is then looked for before it is
        sent, for the settle time from now, since the last attempt may just have been made. It is sent where it surely
        isn't there: INBOX.Sent has no message at all since then, or this server was seen to show `X-Request-ID` in the
        metadata of one (other headers don't tell). Anything else raises OutcomeUnknownError, as does a `timeout` that
        is not longer than `settle`. An error of the look itself says nothing of the attempts before.

        resend: where it isn't found in the settle time, send it again under the same key; only on a server that was
        seen to show such headers, and where `timeout`, which bounds all of it, leaves time. The second send's failure
        is told only where it is about the message itself, else as the cause of the first's. The event
        OutcomeLeftUnknown tells of the first request even where the second goes through, which leaves open what became
        of that one.

        progress: as for `send`; a second send begins at 0 again, and of the looks it is told nothing. timeout: bounds
        all of it, and is the suite's where it isn't given. Unlike `send`, a message that flows is not
        waited for beyond that: one whose streamed attachments take long to send needs a `timeout` that is long enough.
        """
        message = self._checked(message)
        sending = once.SendOnce(key=key, since=since, settle=settle, resend=resend)
        return await sending.send(self, message, self._deadline(timeout), progress)

    async def forward(
        self,
        folder: str,
        uids: Iterable[int],
        recipients: Iterable[Recipient | str] = (),
        *,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Forward messages of a folder; several go as attachments of one message, which is stored in INBOX.Sent.

        Operation Forward (specification 4.C). Raises InvalidArgumentError where `uids` is empty.
        """
        listed = checked_uids(uids)
        if not listed:
            raise InvalidArgumentError("name at least one message to forward", parameter="uids")
        body = self._uids_body(listed, arguments.recipients(recipients))
        return await self._call(operations.FORWARD, folder, body=body, timeout=timeout)

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """How far a message has come, for each of its recipients. smtp_id: what `send` returned.

        Operation GetMessageStatus (specification 4.C).
        """
        return await self._call(operations.GET_MESSAGE_STATUS, smtp_id, body=self._credentials, timeout=timeout)

    async def get_message_statuses(
        self, smtp_ids: Iterable[str], *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """As `get_message_status`, for several messages in one request. With none, nothing is sent.

        Operation GetMessageStatus for many (specification 4.C).
        """
        listed = arguments.texts(smtp_ids, "smtp_ids")
        if not listed:
            return DirectMessageStatusReportResponse(success=True)
        body = self._body(SmtpIdsRequest(auth=self._authentication, smtp_ids=listed))
        return await self._call(operations.GET_MESSAGE_STATUS_MANY, body=body, timeout=timeout)

    async def track(
        self,
        smtp_id: str,
        *,
        recipients: int | Iterable[Recipient | str] = 1,
        give_up_after: float = GIVE_UP_AFTER,
        timeout: float | None = None,
    ) -> Delivery:
        """Follow a message until each recipient has come to an end; what became of it. smtp_id: what `send` returned.

        An end is Delivered, Locally Failed, Remotely Failed or NO MDN Received (after one hour); a confirmation that
        comes later is not waited for. It is looked at with GetMessageStatus (specification 4.C): at once, after 5
        seconds, and at twice its age each time, eleven times within the hour. recipients: who they are, of whom one
        that is named twice is one, or how many, at the least; until so many are seen it isn't over, as it isn't while
        the service doesn't know it.

        give_up_after: seconds from now; what is known then is returned, `given_up`, or the error raised of a look that
        fails then. A look that fails before is made again; only what another would repeat, such as AuthenticationError,
        is raised at once. timeout: of each look. For many messages, or across restarts: `directsuite.jobs.delivery`.
        """
        ask = functools.partial(self.get_message_status, smtp_id, timeout=timeout)
        return await follow(self, ask, smtp_id, recipients=recipients, give_up_after=give_up_after)

    def _checked(self, message: M) -> M:
        return arguments.checked_message(message, self._username)
