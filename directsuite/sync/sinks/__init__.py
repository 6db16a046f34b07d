"""Ready-made sinks: where the changes of a synchronisation go.

MaildirSink   files that mail programs read        told at least once, and each message is one file
TableSink     tables in the store's own database   in the store's transaction: exactly once
Changes       an `async for` loop of the program   a change counts as done when the loop asks for the next
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
