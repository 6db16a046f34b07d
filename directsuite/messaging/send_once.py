"""Send a message only once: if the response to the request is lost, search for the message in INBOX.Sent.

Terms: the *request id* is the value of the header `X-Request-ID`, by which a message is found. A server *shows request
ids* if its metadata contain this header. The *settle time* is how long to search, because a request may still arrive.

    since given ─► search INBOX.Sent for the settle time
                     ├─► found: return the response
                     ├─► OutcomeUnknownError if there are messages of that time, but the server has shown no request id
                     └─► not found: search the other folders
                           ├─► found: return the response
                           ├─► OutcomeUnknownError if since is in the future, the folders can't be searched, or one
                           │   has a message that may be the copy, but the server has shown no request id
                           └─► not found: send, as below

    send ─► response: return it
      └─► response lost: search INBOX.Sent for the settle time
            ├─► found: return the response
            ├─► OutcomeUnknownError, unless resend is True and the server has shown request ids
            └─► not found, with resend: search the other folders, then send again
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr
from typing import Protocol, Self

import attrs

from directsuite.core.call import ExchangeInfo
from directsuite.core.clock import Clock
from directsuite.core.transport import Polling
from directsuite.errors import (
    AddressError,
    BadRequestError,
    ClosedError,
    DirectSuiteError,
    InvalidArgumentError,
    OutcomeUnknownError,
)
from directsuite.messaging import arguments, operations
from directsuite.messaging.confirmations import Deadline
from directsuite.messaging.models import (
    Message,
    MessageDetail,
    MessageHeader,
    MessageWithHeader,
    SendMessageResponse,
)
from directsuite.wire.values import read_http_date

SENT_FOLDER = "INBOX.Sent"
REQUEST_ID_HEADER = "X-Request-ID"
MAX_CLOCK_SKEW = timedelta(minutes=15)
"""How far the server's clock may be behind the local clock."""
MAX_SINCE_CLOCK_SKEW = timedelta(days=1)
"""How far the server's clock may be behind the clock that set `since`, which may be corrected by now."""

# The share of the call's time that is reserved for a second attempt.
_RESEND_BUDGET = 1 / 6
_HINT_LONGER_TIMEOUT = (
    "call again with a timeout longer than settle, so that time is left to send the message after the search."
)
_HINT_CHECK_MANUALLY = (
    "look in INBOX.Sent for the message (get_message_metadata('INBOX.Sent')), and in the other folders. Only if it is "
    "in none of them, call again without since."
)

_STRICT_HEADER_PATHS = frozenset(
    f"$.messages[]{path}" for path in ("", ".headers", ".headers[]", ".headers[].name", ".headers[].value")
)
"""JSON paths that a search must be able to read, because an unreadable header might contain the request id."""
_STRICT_FOLDER_PATHS = frozenset({"$.folders[]"})
"""JSON paths that must be readable in the list of the folders to search."""


class Absence(enum.Enum):
    """The result of the last search for the message in INBOX.Sent."""

    UNPROVEN = enum.auto()
    """The message was found, no search has succeeded, or the server may hide request ids."""
    FOLDER_EMPTY = enum.auto()
    """No message was found at all. A message of an earlier call is absent. One of this call may still arrive."""
    PROVEN = enum.auto()
    """The message is absent: it was not found, and the server has shown request ids."""


class _SearchableMailbox(Protocol):
    def with_strict_paths(self, paths: frozenset[str]) -> Self: ...
    def with_observer(self, observe: Callable[[ExchangeInfo], object]) -> Self: ...
    async def get_folders(self, *, timeout: float | None = None) -> list[str]: ...
    async def search_messages_metadata_by_received_date(
        self, folder: str, begin: datetime | None, end: datetime | None, *, timeout: float | None = None
    ) -> list[MessageDetail]: ...


