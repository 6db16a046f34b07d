"""A sent message's way to its recipients: which status is an end, and when it is worth polling again.

Each poll comes when the message is twice as old as at the one before. So what took a minute is known within another,
and a message that nobody confirms costs eleven polls until the hour at which the service itself gives up waiting for
the confirmation (specification section 8); from there on the distances begin anew.

    age   5 s   10 s   20 s   40 s   80 s   …   43 min   1 h   1 h 2 min   1 h 4 min   …   given up
                                                         └── the service says NO MDN Received by then
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from directsuite.core.checks import POSITIVE
from directsuite.core.clock import AT_ONCE, wait_until
from directsuite.core.facade import Facade
from directsuite.core.failures import HOPELESS, scope_of
from directsuite.core.retry import Backoff
from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.messaging import arguments
from directsuite.messaging.models import (
    DirectMessageLog,
    DirectMessageStatusReportResponse,
    MessageStatus,
    Recipient,
)

ENDS = frozenset(
    {
        MessageStatus.DELIVERED,
        MessageStatus.LOCALLY_FAILED,
        MessageStatus.REMOTELY_FAILED,
        MessageStatus.NO_MDN_RECEIVED,
    }
)
"""Statuses that are a recipient's last. One that the specification doesn't know is none of them."""

GIVE_UP_AFTER = 7_200.0
"""Seconds: twice the hour, since the service's own clock decides when that is over."""

BACKOFF = Backoff(5.0, 300.0)
"""Seconds until the next request for statuses, after failures in a row."""

_HOUR = 3_600.0
_AFTER_THE_HOUR = 60.0  # seconds within which the poll after the hour comes: messages of one minute share it
_SOONEST = 5.0  # seconds
_NEAR = 0.25  # of the distance: nearer to a poll it would only make answers longer, and spare few requests
_LONGEST_ID = 998  # octets of a line (RFC 5322, section 2.1.1)
_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # the last are halves of pairs, which SQLite can't hold


@attrs.frozen
class Window:
    """When to poll a message next, in seconds of its age."""

    earliest: float
    """From then on it joins a poll of other messages, which costs no request more."""
    latest: float
    """When a poll is due."""


def next_poll(age: float, give_up_after: float = GIVE_UP_AFTER) -> Window:
    """When to poll a message next that was polled, or sent, at this age. The last poll is at `give_up_after`."""
    base = _HOUR if age >= _HOUR else 0.0
    distance = max(age - base, _SOONEST)
    earliest, latest = age + _NEAR * distance, age + distance
    if not base:
        earliest, latest = min(earliest, _HOUR), min(latest, _HOUR + _AFTER_THE_HOUR)
    latest = min(latest, max(age, give_up_after))
    return Window(min(earliest, latest), latest)


def bare(smtp_id: str) -> str:
    """A Message-ID as it is compared: case-blind, and without the brackets that a service may leave out."""
    return smtp_id.strip().removeprefix("<").removesuffix(">").casefold()


def is_end(status: MessageStatus | None) -> bool:
    """Whether it is a recipient's last status, in whatever case and between whatever blanks a service writes it."""
    return status is not None and _folded(status) in _FOLDED_ENDS


def is_delivered(status: MessageStatus | None) -> bool:
    """Whether a recipient of this status has the message."""
    return status is not None and _folded(status) == _folded(MessageStatus.DELIVERED)


def is_unconfirmed(status: MessageStatus | None) -> bool:
    """Whether the service waits no longer for the confirmation of a recipient who may have the message."""
    return status is not None and _folded(status) == _folded(MessageStatus.NO_MDN_RECEIVED)


def of_messages(smtp_ids: Iterable[str], records: Iterable[DirectMessageLog]) -> dict[str, list[DirectMessageLog]]:
    """An answer's records by bare Message-ID, without those of other messages.

    Those that name no message are of the one that was asked for, where it was one.
    """
    by_id = {bare(smtp_id): list[DirectMessageLog]() for smtp_id in smtp_ids}
    only = next(iter(by_id)) if len(by_id) == 1 else ""
    for record in records:
        by_id.get(bare(record.message_id or "") or only, []).append(record)
    return by_id


def by_recipient(records: Iterable[DirectMessageLog]) -> dict[str, DirectMessageLog]:
    """A message's records by their recipients, whose addresses are compared case-blind; else by their places.

    Of several for one recipient it is the latest by `ts`. Of those of one time, or where one has none, it is one that
    is no end, if there is one.
    """
    by_address = dict[str, list[DirectMessageLog]]()
    for place, record in enumerate(records):
        by_address.setdefault(_folded(record.to or "") or str(place), []).append(record)
    return {address: _latest(several) for address, several in by_address.items()}


