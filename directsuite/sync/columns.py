"""The stores' tables, column by column: the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from directsuite.sync.store import Folder, Row, State

STATES = {int(state): state for state in State}
"""By their numbers; quicker than to ask the enum, a hundred thousand times."""


def row_of(values: Sequence[Any]) -> Row:
    """A row from the columns of `msg`."""
    folder, generation, uid, state, identity, digest, size, received_ms, attempts, retry_ms = values
    return Row(
        folder=folder,
        generation=generation,
        uid=uid,
        state=STATES[state],
        identity=identity,
        digest=digest,
        size=size,
        received_ms=received_ms,
        attempts=attempts,
        retry_ms=retry_ms,
    )


def values_of(row: Row) -> tuple[Any, ...]:
    """A row's values, in the order of the columns."""
    before = (row.folder, row.generation, row.uid, int(row.state), row.identity, row.digest)
    return (*before, row.size, row.received_ms, row.attempts, row.retry_ms)


def folder_of(values: Sequence[Any]) -> Folder:
    """A folder from its columns, the mailbox left out."""
    identifier, name, generation, fingerprint, audited_ms = values
    return Folder(id=identifier, name=name, generation=generation, fingerprint=fingerprint, audited_ms=audited_ms)
