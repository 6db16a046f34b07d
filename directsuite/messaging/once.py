"""Sending once: a mark in the message's header by which it can be found in INBOX.Sent, should its answer get lost.

since given ─► find it ─► there: its answer
                 │ not there
                 └─► send ─► lost: find it, for the settle time ─► there: its answer
                               │ not there
                               └─► OutcomeUnknownError, or with resend and a server that shows marks: send again
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from datetime import UTC, datetime, timedelta

import attrs

from directsuite.core.call import Proof
from directsuite.errors import DirectSuiteError, InvalidArgumentError, Outcome, OutcomeUnknownError
from directsuite.messaging import arguments, operations
from directsuite.messaging.deadline import Deadline
from directsuite.messaging.models import (
    Message,
    MessageHeader,
    MessageWithHeader,
    SendMessageResponse,
    SendRequestWithHeader,
)
from directsuite.messaging.reading import Reading
from directsuite.messaging.sending import send_body

SENT = "INBOX.Sent"
REQUEST_ID = "X-Request-ID"
CLOCK_SKEW = timedelta(minutes=15)
"""How far the server's clock may be behind ours."""

_SHARE_OF_THE_SECOND = 1 / 6  # of the call's time


@attrs.frozen(kw_only=True)
class SendOnce:
    """How a message is sent once: the parameters of `send_once`, checked."""

    key: str | None
    since: datetime | None
    settle: float
    resend: bool

    def __attrs_post_init__(self) -> None:
        if self.key is not None:
            _refuse_key(self.key)
        elif self.since is not None:
            raise InvalidArgumentError("with since, give the key of the first attempt", parameter="key")
        if self.since is not None:
            arguments.aware(self.since, "since")
        if not self.settle >= 0:
            raise InvalidArgumentError("give seconds, 0 or more", parameter="settle")

    async def send(self, mailbox: Reading, message: Message, deadline: Deadline) -> SendMessageResponse:
        """The answer to the send, or what it would have been, from the message that is there."""
        mark = request_id(mailbox._username, secrets.token_hex(16) if self.key is None else self.key)
        request = SendRequestWithHeader(authentication=mailbox._authentication, message=marked(message, mark))
        now = datetime.now(UTC)
        sent = SentMessage(mark, deadline, now if self.since is None else min(self.since, now))
        if self.since is not None and (found := await sent.find(mailbox)) is not None:
            return found
        look = functools.partial(sent.find, mailbox._within_a_call())

        async def attempt(timeout: float) -> SendMessageResponse:
            """One send, whose lost answer is looked for."""
            return await mailbox._call(
                operations.SEND_WITH_HEADER,
                body=send_body(request),
                timeout=timeout,
                proof=Proof(look=look, seconds=self.settle),
            )

        try:
            return await attempt(self._time_of_the_first(deadline.left()))
        except OutcomeUnknownError as error:
            # Until the settle time is over the first request may still arrive; a look that failed saw nothing.
            surely_absent = error.looked and sent.absent and sent.shows_marks
            if not (self.resend and surely_absent) or deadline.passed:
                raise
            first = error
        try:
            return await attempt(deadline.left())
        except DirectSuiteError as error:
            if error.outcome not in (Outcome.NOT_SENT, Outcome.REJECTED):
                raise
        raise first.with_traceback(None)  # that this one was not sent says nothing of the first

    def _time_of_the_first(self, left: float) -> float:
        """Seconds of those left that the first send and its settling may take, so that a second one finds some."""
        if not self.resend:
            return left
        return left - max(0.0, min(left * _SHARE_OF_THE_SECOND, (left - self.settle) / 2))


@attrs.define
class SentMessage:
    """A message that may be in INBOX.Sent.

    shows_marks: whether this server was seen to show such marks in metadata. absent: whether the last look saw the
    folder, without it.
    """

    mark: str
    deadline: Deadline
    since: datetime
    shows_marks: bool = False
    absent: bool = False

    async def find(self, mailbox: Reading) -> SendMessageResponse | None:
        """The answer that its send would have got, where it is there."""
        self.absent = False
        begin = max(arguments.within_years(self.since), arguments.FIRST + CLOCK_SKEW) - CLOCK_SKEW
        for message in await mailbox.search_messages_metadata_by_received_date(
            SENT, begin, None, timeout=self.deadline.left()
        ):
            marks = [header.value for header in message.headers if (header.name or "").lower() == REQUEST_ID.lower()]
            self.shows_marks = self.shows_marks or bool(marks)
            if self.mark in marks:
                return SendMessageResponse(success=True, code=0, smtp_id=message.msg_id)
        self.absent = True
        return None


def request_id(address: str, key: str) -> str:
    """The mark that stands for a caller's key: a hash, since the recipients see it."""
    return hashlib.sha256(f"directsuite\0{address.lower()}\0{key}".encode()).hexdigest()[:32]


def marked(message: Message, mark: str) -> MessageWithHeader:
    """The message with the mark in its header."""
    headers = list(message.headers) if isinstance(message, MessageWithHeader) else []
    if any((header.name or "").lower() == REQUEST_ID.lower() for header in headers):
        raise InvalidArgumentError(f"leave {REQUEST_ID} out: send_once sets it", parameter="headers")
    return MessageWithHeader(
        sender=message.sender,
        subject=message.subject,
        body=message.body,
        html_body=message.html_body,
        recipients=message.recipients,
        attachment_list=message.attachment_list,
        headers=[*headers, MessageHeader(REQUEST_ID, mark)],
        extra=message.extra,
    )


def _refuse_key(key: object) -> None:
    if not isinstance(key, str) or not key:
        raise InvalidArgumentError("give a text that is not empty, or None for one of its own", parameter="key")
    try:
        key.encode()
    except UnicodeEncodeError:  # which would show the key
        pass
    else:
        return
    raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter="key")
