"""Sending once: a mark in the message's header by which it can be found in INBOX.Sent, should its answer get lost.

since given ─► find it, for the settle time ─► there: its answer
                 │ not there
                 ├─► OutcomeUnknownError, unless this server shows marks or the folder has no message of that time,
                 │   and if since is in the future
                 ├─► somebody has filed it in another folder: its answer
                 └─► send ─► lost: find it, for the settle time ─► there: its answer
                               │ not there
                               └─► OutcomeUnknownError, or with resend and a server that shows marks: find it in the
                                   other folders, and send again
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

import attrs

from directsuite.core.checks import DURATION
from directsuite.core.clock import Clock
from directsuite.core.transport import Polling
from directsuite.errors import (
    AddressError,
    BadRequestError,
    ClosedError,
    DeadlineExceededError,
    DirectSuiteError,
    InvalidArgumentError,
    Outcome,
    OutcomeUnknownError,
)
from directsuite.messaging import arguments, operations
from directsuite.messaging.models import (
    Message,
    MessageDetail,
    MessageHeader,
    MessageWithHeader,
    SendMessageResponse,
)

T = TypeVar("T")

SENT = "INBOX.Sent"
REQUEST_ID = "X-Request-ID"
CLOCK_SKEW = timedelta(minutes=15)
"""How far the server's clock may be behind ours."""
CLOCK_SKEW_BEFORE = timedelta(days=1)
"""How far it may have been behind the clock that set `since`, which may have been corrected in the meantime."""

_SHARE_OF_THE_SECOND = 1 / 6  # of the call's time
_IN_A_WHILE = "call again with a timeout longer than settle, which leaves time to look for it and to send it."
_BY_HAND = (
    "look in INBOX.Sent for the message (get_message_metadata('INBOX.Sent')), and in the other folders; only where it "
    "isn't there, call again without since."
)

STRICT_PATHS = frozenset(
    f"$.messages[]{path}" for path in ("", ".headers", ".headers[]", ".headers[].name", ".headers[].value")
)
"""What a search for a mark must read: a message or header that cannot be read might have the mark."""
STRICT_NAMES = frozenset({"$.folders[]"})
"""What it must read in a list of the folders to search."""

Search = Callable[[datetime | None, float], Awaitable[Sequence[MessageDetail]]]
"""Returns the metadata of the messages received since a time (None: of all), in INBOX.Sent or in all other folders. The
second argument is the time limit in seconds.
"""


class Evidence(enum.Enum):
    """What the last search of INBOX.Sent says of a message."""

    FOUND = enum.auto()
    """It is there."""
    ABSENT = enum.auto()
    """It is not there, and this server was seen to show marks."""
    FOLDER_EMPTY = enum.auto()
    """It is not there, nor is any other message of that time; whether this server shows marks is not known."""
    NO_MARKS_SHOWN = enum.auto()
    """Messages are there, and none shows a mark: other header lines don't tell whether this server shows any."""
    NOT_SEEN = enum.auto()
    """The search failed, or there was none."""

    def allows_sending(self, *, after_a_send: bool) -> bool:
        """Return True if the message surely isn't there. after_a_send: this call has sent it, perhaps to no effect."""
        match self:
            case Evidence.ABSENT:
                return True
            case Evidence.FOLDER_EMPTY:
                return not after_a_send
            case Evidence.FOUND | Evidence.NO_MARKS_SHOWN | Evidence.NOT_SEEN:
                return False


@attrs.frozen(eq=False)
class Deadline:
    """The end of a method that makes several requests, each of which gets what is left of its time."""

    at: float
    """In the event loop's time."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment so many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.at <= asyncio.get_running_loop().time()

    def left(self) -> float:
        """Seconds for the next request; DeadlineExceededError where there are none."""
        if self.passed:
            raise DeadlineExceededError("the call's time is up: nothing was sent", outcome=Outcome.NOT_SENT)
        return self.at - asyncio.get_running_loop().time()

    async def within(self, work: Awaitable[T]) -> T:
        """Return the result of work that sends nothing. Raises DeadlineExceededError if it takes longer."""
        limit = asyncio.timeout_at(self.at)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        raise DeadlineExceededError("the call's time is up: nothing was sent", outcome=Outcome.NOT_SENT)


@attrs.define(eq=False, repr=False)
class SentMessage:
    """A message that may be in INBOX.Sent."""

    mark: str
    since: datetime | None
    """The time of the first attempt to send it. None if that is not known, so that not finding it proves nothing."""
    deadline: Deadline
    """Of the whole method."""
    skew: timedelta = CLOCK_SKEW
    """How far the server's clock may be behind the one that gave `since`."""
    evidence: Evidence = Evidence.NOT_SEEN
    _marks_shown: bool = attrs.field(default=False, init=False)

    async def find(self, search: Search) -> SendMessageResponse | None:
        """The answer that its send would have got, where it is there. `evidence` says what was seen."""
        self.evidence = Evidence.NOT_SEEN
        messages = await search(self._begin, self.deadline.left())
        self.evidence, message = self._judge(messages)
        return None if message is None else _answer_of(message)

    async def find_filed(self, search: Search) -> SendMessageResponse | None:
        """The same, where somebody has moved its copy, or it came back: the search is of all other folders."""
        messages = await search(self._begin, self.deadline.left())
        return next((_answer_of(message) for message in messages if self.mark in _marks_of(message)), None)

    @property
    def _begin(self) -> datetime | None:
        if self.since is None:
            return None
        return max(arguments.within_years(self.since), arguments.FIRST + self.skew) - self.skew

    def _judge(self, messages: Sequence[MessageDetail]) -> tuple[Evidence, MessageDetail | None]:
        for message in messages:
            marks = _marks_of(message)
            self._marks_shown = self._marks_shown or bool(marks)
            if self.mark in marks:
                return Evidence.FOUND, message
        if self._marks_shown:
            return Evidence.ABSENT, None
        return Evidence.NO_MARKS_SHOWN if messages else Evidence.FOLDER_EMPTY, None


