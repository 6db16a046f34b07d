"""The operator's message about each kind of failure."""

from __future__ import annotations

import errno
import sqlite3
from typing import Any

import pytest

import directsuite as ds
from directsuite.sync import MaildirError, SinkError, StaleLeaseError, StoreError
from directsuite.sync.status import describe_problem

NAMED = "jane.doe"


def of_the_sink(cause: Exception) -> SinkError:
    error = SinkError(f"the sink raised {type(cause).__name__}")
    error.__cause__ = cause
    return error


def full_database() -> sqlite3.Error:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (zeroblob(5000))")
    except sqlite3.Error as error:
        return error
    finally:
        connection.close()
    raise AssertionError


def service(kind: type[ds.ServiceError], **more: Any) -> ds.ServiceError:
    return kind("refused", status=400, message=NAMED, body=NAMED.encode(), operation="GetUIDs", **more)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (service(ds.AuthenticationError), "rejected the mailbox's password"),
        (service(ds.PermissionDeniedError), "denies access"),
        (service(ds.NotFoundError), "does not know the mailbox"),
        (service(ds.RateLimitedError), "too many requests"),
        (service(ds.ServerError), "internal error"),
        (ds.ConnectFailedError("no connection"), "can't be reached"),
        (ds.CircuitOpenError("down"), "has not responded for a while"),
        (ds.DeadlineExceededError("late"), "does not respond in time"),
        (ds.ConnectionLostError("lost"), "closes connections early"),
        (StoreError("PostgreSQL has not responded in time: …"), "PostgreSQL has not responded"),
        (StaleLeaseError("Another worker has claimed it"), "Another worker"),
        (MaildirError("no", errno=errno.ENOSPC), "disk of the sink is full"),
        (MaildirError("no", errno=errno.EROFS), "folder of the sink can't be written"),
        (MaildirError("the Maildir is odd"), "the Maildir is odd"),
        (of_the_sink(OSError(errno.EDQUOT, NAMED, f"/mail/{NAMED}")), "disk of the sink is full"),
        (of_the_sink(PermissionError(errno.EACCES, NAMED, f"/mail/{NAMED}")), "can't be written"),
        (of_the_sink(OSError(errno.ENOTCONN, NAMED)), "Check its folder, disk or connection"),
        (of_the_sink(ConnectionError("failed", NAMED)), "the sink raised ConnectionError"),
        (of_the_sink(OSError(2**70, NAMED)), "the sink raised OSError"),
        (of_the_sink(KeyError(NAMED)), "the sink raised KeyError"),
        (of_the_sink(full_database()), "disk of the store is full"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_failure_has_a_message_without_names(error: ds.DirectSuiteError, word: str) -> None:
    told = describe_problem(error)
    assert word in told
    assert NAMED not in told
    assert "attempt" not in told  # what changes from one time to the next
