"""What each request asks for, and which message each record of its answer is of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from directsuite.jobs.delivery.changes import Followed
from directsuite.messaging.models import DirectMessageLog
from directsuite.messaging.tracking import of_messages

_IDS = 1_000
"""Messages of a request: with Message-IDs of the longest form (998 octets, RFC 5322) it stays below 1 MB."""


def requests_of(followed: Iterable[Followed], now: float) -> tuple[Sequence[Sequence[Followed]], Sequence[Followed]]:
    """What each request asks for: all messages that are due, and where there are places left, those that are near.

    The second are those that are due apart.
    """
    near = sorted((each for each in followed if each.earliest <= now), key=lambda each: each.latest)
    together = [each for each in near if not each.apart]
    due = sum(each.latest <= now for each in together)
    requests = -(-due // _IDS)
    some = [together[start : start + _IDS] for start in range(0, requests * _IDS, _IDS)]
    return some, [each for each in near if each.apart and each.latest <= now]


def by_message(asked: Sequence[Followed], records: Sequence[DirectMessageLog]) -> dict[str, list[DirectMessageLog]]:
    """An answer's records by bare Message-ID; those of others are left out."""
    return of_messages([message.smtp_id for message in asked], records)
