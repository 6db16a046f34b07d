"""Sending once: a mark in the message's header by which it can be found in INBOX.Sent, should its answer get lost.

since given ─► find it, for the settle time ─► there: its answer
                 │ not there
                 ├─► OutcomeUnknownError, unless this server shows marks or the folder has no message of that time
                 └─► send ─► lost: find it, for the settle time ─► there: its answer
                               │ not there
                               └─► OutcomeUnknownError, or with resend and a server that shows marks: send again
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import secrets
from datetime import UTC, datetime, timedelta

import attrs

from directsuite.core.call import Proof
from directsuite.core.checks import DURATION
from directsuite.core.progress import Progress, refuse_progress
from directsuite.errors import AddressError, BadRequestError, InvalidArgumentError, OutcomeUnknownError
from directsuite.messaging import arguments, operations
from directsuite.messaging.deadline import Deadline
from directsuite.messaging.models import (
    Message,
    MessageDetail,
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
_IN_A_WHILE = "call again with a timeout longer than settle, which leaves time to look for it and to send it."
_BY_HAND = (
    "look in INBOX.Sent for the message (get_message_metadata('INBOX.Sent')); only where it isn't there, "
    "call again without since."
)


@attrs.frozen(kw_only=True)
class SendOnce:
    """How a message is sent once: the parameters of `send_once`, checked."""

    key: str | None = attrs.field(repr=False)
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
        if not (DURATION.fits(self.settle) and self.settle >= 0):
            raise InvalidArgumentError("give seconds, 0 or more", parameter="settle")

    async def send(
        self, mailbox: Reading, message: Message, deadline: Deadline, progress: Progress | None
    ) -> SendMessageResponse:
        """The answer to the send, or what it would have been, from the message that is there."""
        refuse_progress(progress)
        mark = request_id(mailbox._username, secrets.token_hex(16) if self.key is None else self.key)
        request = SendRequestWithHeader(authentication=mailbox._authentication, message=marked(message, mark))
        now = datetime.now(UTC)
        sent = SentMessage(mark, deadline, now if self.since is None else min(self.since, now))
        if self.since is not None and (found := await self._of_an_earlier_attempt(mailbox, sent)) is not None:
            return found
        look = functools.partial(sent.find, mailbox._within_a_call())

        async def attempt(timeout: float) -> SendMessageResponse:
            """One send, whose lost answer is looked for."""
            return await mailbox._call(
                operations.SEND_WITH_HEADER,
                body=await send_body(mailbox._transport.codec, request, progress),
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
        except (AddressError, BadRequestError, OutcomeUnknownError):
            raise  # a refusal is of the message itself, which the first request held too
        except Exception as failure:  # noqa: BLE001  whatever kept this one back says nothing of the first
            failure.__cause__, first.__cause__ = failure.__cause__ or first.__cause__, failure
        raise first.with_traceback(None)

    async def _of_an_earlier_attempt(self, mailbox: Reading, sent: SentMessage) -> SendMessageResponse | None:
        """The answer to an attempt before this call, whose request may still arrive; None where surely none does.

        Raises OutcomeUnknownError where that can't be told.
        """
        clock = mailbox._transport._clock
        began, looking = clock.monotonic(), mailbox._transport.looking(self.settle)
        text, how_to_find_out, looked = "the call's time was up before the settle time was", _IN_A_WHILE, False
        try:
            async with asyncio.timeout_at(sent.deadline.at):
                while True:
                    over = looking.over
                    if (found := await sent.find(mailbox)) is not None:
                        return found
                    if over:
                        break
                    await looking.pause()
        except TimeoutError:  # a look's own too
            pass
        else:
            if sent.shows_marks or sent.nothing_there:
                return None
            text, how_to_find_out, looked = "no message of that time shows a mark", _BY_HAND, True
        operation = operations.SEND_WITH_HEADER
        error = OutcomeUnknownError(
            f"an earlier attempt may or may not have sent it: {text}",
            how_to_find_out=how_to_find_out,
            operation=operation.name,
            service=operation.service,
        )
        error.looked, error.elapsed = looked, clock.monotonic() - began
        raise error

    def _time_of_the_first(self, left: float) -> float:
        """Seconds of those left that the first send and its settling may take, so that a second one finds some."""
        if not self.resend:
            return left
        return left - max(0.0, min(left * _SHARE_OF_THE_SECOND, (left - self.settle) / 2))


@attrs.define
class SentMessage:
    """A message that may be in INBOX.Sent.

    shows_marks: whether this server was seen to show such marks in metadata; other header lines in there don't tell.
    absent: whether the last look saw the folder, without it. nothing_there: nor any other message of that time.
    """

    mark: str
    deadline: Deadline
    since: datetime
    shows_marks: bool = False
    absent: bool = False
    nothing_there: bool = False

    async def find(self, mailbox: Reading) -> SendMessageResponse | None:
        """The answer that its send would have got, where it is there."""
        self.absent = self.nothing_there = False
        begin = max(arguments.within_years(self.since), arguments.FIRST + CLOCK_SKEW) - CLOCK_SKEW
        messages = await mailbox.search_messages_metadata_by_received_date(
            SENT, begin, None, timeout=self.deadline.left()
        )
        for message in messages:
            marks = _marks_of(message)
            self.shows_marks = self.shows_marks or bool(marks)
            if self.mark in marks:
                return SendMessageResponse(success=True, code=0, smtp_id=message.msg_id or "")
        self.absent, self.nothing_there = True, not messages
        return None


def request_id(address: str, key: str) -> str:
    """The mark that stands for a caller's key: a hash, since the recipients see it."""
    return hashlib.sha256(f"directsuite\0{address.lower()}\0{key}".encode()).hexdigest()[:32]


def _marks_of(message: MessageDetail) -> set[str]:
    """The marks that a listing shows: one without a value, or in another form, must not pass for another's."""
    values = (header.value for header in message.headers if (header.name or "").strip().lower() == REQUEST_ID.lower())
    return {mark for value in values if (mark := (value or "").strip().lower())}


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