@attrs.define(eq=False, repr=False)
class SentMessage:
    """A message that may be in INBOX.Sent."""

    sender: str
    """The Direct address of the mailbox."""
    request_id: str
    """The message's request id."""
    since: datetime | None
    """The time of the first attempt. None if unknown: then a search that finds nothing proves nothing."""
    deadline: Deadline
    """The deadline of the complete `send_once` call."""
    skew: timedelta = MAX_CLOCK_SKEW
    """How far the server's clock may be behind the clock that set `since`."""
    absence: Absence = Absence.UNPROVEN
    """The result of the last call of `find`, or of `find_in_other_folders` if that changed it."""
    # True if a search of INBOX.Sent has found a request id, of this or another message.
    _is_header_exposed: bool = attrs.field(default=False, init=False)

    @property
    def is_absent(self) -> bool:
        """True if the searches prove that no earlier call has sent the message."""
        return self.since is not None and self.absence is not Absence.UNPROVEN

    async def find(self, box: _SearchableMailbox) -> SendMessageResponse | None:
        """Search INBOX.Sent, and set `absence`. Return the lost response, or None if the message was not found."""
        self.absence = Absence.UNPROVEN
        messages = await self._search(box, SENT_FOLDER)
        for message in messages:
            request_ids = _read_request_ids(message)
            self._is_header_exposed = self._is_header_exposed or bool(request_ids)
            if self.request_id in request_ids:
                return _make_response(message)
        if self._is_header_exposed:
            self.absence = Absence.PROVEN
        elif not messages:
            self.absence = Absence.FOLDER_EMPTY
        return None

    async def find_in_other_folders(self, box: _SearchableMailbox) -> SendMessageResponse | None:
        """Search the other folders, because the copy may have been moved. Return as `find`.

        If they have a message that may be the copy, and the server has shown the request id of no message that this
        address has sent, set `absence` to UNPROVEN. Request ids of received messages, such as all in INBOX, prove
        nothing, because the server may show them only there. Folders whose listed names are not valid in a request are
        skipped. Raises ResponseDecodeError if a name is unreadable.
        """
        view = box.with_strict_paths(_STRICT_FOLDER_PATHS)
        names = await view.get_folders(timeout=self.deadline.require_time_left())
        own, may_have_copy, is_header_exposed = self.sender.casefold(), False, self._is_header_exposed
        for folder in (arguments.INBOX, *names):
            if _can_be_named(folder) and folder.casefold() != SENT_FOLDER.casefold():
                for message in await self._search(box, folder):
                    request_ids = _read_request_ids(message)
                    if self.request_id in request_ids:
                        return _make_response(message)
                    sender = (message.sender or "").casefold()
                    if not request_ids:
                        may_have_copy = may_have_copy or not sender or own in sender
                    elif folder.upper() != arguments.INBOX and parseaddr(sender)[1] == own:
                        is_header_exposed = True
        if may_have_copy and not is_header_exposed:
            self.absence = Absence.UNPROVEN
        return None

    async def _search(self, box: _SearchableMailbox, folder: str) -> list[MessageDetail]:
        """Return the metadata of the messages received since `since`.

        Return that of all messages if that is None, or the local clock is more than MAX_CLOCK_SKEW ahead of the
        server's.
        """
        begin: datetime | None = None
        if self.since is not None:
            begin = max(arguments.clamp_datetime(self.since), arguments.MIN_DATETIME + self.skew) - self.skew
        exchanges: list[ExchangeInfo] = []
        view = box.with_strict_paths(_STRICT_HEADER_PATHS).with_observer(exchanges.append)
        search = view.search_messages_metadata_by_received_date
        found = await search(folder, begin, None, timeout=self.deadline.require_time_left())
        if begin is not None and exchanges and _is_clock_ahead(exchanges[-1].response.headers):
            found = await search(folder, None, None, timeout=self.deadline.require_time_left())
        return found


async def find_earlier_message(
    sent: SentMessage, box: _SearchableMailbox, polling: Polling, clock: Clock
) -> SendMessageResponse | None:
    """Search for a message that an earlier call may have sent.

    Return the lost response, or None if the message is proven to be absent and may be sent. Raises OutcomeUnknownError
    if neither is proven, or the deadline passes. An error of the search of INBOX.Sent is raised unchanged.

    polling: the pauses between searches, until the end of the settle time.
    """
    began = clock.monotonic()
    failure: DirectSuiteError | None = None
    text, how_to_find_out = "the call's timeout expired before the settle time ended", _HINT_LONGER_TIMEOUT
    looked = False
    try:
        async with asyncio.timeout_at(sent.deadline.expires_at):
            is_last = False
            while not is_last:
                is_last = polling.is_over
                if (response := await sent.find(box)) is not None:
                    return response
                if not is_last:
                    await polling.pause()
            if sent.absence is not Absence.UNPROVEN:
                try:
                    response = await sent.find_in_other_folders(box)
                    if response is not None or sent.is_absent:
                        return response
                except (TimeoutError, ClosedError):
                    raise
                except DirectSuiteError as error:  # the message may be in one of the folders
                    failure = error
    except TimeoutError:  # raised by asyncio.timeout_at, or by a search
        pass
    else:
        how_to_find_out, looked = _HINT_CHECK_MANUALLY, failure is None
        if failure is not None:
            text = "its copy may be in a folder that cannot be searched"
        elif sent.since is None:
            text = "since is in the future, so a clock is wrong, and a search that finds nothing proves nothing"
        else:
            text = (
                "the server shows the X-Request-ID of no message from this address, so a search that finds nothing "
                "proves nothing"
            )
    operation = operations.SEND_WITH_HEADER
    unknown = OutcomeUnknownError(
        f"an earlier attempt may or may not have sent the message: {text}",
        how_to_find_out=how_to_find_out,
        operation=operation.name,
        service=operation.service,
    )
    unknown.looked, unknown.elapsed = looked, clock.monotonic() - began
    raise unknown from failure


