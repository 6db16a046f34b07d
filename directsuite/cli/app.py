"""The commands and their options."""

from __future__ import annotations

from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from directsuite._version import __version__
from directsuite.cli.extras import require
from directsuite.cli.sync.app import app as sync

if TYPE_CHECKING:
    from collections.abc import Sequence

BAD_USAGE = 2
"""The exit status for options that can't be."""

_KEPT = Group("Where the state is kept", validator=mutually_exclusive)

app = App(
    name="directsuite",
    help="Secure health communication: PDF signing, fax status, Direct messaging, patient registration.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)


app.command(sync)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    try:
        return app(arguments, exit_on_error=False) or 0
    except CycloptsError:  # it has said what is wrong, on stderr
        return BAD_USAGE


@app.command
def sandbox(
    *,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    host: str = "127.0.0.1",
    data: Annotated[Path | None, Parameter(group=_KEPT)] = None,
    memory: Annotated[bool, Parameter(group=_KEPT, negative=(), show_default=False)] = False,
) -> int:
    """Run the four services on this machine, with demo content, until Ctrl-C.

    Parameters
    ----------
    port: int
        Where to listen; 0 takes a free port, 8025 where nothing is given.
    host: str
        A loopback address.
    data: Path
        The folder that keeps the state; directsuite-sandbox where nothing is given.
    memory: bool
        Keep the state in memory and forget it at the end.
    """
    from directsuite.cli.sandbox import serve

    return serve(host=host, port=port, data=data, memory=memory)


@app.command
def demo(
    *,
    output: Path = Path("demo-output"),
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    messages: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 300,
    documents: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 12,
    faxes: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 35,
) -> int:
    """Use all four services against a sandbox of its own, and check that each did what it should.

    Exit status 0 says that everything held.

    Parameters
    ----------
    output: Path
        The folder for the signed PDFs and the messages.
    json: bool
        Report as one JSON document on stdout, and nothing else there.
    messages: int
        How many messages the mailbox holds that is read.
    documents: int
        How many PDFs are signed.
    faxes: int
        How many fax records are walked.
    """
    require("sandbox")
    from directsuite.cli.demo.command import demonstrate
    from directsuite.cli.demo.scene import Sizes

    return demonstrate(output, Sizes(messages=messages, documents=documents, faxes=faxes), as_json=json)
