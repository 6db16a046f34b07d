"""A sent message's way to its recipients: which status is an end, and when it is worth looking again.

Each look comes when the message is twice as old as at the one before. So what took a minute is known within another,
and a message that nobody confirms costs eleven looks until the hour at which the service itself gives up waiting for
the confirmation (specification section 8); from there on the distances begin anew.

    age   5 s   10 s   20 s   40 s   80 s   …   43 min   1 h   1 h 2 min   1 h 4 min   …   given up
                                                         └── the service says NO MDN Received by then
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from directsuite.core.clock import STRIDE
from directsuite.core.facade import Facade
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from directsuite.messaging.models import DirectMessageLog, DirectMessageStatusReportResponse, MessageStatus

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

HOPELESS = (AuthenticationError, ClosedError, ConfigurationError, InvalidArgumentError, PermissionDeniedError)
"""Failures that asking again would only repeat; a password that is refused again and again may lock the mailbox."""

AT_ONCE = 0.005
"""Seconds: what is due within them is due. No wait is shorter, however finely a clock counts."""

LONGEST_ASKED = 3_600.0
"""Seconds. A service that asks for a longer pause (Retry-After), perhaps by mistake, is asked again after so many."""

_HOUR = 3_600.0
_AFTER_THE_HOUR = 60.0  # seconds within which the look after the hour comes: messages of one minute share it
_SOONEST = 5.0  # seconds
_NEAR = 0.25  # of the distance: nearer to a look it would only make answers longer, and spare few requests
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0  # seconds


@attrs.frozen
class Window:
    """When to look at a message next, in seconds of its age.

    latest: when a look is due. earliest: from when on it joins a look at others, which costs no request more.
    """

    earliest: float
    latest: float


def next_look(age: float, give_up_after: float = GIVE_UP_AFTER) -> Window:
    """When to look next at a message that was looked at, or sent, at this age. The last look is at `give_up_after`."""
    base = _HOUR if age >= _HOUR else 0.0
    distance = max(age - base, _SOONEST)
    earliest, latest = age + _NEAR * distance, age + distance
    if not base:
        earliest, latest = min(earliest, _HOUR), min(latest, _HOUR + _AFTER_THE_HOUR)
    latest = min(latest, max(age, give_up_after))
    return Window(min(earliest, latest), latest)


def pause_after(failures: int, retry_after: float | None) -> float:
    """Seconds until the next request after so many that failed, one after the other: at the most LONGEST_ASKED."""
    pause: float = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 10))
    return max(pause, min(LONGEST_ASKED, retry_after or 0.0))


def bare(smtp_id: str) -> str:
    """A Message-ID without its angle brackets, with which a service may write it or not."""
    return smtp_id.strip().removeprefix("<").removesuffix(">")


def by_recipient(records: Iterable[DirectMessageLog]) -> dict[str, DirectMessageLog]:
    """A message's records by their recipients, whose addresses are compared case-blind; else by their places.

    Of several for one recipient it is one that is no end, if there is one.
    """
    found = dict[str, DirectMessageLog]()
    for place, record in enumerate(records):
        address = record.to.casefold() if record.to else str(place)
        if address not in found or found[address].status in ENDS:
            found[address] = record
    return found


def is_over(statuses: Sequence[MessageStatus | None], recipients: int) -> bool:
    """Whether nothing more becomes of a message: the statuses of so many recipients, or more, are there, all ends."""
    return len(statuses) >= recipients and all(status in ENDS for status in statuses)


def checked_recipients(recipients: int) -> int:
    """A number of recipients; InvalidArgumentError where it can't be one."""
    if type(recipients) is not int or recipients < 1:
        raise InvalidArgumentError("give the number of the message's recipients, 1 or more", parameter="recipients")
    return recipients


def checked_patience(give_up_after: float) -> float:
    """Seconds until a message is given up; InvalidArgumentError where they can't be that."""
    if type(give_up_after) not in (int, float) or not 0 < give_up_after < float("inf"):
        raise InvalidArgumentError("give seconds, more than 0", parameter="give_up_after")
    return float(give_up_after)


@attrs.frozen(kw_only=True, repr=False)
class Delivery:
    """What became of a message. records: one per recipient, the latest of each.

    given_up: not all of the recipients have come to an end, and they are no longer waited for.
    """

    smtp_id: str
    records: Sequence[DirectMessageLog]
    given_up: bool = False

    @property
    def delivered(self) -> bool:
        """Whether every recipient is known to have it."""
        return not self.given_up and bool(self.records) and not self.undelivered

    @property
    def undelivered(self) -> Sequence[DirectMessageLog]:
        """The records of recipients who are not known to have it."""
        return [record for record in self.records if record.status is not MessageStatus.DELIVERED]

    def __repr__(self) -> str:
        count = len(self.records)
        return f"Delivery(recipients={count}, undelivered={len(self.undelivered)}, given_up={self.given_up})"


async def pause(facade: Facade, seconds: float) -> None:
    """Let time pass. Raises ClosedError where the facade's suite ends before."""
    await facade._transport._lifecycle.sleep(seconds)


async def follow(
    facade: Facade,
    ask: Callable[[], Awaitable[DirectMessageStatusReportResponse]],
    smtp_id: str,
    *,
    recipients: int,
    give_up_after: float,
) -> Delivery:
    """Look at one message until it is over or given up. ask: one look.

    A look that fails is tried again, as is one that is refused, for the service may not know the message yet. Raises
    the last one's error where it fails at `give_up_after`, and HOPELESS ones at once.
    """
    checked_recipients(recipients)
    give_up_after = checked_patience(give_up_after)
    clock = facade._transport._clock
    began, failures, last = clock.monotonic(), 0, give_up_after - AT_ONCE
    while True:
        age = clock.monotonic() - began
        try:
            found = list(by_recipient((await ask()).records).values())
        except HOPELESS:
            raise
        except DirectSuiteError as error:
            if age >= last:
                raise
            failures += 1
            wait = pause_after(failures, error.retry_after)
        else:
            if is_over([record.status for record in found], recipients):
                return Delivery(smtp_id=smtp_id, records=found)
            if age >= last:
                return Delivery(smtp_id=smtp_id, records=found, given_up=True)
            failures = 0
            wait = next_look(age, give_up_after).latest - age
        due = clock.monotonic() + min(wait, max(0.0, give_up_after - age))
        while (left := due - clock.monotonic()) > AT_ONCE:
            await pause(facade, min(left, STRIDE))
