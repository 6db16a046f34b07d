"""The commands, in the order in which `directsuite --help` shows them, and what holds for all of them."""

from __future__ import annotations

import sys
from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from directsuite._version import __version__
from directsuite.cli.doctor.app import doctor
from directsuite.cli.exit_status import TABLE, ExitStatus
from directsuite.cli.extras import require
from directsuite.cli.fax.app import app as fax
from directsuite.cli.groups import EPILOGUE, MAIL, OTHERS, SERVICES, TRYING
from directsuite.cli.mail.app import inbox, send, status
from directsuite.cli.options import Flag, named
from directsuite.cli.patient.app import app as patient
from directsuite.cli.sign.app import sign
from directsuite.cli.sync.app import app as sync
from directsuite.cli.usage import secret_among, wrong_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = Group("Where the state is kept", validator=mutually_exclusive)

app = App(
    name="directsuite",
    help="Secure health communication: PDF signing, fax status, Direct messaging, patients.",
    help_epilogue=f"""Where the services are stands in DIRECTSUITE_MESSAGE_URL and its sisters, or in the TOML file that
DIRECTSUITE_CONFIG names. Passwords and tokens come from a file, the environment, the keyring or a question on the
terminal: they are never arguments. Each command has a `--help` of its own.

Exit status:

{TABLE}
""",
    version=__version__,
    help_format="markdown",
    version_format="plaintext",  # quicker
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    group_commands=OTHERS,
)
app.command(send, group=MAIL, sort_key=1, help_epilogue=EPILOGUE)
app.command(inbox)
app.command(status, group=MAIL, sort_key=3, help_epilogue=EPILOGUE)
app.command(sync)
app.command(fax)
app.command(patient)
app.command(sign, group=SERVICES, sort_key=1, help_epilogue=EPILOGUE)
app.command(doctor, group=TRYING, sort_key=1, help_epilogue=EPILOGUE)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    if (sentence := secret_among(app, arguments)) is not None:
        return _refused(sentence)
    try:
        return int(app(arguments, exit_on_error=False, print_error=False) or 0)
    except CycloptsError as error:
        return _refused(wrong_usage(error))


def _refused(sentence: str) -> int:
    sys.stderr.write(f"directsuite: {sentence}\n")
    return ExitStatus.REFUSED


@app.command(name="--install-completion", group=OTHERS, help_epilogue=EPILOGUE)
def install_completion(
    *,
    shell: Literal["bash", "zsh", "fish", "powershell"] | None = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), converter=named)] = None,
) -> int:
    """Have the shell complete commands and options.

    Parameters
    ----------
    shell: str
        Which one; the one that runs the command, where nothing is given.
    output: Path
        The file for the script; where the shell looks for it, where nothing is given.
    """
    from directsuite.cli.completion import install

    return install(app, shell, output)


@app.command(group=TRYING, sort_key=3, help_epilogue=EPILOGUE)
def sandbox(
    *,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    host: str = "127.0.0.1",
    data: Annotated[Path | None, Parameter(group=_KEPT, converter=named)] = None,
    memory: Annotated[bool, Flag, Parameter(group=_KEPT)] = False,
    profile: Annotated[list[Literal["strict", "java", "attachment-list"]] | None, Parameter(negative="")] = None,
) -> int:
    """Run the four services on this machine, with demo content.

    It ends with Ctrl-C.

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
    profile: list
        Answer otherwise than the specification says, as some servers do; may be given several times.
    """
    from directsuite.cli.sandbox import serve

    return serve(host=host, port=port, data=data, memory=memory, profile=profile or "strict")


@app.command(group=TRYING, sort_key=2, help_epilogue=EPILOGUE)
def demo(
    *,
    output: Annotated[Path, Parameter(converter=named)] = Path("demo-output"),
    json: Annotated[bool, Flag] = False,
    messages: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 300,
    documents: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 12,
    faxes: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 35,
) -> int:
    """Use all four services against a sandbox, and check each.

    The sandbox is the demo's own. Exit status 0 says that everything held.

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
