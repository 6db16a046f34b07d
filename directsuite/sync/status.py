"""What an SQLite store knows of its mailboxes, in numbers."""

from __future__ import annotations

import itertools
import operator
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from directsuite.sync.store import State

_STATUS = """
    SELECT b.name, f.name, f.generation, f.audited_ms, m.state, count(m.uid)
    FROM mailbox b LEFT JOIN folder f ON f.mailbox = b.id LEFT JOIN msg m ON m.folder = f.id
    GROUP BY b.id, f.id, m.state ORDER BY b.name, f.name, m.state
"""


@attrs.frozen(kw_only=True)
class FolderStatus:
    """What a store knows of a folder. messages: how many are in which state, those of earlier generations included."""

    name: str = attrs.field(repr=False)
    generation: int
    audited_ms: int | None
    messages: Mapping[State, int]


@attrs.frozen(kw_only=True)
class MailboxStatus:
    """What a store knows of a mailbox. folders: by their names."""

    name: str = attrs.field(repr=False)
    folders: Sequence[FolderStatus]


def statuses(connection: sqlite3.Connection) -> list[MailboxStatus]:
    """Every mailbox, by their names."""
    found = connection.execute(_STATUS).fetchall()
    return [
        MailboxStatus(name=name, folders=folder_statuses(of_it))
        for name, of_it in itertools.groupby(found, key=operator.itemgetter(0))
    ]


def folder_statuses(found: Iterable[Sequence[Any]]) -> list[FolderStatus]:
    """Each of several rows, one for each state. A mailbox without folders has one row with nothing in it."""
    named = (values[1:] for values in found if values[1] is not None)
    return [
        FolderStatus(
            name=name,
            generation=generation,
            audited_ms=audited_ms,
            messages={State(state): count for *_, state, count in of_it if state is not None},
        )
        for (name, generation, audited_ms), of_it in itertools.groupby(named, key=operator.itemgetter(0, 1, 2))
    ]
