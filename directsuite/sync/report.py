"""What a round of a mailbox came to."""

from __future__ import annotations

from collections import Counter

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.sync.changes import Kind


@attrs.define(kw_only=True)
class Report:
    """What a round came to.

    idle: folders that were as before. poison: messages set aside. more: there is more to do at once. waiting: what is
    missing may turn up in another folder; the next round tells. failed: folders that could not be seen, or
    whose messages could not be fetched, and why.
    """

    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    poison: int = 0
    idle: int = 0
    more: bool = False
    waiting: bool = False
    failed: dict[str, DirectSuiteError] = attrs.field(factory=dict[str, DirectSuiteError], repr=False)
