"""Sinks, which receive the changes of a synchronisation.

MaildirSink   files for mail programs          at least once, one file per message
TableSink     tables in the store's database   exactly once, in the store's transaction
Changes       an `async for` loop              a change is done when the loop requests the next
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
