"""`directsuite sync run` with a store that has delivered its changes to another sink."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import CliResult
from tests.cli.sync.conftest import SyncRunner
from tests.integration.scenario import ALICE

SENTENCE = re.compile(
    r"This store is bound to another sink \((\S.*), not (\S.*)\)\. Use a separate store for each sink"
)


async def run(runner: SyncRunner, *options: str) -> CliResult:
    passwords = runner.write_passwords()
    return await runner.run(
        "run", "--mailbox", ALICE, "--passwords", passwords, "--once", "--store", "sync.db", *options
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [((), ("--maildir", "mail")), (("--maildir", "mail"), ()), (("--maildir", "mail"), ("--maildir", "post"))],
    ids=["store-maildir", "maildir-store", "maildir-maildir"],
)
async def test_another_sink_is_rejected_and_the_first_one_goes_on(
    cli: SyncRunner, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    await cli.deliver_to(ALICE, "one")
    assert (await run(cli, *first)).status == 0
    result = await run(cli, *then)
    told = SENTENCE.search(result.err)
    assert result.status == 2
    assert told is not None
    assert [name.split()[0] for name in told.groups()] == ["maildir" if each else "TableSink" for each in (first, then)]
    assert "alice" not in result.out + result.err
    assert "messages are written into" not in result.out
    assert (await run(cli, *first)).status == 0


async def test_looking_and_requesting_bind_nothing(cli: SyncRunner) -> None:
    assert (await run(cli)).status == 0
    with closing(sqlite3.connect("sync.db")) as connection:  # as an earlier release left it
        connection.execute("DROP TABLE sink")
    for command in ("status", "audit", "retry"):
        result = await cli.run(command, "--store", "sync.db")
        assert "Traceback" not in result.err
        with closing(sqlite3.connect("sync.db")) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert "sink" not in tables
    assert (await run(cli)).status == 0
    assert (await run(cli, "--maildir", "mail")).status == 2