def _latest(records: Sequence[DirectMessageLog]) -> DirectMessageLog:
    times = [record.ts for record in records if record.ts is not None]
    if len(times) == len(records):
        latest = max(times)
        records = [record for record in records if record.ts == latest]
    return next((record for record in records if not is_end(record.status)), records[-1])


def is_over(statuses: Sequence[MessageStatus | None], recipients: int) -> bool:
    """Whether nothing more becomes of a message: the statuses of so many recipients, or more, are there, all ends."""
    return len(statuses) >= recipients and all(map(is_end, statuses))


def checked_smtp_id(smtp_id: object) -> str:
    """An smtp_id; InvalidArgumentError where it can't be one."""
    if not isinstance(smtp_id, str) or not can_be_followed(smtp_id):
        raise InvalidArgumentError("give the smtp_id that sending gave, and nothing else", parameter="smtp_id")
    return smtp_id


def can_be_followed(smtp_id: str) -> bool:
    """Return True if requests for statuses can name this Message-ID, which a service may have made up."""
    return bool(bare(smtp_id)) and len(smtp_id) <= _LONGEST_ID and not _UNWRITABLE.search(smtp_id)


def checked_recipients(recipients: int | Iterable[Recipient | str]) -> int:
    """How many recipients a message has: one who is named twice is one. InvalidArgumentError where it can't be."""
    if isinstance(recipients, Iterable):
        recipients = len({_folded(each.email) for each in arguments.recipients(recipients)})
    if type(recipients) is not int or recipients < 1:
        raise InvalidArgumentError("give the message's recipients, or their number, 1 or more", parameter="recipients")
    return recipients


def _folded(text: str) -> str:
    return text.strip().casefold()


_FOLDED_ENDS = frozenset(map(_folded, ENDS))


def checked_patience(give_up_after: float) -> float:
    """Seconds until a message is given up; InvalidArgumentError where they can't be that."""
    if not POSITIVE.fits(give_up_after):
        raise InvalidArgumentError("give seconds, more than 0", parameter="give_up_after")
    return float(give_up_after)


@attrs.frozen(kw_only=True, repr=False)
class Delivery:
    """What became of a message."""

    smtp_id: str
    records: Sequence[DirectMessageLog]
    """The latest of each recipient."""
    given_up: bool = False
    """Whether it is no longer waited for, although not all of the recipients have come to an end."""

    @property
    def delivered(self) -> bool:
        """Whether every recipient is known to have the message."""
        return not self.given_up and bool(self.records) and not self.undelivered

    @property
    def undelivered(self) -> Sequence[DirectMessageLog]:
        """The records of recipients who are not known to have it."""
        return [record for record in self.records if not is_delivered(record.status)]

    def __repr__(self) -> str:
        count = len(self.records)
        return f"Delivery(recipients={count}, undelivered={len(self.undelivered)}, given_up={self.given_up})"


OnPoll = Callable[[Sequence[DirectMessageLog], float], None]
"""What is told of a poll that isn't the last: the latest record of each recipient, and the seconds until the next."""


async def follow(
    facade: Facade,
    ask: Callable[[], Awaitable[DirectMessageStatusReportResponse]],
    smtp_id: str,
    *,
    recipients: int | Iterable[Recipient | str],
    give_up_after: float,
    on_poll: OnPoll | None,
) -> Delivery:
    """Poll one message until it is over or given up. ask: one poll.

    A poll that fails is tried again, as is one that is refused, for the service may not know the message yet. Raises
    the last one's error where it fails at `give_up_after`, and at once one whose scope is HOPELESS.
    """
    checked_smtp_id(smtp_id)
    count, give_up_after = checked_recipients(recipients), checked_patience(give_up_after)
    clock, sleep = facade.runtime.clock, facade.runtime.sleep
    began, failures, last = clock.monotonic(), 0, give_up_after - AT_ONCE
    latest = list[DirectMessageLog]()
    while True:
        age = clock.monotonic() - began
        try:
            records = (await ask()).records
        except DirectSuiteError as error:
            if age >= last or scope_of(error) in HOPELESS:
                raise
            failures += 1
            wait = BACKOFF.after(failures, error.retry_after)
        else:
            latest = list(by_recipient(of_messages([smtp_id], records)[bare(smtp_id)]).values())
            if is_over([record.status for record in latest], count):
                return Delivery(smtp_id=smtp_id, records=latest)
            if age >= last:
                return Delivery(smtp_id=smtp_id, records=latest, given_up=True)
            failures = 0
            wait = next_poll(age, give_up_after).latest - age
        wait = min(wait, max(0.0, give_up_after - age))
        if on_poll is not None:
            on_poll(latest, wait)
        await wait_until(clock.monotonic() + wait, clock.monotonic, sleep)