async def send(
    attempt: Callable[[float], Awaitable[SendMessageResponse]],
    sent: SentMessage,
    box: _SearchableMailbox,
    *,
    settle: float,
    resend: bool,
) -> SendMessageResponse:
    """Send the message with `attempt`, and return the response.

    attempt: sends the message within a number of seconds. If the response is lost, it searches INBOX.Sent for the
        settle time, and raises OutcomeUnknownError if the message was not found.
    settle: settle time in seconds.
    resend: make a second attempt if the message is proven to be absent and time is left.

    Raises the error of the first attempt. If the second one fails with AddressError, BadRequestError or
    OutcomeUnknownError, that is raised instead.
    """
    time_left = sent.deadline.require_time_left()
    if resend:
        time_left -= max(0.0, min(time_left * _RESEND_BUDGET, (time_left - settle) / 2))
    try:
        return await attempt(time_left)
    except OutcomeUnknownError as error:
        # `looked` is True only after the complete settle time. Before that, the first request may still arrive.
        surely_absent = error.looked and sent.absence is Absence.PROVEN
        if not (resend and surely_absent) or sent.deadline.passed:
            raise
        first = error
    is_searched = False
    try:
        if (response := await sent.find_in_other_folders(box)) is not None:
            return response
        is_searched = True
        return await attempt(sent.deadline.require_time_left())
    except Exception as failure:
        if is_searched and isinstance(failure, AddressError | BadRequestError | OutcomeUnknownError):
            raise  # the message itself was rejected, or the outcome is unknown
        failure.__cause__, first.__cause__ = failure.__cause__ or first.__cause__, failure
    raise first.with_traceback(None)


def _can_be_named(folder: str) -> bool:
    try:
        operations.GET_UIDS.validate_segments((folder,))
    except InvalidArgumentError:
        return False
    return True


def validate_arguments(key: object, since: datetime | None) -> None:
    """Raise InvalidArgumentError if an argument of `send_once` is invalid, or `since` is given without `key`."""
    if key is not None:
        validate_key(key)
    elif since is not None:
        raise InvalidArgumentError("must be the key of the first attempt if since is given", parameter="key")
    if since is not None:
        arguments.validate_aware(since, "since")


def validate_key(key: object) -> None:
    """Raise InvalidArgumentError if the key is not a non-empty str that can be encoded as UTF-8."""
    if not isinstance(key, str) or not key:
        raise InvalidArgumentError("must be a non-empty string, or None for a random key", parameter="key")
    if any("\ud800" <= char <= "\udfff" for char in key):
        raise InvalidArgumentError("it contains half of a surrogate pair, which UTF-8 cannot encode", parameter="key")


def make_request_id(address: str, key: str) -> str:
    """Return the request id for a caller's key: a hash, because recipients can see it.

    address: the Direct address of the mailbox. The same key has a different request id in another mailbox.
    """
    return hashlib.sha256(f"directsuite\0{address.lower()}\0{key}".encode()).hexdigest()[:32]


def add_request_id(message: Message, request_id: str) -> MessageWithHeader:
    """Return a copy of the message with the request id. Raises InvalidArgumentError if it has an `X-Request-ID`."""
    headers = list(message.headers) if isinstance(message, MessageWithHeader) else []
    if any((header.name or "").lower() == REQUEST_ID_HEADER.lower() for header in headers):
        raise InvalidArgumentError(
            f"must not contain {REQUEST_ID_HEADER}, because send_once sets it", parameter="headers"
        )
    fields = {field.name: getattr(message, field.name) for field in attrs.fields(Message)}
    return MessageWithHeader(**fields, headers=[*headers, MessageHeader(REQUEST_ID_HEADER, request_id)])


def _is_clock_ahead(headers: Mapping[str, str]) -> bool:
    server_time = read_http_date(headers.get("Date", ""))
    return server_time is not None and datetime.now(UTC) - server_time > MAX_CLOCK_SKEW


def _make_response(message: MessageDetail) -> SendMessageResponse:
    return SendMessageResponse(success=True, code=0, smtp_id=message.msg_id or "")


def _read_request_ids(message: MessageDetail) -> set[str]:
    values = (
        header.value for header in message.headers if (header.name or "").strip().lower() == REQUEST_ID_HEADER.lower()
    )
    return {request_id for value in values if (request_id := (value or "").strip().lower())}
