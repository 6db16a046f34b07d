"""Input that `directsuite sync run` rejects before it starts: status 2, and no names in the message."""

from __future__ import annotations

import re
import socket
import sys

import pytest

from tests.cli.conftest import CommandRunner
from tests.cli.sync.conftest import BOTH, HERS, SyncRunner
from tests.integration.scenario import ALICE, BOB
from tests.statements import query_file

STORE = (*HERS, "--store", "sync.db")
COMMANDS = (("run", *BOTH, "--passwords", "passwords.toml"), ("status",), ("audit",), ("retry",))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conninfo = f"postgresql://nobody@127.0.0.1:{port}/nothing"
    monkeypatch.setenv("DIRECTSUITE_POSTGRES", conninfo)
    return conninfo


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--mailbox ADDRESS for each, or --mailboxes FILE, or set DIRECTSUITE_MAILBOX"),
        (["--mailboxes", "none"], "No mailbox is given"),
        (["--mailbox", "alice"], "--mailbox number 1 is not an e-mail address"),
        (["--mailbox", "a b@direct.example.test"], "--mailbox number 1 is not an e-mail address"),
        ([*HERS, "--mailbox", "bob@bob@direct.example.test"], "--mailbox number 2 is not an e-mail address"),
        ([*HERS, "--mailbox", ""], "--mailbox number 2 is not an e-mail address"),
        ([*HERS, "--mailbox", "bob@"], "--mailbox number 2 is not an e-mail address"),
        ([*HERS, "--mailbox", "jos\udce9@direct.example.test"], "--mailbox number 2 is not text"),
        (["--mailboxes", "two"], "two line 4 is not an e-mail address"),
        ([*BOTH, "--mailbox", ALICE.upper()], "--mailbox number 1 and --mailbox number 3 are the same mailbox"),
        ([*HERS, "--mailboxes", "upper"], "--mailbox number 1 and upper line 1 are the same mailbox"),
        (["--mailboxes", "nothing"], "The file nothing can't be read (No such file or directory)"),
        (["--mailboxes", "latin"], "The file latin is not text in UTF-8"),
        pytest.param(
            ["--mailboxes", "/dev/zero"],
            "The file /dev/zero has more than 16,777,216 bytes",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /dev/zero"),
        ),
        ([*HERS, "--passwords", "known", "--maildir", "latin"], "--maildir: it is a file: name a directory"),
        ([*HERS, "--passwords", "nothing"], "passwords file nothing"),
        (HERS, "--passwords"),
        ([*HERS, "--interval", "0"], "--interval"),
        ([*HERS, "--grace", "-1"], "--grace"),
        ([*HERS, "--store", "a", "--postgres"], "--postgres"),
        ([*HERS, "--folder", "INBOX", "--all-folders"], "--all-folders"),
        ([*HERS, "--folder", "INBOX", "--folder", ""], "--folder number 2 is not a folder name"),
        ([*HERS, "--folder", ".."], "--folder number 1 is not a folder name"),
        ([*HERS, "--folder", "INBOX.J\udce9"], "--folder number 1 is not text"),
        (["--postgres", "--once", *HERS], "--once"),
        (["--password", "secret"], "There is no option --password (did you mean --passwords?)"),
    ],
)
async def test_invalid_argument_is_named(offline: CommandRunner, options: list[str], named: str) -> None:
    offline.monkeypatch.delenv("DIRECTSUITE_MAILBOX")
    offline.monkeypatch.delenv("DIRECTSUITE_MAILBOX_PASSWORD")
    offline.folder.joinpath("latin").write_bytes(b"caf\xe9")
    offline.folder.joinpath("none").write_text("# nobody yet\n")
    offline.folder.joinpath("two").write_text(f"# the ward\n\n{ALICE}\nbob\n")
    offline.folder.joinpath("upper").write_text(f"{ALICE.upper()}\n")
    offline.write_private_file("known", f'"{ALICE}" = "x"\n')
    err = await offline.fail(2, named, "sync", "run", *options)
    assert "bob" not in err
    assert "alice" not in err.lower()


