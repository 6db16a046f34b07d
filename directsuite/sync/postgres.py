"""The store in PostgreSQL, for any number of processes, and its sink."""

from __future__ import annotations

from directsuite.core.privacy import scrub_class
from directsuite.durable.postgres import TIMEOUT, Connections, PostgresDatabase
from directsuite.secret import Secret
from directsuite.sync.model import StoreError
from directsuite.sync.sinks import PostgresSink
from directsuite.sync.store import DatabaseStore, StoreSink

__all__ = ["PostgresSink", "PostgresStore"]


@scrub_class
class PostgresStore(DatabaseStore):
    """Keeps what is known of mailboxes in PostgreSQL, in the schema `directsuite`, and beside it what its sink writes.

    conninfo: a URI, or keywords and values, as libpq has it; PostgreSQL itself or a pooler in session mode. sink: one
    that writes in the same transaction. connections: at a time, of this process. timeout: seconds for a method. Each
    method raises StoreError; where that was for a broken connection, the next one connects again.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        sink: StoreSink | None = None,
        *,
        connections: int = 4,
        timeout: float = TIMEOUT,
    ) -> None:
        self.connections = Connections(conninfo, error=StoreError, max_connections=connections, timeout=timeout)
        del conninfo  # this frame may stand in a traceback
        super().__init__(PostgresDatabase(self.connections), sink)
