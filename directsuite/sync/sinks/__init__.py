"""Sinks, which receive the changes of a synchronisation.

MaildirSink   files for mail programs          at least once
TableSink     tables in the store's database   exactly once
Changes       an `async for` loop              at least once
"""

from directsuite.sync.sinks.iterator import Changes, ChangeStream, UnacknowledgedError
from directsuite.sync.sinks.maildir import MaildirError, MaildirSink
from directsuite.sync.sinks.table import TableSink

SqliteSink = TableSink
PostgresSink = TableSink

__all__ = [
    "ChangeStream",
    "Changes",
    "MaildirError",
    "MaildirSink",
    "PostgresSink",
    "SqliteSink",
    "TableSink",
    "UnacknowledgedError",
]