async def find_earlier(
    sent: SentMessage, search: Search, search_others: Search, polling: Polling, clock: Clock
) -> SendMessageResponse | None:
    """The answer to an attempt before this call, whose request may still arrive; None if surely none does.

    Raises OutcomeUnknownError where that can't be told.
    """
    began = clock.monotonic()
    text, how_to_find_out, looked = "the call's time was up before the settle time was", _IN_A_WHILE, False
    failure: DirectSuiteError | None = None
    try:
        async with asyncio.timeout_at(sent.deadline.at):
            while True:
                is_last = polling.is_over
                if (response := await sent.find(search)) is not None:
                    return response
                if is_last:
                    break
                await polling.pause()
            if sent.evidence.allows_sending(after_a_send=False):
                try:
                    response = await sent.find_filed(search_others)
                    if response is not None or sent.since is not None:
                        return response
                except (TimeoutError, ClosedError):
                    raise
                except DirectSuiteError as error:  # it says nothing of the message, which may have been filed there
                    failure = error
    except TimeoutError:  # the search's own too
        pass
    else:
        if failure is not None:
            text, how_to_find_out = "its copy may be in a folder that can't be searched", _BY_HAND
        elif sent.since is None:
            text = "since is in the future, so a clock was wrong, and that no search finds the message proves nothing"
            how_to_find_out, looked = _BY_HAND, True
        else:
            text, how_to_find_out, looked = "no message of that time shows a mark", _BY_HAND, True
    operation = operations.SEND_WITH_HEADER
    unknown = OutcomeUnknownError(
        f"an earlier attempt may or may not have sent it: {text}",
        how_to_find_out=how_to_find_out,
        operation=operation.name,
        service=operation.service,
    )
    unknown.looked, unknown.elapsed = looked, clock.monotonic() - began
    raise unknown from failure


async def send(
    attempt: Callable[[float], Awaitable[SendMessageResponse]],
    sent: SentMessage,
    search_others: Search,
    *,
    settle: float,
    resend: bool,
) -> SendMessageResponse:
    """The response of `attempt`, which sends the message within so many seconds, and looks for it without an answer.

    resend: make a second attempt where the first one's message surely isn't there.
    """
    left = sent.deadline.left()
    if resend:  # a second one is to find some time
        left -= max(0.0, min(left * _SHARE_OF_THE_SECOND, (left - settle) / 2))
    try:
        return await attempt(left)
    except OutcomeUnknownError as error:
        # Until the settle time is over the first request may still arrive.
        surely_absent = error.looked and sent.evidence.allows_sending(after_a_send=True)
        if not (resend and surely_absent) or sent.deadline.passed:
            raise
        first = error
    is_searched = False
    try:
        if (response := await sent.find_filed(search_others)) is not None:
            return response
        is_searched = True
        return await attempt(sent.deadline.left())
    except Exception as failure:  # whatever kept this one back says nothing of the first
        if is_searched and isinstance(failure, AddressError | BadRequestError | OutcomeUnknownError):
            raise  # a refusal is of the message itself, which the first request held too
        failure.__cause__, first.__cause__ = failure.__cause__ or first.__cause__, failure
    raise first.with_traceback(None)


def refuse(key: object, since: datetime | None, settle: float) -> None:
    """Raise InvalidArgumentError for parameters of `send_once` that would break its promise."""
    if key is not None:
        refuse_key(key)
    elif since is not None:
        raise InvalidArgumentError("with since, give the key of the first attempt", parameter="key")
    if since is not None:
        arguments.aware(since, "since")
    if not (DURATION.fits(settle) and settle >= 0):
        raise InvalidArgumentError("give seconds, 0 or more", parameter="settle")


def refuse_key(key: object) -> None:
    """Raise InvalidArgumentError for a key that no mark can stand for."""
    if not isinstance(key, str) or not key:
        raise InvalidArgumentError("give a text that is not empty, or None for one of its own", parameter="key")
    try:
        key.encode()
    except UnicodeEncodeError:  # which would show the key
        pass
    else:
        return
    raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter="key")


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


def is_clock_ahead(headers: Mapping[str, str]) -> bool:
    """Return True if our clock is further ahead of the server's, by a response's Date, than CLOCK_SKEW allows for."""
    try:
        server_time = parsedate_to_datetime(headers.get("Date", ""))
        return datetime.now(UTC) - server_time > CLOCK_SKEW
    except (ValueError, OverflowError, TypeError, IndexError):  # no date, a wrong one, or one without a time zone
        return False


def _answer_of(message: MessageDetail) -> SendMessageResponse:
    return SendMessageResponse(success=True, code=0, smtp_id=message.msg_id or "")


def _marks_of(message: MessageDetail) -> set[str]:
    """The marks that a listing shows: one without a value, or in another form, must not pass for another's."""
    values = (header.value for header in message.headers if (header.name or "").strip().lower() == REQUEST_ID.lower())
    return {mark for value in values if (mark := (value or "").strip().lower())}
