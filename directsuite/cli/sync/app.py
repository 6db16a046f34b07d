"""The commands below `directsuite sync`, and their options."""

from __future__ import annotations

from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import Annotated

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from directsuite.cli.options import COMMANDS, EPILOGUE, MAIL, Flag, Json, Several, named, named_file

STORE = Path("directsuite-sync.db")
"""The store where none is named."""

_WHERE = Group("Where it is kept", validator=mutually_exclusive)
_FOLDERS = Group("Which folders", validator=mutually_exclusive)

_Seconds = Parameter(validator=Number(gt=0))
_File = Annotated[Path | None, Parameter(converter=named_file)]
_Store = Annotated[Path | None, Parameter(group=_WHERE, converter=named_file)]
_Postgres = Annotated[bool, Flag, Parameter(group=_WHERE)]

app = App(
    name="sync",
    help="Keep mailboxes in step with the server: a worker.",
    help_epilogue=EPILOGUE,
    group_commands=COMMANDS,
    result_action="return_value",
    group=MAIL,
    sort_key=4,
)


@app.command
def run(
    *,
    mailbox: Annotated[tuple[str, ...], Several] = (),
    mailboxes: _File = None,
    passwords: _File = None,
    folder: Annotated[tuple[str, ...], Several, Parameter(group=_FOLDERS)] = (),
    all_folders: Annotated[bool, Flag, Parameter(group=_FOLDERS)] = False,
    store: _Store = None,
    postgres: _Postgres = False,
    workers: Annotated[int, Parameter(validator=Number(gte=1))] = 4,
    maildir: Annotated[Path | None, Parameter(converter=named)] = None,
    keep_gone: Annotated[bool, Flag] = False,
    once: Annotated[bool, Flag] = False,
    interval: Annotated[float | None, _Seconds] = None,
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 30.0,
    status_file: _File = None,
    json: Annotated[bool, Flag] = False,
) -> int:
    """Keep mailboxes in step until SIGTERM or Ctrl-C, and then end what is under way.

    Messages go into the store itself, each exactly once, or into Maildirs. Where the service is and how it is called
    stands in the environment: DIRECTSUITE_MESSAGE_URL, DIRECTSUITE_CONFIG.

    Exit status 0 says that it was stopped, or with --once that all is in step; 1 that a mailbox is failing at the end
    of --once, or that the worker failed on its way; 2 that it didn't begin: an option, file or variable is wrong, or
    the store can't be used; 130 and 143 that a signal broke off --once, or came before it began. It goes on where
    nobody reads stdout any more.

    Parameters
    ----------
    mailbox: tuple[str, ...]
        The address of a mailbox; as often as there are. That of DIRECTSUITE_MAILBOX where neither this nor
        --mailboxes is given.
    mailboxes: Path
        A file with one address a line.
    passwords: Path
        A file of addresses and passwords, as JSON or TOML, that only its owner and its group may read. Without
        it, DIRECTSUITE_MAILBOX_PASSWORD for a single mailbox, the keyring, or a question on the terminal.
    folder: tuple[str, ...]
        A folder to look at; as often as there are. INBOX where nothing is given.
    all_folders: bool
        Look at all folders that a mailbox has.
    store: Path
        The SQLite file that keeps what is known; directsuite-sync.db where nothing is given.
    postgres: bool
        Be one of a fleet of workers that share the PostgreSQL database of DIRECTSUITE_POSTGRES.
    workers: int
        How many workers the fleet has at most: they keep to the service's rate together.
    maildir: Path
        Put messages into Maildirs below this folder, and not into the store.
    keep_gone: bool
        Keep messages that were deleted on the server.
    once: bool
        Bring all in step and end.
    interval: float
        Seconds between two looks at a mailbox; as often as the service's rate allows where nothing is given.
    grace: float
        Seconds that what is under way gets when a signal comes.
    status_file: Path
        The worker's report, which status reads; beside the store where nothing is given.
    json: bool
        Tell what happens as lines of JSON on stdout.
    """
    from directsuite.cli.sync.running import Asked, run_worker

    asked = Asked(
        named=mailbox,
        listed=mailboxes,
        passwords=passwords,
        folders=None if all_folders else folder or ("INBOX",),
        store=store or STORE,
        postgres=postgres,
        workers=workers,
        maildir=maildir,
        keep_gone=keep_gone,
        once=once,
        interval=interval,
        grace=grace,
        status_file=status_file,
        as_json=json,
    )
    return run_worker(asked)


@app.command
def status(
    *,
    mailbox: Annotated[tuple[str, ...], Several] = (),
    store: _Store = None,
    postgres: _Postgres = False,
    status_file: _File = None,
    max_age: Annotated[float | None, _Seconds] = None,
    json: Json = False,
) -> int:
    """Tell how each mailbox stands, beside the worker or without one.

    Exit status 0 says that no mailbox is failing, 1 that one is, or that the worker is silent: it has not reported for
    30 seconds, and didn't end; 2 that the store can't be used. With --max-age it says whether the worker lives, and
    nothing of mailboxes: 0 where its last report is no older, 1 where it is, or there is none.

    Parameters
    ----------
    mailbox: tuple[str, ...]
        The address of a mailbox; as often as there are. All where nothing is given.
    store: Path
        The store's file; directsuite-sync.db where nothing is given.
    postgres: bool
        Of the fleet whose database DIRECTSUITE_POSTGRES names.
    status_file: Path
        The worker's report; beside the store where nothing is given.
    max_age: float
        Seconds that the worker's last report may be old.
    """
    from directsuite.cli.sync.status import Looked, tell

    looked = Looked(
        mailboxes=mailbox,
        store=store or STORE,
        postgres=postgres,
        status_file=status_file,
        max_age=max_age,
        as_json=json,
    )
    return tell(looked)


@app.command
def audit(
    *,
    mailbox: Annotated[tuple[str, ...], Several] = (),
    store: _Store = None,
    postgres: _Postgres = False,
) -> int:
    """Have everything compared with the server: by the worker, at once, or by the next run.

    Parameters
    ----------
    mailbox: tuple[str, ...]
        The address of a mailbox; as often as there are. All where nothing is given.
    store: Path
        The store's file; directsuite-sync.db where nothing is given.
    postgres: bool
        Of the fleet whose database DIRECTSUITE_POSTGRES names.
    """
    return _wish("audit", mailbox, store, postgres=postgres)


@app.command
def retry(
    *,
    mailbox: Annotated[tuple[str, ...], Several] = (),
    store: _Store = None,
    postgres: _Postgres = False,
) -> int:
    """Have tried again what was set aside, and mailboxes that fail: by the worker, at once, or by the next run.

    Parameters
    ----------
    mailbox: tuple[str, ...]
        The address of a mailbox; as often as there are. All where nothing is given.
    store: Path
        The store's file; directsuite-sync.db where nothing is given.
    postgres: bool
        Of the fleet whose database DIRECTSUITE_POSTGRES names.
    """
    return _wish("retry", mailbox, store, postgres=postgres)


def _wish(kind: str, mailboxes: tuple[str, ...], store: Path | None, *, postgres: bool) -> int:
    from directsuite.cli.sync.wishing import leave
    from directsuite.sync.wishes import Wish

    return leave(Wish(kind), mailboxes, store or STORE, postgres=postgres)
