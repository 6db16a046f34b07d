"""What a synchronisation tells a sink: one change after another, each with a key that stays the same for ever."""

from __future__ import annotations

import enum

import attrs

from directsuite.messaging.models import MessageDetail
from directsuite.wire.models import ValueSemantics


class Kind(enum.StrEnum):
    """What became of a message."""

    NEW = "new"
    """It is there, and was never told of before."""
    GONE = "gone"
    """It was deleted: two listings in a row lack it, and no other folder of the mailbox has it."""
    MOVED = "moved"
    """It has another key: it went to another folder, or the folder numbers its messages anew."""
    RESTORED = "restored"
    """It was told to be gone, and is there again. A sink that is no transaction may not have been told."""


@attrs.frozen(repr=False, eq=False)
class Key(ValueSemantics):
    """Where a message is. generation: 1, and one more each time that the folder numbers its messages anew."""

    mailbox: str
    folder: str
    generation: int
    uid: int

    def __str__(self) -> str:
        return f"{self.mailbox}/{self.folder}/{self.generation}/{self.uid}"

    def __repr__(self) -> str:
        return f"Key(generation={self.generation}, uid={self.uid})"  # a mailbox and a folder may name a patient


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Change(ValueSemantics):
    """One change. A sink that is no transaction may be told the same one twice: by its key and digest it is known.

    Where such a sink failed, or the process ended, while it was told NEW, and the message went on since, it is told
    MOVED with the message, or GONE, of a key that it may not know: MOVED is as good as NEW then, and GONE nothing.
    After MOVED nothing is under `previous` any more, even where the sink has the message under `key` already.

    previous: the key that the message had, for MOVED and RESTORED. message: with its body and attachments, for NEW and
    RESTORED, and for MOVED where it had to be fetched. digest: of the content, the same wherever the message is.
    """

    kind: Kind
    key: Key
    previous: Key | None = None
    message: MessageDetail | None = None
    digest: str | None = None

    def __repr__(self) -> str:
        return f"Change({self.kind}, {self.key!r})"
