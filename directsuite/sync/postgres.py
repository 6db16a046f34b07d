"""The store in PostgreSQL, for any number of processes, and its sink."""

from __future__ import annotations

from directsuite.core.privacy import scrub_class
from directsuite.durable.postgres import TIMEOUT, PostgresDatabase
from directsuite.sync.model import StoreError
from directsuite.sync.store import Store, StoreSink, TableSink
from directsuite.wire.models import Secret

__all__ = ["PostgresSink", "PostgresStore"]

PostgresSink = TableSink


@scrub_class
class PostgresStore(Store):
    """A store in PostgreSQL, in the schema `directsuite`.

    conninfo: a libpq connection string (URI, or keywords and values), of PostgreSQL or of a pooler in session mode.
    sink: a sink that writes in the same transaction.
    connections: the maximum number of connections of this process.
    timeout: seconds for a method.

    Methods raise StoreError. If the connection was lost, the next call connects again.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        sink: StoreSink | None = None,
        *,
        connections: int = 4,
        timeout: float = TIMEOUT,
    ) -> None:
        self.database = PostgresDatabase(conninfo, error=StoreError, max_connections=connections, timeout=timeout)
        del conninfo  # a traceback may show the variables of this frame
        super().__init__(self.database, sink)
