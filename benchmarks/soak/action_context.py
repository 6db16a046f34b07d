"""What every action works with."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs

import directsuite as ds
from directsuite.sandbox.samples import DOMAIN, FAX_NUMBER, MAILBOX_LOGIN, MAILBOXES, TUSER

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

ALICE, BOB = MAILBOXES
SUBJECT_PREFIX = "soak"
"""What the subject of every message sent begins with: the rest is its number."""

__all__ = ["ALICE", "BOB", "DOMAIN", "FAX_NUMBER", "SUBJECT_PREFIX", "ActionContext", "SentMessages", "SoakAction"]


@attrs.define
class SentMessages:
    """The messages of one epoch, each with its own subject. acknowledged: of which the client said that they went."""

    acknowledged: set[str] = attrs.Factory(set[str])
    _numbers: Iterator[int] = attrs.Factory(itertools.count)

    def make_subject(self) -> str:
        """A subject that no other message has."""
        return f"{SUBJECT_PREFIX} {next(self._numbers)}"


@attrs.frozen(kw_only=True)
class ActionContext:
    """A suite, and what to do with it. form: a PDF with fields; form_file: the same on disk. folder: for downloads."""

    suite: ds.DirectSuite
    rng: random.Random
    form: bytes
    form_file: Path
    folder: Path
    sent: SentMessages

    @property
    def alice(self) -> ds.Mailbox:
        """The mailbox that sends and reads."""
        return self.suite.mailbox(ALICE, MAILBOX_LOGIN)

    @property
    def bob(self) -> ds.Mailbox:
        """The mailbox that receives, and whose folders change."""
        return self.suite.mailbox(BOB, MAILBOX_LOGIN)

    @property
    def tuser(self) -> ds.TUser:
        """Who acts for Alice."""
        return self.suite.tuser(*TUSER, ALICE)

    def make_name(self) -> str:
        """A name that nobody else uses."""
        return f"{self.rng.getrandbits(64):016x}"


SoakAction = Callable[[ActionContext], Awaitable[object]]
"""Something to do: it raises what the client raises."""
