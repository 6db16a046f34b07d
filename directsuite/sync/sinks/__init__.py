"""Sinks, which receive the changes of a synchronisation.

MaildirSink   files for mail programs          at least once
TableSink     tables in the store's database   exactly once
ChangeStream  an `async for` loop              at least once
"""

from directsuite.sync.sinks.iterator import ChangeStream
from directsuite.sync.sinks.maildir import MaildirError, MaildirSink
from directsuite.sync.sinks.table import TableSink

SqliteSink = TableSink
PostgresSink = TableSink

__all__ = [
    "ChangeStream",
    "MaildirError",
    "MaildirSink",
    "PostgresSink",
    "SqliteSink",
    "TableSink",
]