async def test_mailbox_of_the_environment_is_checked(cli: SyncRunner) -> None:
    cli.set_env("DIRECTSUITE_MAILBOX", "bob")
    result = await cli.run("run", "--once")
    assert result.err == (
        "directsuite: DIRECTSUITE_MAILBOX is not an e-mail address. Expected something like nurse@direct.example.org.\n"
    )
    cli.set_env("DIRECTSUITE_MAILBOX", BOB)
    result = await cli.run("run", "--postgres")  # a fleet may have no mailboxes to add
    assert "DIRECTSUITE_POSTGRES is not set" in result.err


async def test_database_that_is_not_there_is_rejected_with_what_to_check(cli: SyncRunner, nowhere: str) -> None:
    cli.write_passwords()
    for arguments in COMMANDS:
        words = "Check DIRECTSUITE_POSTGRES, and whether PostgreSQL is running.\n"
        assert nowhere not in await cli.fail(2, words, *arguments, "--postgres")


async def test_what_names_no_database_is_rejected_by_the_variable_s_name(cli: SyncRunner) -> None:
    pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
    cli.set_env("DIRECTSUITE_POSTGRES", "nonsense")
    cli.write_passwords()
    for arguments in COMMANDS:
        words = "directsuite: DIRECTSUITE_POSTGRES: conninfo must be a URI or keywords and values"
        assert "nonsense" not in await cli.fail(2, words, *arguments, "--postgres")


async def test_store_that_cannot_be_opened_is_rejected(cli: SyncRunner) -> None:
    cli.folder.joinpath("letter.db").write_bytes(b"a letter" * 1000)
    stores = {"letter.db": "not an SQLite database", "letter.db/sync.db": "can't be opened"}
    for store, said in stores.items():
        await cli.fail(2, said, "run", *BOTH, "--passwords", cli.write_passwords(), "--once", "--store", store)
    for command in ("status", "audit", "retry"):
        for store, said in {"letter.db": "not an SQLite database", "s" * 5000: "File name too long"}.items():
            await cli.fail(2, said, command, "--store", store)


SENTENCE = re.compile(
    r"This store is bound to another sink \((\S.*), not (\S.*)\)\. Use a separate store for each sink\. "
    r"Name another file with --store\."
)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((), ("--maildir", "mail")),
        *(pytest.param(("--maildir", "mail"), then, marks=pytest.mark.wide) for then in ((), ("--maildir", "post"))),
    ],
    ids=["store-maildir", "maildir-store", "maildir-maildir"],
)
async def test_another_sink_is_rejected_and_the_first_one_goes_on(
    cli: SyncRunner, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    await cli.deliver_to(ALICE, "one")
    assert (await cli.run_once(*STORE, *first)).status == 0
    result = await cli.run_once(*STORE, *then)
    told = SENTENCE.search(result.err)
    assert result.status == 2
    assert told is not None
    assert [name.split()[0] for name in told.groups()] == ["maildir" if each else "TableSink" for each in (first, then)]
    assert "alice" not in result.out + result.err
    assert "messages are written into" not in result.out
    assert (await cli.run_once(*STORE, *first)).status == 0


async def test_looking_and_requesting_bind_nothing(cli: SyncRunner) -> None:
    assert (await cli.run_once(*STORE)).status == 0
    query_file("sync.db", "DROP TABLE sink")  # as an earlier release left it
    for command in ("status", "audit", "retry"):
        await cli.run(command, "--store", "sync.db")
        tables = {name for (name,) in query_file("sync.db", "SELECT name FROM sqlite_master")}
        assert "sink" not in tables
    assert (await cli.run_once(*STORE)).status == 0
    assert (await cli.run_once(*STORE, "--maildir", "mail")).status == 2
